-- How long something still takes, as a person says it: whole hours, below one minutes.
create or replace function fn_time_left(time_left interval) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case
    when m.minutes = 1 then '1 minute'
    when m.minutes < 60 then m.minutes || ' minutes'
    when m.hours = 1 then '1 hour'
    else m.hours || ' hours' end
  from (
    select greatest(1, round(extract(epoch from time_left) / 60)) as minutes,
      round(extract(epoch from time_left) / 3600) as hours) m
$$;
revoke execute on function fn_time_left(interval) from public;
grant execute on function fn_time_left(interval) to farmiq_jobs;
