# ruff: noqa: S608 - our own words make these queries
"""The figures of Today, telemetry, devices and weighings, counted again by SQL."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.browser.pages.recount import Counted

_OF_DAY = """
with w as (
  select * from weight_sessions
  where (start_at at time zone 'Asia/Bangkok')::date::text = %(key)s)
"""
_KPI = "select value from kpi_daily where batch_id = %(key)s and kpi_type = "
_SENSOR = "where device_id || '/' || metric_type = %(key)s"
_LAST = f"""
  from (select metric_value from telemetry_readings {_SENSOR}
    order by occurred_at desc limit 30) r"""
_BARN = "from telemetry_latest where farm_id || '/' || barn_id = %(key)s"
# The farm is made so: a sensor that is late is late by more than ten minutes.
_LATE = "occurred_at < now() - interval '10 minutes'"
_POINT = """
  from telemetry_agg where "window" = '1m'
    and device_id || '/' || metric_type = split_part(%(of)s, '|', 1)
    and bucket_start_at >= %(key)s::timestamptz
    and bucket_start_at < %(key)s::timestamptz
      + make_interval(secs => split_part(%(of)s, '|', 2)::float8)"""
_RANGE = f"""
  from telemetry_agg {_SENSOR} and "window" = '1m'
    and bucket_start_at >= %(begin)s and bucket_start_at < %(end)s"""
# Steps that a chart may have, in seconds, and how many points it has at most.
_STEPS_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 28800, 43200)
_MAX_POINTS = 600


def _range(address: str) -> dict[str, datetime]:
    """The times of a permalink."""
    given = parse_qs(urlsplit(address).query)
    return {
        name: datetime.fromisoformat(given[key][0])
        for name, key in (("begin", "from"), ("end", "to"))
    }


def _in_range(what: str) -> Counted:
    def counted(connection: Any, key: str, address: str) -> Iterable[Any]:
        values = {"key": key, **_range(address)}
        return (row[0] for row in connection.execute(what.encode(), values).fetchall())

    return counted


def _step_s(_connection: Any, _key: str, address: str) -> Iterable[float]:
    times = _range(address)
    span_s = (times["end"] - times["begin"]).total_seconds()
    return [next(step for step in _STEPS_S if span_s / step + 1 <= _MAX_POINTS)]


def _gaps(connection: Any, key: str, address: str) -> Iterable[float]:
    """Stretches without a reading that are longer than a point and two and a half intervals."""
    times = _range(address)
    (step_s,) = _step_s(connection, key, address)
    rows = connection.execute(
        f"""
        select distinct date_bin(make_interval(secs => %(step)s), bucket_start_at,
          'epoch'::timestamptz) {_RANGE} order by 1
        """.encode(),
        {"key": key, "step": step_s, **times},
    ).fetchall()
    step, came_until, gaps = timedelta(seconds=step_s), times["begin"], 0
    for (at,) in [*rows, (times["end"],)]:
        gaps += at - came_until > max(step, timedelta(seconds=2.5 * 300))
        came_until = at + step
    return [float(gaps)]


QUERIES: dict[str, Counted] = {
    "telemetry.value": f"select metric_value from telemetry_latest {_SENSOR}",
    "telemetry.low": f"select min(metric_value) {_LAST}",
    "telemetry.high": f"select max(metric_value) {_LAST}",
    "telemetry.sensors": f"select count(*) {_BARN}",
    "telemetry.late": f"select count(*) {_BARN} and {_LATE}",
    "telemetry.problems": f"select count(*) from telemetry_latest where {_LATE}",
    "telemetry.point.line": f"select sum(sum_value) / sum(count) {_POINT}",
    "telemetry.point.low": f"select min(min_value) {_POINT}",
    "telemetry.point.high": f"select max(max_value) {_POINT}",
    "telemetry.step_s": _step_s,
    "telemetry.range.low": _in_range(f"select min(min_value) {_RANGE}"),
    "telemetry.range.mean": _in_range(f"select sum(sum_value) / sum(count) {_RANGE}"),
    "telemetry.range.high": _in_range(f"select max(max_value) {_RANGE}"),
    "telemetry.range.count": _in_range(f"select sum(count) {_RANGE}"),
    "telemetry.range.gaps": _gaps,
    "today.problems": f"""
        select (select count(*) from alert_episodes where state = 'active' and held_by is null)
          + (select count(*) from telemetry_latest where {_LATE})""",
    "today.online": f"select count(distinct device_id) {_BARN} and not {_LATE}",
    "today.age_days": """
        select (now() at time zone 'Asia/Bangkok')::date - placed_on from batches
        where batch_id = %(key)s""",
    "today.head_count": f"{_KPI} 'head_count'",
    "today.mean_weight_kg": f"{_KPI} 'weight_mean' order by kpi_date desc limit 1",
    "today.gained_kg": """
        select max(value) - min(value) from kpi_daily
        where batch_id = %(key)s and kpi_type = 'weight_mean'""",
    "today.pipeline.devices": f"""
        select count(distinct device_id) from telemetry_latest where not {_LATE}""",
    "today.pipeline.edges": "select count(*) from edge_heartbeats",
    "today.pipeline.outbox": "select sum(waiting) from edge_heartbeats",
    "today.pipeline.cloud": "select coalesce(sum(events), 0) from edge_hours",
    # Late sensors, and stations that weighed nothing for more than a day.
    "devices.problems": f"""
        select (select count(distinct device_id) from telemetry_latest where {_LATE})
          + (select count(*) from (
            select device_id from weight_sessions
            where start_at > now() - interval '7 days'
              and device_id not in (select device_id from telemetry_latest)
            group by device_id having max(start_at) < now() - interval '1 day') silent)""",
    "devices.matching": """
        select count(*) from (select device_id from telemetry_latest
          union select device_id from weight_sessions) d""",
    "device.sensors": """
        select count(*) from telemetry_latest
        where device_id = split_part(%(key)s, '|', 2)""",
    "sensor.value": """
        select metric_value from telemetry_latest
        where device_id || '|' || metric_type = %(key)s""",
    "device.dropped": """
        select coalesce(sum(dropped_count), 0) from device_events
        where device_id = split_part(%(key)s, '|', 2)""",
    "device.hours_received": """
        select count(distinct bucket_start_at) from telemetry_agg
        where "window" = '1h' and device_id = split_part(%(key)s, '|', 2)""",
    "device.hours_gap": """
        select extract(epoch from max(bucket_start_at) - min(bucket_start_at)) / 3600 + 1
          - count(distinct bucket_start_at)
        from telemetry_agg where "window" = '1h' and device_id = split_part(%(key)s, '|', 2)""",
    "weighings.bar": """
        select count(*) from weight_sessions
        where (start_at at time zone 'Asia/Bangkok')::date::text = split_part(%(key)s, '|', 1)
          and final_weight_kg >= split_part(%(key)s, '|', 2)::float8 - 1e-9
          and final_weight_kg < split_part(%(key)s, '|', 3)::float8 - 1e-9""",
    # The bars stand beside each other, from the lightest animal to the heaviest.
    "weighings.edge_kg": """
        select split_part(%(key)s, '|', 2)::float8 from weight_sessions
        where (start_at at time zone 'Asia/Bangkok')::date::text = split_part(%(key)s, '|', 1)
        having split_part(%(key)s, '|', 2)::float8
          between min(final_weight_kg) - 0.1 and max(final_weight_kg) + 0.1""",
    # Of an old day all is there that will be: what lacks its end or its image is incomplete.
    "weighings.of_state": """
        select count(*) from (select case
            when w.status = 'cancelled' then 'cancelled'
            when w.status = 'finalized' and exists (select from weighvision_events e
              where e.session_id = w.session_id
                and e.event_type = 'weighvision.image.captured') then 'finalized'
            else 'INCOMPLETE' end as state
          from weight_sessions w where split_part(%(key)s, '|', 1)
            = (start_at at time zone 'Asia/Bangkok')::date::text) s
        where split_part(%(key)s, '|', 2) in ('all', s.state)""",
    "weighings.total": f"{_OF_DAY} select count(*) from w",
    "weighings.matching": f"{_OF_DAY} select count(*) from w",
    "weighings.final_weights": f"{_OF_DAY} select count(final_weight_kg) from w",
    "weighings.mean_kg": f"{_OF_DAY} select avg(final_weight_kg) from w",
    "weighings.cv_percent": f"""
        {_OF_DAY} select 100 * stddev_samp(final_weight_kg) / avg(final_weight_kg) from w""",
    "weighings.uniformity_percent": f"""
        {_OF_DAY} select 100.0 * count(*) filter (
            where abs(final_weight_kg - m.mean) <= 0.1 * m.mean) / count(final_weight_kg)
        from w, (select avg(final_weight_kg) as mean from w) m""",
    "weighing.weight_kg": """
        select coalesce(final_weight_kg, initial_weight_kg) from weight_sessions
        where session_id::text = %(key)s""",
    "weighing.image_count": """
        select image_count from weight_sessions where session_id::text = %(key)s""",
    "weighing.events": """
        select count(*) from weighvision_events where session_id::text = %(key)s""",
    "weighing.event_kg": """
        select coalesce(weight_kg, final_weight_kg, initial_weight_kg) from weighvision_events
        where event_id::text = %(key)s""",
    "weighing.number": """
        select count(*) from weight_sessions w, weight_sessions me
        where me.session_id::text = %(key)s
          and (w.start_at, w.session_id) <= (me.start_at, me.session_id)
          and (w.start_at at time zone 'Asia/Bangkok')::date
            = (me.start_at at time zone 'Asia/Bangkok')::date""",
}
