-- The date in a time zone at a moment.
create or replace function fn_local_date(timezone text, at timestamptz) returns date
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select (fn_local_date.at at time zone public.fn_zone_name(fn_local_date.timezone))::date
$$;
revoke execute on function fn_local_date(text, timestamptz) from public;
grant execute on function fn_local_date(text, timestamptz)
  to authenticated, farmiq_service, farmiq_jobs;
