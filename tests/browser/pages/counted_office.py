# ruff: noqa: S608 - our own words make these queries
"""The figures of alerts, delivery, notifications and settings, counted again by SQL."""

from farmiq.cloud import retentions
from farmiq.config import CloudSettings
from farmiq.farm.alerts import defaults
from tests.browser.pages.recount import Counted

_SETTINGS = CloudSettings.load({"FARMIQ_CLOUD_DB_URL": "x", "FARMIQ_AMQP_URL": "amqp://unused"})

_LETTERS = "from dead_letter_groups where tenant_id = 'tenant-a'"
_DAY = "from edge_hours where hour > now() - interval '24 hours'"
_EDGE = "from edge_heartbeats where edge_cluster_id = %(key)s"
_HOUR = "from edge_hours where edge_cluster_id = %(of)s and hour = %(key)s::timestamptz"
_ORDER = "from dead_letter_orders where order_id::text = %(key)s"
_EPISODE = "from alert_episodes where episode_id::text = %(key)s"

QUERIES: dict[str, Counted] = {
    "alert.count": "select count(*) from alert_episodes where state = %(key)s",
    "alert.open": """
        select coalesce(nullif(count(*) filter (where state = 'active'), 0),
          count(*) filter (where state = 'acknowledged')) from alert_episodes""",
    "alert.value": f"""
        select case when state in ('active', 'acknowledged') or is_absence then last_value
          else worst_value end {_EPISODE}""",
    **{f"alert.{name}": f"select {name} {_EPISODE}"
       for name in ("first_value", "worst_value", "last_value")},
    "alert.times_before": """
        select count(*) - 1 from alert_episodes
        where cause = (select cause from alert_episodes where episode_id::text = %(key)s)""",
    "alert.notified_more": """
        select count(*) - 4 from alert_messages where episode_id::text = %(key)s""",
    "alert.held": """
        select count(*) from alert_episodes where held_by = 'episode:' || %(key)s""",
    # Rules that ship are in the code, and the company has none of its own.
    "rule.on": lambda _connection, _key, _address: [
        sum(rule.enabled for rule in defaults.DEFAULTS)
    ],
    # Settings of whoever runs the cloud, in no table.
    "retention.days": lambda _connection, key, _address: [
        rule.days for rule in retentions.rules(_SETTINGS) if rule.table == key
    ],
    "window.current": """
        select count(*) from alert_windows where begin_at <= now() and end_at > now()""",
    "window.held": """
        select count(*) from alert_episodes
        where held_by = 'window:' || %(key)s and state = 'active'""",
    "contact.reachable": """
        select count(*) from alert_contacts where is_enabled and addresses <> '{}'""",
    "contact.escalate_after_min": "select escalate_after_min from alert_settings",
    "delivery.dead_letters": f"select coalesce(sum(count), 0) {_LETTERS}",
    "delivery.waiting": """
        select case %(key)s
          when 'edges' then (select coalesce(sum(waiting), 0) from edge_heartbeats)
          when 'entries' then (select count(*) from posted_events where published_at is null)
          else (select count(*) from alert_messages where state = 'pending') end""",
    "delivery.events": f"select sum(events) {_DAY}",
    "delivery.duplicates": f"select sum(duplicates) {_DAY}",
    "delivery.conflicts": """
        select count(*) from event_conflicts where seen_at > now() - interval '24 hours'""",
    "delivery.rejected": "select count(*) from camera_quarantine",
    "rejected.received_count": """
        select received_count from camera_quarantine where quarantine_id::text = %(key)s""",
    "delivery.silent_edges": """
        select count(*) from edge_heartbeats where received_at < now() - interval '3 minutes'""",
    # Something is wrong that it says itself: old events, refused ones, quarantine, losses, disk.
    "delivery.edges_with_problems": """
        select count(*) from edge_heartbeats where received_at > now() - interval '3 minutes'
          and (dlq > 0 or quarantine > 0 or disk_percent >= 90
            or waiting > 0 and oldest_s > 3600)""",
    "delivery.late": """
        select case %(key)s
          when 'entries' then (select count(*) from posted_events
            where published_at is null and posted_at < now() - interval '15 minutes')
          else (select count(*) from alert_messages
            where state = 'pending' and send_after < now() - interval '15 minutes') end""",
    "delivery.edges_never_heard": """
        select count(distinct k.edge_cluster_id) from edge_keys k
        where not exists (select from edge_heartbeats h
          where h.edge_cluster_id = k.edge_cluster_id)""",
    "edge.dead_letters": f"select dlq {_EDGE}",
    **{f"edge.{name}": f"select {name} {_EDGE}"
       for name in ("waiting", "oldest_s", "quarantine", "losses", "open_alerts", "disk_percent",
                    "clock_offset_s", "alerts_missing")},
    # Rounded to seconds when the page was made.
    "edge.silent_s": """
        select round(extract(epoch from now() - received_at)) - n
        from edge_heartbeats, generate_series(0, 60) n where edge_cluster_id = %(key)s""",
    "edge.hour_waiting.line": f"select max_waiting {_HOUR}",
    "edge.hour_arrived.bars": f"select events {_HOUR}",
    "edge.hour_arrived.line": f"select duplicates {_HOUR}",
    "dead_letters.total": f"select coalesce(sum(count), 0) {_LETTERS}",
    "dead_letters.count": f"select count {_LETTERS} and queue || '|' || reason || '|own' = %(key)s",
    **{f"dead_letter.{name}": f"""
        select (l ->> '{name}')::float8
        from dead_letter_groups, jsonb_array_elements(letters) l
        where tenant_id = 'tenant-a' and l ->> 'event_id' = %(key)s"""
       for name in ("attempts", "size_bytes")},
    **{f"order.{name}": f"select {name} {_ORDER}"
       for name in ("done", "failed", "max_letters", "rate_per_s")},
    "order.not_shown": f"select done + failed - jsonb_array_length(outcomes) {_ORDER}",
    "order.chosen": f"select cardinality(event_ids) {_ORDER}",
    "people.count": """
        select count(*) from users join companies using (company_id)
        where tenant_id = 'tenant-a'""",
    "companies.count": "select count(*) from companies",
    "edges.count": """
        select count(distinct edge_cluster_id) from edge_keys where tenant_id = 'tenant-a'""",
}  # fmt: skip
