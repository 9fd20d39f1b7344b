"""Commands to cameras wait in a table until their camera is awake; after a day they expire."""

from datetime import datetime, timedelta
from uuid import UUID

from farmiq.cloud.camera.protocol import dialects, wire
from farmiq.cloud.camera.protocol.wire import CommandName
from farmiq.plumbing import db

GATEWAY = "gateway"
MAX_QUEUED = 100
MAX_AHEAD = timedelta(days=31)
# The dialect esp32cam sends a time of day only.
MAX_AHEAD_BY_HOUR = timedelta(days=1)


class NotQueuedError(Exception):
    """The text says why the command cannot be queued."""


def problems(
    name: CommandName,
    *,
    image_name: str | None,
    wake_at: datetime | None,
    dialect: str,
    now: datetime,
) -> list[tuple[str, str]]:
    """What is wrong with a command: (field, reason)."""
    by_hour = dialect == dialects.ESP32CAM
    reasons = []
    if name != "send_image" and image_name is not None:
        reasons.append(("image_name", "is for send_image"))
    elif image_name is not None:
        reasons += [("image_name", reason) for reason in wire.name_problems(image_name)]
    elif name == "send_image" and by_hour:
        reasons.append(("image_name", "is missing: this camera's dialect asks for images by name"))
    max_ahead = MAX_AHEAD_BY_HOUR if by_hour else MAX_AHEAD
    if name != "next_wake" and wake_at is not None:
        reasons.append(("wake_at", "is for next_wake"))
    elif name == "next_wake" and wake_at is None:
        reasons.append(("wake_at", "is missing: next_wake says when"))
    elif wake_at is not None and not now < wake_at <= now + max_ahead:
        hours = max_ahead // timedelta(hours=1)
        reason = f"has to be in the next {hours} hours: this camera understands no other"
        reasons.append(("wake_at", reason))
    return reasons


async def queue(
    tx: db.Connection,
    device_id: UUID,
    *,
    name: CommandName,
    created_by: str,
    image_name: str | None = None,
    wake_at: datetime | None = None,
) -> UUID:
    """Queue a command of a person or program. Raises NotQueuedError."""
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
        *(name, image_name, wake_at, created_by, device_id, GATEWAY, MAX_QUEUED),
    )
    if not rows:
        raise NotQueuedError(f"the camera is retired, or {MAX_QUEUED} commands wait for it already")
    command_id: UUID = rows[0][0]
    return command_id
