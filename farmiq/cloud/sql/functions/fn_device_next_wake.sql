-- When a camera is to wake next: today by its schedule, from the midnight of a change that waits by
-- that one (C-71). After now, unless told otherwise; null if it is retired or has no schedule.
create or replace function fn_device_next_wake(
  device_id uuid, after timestamptz default null) returns timestamptz
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  since constant timestamptz := coalesce(fn_device_next_wake.after, public.fn_now());
  camera record;
  found timestamptz;
begin
  select d.wake_schedule_cron, coalesce(s.timezone, c.timezone) as timezone into camera
  from public.devices d
  join public.companies c on c.company_id = d.company_id
  left join public.sites s on s.site_id = d.site_id
  where d.device_id = fn_device_next_wake.device_id and d.is_active;
  if camera.timezone is null then
    return null;
  end if;
  with waiting as (
    select c.effective_date, c.new_wake_schedule_cron, c.requested_at, c.position
    from public.device_schedule_changes c
    where c.device_id = fn_device_next_wake.device_id
      and c.applied_at is null and c.superseded_at is null and c.cancelled_at is null
  ), starts as (
    select '-infinity'::timestamptz as at, camera.wake_schedule_cron as schedule
    union all (
      select distinct on (w.effective_date) public.fn_midnight(camera.timezone, w.effective_date),
        n.new_wake_schedule_cron
      from waiting w join waiting n on n.effective_date <= w.effective_date
      order by w.effective_date, n.requested_at desc, n.position desc)
  ), spans as (
    select s.at, s.schedule, lead(s.at, 1, 'infinity') over (order by s.at) as ends_at
    from starts s
  )
  select min(w.wake_at) into found
  from spans p, lateral (
    select public.fn_next_wake(p.schedule, camera.timezone,
      greatest(since, p.at - interval '1 microsecond')) as wake_at) w
  where p.ends_at > since and w.wake_at < p.ends_at;
  return found;
end $$;
revoke execute on function fn_device_next_wake(uuid, timestamptz) from public;
grant execute on function fn_device_next_wake(uuid, timestamptz)
  to authenticated, farmiq_service, farmiq_jobs;
