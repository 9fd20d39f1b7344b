"""Commands to cameras that are awake: send_image one after the other, others at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from farmiq.cloud.camera.command_queue import GATEWAY, MAX_QUEUED
from farmiq.cloud.camera.gateway.camera_store import Camera
from farmiq.cloud.camera.protocol import dialects
from farmiq.cloud.camera.protocol.wire import Answer, CaptureImage, Hello, NextWake, SendImage
from farmiq.plumbing import db

# A command that was not sent by then expires.
MAX_AGE_S = 86_400.0
# A camera that takes its image without a command announces it sooner after HELLO than this; one
# that is known to wait for capture_image gets it at once (C-117).
CAPTURE_QUIET_S = 5.0

_INSERT = """
  insert into camera_commands (command_id, company_id, device_id, name, image_id, image_name,
    created_by, created_at)
"""
# When this image was last requested and not announced: perhaps the camera has deleted it.
_IN_VAIN_AT = """
  (select max(o.sent_at) from camera_commands o where o.image_id = i.image_id
    and o.state = 'expired' and o.sent_at > coalesce(i.announced_at, i.created_at))
"""
# Images by name. Those requested in vain come last, or each wake would request nothing else;
# requests without a name come before those, unless they were in vain since: some firmware knows
# names only. Images that the camera could not take are not requested.
_QUEUE_NAMED = f"""
with greeted as (
  select * from unnest(%(cameras)s::uuid[], %(pending)s::int[]) as g(device_id, pending_count)
), known as (
  select i.device_id, i.company_id, i.image_id, i.image_name, i.captured_at,
    {_IN_VAIN_AT} as in_vain_at
  from greeted g join device_images i on i.device_id = g.device_id
  where i.status <> 'complete'
    and ((g.pending_count > 0 and i.status = 'failed'
        and i.error_code is distinct from 'CAMERA_ERROR')
      or i.resend_requested_at is not null)
    and not exists (
      select from camera_commands c
      where c.device_id = i.device_id and c.image_id = i.image_id and c.state = 'queued')
), wanted as (
  select k.*, row_number() over (partition by k.device_id
    order by k.in_vain_at nulls first, k.captured_at, k.image_id) as place
  from known k
)
{_INSERT}
select fn_uuid_v7(), w.company_id, w.device_id, 'send_image', w.image_id, w.image_name,
  %(by)s, (select fn_now()) + w.place * interval '1 microsecond'
    + case when w.in_vain_at is null or w.in_vain_at < (
        select max(o.sent_at) from camera_commands o
        where o.device_id = w.device_id and o.name = 'send_image' and o.state = 'expired'
          and o.image_id is null and o.image_name is null) then interval '0'
      else interval '2 milliseconds' end
from wanted w where w.place <= %(limit)s
"""  # noqa: S608 - no input
# As many as a camera holds beyond those that are requested by name; an image that was requested in
# vain does not count.
_QUEUE_NAMELESS = f"""
{_INSERT}
select fn_uuid_v7(), d.company_id, d.device_id, 'send_image', null, null, %(by)s,
  (select fn_now()) + interval '1 millisecond'
from unnest(%(cameras)s::uuid[], %(pending)s::int[]) as g(device_id, pending_count)
join devices d on d.device_id = g.device_id and d.dialect = %(dialect)s,
  lateral generate_series(1, least(g.pending_count, %(limit)s) - (
    select count(*)::int from camera_commands c
    left join device_images i on i.image_id = c.image_id
    where c.device_id = g.device_id and c.name = 'send_image' and c.state = 'queued'
      and (i.image_id is null or {_IN_VAIN_AT} is null)))
"""  # noqa: S608 - no input
# For cameras that may wait for a command to take an image (C-117), not for those that were seen to
# take it without one: they would take two.
_QUEUE_CAPTURE = f"""
{_INSERT}
select fn_uuid_v7(), s.company_id, s.device_id, 'capture_image', null, null, %(by)s,
  (select fn_now())
from camera_states s
where s.device_id = any(%(cameras)s::uuid[]) and s.captures_unasked is not true and not exists (
  select from camera_commands c
  where c.device_id = s.device_id and c.name = 'capture_image' and c.state = 'queued')
"""  # noqa: S608 - no input


@dataclass(frozen=True, slots=True)
class Command:
    """A command to send now."""

    command_id: UUID
    name: str
    image_name: str | None
    wake_at: datetime | None
    dialect: str
    spelling: str
    timezone: str

    @property
    def answer(self) -> Answer:
        if self.name == "send_image":
            return SendImage(self.image_name)
        return CaptureImage() if self.wake_at is None else NextWake(self.wake_at, self.timezone)


async def after_hellos(tx: db.Connection, hellos: Sequence[tuple[Camera, Hello]]) -> None:
    """Request images that failed, and images that people want again, from cameras that are awake.

    Requests of an earlier wake that were not answered are repeated. Images without a known name are
    requested without one if the dialect allows it. capture_image is sent to cameras that hold
    nothing and may wait for it (C-117).
    """
    if not hellos:
        return
    cameras = [camera.device_id for camera, _ in hellos]
    pending = [hello.pending_count for _, hello in hellos]
    await tx.execute(
        "update camera_commands set state = 'expired', ended_at = fn_now() "
        "where device_id = any(%s::uuid[]) and name = 'send_image' and state = 'sent'",
        (cameras,),
    )
    # Queued commands stay: a repeated HELLO adds no rows. Those of the gateway are deleted when the
    # camera holds nothing; those of people stay.
    empty = [camera for camera, hello in hellos if hello.pending_count == 0]
    await _delete_queued(tx, "send_image", [camera.device_id for camera in empty])
    parameters = {
        "cameras": cameras,
        "pending": pending,
        "by": GATEWAY,
        "limit": MAX_QUEUED,
        "dialect": dialects.STANDARD,
    }
    await tx.execute(_QUEUE_NAMED, parameters)
    if any(pending):
        await tx.execute(_QUEUE_NAMELESS, parameters)
    await _queue_capture(
        tx, [camera.device_id for camera in empty if camera.dialect == dialects.ESP32CAM]
    )


async def _queue_capture(tx: db.Connection, device_ids: Sequence[UUID]) -> None:
    if device_ids:
        await tx.execute(_QUEUE_CAPTURE, {"by": GATEWAY, "cameras": list(device_ids)})


async def _delete_queued(tx: db.Connection, name: str, device_ids: Sequence[UUID]) -> None:
    await tx.execute(
        "delete from camera_commands where device_id = any(%s::uuid[]) and name = %s "
        "and state = 'queued' and created_by = %s",
        (list(device_ids), name, GATEWAY),
    )


async def after_last_image(tx: db.Connection, device_ids: Sequence[UUID]) -> None:
    """Queue capture_image for those cameras that have sent all images they held (C-117)."""
    rows = await db.fetch_all(
        tx,
        """
        select d.device_id from devices d join camera_states s on s.device_id = d.device_id
        where d.device_id = any(%s::uuid[]) and d.dialect = %s and d.pending_count > 0
          and d.pending_count = (
            select count(*) from camera_transfers t where t.device_id = d.device_id
              and t.announced_at > s.hello_at and t.acknowledged_at > s.hello_at)
        """,
        list(device_ids),
        dialects.ESP32CAM,
    )
    await _queue_capture(tx, [row[0] for row in rows])


async def note_own_images(tx: db.Connection, device_ids: Sequence[UUID]) -> None:
    """Note whether these cameras took this wake's image without a command (C-117).

    They did if they announced more images than were requested. They need no capture_image.
    """
    if not device_ids:
        return
    await tx.execute(
        """
        update camera_states s set captures_unasked = coalesce(s.captures_unasked, false) or (
          select count(*) from camera_transfers t
          where t.device_id = s.device_id and t.opened_at >= s.hello_at) > (
          select count(*) from camera_commands c where c.device_id = s.device_id
            and c.sent_at >= s.hello_at and c.name in ('capture_image', 'send_image'))
        where s.device_id = any(%s::uuid[]) and s.captures_unasked is not true
          and s.hello_at is not null
        """,
        (list(device_ids),),
    )
    await _delete_queued(tx, "capture_image", device_ids)


async def queue_resends(tx: db.Connection, *, awake_s: float) -> int:
    """Queue images that people requested, of cameras that are awake."""
    cursor = await tx.execute(
        f"""
        {_INSERT}
        select fn_uuid_v7(), i.company_id, i.device_id, 'send_image', i.image_id, i.image_name,
          %s, fn_now()
        from device_images i join camera_states s on s.device_id = i.device_id
        where s.heard_at > (select fn_now()) - %s * interval '1 second' and i.status <> 'complete'
          and i.resend_requested_at is not null
          and not exists (
            select from camera_commands c
            where c.image_id = i.image_id and c.created_at >= i.resend_requested_at)
        """.encode(),  # noqa: S608 - no input
        (GATEWAY, awake_s),
    )
    return cursor.rowcount


async def cameras_with_requests(tx: db.Connection, device_ids: Sequence[UUID]) -> set[UUID]:
    """Those of these cameras with a send_image that is queued or not answered."""
    rows = await db.fetch_all(
        tx,
        "select distinct device_id from camera_commands where device_id = any(%s::uuid[]) "
        "and name = 'send_image' and state in ('queued', 'sent')",
        list(device_ids),
    )
    return {row[0] for row in rows}


async def match_announcement(
    tx: db.Connection, camera: Camera, image_id: UUID, image_name: str
) -> None:
    """An announcement answers a send_image of its name, or without a name.

    In that case the image is not requested by name too.
    """
    image = {"device": camera.device_id, "image": image_id, "name": image_name, "by": GATEWAY}
    await tx.execute(
        """
        delete from camera_commands c
        where c.image_id = %(image)s and c.state = 'queued' and c.created_by = %(by)s and exists (
          select from camera_commands o
          where o.device_id = c.device_id and o.name = 'send_image' and o.state = 'sent'
            and o.image_id is null and o.image_name is null)
        """,
        image,
    )
    await tx.execute(
        """
        update camera_commands c set image_id = %(image)s
        where c.command_id = (
          select o.command_id from camera_commands o
          where o.device_id = %(device)s and o.name = 'send_image' and o.state = 'sent'
            and o.image_id is null and coalesce(o.image_name, %(name)s) = %(name)s
          order by o.created_at limit 1)
          and not exists (
            select from camera_commands n where n.image_id = %(image)s
              and n.state in ('queued', 'sent'))
        """,
        image,
    )


async def end_requests(
    tx: db.Connection, image_ids: Sequence[UUID], *, state: Literal["done", "failed"]
) -> None:
    if image_ids:
        await tx.execute(
            "update camera_commands set state = %s, ended_at = fn_now() "
            "where image_id = any(%s::uuid[]) and name = 'send_image' "
            "and state in ('queued', 'sent')",
            (state, list(image_ids)),
        )


async def next_to_send(tx: db.Connection, *, awake_s: float) -> Command | None:
    """The oldest command for a camera that is awake.

    An image is requested while no other one is being received; an open image of an earlier wake
    counts only when something of it arrives in this wake.
    """
    rows = await db.fetch_as(
        tx,
        Command,
        """
        select c.command_id, c.name, c.image_name, c.wake_at, d.dialect,
          coalesce(s.spelling, d.mac) as spelling, coalesce(p.timezone, 'UTC') as timezone
        from camera_commands c
        join devices d on d.device_id = c.device_id
        join camera_states s on s.device_id = c.device_id
        left join sites p on p.site_id = d.site_id
        where c.state = 'queued' and d.is_active
          and s.heard_at > (select fn_now()) - %(awake_s)s * interval '1 second'
          and (c.wake_at is null or c.wake_at > (select fn_now()))
          and (c.name <> 'capture_image' or c.created_by <> %(gateway)s or (
            (s.captures_unasked is false
              or s.heard_at < (select fn_now()) - %(quiet_s)s * interval '1 second')
            and not exists (
              select from camera_transfers t
              where t.device_id = c.device_id and t.state = 'receiving'
                and t.heard_at >= s.hello_at)))
          and (c.name <> 'send_image' or (
            not exists (
              select from camera_commands o
              where o.device_id = c.device_id and o.name = 'send_image' and o.state = 'sent')
            and not exists (
              select from camera_transfers t
              where t.device_id = c.device_id and t.due_at is not null
                and t.state in ('receiving', 'complete')
                and (s.hello_at is null or t.heard_at >= s.hello_at))))
        order by c.created_at, c.command_id limit 1
        """,
        {"awake_s": awake_s, "gateway": GATEWAY, "quiet_s": CAPTURE_QUIET_S},
    )
    return rows[0] if rows else None


async def mark_sent(tx: db.Connection, command_id: UUID, *, unanswerable: bool) -> None:
    """A send_image is done when its image arrives; other commands have no answer."""
    await tx.execute(
        """
        update camera_commands set sent_at = fn_now(),
          state = case when %s then 'failed' when name = 'send_image' then 'sent' else 'done' end,
          ended_at = case when %s or name <> 'send_image' then fn_now() end
        where command_id = %s and state = 'queued'
        """,
        (unanswerable, unanswerable, command_id),
    )


async def expire(tx: db.Connection) -> int:
    """End commands that are too old, or whose wake time has passed."""
    cursor = await tx.execute(
        """
        update camera_commands set state = 'expired', ended_at = fn_now()
        where state in ('queued', 'sent')
          and (created_at < (select fn_now()) - %s * interval '1 second'
            or (state = 'queued' and wake_at <= (select fn_now())))
        """,
        (MAX_AGE_S,),
    )
    return cursor.rowcount
