-- The moment at which a local date begins: from then on it is never an earlier date again. Where the
-- clock skips midnight it is the moment of the skip; where it passes midnight twice and stays on the
-- new date, the first of the two, of which `at time zone` only knows the second.
create or replace function fn_midnight(timezone text, local_date date) returns timestamptz
language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
declare
  zone constant text := public.fn_zone_name(timezone);
  begins constant timestamptz := local_date::timestamp at time zone zone;
begin
  if ((begins - interval '1 microsecond') at time zone zone)::date < local_date then
    return begins;
  end if;
  return (
    select max(m.at) + interval '1 minute'
    from generate_series(begins - interval '3 hours', begins, interval '1 minute') m(at)
    where (m.at at time zone zone)::date < local_date);
end $$;
revoke execute on function fn_midnight(text, date) from public;
grant execute on function fn_midnight(text, date) to authenticated, farmiq_service, farmiq_jobs;
