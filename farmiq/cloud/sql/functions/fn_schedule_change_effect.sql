-- What another schedule would do to a camera of the company that is looked at, and from when (C-71):
-- from the first midnight of its site, or of its company if it has none, whose day is not open yet.
-- Raises if there is no such camera or the schedule cannot be one.
create or replace function fn_schedule_change_effect(device_id uuid, new_wake_schedule_cron text)
returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
  camera record;
  open_session uuid;
  today date;
  zone_today text;
  effective date;
  takes_effect_at timestamptz;
  problem constant text := case
    when btrim(coalesce(fn_schedule_change_effect.new_wake_schedule_cron, '')) = ''
      then 'The schedule is missing: write five fields, such as 0 8,16 * * *.'
    else public.fn_cron_problem(fn_schedule_change_effect.new_wake_schedule_cron) end;
begin
  select d.device_name, d.site_id, d.is_active, d.wake_schedule_cron,
    coalesce(s.timezone, c.timezone) as timezone
  into camera
  from public.devices d
  join public.companies c on c.company_id = d.company_id
  left join public.sites s on s.site_id = d.site_id
  where d.device_id = fn_schedule_change_effect.device_id
    and d.company_id = public.get_active_company_id();
  if not found then
    raise exception 'your company has no camera %',
      coalesce(fn_schedule_change_effect.device_id::text, 'null') using errcode = 'no_data_found';
  elsif not camera.is_active then
    raise exception 'camera % is retired: its schedule stays', camera.device_name
      using errcode = 'object_not_in_prerequisite_state';
  elsif problem is not null then
    raise exception using errcode = 'invalid_parameter_value', message = problem;
  end if;
  select s.session_id, s.session_date, s.timezone into open_session, today, zone_today
  from public.site_device_sessions s
  where s.session_id = public.fn_session_at(camera.site_id, public.fn_calendar_now());
  zone_today := coalesce(zone_today, camera.timezone);
  today := coalesce(today, public.fn_local_date(zone_today, public.fn_calendar_now()));
  -- The newest day may have been opened in another zone and last longer.
  select greatest(today, max(s.session_date)) + 1,
    max(public.fn_midnight(s.timezone, s.session_date + 1))
  into effective, takes_effect_at
  from (
    select s.session_date, s.timezone from public.site_device_sessions s
    where s.site_id = camera.site_id order by s.session_date desc limit 1) s;
  takes_effect_at := greatest(takes_effect_at, public.fn_midnight(camera.timezone, effective));
  return jsonb_build_object(
    'device_id', fn_schedule_change_effect.device_id,
    'new_wake_schedule_cron', fn_schedule_change_effect.new_wake_schedule_cron,
    'effective_date', effective,
    'takes_effect_at', to_char(takes_effect_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
    'hours_from_now', round(extract(epoch from takes_effect_at - public.fn_calendar_now()) / 3600)::integer,
    'text', format('This change will take effect at midnight (%s from now)',
      public.fn_time_left(takes_effect_at - public.fn_calendar_now())),
    -- What an open day expects of the camera is settled; one that came later owes it nothing.
    'expected_today', case when open_session is null then (
      select count(*) from public.fn_wake_instants(
        camera.wake_schedule_cron, zone_today, today))
      else (select count(*) from public.expected_wakes w
        where w.session_id = open_session
          and w.device_id = fn_schedule_change_effect.device_id) end,
    'expected_tomorrow', (
      select count(*) from public.fn_wake_instants(
        fn_schedule_change_effect.new_wake_schedule_cron, camera.timezone, effective) w
      where w.expected_at >= takes_effect_at))
  || jsonb_strip_nulls(jsonb_build_object(
    'dst_note', public.fn_dst_note(camera.timezone, today, effective)));
end $$;
revoke execute on function fn_schedule_change_effect(uuid, text) from public;
grant execute on function fn_schedule_change_effect(uuid, text) to farmiq_jobs;
