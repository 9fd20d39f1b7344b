"""The console's SQL about schedules, with the person's rights (row level security).

Changes are made by database functions that check the rights again.
"""

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any
from uuid import UUID

from farmiq.cloud.console.schedules.view import Change
from farmiq.cloud.console.sites.strips import Camera
from farmiq.cloud.console.sites.view import Site
from farmiq.plumbing import db


async def waiting_changes(connection: db.Connection, wanted: Sequence[UUID]) -> list[Change]:
    """The change of each camera that takes effect at its next midnight: the newest (C-71)."""
    return await db.fetch_as(
        connection,
        Change,
        """
        select distinct on (device_id) change_id, device_id, new_wake_schedule_cron as cron,
          effective_date
        from device_schedule_changes
        where device_id = any(%s) and applied_at is null and superseded_at is null
          and cancelled_at is null
        order by device_id, requested_at desc, position desc
        """,
        (list(wanted),),
    )


async def wake_times(
    connection: db.Connection, cron: str | None, *, timezone: str, at: date
) -> list[datetime]:
    rows = await db.fetch_all(
        connection,
        """
        select expected_at from fn_wake_instants(
          cron_expression => %s, timezone => %s, session_date => %s) order by expected_at
        """,
        cron,
        timezone,
        at,
    )
    return [row[0] for row in rows]


async def wakes_today(connection: db.Connection, site: Site, camera: Camera) -> list[datetime]:
    """What today expects of the camera: of a day that is open, what was settled when it came."""
    rows = await db.fetch_all(
        connection,
        """
        select t.session_id, w.expected_at
        from (select fn_session_at(%s, fn_now()) as session_id) t
          left join expected_wakes w on w.session_id = t.session_id and w.device_id = %s
        order by w.expected_at
        """,
        site.site_id,
        camera.device_id,
    )
    if rows[0][0] is None:
        return await wake_times(
            connection, camera.wake_schedule_cron, timezone=site.zone_today, at=site.today
        )
    return [at for _, at in rows if at is not None]


async def preview_change(connection: db.Connection, device_id: UUID, cron: str) -> dict[str, Any]:
    answer: dict[str, Any] = await db.fetch_value(
        connection,
        "select fn_preview_schedule_change(device_id => %s, new_wake_schedule_cron => %s)",
        device_id,
        cron,
    )
    return answer


async def request_change(connection: db.Connection, device_id: UUID, cron: str) -> None:
    await connection.execute(
        "select fn_request_schedule_change(device_id => %s, new_wake_schedule_cron => %s)",
        (device_id, cron),
    )


async def cancel_change(connection: db.Connection, change_id: UUID) -> None:
    await connection.execute("select fn_cancel_schedule_change(change_id => %s)", (change_id,))
