-- What is wrong with a cron expression, and where, as a sentence; null if it may be used, and for null.
create or replace function fn_cron_problem(cron_expression text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select s.problem from public.fn_cron_schedule(fn_cron_problem.cron_expression) s
$$;
revoke execute on function fn_cron_problem(text) from public;
grant execute on function fn_cron_problem(text) to authenticated, farmiq_service, farmiq_jobs;
