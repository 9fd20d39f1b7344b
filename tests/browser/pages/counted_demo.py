# ruff: noqa: S608 - our own words make these queries
"""Figures of the demo's pages that its farm makes otherwise than the farms of the tests."""

from collections.abc import Iterable
from typing import Any

from farmiq.farm.alerts import defaults
from tests.browser.pages import counted_cameras
from tests.browser.pages.recount import Counted

_LATE = "occurred_at < now() - interval '20 seconds'"
# What a page of batches calls a problem, besides open alerts.
_BATCH_PROBLEMS = """
  select batch_id, 'behind' as problem from batches b where (select value / expected_value
    from kpi_daily k where k.batch_id = b.batch_id and kpi_type = 'weight_mean'
    order by kpi_date desc limit 1) <= 0.9
  union all
  select batch_id, 'mortality' from batches b where (select value / nullif(expected_value, 0)
    from kpi_daily k where k.batch_id = b.batch_id and kpi_type = 'mortality_pct'
    order by kpi_date desc limit 1) > 1.5
  union all
  select b.batch_id, 'withdrawal' from barn_events e join batches b using (farm_id, barn_id)
  where (e.occurred_at at time zone 'Asia/Bangkok')::date
    + (payload ->> 'withdrawal_days')::int > (now() at time zone 'Asia/Bangkok')::date"""
_OPEN = "from alert_episodes where state in ('active', 'acknowledged')"
# Expected wakes of today, of cameras that were there, and what came besides.
_OWED = """
  select s.site_id from expected_wakes e join site_device_sessions s on s.session_id = e.session_id
    and s.session_id = fn_session_at(s.site_id, fn_now())
  left join device_wake_payloads p on p.site_device_session_id = e.session_id
    and p.device_id = e.device_id and p.wake_window_index = e.wake_window_index
    and not p.overage_flag
  where p.payload_status = 'failed' or p.payload_id is null
    and e.expected_at + interval '10 minutes' <= fn_now() and e.expected_at >= (
      select min(assigned_at) from device_assignments a where a.device_id = e.device_id)
  union all
  select site_id from device_wake_payloads p
  where overage_flag and payload_status = 'failed'
    and site_device_session_id = fn_session_at(site_id, fn_now())"""
# Signs of one cause are one reason: of a barn's devices, of a batch, of a site.
_REASONS = f"""
  with silent as (
    select farm_id || '/' || barn_id as barn, count(distinct device_id) as devices,
      min(device_id) as device_id
    from telemetry_latest where {_LATE} group by 1
  ), silence as (
    select barn, case devices when 1 then device_id else barn end as cause from silent
  ), reasons as (
    select cause from silence
    union select batch_id || problem from ({_BATCH_PROBLEMS}) of_batches
    union select site_id::text from ({_OWED}) of_sites
    union select coalesce(
      case when is_absence then (select s.cause from silence s
        where s.barn = farm_id || '/' || barn_id) end,
      case split_part(cause, '|', 1)
        when 'rule:default.weight.behind' then batch_id || 'behind'
        when 'rule:default.mortality.standard' then batch_id || 'mortality' end,
      (select site_id::text from devices where 'camera:' || device_id = subject
        and split_part(cause, '|', 1) in ('camera:missed_wakes', 'camera:high_failure_rate',
          'camera:image_transmission_failed', 'camera:device_silent')),
      cause) {_OPEN} and severity <> 'info' and held_by is null
  )"""
# Of an edge's device its last word, unless something came after it; its late sensors; its silence.
_DEVICE_PROBLEMS = f"""
  select device_id from (
    select device_id,
      (select max(occurred_at) from telemetry_latest l where l.device_id = d.device_id) as reading,
      (select max(start_at) from weight_sessions w where w.device_id = d.device_id) as weighing,
      said.state, said.occurred_at as said_at
    from (select device_id from telemetry_latest union select device_id from weight_sessions
      union select device_id from device_events where device_id is not null) d
    left join lateral (select state, occurred_at from device_events e
      where e.device_id = d.device_id and state is not null
      order by occurred_at desc limit 1) said on true) of_edges
  where state = 'error'
    or state = 'offline' and coalesce(greatest(reading, weighing) <= said_at, true)
    or exists (select from telemetry_latest l where l.device_id = of_edges.device_id and {_LATE})
    or reading is null and greatest(weighing, said_at) < now() - interval '1 day'
  union all
  select device_id::text from devices d where is_active and last_seen_at is not null and (
    battery_voltage < 3.6
    or exists (select from device_images i where i.device_id = d.device_id and status = 'failed')
    or (select count(*) from expected_wakes e join site_device_sessions s using (session_id)
      where e.device_id = d.device_id and s.site_id = d.site_id and e.expected_at > greatest(
        last_seen_at, (select max(assigned_at) from device_assignments a
          where a.device_id = d.device_id))
        and e.expected_at < now() - interval '10 minutes') >= 2)"""
# The page was made a moment before it is counted; a weighing turns INCOMPLETE at its own moment.
_STATES = """
  select count(*) from generate_series(0, 20) ago, lateral (
    select case when w.status = 'cancelled' then 'cancelled'
        when w.heard_at < now() - interval '10 minutes' - ago * interval '1 second'
          and (w.final_weight_kg is null or m.images is distinct from w.image_count
            or m.images = 0 or not m.is_weighed) then 'INCOMPLETE'
        else w.status end as state
    from weight_sessions w, lateral (
      select count(*) filter (where event_type = 'weighvision.image.captured') as images,
        count(*) filter (where event_type = 'weighvision.weight.recorded') > 0 as is_weighed
      from weighvision_events e where e.session_id = w.session_id) m
    where split_part(%(key)s, '|', 1) = (w.start_at at time zone 'Asia/Bangkok')::date::text) s
  where split_part(%(key)s, '|', 2) in ('all', s.state) group by ago"""
_TODAY = """
  from expected_wakes e join site_device_sessions s on s.session_id = e.session_id
    and s.session_id = fn_session_at(s.site_id, fn_now())
  left join device_wake_payloads p on p.site_device_session_id = e.session_id
    and p.device_id = e.device_id and p.wake_window_index = e.wake_window_index
    and not p.overage_flag
  where s.site_id::text = %(key)s"""
_STATUS = """
  from device_events where device_id = split_part(%(key)s, '|', 2) and state is not null
  order by occurred_at desc limit 1"""
_ESTIMATE = """
  from inference_events where session_id::text = %(key)s order by occurred_at desc limit 1"""
# Of the same camera, of weighings that were estimated before, as far as the scale has a weight.
_RUNNING = """
  from inference_events me join inference_events o using (tenant_id, device_id)
    join weight_sessions w on w.session_id = o.session_id and w.final_weight_kg > 0
  where me.session_id::text = %(key)s and w.status = 'finalized'
    and o.predicted_weight_kg is not null and o.occurred_at <= me.occurred_at"""
_EDGE_RUNNING = """
  from inference_results r join vision_days d using (tenant_id, farm_id, barn_id, device_id)
  where r.session_id::text = %(key)s and d.version = r.model_version"""
_HEARD = """
  with week as (select (date_trunc('day', now() at time zone 'Asia/Bangkok')
    - interval '6 days') at time zone 'Asia/Bangkok' as begin_at), heard as (
    select distinct date_trunc('hour', at) as hour from week, lateral (
      select bucket_start_at as at from telemetry_agg where "window" = '1h'
        and device_id = split_part(%(key)s, '|', 2)
      union all select start_at from weight_sessions
        where device_id = split_part(%(key)s, '|', 2)) came
    where at >= begin_at)"""
_GAPS = {
    "sensor": f"""
        {_HEARD} select count(*) from generate_series((select min(hour) from heard),
          date_trunc('hour', now()) - interval '1 hour', interval '1 hour') hour
        where hour not in (select hour from heard)""",
    "station": f"""
        {_HEARD}, away as (
          select occurred_at as begin_at, lead(occurred_at) over (order by occurred_at) as end_at,
            state
          from device_events where device_id = split_part(%(key)s, '|', 2) and state is not null)
        select count(*) from week, generate_series(begin_at, now(), interval '1 hour') hour,
          least(hour + interval '1 hour', now()) as ends
        where hour not in (select hour from heard) and exists (select from away
          where state = 'offline' and away.begin_at < ends and coalesce(end_at >= ends, true))""",
}
# The program of the page, or all of them.
_OF_PROGRAM = """
  from expected_wakes e join site_device_sessions s using (session_id)
  left join device_wake_payloads p on p.site_device_session_id = e.session_id
    and p.device_id = e.device_id and p.wake_window_index = e.wake_window_index
  where {0}"""
_LEVELS = """(split_part(%(key)s, '|', 1) in ('total', 'company')
  or split_part(%(key)s, '|', 2) in (s.program_id::text, s.site_id::text, s.session_id::text,
    e.device_id::text)
  or s.program_id in (select program_id from pilot_programs
    where program_type = split_part(%(key)s, '|', 2)))"""


def _rules_on(connection: Any, _key: str, _address: str) -> Iterable[int]:
    ((own,),) = connection.execute(
        "select count(*) from alert_rules where coalesce((rule ->> 'enabled')::boolean, true)"
    ).fetchall()
    return [own + sum(rule.enabled for rule in defaults.DEFAULTS)]


def _hours_received(connection: Any, key: str, _address: str) -> Iterable[int]:
    """A sensor's hours with readings, a station's with weighings, a camera's by its wakes."""
    query = counted_cameras.QUERIES["device.hours_received"]
    if not key.startswith("camera|"):
        query = """
            with heard as (
              select device_id, bucket_start_at as at from telemetry_agg where "window" = '1h'
              union select device_id, start_at from weight_sessions)
            select count(distinct date_trunc('hour', at)) from heard
            where device_id = split_part(%(key)s, '|', 2) and at >= (date_trunc('day',
              now() at time zone 'Asia/Bangkok') - interval '6 days') at time zone 'Asia/Bangkok'"""
    return (row[0] for row in connection.execute(query.encode(), {"key": key}).fetchall())


def _hours_of_gaps(connection: Any, key: str, _address: str) -> Iterable[int]:
    """A sensor's hours without a reading since its first, a station's for which it was offline."""
    query = counted_cameras.QUERIES["device.hours_gap"]
    if not key.startswith("camera|"):
        query = _GAPS[key.partition("|")[0]]
    return (row[0] for row in connection.execute(query.encode(), {"key": key}).fetchall())


def _of_program(what: str) -> Counted:
    def counted(connection: Any, key: str, address: str) -> Iterable[Any]:
        path = address.partition("?")[0].removeprefix("/programs").strip("/")
        where = f"{_LEVELS} and (%(program)s = '' or s.program_id::text = %(program)s)"
        query = f"select {what} {_OF_PROGRAM.format(where)}"
        rows = connection.execute(query.encode(), {"key": key, "program": path}).fetchall()
        return (row[0] for row in rows)

    return counted


CLOUD: dict[str, Counted] = {
    "today.problems": f"{_REASONS} select count(*) from reasons",
    "today.hidden": f"{_REASONS} select count(*) - 7 from reasons",
    "batches.problems": f"""
        select count(*) from batches where closed_on is null and batch_id in (
          select batch_id from ({_BATCH_PROBLEMS}) p union select batch_id {_OPEN})""",
    "batch.alerts_of_day": """
        select count(*) from alert_episodes e join alert_episodes o using (batch_id, message)
        where e.episode_id::text = %(key)s and o.state <> 'withdrawn'
          and (o.opened_at at time zone 'Asia/Bangkok')::date
            = (e.opened_at at time zone 'Asia/Bangkok')::date""",
    "devices.problems": f"select count(*) from ({_DEVICE_PROBLEMS}) d",
    "device.hours_gap": _hours_of_gaps,
    "weighings.of_state": _STATES,
    "today.cameras": "select count(*) from devices where is_active and site_id::text = %(key)s",
    "today.received": f"""
        select count(*) filter (where p.payload_status = 'complete') {_TODAY}""",
    "today.later": f"""
        select count(*) filter (where p.image_id is null
          and e.expected_at + interval '10 minutes' > fn_now()) {_TODAY}""",
    "today.gained_kg": """
        with kg as (select kpi_date, value from kpi_daily
          where batch_id = %(key)s and kpi_type = 'weight_mean' and value is not null
            and kpi_date > (now() at time zone 'Asia/Bangkok')::date - 8)
        select (select value from kg order by kpi_date desc limit 1)
          - (select value from kg order by kpi_date limit 1)""",
    "today.pipeline.edges": """
        select count(*) from edge_heartbeats where received_at > now() - interval '3 minutes'""",
    "devices.matching": """
        select (select count(*) from (select device_id from telemetry_latest
          union select device_id from device_events where device_id is not null
          union select device_id from weight_sessions) d) + (select count(*) from devices)""",
    "device.backlog": f"""
        (select (payload ->> 'buffer_depth')::float8 {_STATUS})
        union all select pending_count from devices
        where device_id::text = split_part(%(key)s, '|', 2)""",
    "device.weighings": """
        select count(*) from weight_sessions where device_id = split_part(%(key)s, '|', 2)
          and start_at > now() - interval '7 days'""",
    "device.hours_received": _hours_received,
    "weighing.estimate_kg": f"select predicted_weight_kg {_ESTIMATE}",
    "weighing.confidence": f"select confidence {_ESTIMATE}",
    **{f"weighing.estimate_{name}": f"select (payload ->> '{name}')::float8 {_ESTIMATE}"
       for name in ("low_kg", "high_kg")},
    "weighing.n_train": f"select (payload ->> 'n_train')::float8 {_ESTIMATE}",
    "weighing.running_sessions": f"select count(*) {_RUNNING}",
    "weighing.running_error": f"""
        select avg(abs(o.predicted_weight_kg / w.final_weight_kg - 1)) {_RUNNING}""",
    "weighing.running_coverage": f"""
        select avg((w.final_weight_kg between (o.payload ->> 'low_kg')::float8
          and (o.payload ->> 'high_kg')::float8)::int) {_RUNNING}""",
    # One flock was counted by hand: its figure follows from that.
    "batch.head_count_now": """
        select value from kpi_daily where batch_id = %(key)s and kpi_type = 'head_count'
        order by kpi_date desc limit 1""",
    "alert.count": """
        select count(*) from alert_episodes where state = %(key)s
          and coalesce(resolved_at, now()) > now() - interval '30 days'""",
    "rule.on": _rules_on,
    "figures.sessions": _of_program("count(distinct e.session_id)"),
    "figures.expected": _of_program("count(*)"),
    "figures.completed": _of_program("count(*) filter (where p.payload_status = 'complete')"),
    # Each level is rounded to hundredths, what is compared by kind is not.
    "figures.temperature": _of_program(
        "unnest(array[round(avg(p.temperature::numeric), 2), avg(p.temperature)])"
    ),
    "figures.humidity": _of_program("round(avg(p.humidity::numeric), 2)"),
    "figures.percent": _of_program(
        "least(100, 100 * count(*) filter (where p.payload_status = 'complete') / count(*))"
    ),
}  # fmt: skip
# A reading is late at the edge after two heartbeats, or two of the minutes that its lines are of.
_EDGE_LATE = """
  select count(*) from telemetry_latest l join devices d using (tenant_id, device_id)
  where l.occurred_at < now() - 2 * greatest(d.heartbeat_s, 60) * interval '1 second'"""
_RESULT = "from inference_results where session_id::text = %(key)s"
EDGE: dict[str, Counted] = {
    "edge.readings.late": f"{_EDGE_LATE} and l.farm_id || '/' || l.barn_id = %(key)s",
    "edge.readings.problems": _EDGE_LATE,
    "weighing.estimate_kg": f"select predicted_weight_kg {_RESULT}",
    "weighing.estimate_low_kg": f"select low_kg {_RESULT}",
    "weighing.estimate_high_kg": f"select high_kg {_RESULT}",
    "weighing.confidence": f"select confidence {_RESULT}",
    "weighing.n_train": f"select n_train {_RESULT}",
    "weighing.running_sessions": f"select sum(d.sessions) {_EDGE_RUNNING}",
    "weighing.running_error": f"select sum(d.error_sum) / sum(d.sessions) {_EDGE_RUNNING}",
    "weighing.running_coverage": f"""
        select sum(d.covered)::float8 / sum(d.intervals) {_EDGE_RUNNING}""",
}
