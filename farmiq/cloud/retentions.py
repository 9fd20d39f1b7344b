"""Which rows of the cloud's tables are removed when: for the jobs, and for a page of the console.

Tables that are not here keep their rows for ever.
"""

from dataclasses import dataclass

from farmiq.config import CloudSettings
from farmiq.plumbing.retention import Retention

# Days of orders about dead letters: what was done to each letter stays in the audit log.
ORDER_DAYS = 90
ALERT_STATE_DAYS = 90
ALERT_RECHECK_DAYS = 30
# Readings that no alert rule has looked at by then: no instance runs.
ALERT_READING_DAYS = 7
# A rule is tried over seven days; a row of values spans one at most.
ALERT_VALUE_DAYS = 8


def ingestion_dedupe(settings: CloudSettings) -> Retention:
    return Retention("ingestion_dedupe", "received_at", settings.ingestion_dedupe_days)


def edge_hours(settings: CloudSettings) -> Retention:
    return Retention("edge_hours", "t.hour", settings.sync_events_days)


def sync_events(settings: CloudSettings) -> Retention:
    return Retention("sync_events", "stored_at", settings.sync_events_days)


def dead_letter_orders() -> Retention:
    over = "t.state in ('done', 'failed')"
    return Retention("dead_letter_orders", "t.ordered_at", ORDER_DAYS, over)


def alerts(settings: CloudSettings) -> tuple[Retention, ...]:
    """Episodes stay for so long after they ended; the audit stays."""
    days, over = settings.alert_days, "t.state in ('resolved', 'withdrawn')"
    return (
        Retention("alert_episodes", "t.resolved_at", days, over),
        Retention("alert_windows", "t.end_at", days),
        Retention("alert_states", "t.heard_at", ALERT_STATE_DAYS, "t.states = '{}'"),
        Retention("alert_rechecks", "t.received_at", ALERT_RECHECK_DAYS),
        Retention("alert_readings", "t.stored_at", ALERT_READING_DAYS),
        Retention("alert_values", "t.begin_at", ALERT_VALUE_DAYS),
    )


def alert_messages(settings: CloudSettings) -> Retention:
    days = settings.alert_messages_days
    return Retention("alert_messages", "created_at", days, "t.state <> 'pending'")


def reports(settings: CloudSettings) -> Retention:
    return Retention("reports", "created_at", settings.report_days)


@dataclass(frozen=True, slots=True)
class StorageRule:
    """How long a table keeps its rows: so many days, or for ever (None), by a setting if any."""

    table: str
    days: float | None
    setting: str = ""


def rules(settings: CloudSettings) -> tuple[StorageRule, ...]:
    """All tables that have a retention, and the large ones that may have one."""
    by_setting = {
        "ingestion_dedupe": "INGESTION_DEDUPE_DAYS",
        "edge_hours": "SYNC_EVENTS_RETENTION_DAYS",
        "sync_events": "SYNC_EVENTS_RETENTION_DAYS",
        "alert_episodes": "ALERT_RETENTION_DAYS",
        "alert_windows": "ALERT_RETENTION_DAYS",
        "alert_messages": "ALERT_MESSAGES_RETENTION_DAYS",
        "reports": "REPORT_RETENTION_DAYS",
    }
    purged = (
        ingestion_dedupe(settings),
        sync_events(settings),
        edge_hours(settings),
        dead_letter_orders(),
        *alerts(settings),
        alert_messages(settings),
        reports(settings),
    )
    return (
        StorageRule(
            "telemetry_readings", settings.telemetry_raw_days, "CLOUD_TELEMETRY_RAW_RETENTION_DAYS"
        ),
        StorageRule(
            "telemetry_agg",
            settings.telemetry_minutes_days,
            "CLOUD_TELEMETRY_MINUTES_RETENTION_DAYS",
        ),
        *(StorageRule(rows.table, rows.days, by_setting.get(rows.table, "")) for rows in purged),
        StorageRule("camera_chunks", settings.camera_resume_days, "CAMERA_RESUME_DAYS"),
        StorageRule("camera_transfers", settings.camera_days, "CAMERA_RETENTION_DAYS"),
        StorageRule("camera_commands", settings.camera_days, "CAMERA_RETENTION_DAYS"),
        StorageRule("camera_quarantine", settings.camera_days, "CAMERA_RETENTION_DAYS"),
    )
