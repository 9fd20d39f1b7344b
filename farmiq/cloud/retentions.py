"""Which rows of the cloud's tables are removed when: for the jobs, and for a page of the console.

Every table and every part of the bucket is here: with its days, or in WITHOUT_DAYS and BUCKET with
the reason why no job removes anything. A test looks for those that are missing.
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
# How many mails a company had in which hour: only this hour's counts.
MAIL_COUNT_DAYS = 30

# Why tables keep their rows until somebody deletes the person, the device or the company.
_RECORD = "what happened on the farm: its figures are computed from it again at any time"
_SET_UP = "set up by people, who change and remove it"
_AUDIT = "who did what: an audit log that forgets proves nothing"
_CURRENT = "one row for each thing there is, replaced when it changes"
_WORK = "work that waits; a row goes when it is done"
_SYSTEM = "one row or a few of the installation itself, none of a company"
_CAMERAS = "what cameras were asked for and did, by the day: the account of 004"
WITHOUT_DAYS: dict[str, str] = {
    **dict.fromkeys(
        (
            "weighvision_events", "media_events", "inference_events", "feed_events", "barn_events",
            "device_events", "kpi_events", "weight_sessions", "media_objects", "posted_events",
            "kpi_daily", "batch_days", "batches",
        ),
        _RECORD,
    ),
    **dict.fromkeys(
        (
            "companies", "farms", "barns", "feed_products", "metrics", "breed_standards", "users",
            "memberships", "second_factors", "alert_channels", "alert_contacts", "alert_rules",
            "alert_settings", "report_subscriptions", "edge_keys", "pilot_programs", "sites",
            "devices", "camera_logins",
        ),
        _SET_UP,
    ),
    **dict.fromkeys(
        (
            "user_actions", "master_data_actions", "alert_actions", "edge_actions",
            "dead_letter_actions", "event_conflicts", "deletions",
        ),
        _AUDIT,
    ),
    **dict.fromkeys(
        (
            "telemetry_latest", "dead_letter_groups", "edge_heartbeats", "camera_states",
            "device_assignments",
        ),
        _CURRENT,
    ),
    **dict.fromkeys(
        ("telemetry_dirty", "telemetry_rezoned", "analytics_dirty_days", "analytics_pending"), _WORK
    ),
    **dict.fromkeys(
        (
            "believed_clock", "broker_cursors", "bus_queues", "calendar_clock", "leases",
            "telemetry_state", "test_clock", "schema_migrations",
        ),
        _SYSTEM,
    ),
    **dict.fromkeys(
        (
            "device_alerts", "device_images", "device_schedule_changes", "device_wake_payloads",
            "dish_series", "expected_wakes", "petri_observations", "site_device_sessions",
        ),
        _CAMERAS,
    ),
    "alert_steps": "goes with its episode in alert_episodes",
    "telemetry_archives": "goes with its file, after CLOUD_TELEMETRY_RAW_RETENTION_DAYS",
    "processes": "goes when its process ends, or was not heard for minutes",
    "backup_marks": "a row for each thing that a backup does; each is written over",
    "edge_invites": "a row for each invitation, with the hash of a code that has expired",
    "sign_ins": "goes within an hour after it has expired",
}  # fmt: skip
# The cloud's bucket, by prefix.
BUCKET: dict[str, str] = {
    "tenants/": "images of weighings: they go with their device or company",
    "aside/": "bytes that were not what an edge declared, for a person to look at",
    "camera/": "images of cameras and small copies: they go with their device or company",
    "history/": "archived readings: CLOUD_TELEMETRY_RAW_RETENTION_DAYS, by the last one of a file",
}


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


def alert_mail_counts() -> Retention:
    return Retention("alert_mail_counts", "t.hour", MAIL_COUNT_DAYS)


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
        alert_mail_counts(),
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
