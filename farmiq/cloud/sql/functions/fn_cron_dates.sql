-- The dates of a schedule (fn_cron_schedule) from one date to another, both included, in order.
create or replace function fn_cron_dates(
  days integer[], months integer[], weekdays integer[], both_days boolean,
  first_date date, last_date date)
returns setof date
language plpgsql immutable parallel safe
rows 8
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Simple expressions: a query over the calendar costs ten times as much for a day or two.
  at date := first_date;
  month_ends date;
  dom integer;
  dow integer;
  by_month boolean;
  by_week boolean;
begin
  while at <= last_date loop
    if extract(month from at)::integer = any (months) then
      dom := extract(day from at);
      dow := extract(isodow from at);
      month_ends := (date_trunc('month', at::timestamp) + interval '1 month - 1 day')::date;
      by_month := dom = any (days)
        or (1000 = any (days) and at = month_ends)
        or (1001 = any (days)
          and at = month_ends - greatest(extract(isodow from month_ends)::integer - 5, 0));
      by_week :=
        array[dow, dow % 7, 100 * ((dom + 6) / 7) + dow, 100 * ((dom + 6) / 7) + dow % 7] && weekdays
        or (at + 7 > month_ends and array[900 + dow, 900 + dow % 7] && weekdays);
      if by_month and by_week or not both_days and (by_month or by_week) then
        return next at;
      end if;
    end if;
    at := at + 1;
  end loop;
end $$;
revoke execute on function fn_cron_dates(integer[], integer[], integer[], boolean, date, date)
  from public;
grant execute on function fn_cron_dates(integer[], integer[], integer[], boolean, date, date)
  to authenticated, farmiq_service, farmiq_jobs;
