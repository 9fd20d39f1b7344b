-- What is wrong with a wake schedule, in a sentence, or null.
create or replace function fn_cron_problem(cron_expression text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case when cron_expression !~ '^\S+( \S+){4}$' then 'a schedule has five fields' end
$$;
revoke execute on function fn_cron_problem(text) from public;
grant execute on function fn_cron_problem(text) to authenticated, farmiq_service, farmiq_jobs;
