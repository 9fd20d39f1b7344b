# ruff: noqa: S608 - our own words make these queries
"""The figures of pages about sites, cameras and programs, counted again by SQL."""

# Each expected wake of a session, or of a camera on a day, with its state.
_WAKES = """
with wake as (
  select e.expected_at, case
    when p.payload_status = 'complete' then 'received'
    when p.payload_status = 'pending' then 'receiving'
    when p.payload_status = 'failed' then 'failed'
    when e.expected_at + interval '10 minutes' > fn_now() then 'due'
    when d.pending_count = 0 and d.last_seen_at > e.expected_at + interval '1 hour' then 'lost'
    else 'overdue' end as state
  from expected_wakes e
  join site_device_sessions s on s.session_id = e.session_id
  join devices d on d.device_id = e.device_id
  left join device_wake_payloads p on p.site_device_session_id = e.session_id
    and p.device_id = e.device_id and p.wake_window_index = e.wake_window_index
    and not p.overage_flag
  where s.session_id::text = %(key)s or e.device_id || '|' || s.session_date = %(key)s
), extra as (
  select p.payload_status from device_wake_payloads p
  join site_device_sessions s on s.session_id = p.site_device_session_id
  where p.overage_flag
    and (s.session_id::text = %(key)s or p.device_id || '|' || s.session_date = %(key)s)
)
"""
_PAYLOADS = """
  from device_wake_payloads p
  join site_device_sessions s on s.session_id = p.site_device_session_id
  where s.session_id::text = %(key)s or p.device_id || '|' || s.session_date = %(key)s
"""
# The wakes of a row: its level, or all, and its id.
_FIGURES = """
with s as (select * from site_device_sessions
  where session_date >= fn_local_date('Asia/Bangkok', fn_now()) - 30),
 p as (select p.*, p.site_device_session_id as session_id, g.program_type
  from device_wake_payloads p
  join pilot_programs g on g.program_id = p.program_id
  where site_device_session_id in (select session_id from s)),
 e as (select e.*, s.program_id, s.site_id, g.program_type from expected_wakes e
  join s on s.session_id = e.session_id join pilot_programs g on g.program_id = s.program_id),
 named as (select split_part(%(key)s, '|', 1) as level, split_part(%(key)s, '|', 2) as id)
"""
_OF_ROW = """
 named n where n.level = 'total' or n.level = 'company'
  or n.level = 'kind' and {0}.program_type = n.id
  or n.level = 'program' and {0}.program_id::text = n.id
  or n.level = 'site' and {0}.site_id::text = n.id
  or n.level = 'session' and {0}.session_id::text = n.id
  or n.level = 'device' and {0}.device_id::text = n.id
"""
_CAMERA = "from devices where device_id::text in (%(key)s, split_part(%(key)s, '|', 2))"
# One dish is measured in these tests. The rising curve nearest to it is at each time the largest,
# over all earlier times, of the smallest median from there to a later one.
_CURVE = """
with measured as (
  select device_id, observed_at, covered_change as change,
    row_number() over (order by observed_at) as n
  from petri_observations where covered_change is not null and covered_quality >= 0.5
), medians as (
  select a.n as first, b.n as last, (select percentile_cont(0.5) within group (order by change)
    from measured where n between a.n and b.n) as median
  from measured a join measured b on a.n <= b.n
), least_medians as (
  select m.n, first, min(median) as median from measured m
  join medians on m.n between first and last group by 1, 2
), curve as (
  select m.device_id, m.observed_at, least(1, greatest(0, max(median))) as change
  from measured m join least_medians using (n) group by 1, 2
)
"""
_LAST_CHANGE = f"""
  {_CURVE} select change from curve where device_id::text = %(key)s
  order by observed_at desc limit 1
"""
_WEEK_HOURS = """
with wake as (
  select date_trunc('hour', coalesce(e.expected_at, p.captured_at)) as hour, case
    when p.payload_status is not null then p.payload_status
    when a.first_at > e.expected_at then 'before it came'
    when e.expected_at + interval '10 minutes' > fn_now() then 'due'
    when d.pending_count = 0 and d.last_seen_at > e.expected_at + interval '1 hour' then 'lost'
    else 'overdue' end as state
  from expected_wakes e
  left join (select device_id, min(assigned_at) as first_at from device_assignments group by 1) a
    on a.device_id = e.device_id
  full join device_wake_payloads p on p.site_device_session_id = e.session_id
    and p.device_id = e.device_id and p.wake_window_index = e.wake_window_index
    and not p.overage_flag
  join devices d on d.device_id = coalesce(e.device_id, p.device_id)
  where coalesce(e.device_id, p.device_id)::text = split_part(%(key)s, '|', 2)
    and coalesce(e.expected_at, p.captured_at) >= fn_midnight('Asia/Bangkok',
      fn_local_date('Asia/Bangkok', fn_now()) - 6)
), hours as (select hour, array_agg(state) as states from wake group by 1)
"""
QUERIES: dict[str, str] = {
    **{
        f"wakes.{state}": f"{_WAKES} select count(*) from wake where state = '{state}'"
        for state in ("received", "receiving", "failed", "due", "overdue", "lost")
    },
    "wakes.later": f"{_WAKES} select count(*) from wake where state = 'due'",
    "wakes.due_so_far": f"{_WAKES} select count(*) from wake where state <> 'due'",
    "wakes.extra": f"{_WAKES} select count(*) from extra",
    "wakes.extra_failed": f"{_WAKES} select count(*) from extra where payload_status = 'failed'",
    "session.expected": "select count(*) from expected_wakes where session_id::text = %(key)s",
    "session.completed": f"select count(*) filter (where payload_status = 'complete') {_PAYLOADS}",
    "session.failed": f"select count(*) filter (where payload_status = 'failed') {_PAYLOADS}",
    "session.extra": f"select count(*) filter (where overage_flag) {_PAYLOADS}",
    "session.percent": """
        select least(100, 100 * (select count(*) from device_wake_payloads
            where site_device_session_id::text = %(key)s and payload_status = 'complete')
          / (select count(*) from expected_wakes where session_id::text = %(key)s))""",
    "camera.received": f"select count(*) filter (where payload_status = 'complete') {_PAYLOADS}",
    "camera.failed": f"select count(*) filter (where payload_status = 'failed') {_PAYLOADS}",
    "camera.expected": f"{_WAKES} select count(*) from wake",
    "camera.battery_v": f"select battery_voltage {_CAMERA}",
    "camera.signal_dbm": f"select wifi_rssi {_CAMERA}",
    "camera.pending": f"select pending_count {_CAMERA}",
    "device.battery_v": f"select battery_voltage {_CAMERA}",
    "device.signal_dbm": f"select wifi_rssi {_CAMERA}",
    "device.backlog": f"select pending_count {_CAMERA}",
    "site.cameras": "select count(*) from devices where is_active and site_id::text = %(key)s",
    "site.cameras_shown": """
        select count(*) from devices where site_id::text = split_part(%(key)s, '|', 1)""",
    "site.problems": """
        select count(*) from (
          select 1 from expected_wakes e
          join site_device_sessions s on s.session_id = e.session_id
          join devices d on d.device_id = e.device_id
          left join device_wake_payloads p on p.site_device_session_id = e.session_id
            and p.device_id = e.device_id and p.wake_window_index = e.wake_window_index
            and not p.overage_flag
          where s.site_id || '|' || s.session_date = %(key)s and (p.payload_status = 'failed'
            or p.image_id is null and e.expected_at + interval '10 minutes' <= fn_now())
          union all
          select 1 from device_wake_payloads p
          join site_device_sessions s on s.session_id = p.site_device_session_id
          where p.overage_flag and p.payload_status = 'failed'
            and s.site_id || '|' || s.session_date = %(key)s) problems""",
    "sites.attention": """
        select count(distinct s.site_id) from site_device_sessions s
        join expected_wakes e on e.session_id = s.session_id
        left join device_wake_payloads p on p.site_device_session_id = e.session_id
          and p.device_id = e.device_id and p.wake_window_index = e.wake_window_index
          and not p.overage_flag
        where s.status <> 'locked' and %(key)s = '' and (p.payload_status = 'failed'
          or p.image_id is null and e.expected_at + interval '10 minutes' <= fn_now())""",
    "devices.matching": "select count(*) from devices where %(key)s = 'all'",
    "devices.problems": """
        select count(*) from devices d where d.is_active and %(key)s = '' and (
          d.battery_voltage < 3.6
          or exists (select from device_images i where i.device_id = d.device_id
            and i.status = 'failed')
          or d.last_seen_at is not null and (select count(*) from expected_wakes e
            where e.device_id = d.device_id and e.expected_at > d.last_seen_at
              and e.expected_at < fn_now() - interval '10 minutes') >= 2)""",
    "device.hours_received": f"""
        {_WEEK_HOURS} select count(*) from hours
        where 'complete' = any(states)
          and not states && array['lost', 'failed', 'overdue', 'pending']""",
    "device.hours_gap": f"""
        {_WEEK_HOURS} select count(*) from hours
        where 'overdue' = any(states) and not states && array['lost', 'failed']""",
    "device.hours_failed": f"""
        {_WEEK_HOURS} select count(*) from hours
        where 'failed' = any(states) and not states && array['lost']""",
    "device.hours_lost": f"{_WEEK_HOURS} select count(*) from hours where 'lost' = any(states)",
    "device.battery.line": """
        select battery_voltage from device_wake_payloads
        where date_trunc('second', captured_at) = %(key)s::timestamptz
          and battery_voltage is not null""",
    "device.signal.line": """
        select wifi_rssi from device_wake_payloads
        where date_trunc('second', captured_at) = %(key)s::timestamptz
          and wifi_rssi is not null""",
    "site.dishes": """
        select count(distinct device_id) from dish_series where site_id::text = %(key)s""",
    "dish.change": _LAST_CHANGE,
    "dish.shade": _LAST_CHANGE,
    "dish.growth.points": """
        select round(100 * covered_change::numeric, 2) from petri_observations
        where date_trunc('second', observed_at) = %(key)s::timestamptz""",
    "dish.growth.line": f"""
        {_CURVE} select round(100 * change::numeric, 2) from curve
        where date_trunc('second', observed_at) = %(key)s::timestamptz""",
    "programs.total": "select count(*) from pilot_programs where %(key)s = ''",
    "program.sites": "select count(*) from sites where program_id::text = %(key)s",
    "kind.programs": "select count(*) from pilot_programs where program_type = %(key)s",
    "kind.sites": """
        select count(*) from sites join pilot_programs using (program_id)
        where program_type = %(key)s""",
    "kind.completed_a_day": """
        select sum(completed_wake_count)::float8 / count(*) from site_device_sessions
        join pilot_programs using (program_id) where program_type = %(key)s
          and session_date >= fn_local_date('Asia/Bangkok', fn_now()) - 30""",
    "figures.sessions": f"""
        {_FIGURES} select count(distinct e.session_id) from e, {_OF_ROW.format("e")}""",
    "figures.expected": f"{_FIGURES} select count(*) from e, {_OF_ROW.format('e')}",
    "figures.completed": f"""
        {_FIGURES} select count(*) filter (where payload_status = 'complete')
        from p, {_OF_ROW.format("p")}""",
    "figures.failed": f"""
        {_FIGURES} select count(*) filter (where payload_status = 'failed')
        from p, {_OF_ROW.format("p")}""",
    "figures.extra": f"""
        {_FIGURES} select count(*) filter (where overage_flag) from p, {_OF_ROW.format("p")}""",
    "figures.percent": f"""
        {_FIGURES} select least(100, 100 * (select count(*) filter (
            where payload_status = 'complete') from p, {_OF_ROW.format("p")})
          / (select count(*) from e, {_OF_ROW.format("e")}))""",
    "programs.complete.line": """
        select least(100, round(100.0 * sum(completed_wake_count) / sum(expected_wake_count), 2))
        from site_device_sessions join pilot_programs using (program_id)
        where status = 'locked'
          and session_date = (%(key)s::timestamptz at time zone 'UTC')::date
        group by program_type""",
}
