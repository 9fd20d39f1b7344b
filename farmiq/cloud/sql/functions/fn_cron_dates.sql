-- The dates of a schedule (fn_cron_schedule) from one date to another, both included, in order.
create or replace function fn_cron_dates(
  days integer[], months integer[], weekdays integer[], both_days boolean,
  first_date date, last_date date)
returns setof date
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  with days_of_calendar as (
    select d.at::date as day, extract(day from d.at)::integer as dom,
      extract(isodow from d.at)::integer as dow, e.last, extract(day from e.last)::integer as last_dom
    from generate_series(first_date::timestamp, last_date::timestamp, interval '1 day') d(at),
      lateral (select (date_trunc('month', d.at) + interval '1 month - 1 day')::date as last) e
    where extract(month from d.at)::integer = any (months)
  ), matched as (
    select c.day,
      c.dom = any (days)
        or (1000 = any (days) and c.day = c.last)
        or (1001 = any (days)
          and c.day = c.last - greatest(extract(isodow from c.last)::integer - 5, 0)) as by_month,
      array[c.dow, c.dow % 7, 100 * ((c.dom + 6) / 7) + c.dow, 100 * ((c.dom + 6) / 7) + c.dow % 7]
        && weekdays
        or (c.dom + 7 > c.last_dom and array[900 + c.dow, 900 + c.dow % 7] && weekdays) as by_week
    from days_of_calendar c
  )
  select m.day from matched m
  where case when both_days then m.by_month and m.by_week else m.by_month or m.by_week end
  order by m.day
$$;
revoke execute on function fn_cron_dates(integer[], integer[], integer[], boolean, date, date)
  from public;
grant execute on function fn_cron_dates(integer[], integer[], integer[], boolean, date, date)
  to authenticated, farmiq_service, farmiq_jobs;
