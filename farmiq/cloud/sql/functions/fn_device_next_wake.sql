-- When a camera is to wake next: today by its schedule, from the midnight of a change that waits by
-- that one (C-71). After now, unless told otherwise; null if it is retired or has no schedule. A day
-- that was opened in another zone than the site has by now goes on in that one.
create or replace function fn_device_next_wake(
  device_id uuid, after timestamptz default null) returns timestamptz
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  since timestamptz := coalesce(fn_device_next_wake.after, public.fn_calendar_now());
  camera record;
  day record;
  found timestamptz;
begin
  select d.site_id, d.wake_schedule_cron, coalesce(s.timezone, c.timezone) as timezone into camera
  from public.devices d
  join public.companies c on c.company_id = d.company_id
  left join public.sites s on s.site_id = d.site_id
  where d.device_id = fn_device_next_wake.device_id and d.is_active;
  if camera.timezone is null then
    return null;
  end if;
  select s.timezone, public.fn_midnight(s.timezone, s.session_date + 1) as ends_at into day
  from public.site_device_sessions s
  where s.session_id = public.fn_session_at(camera.site_id, since);
  if day.timezone <> camera.timezone then
    found := public.fn_next_wake(camera.wake_schedule_cron, day.timezone, since);
    if found < day.ends_at then
      return found;
    end if;
    since := day.ends_at - interval '1 microsecond';
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
      greatest(since, p.at - interval '1 microsecond')) as wake_at
    offset 0) w  -- computed once, not for each mention
  where p.ends_at > since and w.wake_at < p.ends_at;
  return found;
end $$;
revoke execute on function fn_device_next_wake(uuid, timestamptz) from public;
grant execute on function fn_device_next_wake(uuid, timestamptz)
  to authenticated, farmiq_service, farmiq_jobs;
