-- What somebody should look at after a day (FN-03, C-74): a camera that missed more than two of its
-- expected wakes, more than 30 % of the day's images failed, a camera whose last reading of the day
-- was below 3.6 V.
create or replace function fn_day_alerts(session_id uuid)
returns table (alert_type text, device_id uuid, message text, details jsonb)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select 'missed_wakes', d.device_id,
    format('%s missed %s of %s expected wakes', d.device_name, m.missed, m.missed + m.taken),
    jsonb_build_object('missed', m.missed, 'expected', m.missed + m.taken)
  from (
    select e.device_id, count(p.payload_id) as taken,
      count(*) filter (where p.payload_id is null and a.device_id is not null) as missed
    from public.expected_wakes e
    join public.site_device_sessions s on s.session_id = e.session_id
    join public.sites o on o.site_id = s.site_id
    join public.pilot_programs g on g.program_id = o.program_id
    -- What a day expects stays, but nobody missed what a camera owed where it did not stand, or
    -- before the site was in use again.
    left join public.device_assignments a on a.device_id = e.device_id and a.site_id = s.site_id
      and a.assigned_at <= e.expected_at and coalesce(a.ended_at > e.expected_at, true)
      and (public.fn_local_date(s.timezone, greatest(o.active_since, g.active_since))
          is distinct from s.session_date
        or e.expected_at >= greatest(o.active_since, g.active_since))
    left join public.device_wake_payloads p on p.site_device_session_id = e.session_id
      and p.device_id = e.device_id and p.wake_window_index = e.wake_window_index
      and not p.overage_flag
    where e.session_id = fn_day_alerts.session_id
    group by e.device_id) m
  join public.devices d on d.device_id = m.device_id
  where m.missed > 2 and d.is_active
  union all
  select 'high_failure_rate', null,
    format('%s of %s images failed', s.failed_wake_count,
      s.completed_wake_count + s.failed_wake_count),
    jsonb_build_object('failed', s.failed_wake_count, 'completed', s.completed_wake_count)
  from public.site_device_sessions s
  where s.session_id = fn_day_alerts.session_id
    and 10 * s.failed_wake_count > 3 * (s.completed_wake_count + s.failed_wake_count)
  union all
  select 'low_battery', d.device_id,
    format('%s had %s V at its last wake', d.device_name, b.battery_voltage),
    jsonb_build_object('battery_voltage', b.battery_voltage)
  from (
    select distinct on (p.device_id) p.device_id, p.battery_voltage
    from public.device_wake_payloads p
    where p.site_device_session_id = fn_day_alerts.session_id and p.battery_voltage is not null
    -- A camera whose clock is wrong does not know when it was last.
    order by p.device_id, case when p.clock_suspect then p.created_at else p.captured_at end desc,
      p.created_at desc) b
  join public.devices d on d.device_id = b.device_id
  where b.battery_voltage < 3.6
$$;
revoke execute on function fn_day_alerts(uuid) from public;
grant execute on function fn_day_alerts(uuid) to farmiq_jobs;
