"""When cameras are told to wake next (C-118)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from farmiq.plumbing import db


@dataclass(frozen=True, slots=True)
class Waking:
    """Wakes are at least `min_s` ahead, and at most `spread_s` later than the schedule says."""

    min_s: float = 60.0
    spread_s: float = 0.0


async def next_wakes(
    tx: db.Connection, device_ids: Sequence[UUID], *, waking: Waking
) -> dict[UUID, tuple[datetime | None, str]]:
    """By camera: when it is to wake, and its site's time zone. Call it just before sending."""
    rows = await db.fetch_all(
        tx,
        """
        select d.device_id, w.wake_at, coalesce(s.timezone, 'UTC')
        from fn_wakes_to_tell(%s::uuid[], %s, %s) w
        join devices d on d.device_id = w.device_id
        left join sites s on s.site_id = d.site_id
        """,
        list(device_ids),
        waking.min_s,
        waking.spread_s,
    )
    return {row[0]: (row[1], row[2]) for row in rows}
