"""Commands wait here until their camera is awake; after a day nobody means them any more."""

from datetime import datetime
from uuid import UUID

from farmiq.cloud.camera.telling import GATEWAY, MAX_QUEUED, Name
from farmiq.plumbing import db


class NotTaken(Exception):  # noqa: N818 - an answer
    """The order cannot wait for this camera: it says why."""


async def queue(
    tx: db.Connection,
    device_id: UUID,
    *,
    name: Name,
    created_by: str,
    image_name: str | None = None,
    wake_at: datetime | None = None,
) -> UUID:
    """The camera is told when it is next awake. Raises NotTaken."""
    rows = await db.fetch_all(
        tx,
        """
        insert into camera_commands (command_id, company_id, device_id, name, image_name, wake_at,
          created_by, created_at)
        select fn_uuid_v7(), d.company_id, d.device_id, %s, %s, %s, %s, fn_now()
        from devices d where d.device_id = %s and d.is_active and (
          select count(*) from camera_commands c
          where c.device_id = d.device_id and c.state = 'queued' and c.created_by <> %s) < %s
        returning command_id
        """,
        name,
        image_name,
        wake_at,
        created_by,
        device_id,
        GATEWAY,
        MAX_QUEUED,
    )
    if not rows:
        raise NotTaken(f"the camera is retired, or {MAX_QUEUED} commands wait for it already")
    made: UUID = rows[0][0]
    return made
