"""When cameras are told to wake next (C-118)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from farmiq.plumbing import db


@dataclass(frozen=True, slots=True)
class Waking:
    """`min_s`: how soon at the earliest. `spread_s`: how long after its time at the latest."""

    min_s: float = 60.0
    spread_s: float = 0.0


async def next_wake(
    tx: db.Connection, device_id: UUID, *, waking: Waking
) -> tuple[datetime | None, str]:
    """(when the camera is to wake, the zone of its site); call it at the moment of sending."""
    return (await next_wakes(tx, [device_id], waking=waking))[device_id]


async def next_wakes(
    tx: db.Connection, device_ids: Sequence[UUID], *, waking: Waking
) -> dict[UUID, tuple[datetime | None, str]]:
    """By camera: when it is to wake, and the zone of its site."""
    rows = await db.fetch_all(
        tx,
        """
        select d.device_id,
          fn_wake_to_tell(device_id => d.device_id, min_seconds => %s, spread_seconds => %s),
          coalesce(s.timezone, 'UTC')
        from devices d left join sites s on s.site_id = d.site_id
        where d.device_id = any(%s::uuid[])
        """,
        waking.min_s,
        waking.spread_s,
        list(device_ids),
    )
    return {row[0]: (row[1], row[2]) for row in rows}
