"""What people and programs tell cameras: which orders can be given, and their queue.

The gateway sends them when the camera is awake; after a day nobody means them any more.
"""

from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from farmiq.cloud.camera.gateway import esp32cam, wire
from farmiq.plumbing import db

Name = Literal["send_image", "capture_image", "next_wake"]
NAMES: tuple[Name, ...] = ("send_image", "capture_image", "next_wake")
STATES = ("queued", "sent", "done", "failed", "expired")
GATEWAY = "gateway"
MOST_QUEUED = 100
MOST_AHEAD = timedelta(days=31)
# This dialect says the hour alone: what is further off would be another wake.
MOST_AHEAD_BY_HOUR = timedelta(days=1)


class NotTaken(Exception):  # noqa: N818 - an answer
    """The order cannot wait for this camera: it says why."""


def problems(
    name: Name, *, image_name: str | None, wake_at: datetime | None, dialect: str, now: datetime
) -> list[tuple[str, str]]:
    """What is wrong with an order: a field and a reason each."""
    by_hour = dialect == esp32cam.NAME
    wrong = []
    if name == "send_image" and image_name is not None:
        wrong += [("image_name", each) for each in wire.name_problems(image_name)]
    if name == "send_image" and image_name is None and by_hour:
        wrong.append(("image_name", "is missing: this camera's dialect asks for images by name"))
    if name != "send_image" and image_name is not None:
        wrong.append(("image_name", "is for send_image"))
    if name != "next_wake" and wake_at is not None:
        wrong.append(("wake_at", "is for next_wake"))
    if name == "next_wake":
        wrong += _wake_problems(wake_at, MOST_AHEAD_BY_HOUR if by_hour else MOST_AHEAD, now)
    return wrong


def _wake_problems(
    wake_at: datetime | None, most: timedelta, now: datetime
) -> list[tuple[str, str]]:
    if wake_at is None:
        return [("wake_at", "is missing: next_wake says when")]
    if not now < wake_at <= now + most:
        hours = most // timedelta(hours=1)
        return [
            ("wake_at", f"has to be in the next {hours} hours: this camera understands no other")
        ]
    return []


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
        MOST_QUEUED,
    )
    if not rows:
        raise NotTaken(f"the camera is retired, or {MOST_QUEUED} commands wait for it already")
    made: UUID = rows[0][0]
    return made
