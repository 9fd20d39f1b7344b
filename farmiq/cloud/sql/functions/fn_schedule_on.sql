-- The schedule by which a camera woke on a date that is over: of the newest change applied until
-- then, or the one that the first change after it replaced, or the camera's own.
create or replace function fn_schedule_on(device_id uuid, local_date date) returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    when before.change_id is not null then before.new_wake_schedule_cron
    when after.change_id is not null then after.previous_wake_schedule_cron
    else d.wake_schedule_cron end
  from public.devices d
  left join lateral (
    select c.change_id, c.new_wake_schedule_cron from public.device_schedule_changes c
    where c.device_id = d.device_id and c.applied_at is not null
      and c.effective_date <= local_date
    order by c.effective_date desc, c.requested_at desc, c.position desc limit 1) before on true
  left join lateral (
    select c.change_id, c.previous_wake_schedule_cron from public.device_schedule_changes c
    where c.device_id = d.device_id and c.applied_at is not null
      and c.effective_date > local_date
    order by c.effective_date, c.requested_at, c.position limit 1) after on true
  where d.device_id = fn_schedule_on.device_id
$$;
revoke execute on function fn_schedule_on(uuid, date) from public;
grant execute on function fn_schedule_on(uuid, date) to farmiq_jobs;
