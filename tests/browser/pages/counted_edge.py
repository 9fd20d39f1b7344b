# ruff: noqa: S608 - our own words make these queries
"""The figures of the edge's own console, counted again by SQL."""

from tests.browser.pages.recount import Counted

_DAY = """
  from weight_sessions where tenant_id = 'valley' and (start_at at time zone 'Asia/Bangkok')::date
    = coalesce(nullif(%(key)s, ''), (now() at time zone 'Asia/Bangkok')::date::text)::date"""
_DAY_OF_DEVICE = """
  from weight_sessions where tenant_id = 'valley' and device_id = %(key)s
    and (start_at at time zone 'Asia/Bangkok')::date
      = (now() at time zone 'Asia/Bangkok')::date"""
_TODAY = (
    "(occurred_at at time zone 'Asia/Bangkok')::date = (now() at time zone 'Asia/Bangkok')::date"
)
_OUTBOX = "from sync_outbox where tenant_id = 'valley'"
_QUARANTINE = "from quarantine where topic like 'iot/%%/valley/%%'"
_DEVICE = "from device_state where tenant_id = 'valley' and device_id = %(key)s"
_BUCKET = """
  from telemetry_agg where tenant_id = 'valley' and "window" = '1m'
    and device_id || '/' || metric_type = split_part(%(of)s, '|', 1)
    and bucket_start_at >= %(key)s::timestamptz
    and bucket_start_at < %(key)s::timestamptz
      + make_interval(secs => split_part(%(of)s, '|', 2)::float8)"""

QUERIES: dict[str, Counted] = {
    "edge.devices": """
        select count(*) from devices where tenant_id = 'valley' and revoked_at is null""",
    "edge.keys": "select count(*) from api_keys where revoked_at is null and tenant_id = 'valley'",
    "edge.devices.reporting": """
        select count(*) from device_state where tenant_id = 'valley' and state = 'online'""",
    "edge.devices.silent": """
        select count(*) from devices d left join device_state s using (tenant_id, device_id)
        where d.tenant_id = 'valley' and coalesce(s.state, '') <> 'online'""",
    "edge.devices.problems": """
        select count(*) from device_state where tenant_id = 'valley' and state <> 'online'""",
    "edge.readings.late": """
        select count(*) from telemetry_latest where farm_id || '/' || barn_id = %(key)s
          and occurred_at < now() - interval '10 minutes'""",
    # A choice of the page: six hours in points of two minutes, a day in points of ten.
    "edge.step_s": """
        select seconds from (values ('6h', 120), ('24h', 600), ('7d', 3600), ('30d', 14400))
          as known (span, seconds) where span = %(key)s""",
    "edge.readings.problems": """
        select count(*) from telemetry_latest
        where tenant_id = 'valley' and occurred_at < now() - interval '10 minutes'""",
    # Open alerts, and one for silent devices, incomplete weighings, dead letters, quarantine.
    "edge.problems": f"""
        select (select count(*) from alerts where closed_at is null and subject like 'valley%%')
          + (select count(*) from (
              (select 1 from device_state where tenant_id = 'valley' and state <> 'online' limit 1)
              union all (select 1 {_DAY.replace("%(key)s", "''")} and is_incomplete limit 1)
              union all (select 1 {_OUTBOX} and status = 'dlq' limit 1)
              union all (select 1 {_QUARANTINE} limit 1)) others)""",
    "edge.weighings": f"select count(*) {_DAY}",
    "edge.incomplete": f"select count(*) filter (where is_incomplete) {_DAY}",
    "edge.mean_weight_kg": f"""
        select avg(final_weight_kg) filter (where status = 'finalized') {_DAY}""",
    "edge.dead": f"""
        select coalesce(sum(value_number), 0) from barn_records r
        where tenant_id = 'valley' and record_type = 'mortality' and {_TODAY}
          and not exists (select from barn_records n where n.replaces = r.record_id)""",
    "edge.feed_kg": f"""
        select coalesce(sum(quantity_kg), 0) from feed_intakes i
        where tenant_id = 'valley' and {_TODAY} and not exists (select from posted_events p
          where p.replaces = i.intake_id::text)""",
    "edge.waiting": f"select count(*) {_OUTBOX} and status in ('pending', 'claimed', 'sending')",
    "edge.images_waiting": """
        select count(*) from media_objects where tenant_id = 'valley'
          and upload_status = 'stored' and synced_at is null""",
    "edge.dead_letters": f"select count(*) {_OUTBOX} and status = 'dlq'",
    "edge.dead_letters.of": f"""
        select count(*) {_OUTBOX} and status = 'dlq'
          and dlq_reason || '|' || event_type = %(key)s""",
    "edge.failures": """
        select consecutive_failures from sync_state where tenant_id = 'valley'""",
    "edge.quarantine": f"select count(*) {_QUARANTINE}",
    "edge.quarantine.of": f"select count(*) {_QUARANTINE} and kind || '|' || gist = %(key)s",
    "edge.quarantine.count": """
        select received_count from quarantine where quarantine_id::text = %(key)s""",
    "edge.quarantine.bytes": """
        select length(raw) from quarantine where quarantine_id::text = %(key)s""",
    "edge.entry": """
        select value_number from barn_records where event_id::text = %(key)s
        union all select quantity_kg from feed_intakes where intake_id::text = %(key)s
        union all select quantity_kg from feed_lots where event_id::text = %(key)s""",
    "edge.weight_kg": """
        select coalesce(final_weight_kg, initial_weight_kg) from weight_sessions
        where id::text = %(key)s""",
    "edge.event_weight_kg": """
        select weight_kg from weight_session_events where event_id::text = %(key)s""",
    "edge.reading": """
        select metric_value from telemetry_latest where tenant_id = 'valley'
          and device_id || '/' || metric_type = %(key)s""",
    "edge.bucket.line": f"select sum(sum_value) / sum(count) {_BUCKET}",
    "edge.bucket.low": f"select min(min_value) {_BUCKET}",
    "edge.bucket.high": f"select max(max_value) {_BUCKET}",
    "edge.device.uptime_s": f"select uptime_s {_DEVICE}",
    "edge.device.heartbeat_s": """
        select heartbeat_s from devices where tenant_id = 'valley' and device_id = %(key)s""",
    "edge.device.weighings": f"select count(*) {_DAY_OF_DEVICE}",
    "edge.device.rejected": f"""
        select count(*) {_QUARANTINE} and topic like '%%/' || %(key)s || '/%%'""",
    "edge.losses": "select sum(count) from loss_ledger where tenant_id = 'valley'",
    "edge.loss": "select count from loss_ledger where loss_id::text = %(key)s",
    "edge.device.buffer": f"select buffer_depth {_DEVICE}",
    "edge.device.battery_v": f"select battery_v {_DEVICE}",
    "edge.device.signal": f"select signal_strength {_DEVICE}",
}
