"""How the station is: read from the buffer, for the status topic, the page and the command."""

from datetime import UTC, datetime
from typing import Any

from farmiq.device import store
from farmiq.device.store import Tx

MOST_SHOWN = 20


def looked(tx: Tx) -> dict[str, Any]:
    """What the buffer holds: counts kept by triggers, and the first few of each trouble."""
    counts = store.tally(tx)
    oldest = store.oldest_waiting(tx)
    ran_s = float(store.meta(tx, "ran_s") or 0.0)
    return {
        "backlog": counts["waiting"] + counts["sending"] + counts["published"],
        "events": {state: counts[state] for state in store.EVENT_STATES},
        "oldest_waiting_s": None if oldest is None else round(max(0.0, ran_s - oldest[0]), 1),
        "oldest_waiting_at": None if oldest is None else _instant(oldest[1]),
        "pictures": {
            "waiting": counts["pictures"],
            "failed": counts["pictures_failed"],
            "bytes": counts["picture_bytes"],
        },
        "dropped_total": counts["dropped"],
        "last_seq": int(store.meta(tx, "last_seq") or 0),
        "boot_id": store.meta(tx, "boot_id"),
        "failed_sessions": store.sessions_with_problem(tx, most=MOST_SHOWN),
        "failed_pictures": store.failed_images(tx, most=MOST_SHOWN),
        "refused_events": store.refusals(tx, most=MOST_SHOWN),
    }


def needs_attention(status: dict[str, Any]) -> bool:
    away = status["running"] and (not status["connected"] or status["uploads_away"])
    return bool(
        not status["running"]
        or away
        or status.get("scale_ok") is False
        or status.get("camera_ok") is False
        or status.get("alarms")
        or status["failed_sessions"]
        or status["failed_pictures"]
        or status["refused_events"]
        or status["events"]["failed"]
    )


def _instant(order_us: int) -> str:
    return datetime.fromtimestamp(order_us / 1e6, UTC).isoformat().replace("+00:00", "Z")
