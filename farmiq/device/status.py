"""How the station is: its alarms, and what its buffer holds; for status topic, page and command."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from farmiq.device.buffer import store
from farmiq.device.buffer.store import Tx
from farmiq.messages.instants import rfc3339

BUFFER_FULL = "buffer_full"
DRAIN_STALLED = "drain_stalled"
BUFFER_SALVAGED = "buffer_salvaged"
TOKEN_REJECTED = "token_refused"  # noqa: S105 - a name
LOGIN_REJECTED = "login_refused"
DISK_FULL = "disk_full"
UPLOADS_FAILED = "uploads_failed"
EVENTS_REJECTED = "events_refused"

# With one of these the station does not do its work; the others are for a person to look at.
GRAVE = {BUFFER_FULL, DRAIN_STALLED, DISK_FULL, TOKEN_REJECTED, LOGIN_REJECTED}
MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Alarm:
    since: datetime
    text: str


def summary(tx: Tx) -> dict[str, Any]:
    """What the buffer holds: counts kept by triggers, and the first few of each problem."""
    counts = store.tally(tx)
    oldest = store.oldest_waiting(tx)
    ran_s = float(store.meta(tx, "ran_s") or 0.0)
    oldest_at = None if oldest is None else datetime.fromtimestamp(oldest[1] / 1e6, UTC)
    return {
        "backlog": store.backlog(counts),
        "events": {state: counts[state] for state in store.EVENT_STATES},
        "oldest_waiting_s": None if oldest is None else round(max(0.0, ran_s - oldest[0]), 1),
        "oldest_waiting_at": None if oldest_at is None else rfc3339(oldest_at),
        "pictures": {
            "waiting": counts["pictures"],
            "failed": counts["pictures_failed"],
            "bytes": counts["picture_bytes"],
        },
        "dropped_total": counts["dropped"],
        "last_seq": int(store.meta(tx, "last_seq") or 0),
        "boot_id": store.meta(tx, "boot_id"),
        "failed_sessions": store.sessions_with_problem(tx, limit=MAX_SHOWN),
        "failed_pictures": store.failed_images(tx, limit=MAX_SHOWN),
        "refused_events": store.rejected_events(tx, limit=MAX_SHOWN),
    }


def needs_attention(status: dict[str, Any]) -> bool:
    offline = status["running"] and (not status["connected"] or status["uploads_away"])
    return bool(
        not status["running"]
        or offline
        or status.get("scale_ok") is False
        or status.get("camera_ok") is False
        or status.get("alarms")
        or status["failed_sessions"]
        or status["failed_pictures"]
        or status["refused_events"]
        or status["events"]["failed"]
    )
