-- Makes the session of a site and date with the wakes it expects, unless there is one; its id.
-- Call it under fn_lock_site, the changes of the date applied or waiting for its midnight. Expected on
-- a date that is not over are the active cameras that stand there; on one that is over, those that
-- stood there first on that date, unless they are retired and were not seen since. Nothing is expected
-- of a camera before it was put there (C-120): the day of an image of such a time expects what the
-- others owed then, or nothing.
-- Hours that another day has already, opened when the site had another zone, stay that day's.
create or replace function fn_open_day(site_id uuid, local_date date, config_changed boolean)
returns uuid
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  site record;
  is_over boolean;
  begins timestamptz;
  ends timestamptz;
begin
  select s.company_id, s.program_id, s.timezone into strict site
  from public.sites s where s.site_id = fn_open_day.site_id;
  is_over := fn_open_day.local_date < public.fn_local_date(site.timezone, public.fn_calendar_now());
  begins := public.fn_midnight(site.timezone, fn_open_day.local_date);
  ends := public.fn_midnight(site.timezone, fn_open_day.local_date + 1);
  with cameras as (
    select d.device_id, coalesce(w.new_wake_schedule_cron, d.wake_schedule_cron) as schedule,
      w.change_id is not null as will_change, a.assigned_at
    from public.devices d
    join public.device_assignments a on a.device_id = d.device_id and a.ended_at is null
    left join lateral (
      select c.change_id, c.new_wake_schedule_cron from public.device_schedule_changes c
      where c.device_id = d.device_id and c.effective_date <= fn_open_day.local_date
        and c.applied_at is null and c.superseded_at is null and c.cancelled_at is null
      order by c.requested_at desc, c.position desc limit 1) w on true
    where not is_over and d.site_id = fn_open_day.site_id and d.is_active
    union all
    select f.device_id, public.fn_schedule_on(f.device_id, fn_open_day.local_date), false,
      f.assigned_at
    from (
      select distinct on (a.device_id) a.device_id, a.site_id, a.assigned_at
      from public.device_assignments a
      where is_over
        and a.device_id in (
          select b.device_id from public.device_assignments b
          where b.site_id = fn_open_day.site_id)
        and a.assigned_at < ends and coalesce(a.ended_at > begins, true)
      order by a.device_id, a.assigned_at) f
    join public.devices d on d.device_id = f.device_id
    where f.site_id = fn_open_day.site_id and (d.is_active or d.last_seen_at >= begins)
  ), wakes as materialized (
    -- Many cameras of a site have one schedule: it is reckoned once.
    select c.device_id, w.wake_window_index, w.expected_at
    from (select distinct schedule from cameras) s
    cross join public.fn_wake_instants(s.schedule, site.timezone, fn_open_day.local_date) w
    join cameras c on c.schedule = s.schedule
    where w.expected_at >= c.assigned_at
      and not exists (
        select from public.site_device_sessions o
        where o.site_id = fn_open_day.site_id and o.timezone <> site.timezone
          and o.session_date between fn_open_day.local_date - 2 and fn_open_day.local_date + 2
          and o.session_date = public.fn_local_date(o.timezone, w.expected_at))
  ), made as (
    insert into public.site_device_sessions (session_id, company_id, program_id, site_id,
      session_date, timezone, expected_wake_count, config_changed_flag, opened_at)
    select public.fn_uuid_v7(), site.company_id, site.program_id, fn_open_day.site_id,
      fn_open_day.local_date, site.timezone, count(*),
      fn_open_day.config_changed or exists (select from cameras c where c.will_change),
      public.fn_calendar_now()
    from wakes
    on conflict on constraint site_device_sessions_site_date_key do nothing
    returning session_id
  )
  insert into public.expected_wakes (session_id, device_id, company_id, wake_window_index,
    expected_at)
  select m.session_id, w.device_id, site.company_id, w.wake_window_index, w.expected_at
  from made m, wakes w;
  return (
    select s.session_id from public.site_device_sessions s
    where s.site_id = fn_open_day.site_id and s.session_date = fn_open_day.local_date);
end $$;
revoke execute on function fn_open_day(uuid, date, boolean) from public;
grant execute on function fn_open_day(uuid, date, boolean) to farmiq_jobs;
