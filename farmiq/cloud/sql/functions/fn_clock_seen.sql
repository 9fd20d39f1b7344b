-- Whether the calendar has seen the clock as it goes now: it looks every minute, so a clock that is
-- more than an hour from its last look has jumped just now, or the calendar is off. Where it never ran
-- there is nothing to compare with.
create or replace function fn_clock_seen() returns boolean
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select not exists (
    select from public.calendar_clock c, (select public.fn_now() as at) n
    where n.at not between c.looked_at - interval '1 hour' and c.looked_at + interval '1 hour')
$$;
revoke execute on function fn_clock_seen() from public;
grant execute on function fn_clock_seen() to farmiq_jobs;
