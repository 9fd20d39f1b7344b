-- Whether a day that is open has not begun, not even for a camera whose clock is ten minutes ahead:
-- a clock that was wrong opened it.
create or replace function fn_is_early(timezone text, session_date date) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select public.fn_midnight(fn_is_early.timezone, fn_is_early.session_date)
    > public.fn_calendar_now() + interval '15 minutes'
$$;
revoke execute on function fn_is_early(text, date) from public;
grant execute on function fn_is_early(text, date) to farmiq_jobs;
