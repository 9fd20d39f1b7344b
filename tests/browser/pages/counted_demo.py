# ruff: noqa: S608 - our own words make these queries
"""Figures of the demo's pages that its farm makes otherwise than the farms of the tests."""

from collections.abc import Iterable
from typing import Any

from farmiq.farm.alerts import defaults
from tests.browser.pages import counted_cameras
from tests.browser.pages.recount import Counted

# Judgements of several tables, which the tests of pages count on farms that are made so; and states
# of weighings, which turn INCOMPLETE one by one some minutes after they came without an image.
NOT_COUNTED = (
    "weighings.of_state",
    "today.problems", "today.hidden", "devices.problems", "batches.problems", "batch.alerts_of_day",
    "device.hours_gap", "figures.temperature", "figures.humidity",
)  # fmt: skip
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


def _of_program(what: str) -> Counted:
    def counted(connection: Any, key: str, address: str) -> Iterable[Any]:
        path = address.partition("?")[0].removeprefix("/programs").strip("/")
        where = f"{_LEVELS} and (%(program)s = '' or s.program_id::text = %(program)s)"
        query = f"select {what} {_OF_PROGRAM.format(where)}"
        rows = connection.execute(query.encode(), {"key": key, "program": path}).fetchall()
        return (row[0] for row in rows)

    return counted


CLOUD: dict[str, Counted] = {
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
    "figures.percent": _of_program(
        "least(100, 100 * count(*) filter (where p.payload_status = 'complete') / count(*))"
    ),
}  # fmt: skip
_RESULT = "from inference_results where session_id::text = %(key)s"
EDGE: dict[str, Counted] = {
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
