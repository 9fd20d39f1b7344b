-- When cameras are told to wake next (C-118): the first scheduled instant that is later than now and
-- min_seconds, and than every window that a wake of the camera was counted for already; null without
-- one. With spread_seconds each camera has a share of that time, always the same, and wakes so much
-- later: at most a quarter of the way to its next window or to the end of the day, so that the wake, also
-- a late one, counts for its own window. Cameras of one site and schedule wake together: that is computed
-- once for all of them, except those with a change that waits.
create or replace function fn_wakes_to_tell(
  device_ids uuid[], min_seconds double precision, spread_seconds double precision)
returns table (device_id uuid, wake_at timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  -- Materialized: the time would be asked for again wherever it is mentioned.
  with clock as materialized (
    select public.fn_now() as now, public.fn_calendar_now() as calendar_now
  ), heard as materialized (
    -- While the clock counts as wrong (fn_calendar_now), the camera itself may know better.
    select d.device_id, d.company_id, d.site_id, d.wake_schedule_cron, d.is_active,
      case when c.calendar_now = c.now or exists (
        select from public.device_wake_payloads p
        where p.device_id = d.device_id and not p.clock_suspect
          and p.captured_at between c.now - interval '1 hour' and c.now + interval '10 minutes')
      then c.now else c.calendar_now end as moment
    from clock c, public.devices d
    where d.device_id = any (fn_wakes_to_tell.device_ids)
  ), camera as (
    -- A wake counts for a window at most an hour ahead of it, by a clock at most ten minutes ahead:
    -- what lies further was counted by a clock that was wrong.
    select h.*, greatest(s.since, (
        select max(e.expected_at) from public.expected_wakes e
        where e.device_id = h.device_id and e.expected_at > s.since
          and e.expected_at <= h.moment + interval '70 minutes'
          and exists (
            select from public.device_wake_payloads p
            where p.site_device_session_id = e.session_id and p.device_id = e.device_id
              and p.wake_window_index = e.wake_window_index and not p.overage_flag))) as since,
      exists (
        select from public.device_schedule_changes w
        where w.device_id = h.device_id and w.applied_at is null and w.superseded_at is null
          and w.cancelled_at is null) as changes
    from heard h,
      lateral (select h.moment + make_interval(secs => fn_wakes_to_tell.min_seconds)) s(since)
  ), alike as (
    select array_agg(c.device_id) as members, c.company_id, c.site_id, c.since
    from camera c
    group by c.company_id, c.site_id, c.wake_schedule_cron, c.is_active, c.since,
      case when c.changes then c.device_id end
  ), told as materialized (
    select a.*, public.fn_device_next_wake(a.members[1], a.since) as wake_at from alike a
  ), room as materialized (
    select t.members, t.wake_at,
      case when fn_wakes_to_tell.spread_seconds > 0 and t.wake_at is not null then
        least(fn_wakes_to_tell.spread_seconds, extract(epoch from least(
          public.fn_device_next_wake(t.members[1], t.wake_at),
          public.fn_midnight(coalesce(s.timezone, c.timezone),
            public.fn_local_date(coalesce(s.timezone, c.timezone), t.wake_at) + 1))
          - t.wake_at) / 4) else 0 end as seconds
    from told t
    join public.companies c on c.company_id = t.company_id
    left join public.sites s on s.site_id = t.site_id
  )
  select m.device_id, r.wake_at + make_interval(secs => floor(
    ((hashtextextended(m.device_id::text, 0) & 65535) / 65536.0)::double precision * r.seconds))
  from room r, unnest(r.members) m(device_id)
$$;
revoke execute on function fn_wakes_to_tell(uuid[], double precision, double precision) from public;
grant execute on function fn_wakes_to_tell(uuid[], double precision, double precision)
  to farmiq_service, farmiq_jobs;
