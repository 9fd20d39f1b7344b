"""What cameras are told to do: one send_image after another, anything else when they are awake."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from psycopg.rows import class_row

from farmiq.cloud.camera.gateway import dialects
from farmiq.cloud.camera.gateway.store import Camera
from farmiq.cloud.camera.gateway.wire import Answer, CaptureImage, NextWake, SendImage
from farmiq.cloud.camera.telling import GATEWAY, MAX_QUEUED
from farmiq.plumbing import db

# A command that nobody could be told within so long is no longer meant.
LASTS_S = 86_400.0
# A camera that takes its picture unasked announces it sooner after HELLO than this; who was seen to
# wait for capture_image is not kept waiting (C-117).
CAPTURE_QUIET_S = 5.0


class Command:
    """One to send now."""

    def __init__(  # noqa: PLR0917 - a row
        self,
        command_id: UUID,
        name: str,
        image_name: str | None,
        wake_at: datetime | None,
        dialect: str,
        spelling: str,
        timezone: str,
    ) -> None:
        self.command_id, self.dialect, self.spelling = command_id, dialect, spelling
        self.told: Answer = CaptureImage()
        if name == "send_image":
            self.told = SendImage(image_name)
        elif wake_at is not None:
            self.told = NextWake(wake_at, timezone)


@dataclass(frozen=True, slots=True)
class Greeted:
    """A camera said HELLO, and holds so many images."""

    camera: Camera
    pending_count: int


async def after_hellos(tx: db.Connection, greeted: Sequence[Greeted]) -> None:
    """Cameras are awake: what they failed to send, and what people want again, is asked for.

    What was asked for in an earlier wake and did not come is asked for anew. Images that nobody
    knows by name are asked for without one, where the dialect allows it. A camera that is told to
    take its picture is told when it holds nothing and waits for that (C-117).
    """
    if not greeted:
        return
    device_ids = [each.camera.device_id for each in greeted]
    await tx.execute(
        "update camera_commands set state = 'expired', ended_at = fn_now() "
        "where device_id = any(%s::uuid[]) and name = 'send_image' and state = 'sent'",
        (device_ids,),
    )
    # What still waits to be asked for stays: a camera that says HELLO all the time costs no rows.
    # Nor does one that changes its mind; what people asked for is theirs, whatever it says.
    await tx.execute(
        "delete from camera_commands where device_id = any(%s::uuid[]) and name = 'send_image' "
        "and state = 'queued' and created_by = %s",
        ([each.camera.device_id for each in greeted if each.pending_count == 0], GATEWAY),
    )
    await _want(tx, greeted)
    nameless = [each for each in greeted if each.camera.dialect == dialects.STANDARD]
    if any(each.pending_count for each in nameless):
        await _want_nameless(tx, nameless)
    empty = [each for each in greeted if each.pending_count == 0]
    await want_capture(
        tx, [e.camera.device_id for e in empty if e.camera.dialect == dialects.ESP32CAM]
    )


async def want_capture(tx: db.Connection, device_ids: Sequence[UUID]) -> None:
    """These cameras may wait to be told to take this wake's picture (C-117).

    Not those that were seen to take it unasked: they would take two. Of whom nothing is known yet,
    next_to_send waits for longer than such a camera would.
    """
    if not device_ids:
        return
    await tx.execute(
        """
        insert into camera_commands (command_id, company_id, device_id, name, created_by,
          created_at)
        select fn_uuid_v7(), s.company_id, s.device_id, 'capture_image', %(by)s, fn_now()
        from camera_states s
        where s.device_id = any(%(cameras)s::uuid[]) and s.captures_unasked is not true
          and not exists (
          select from camera_commands c where c.device_id = s.device_id
            and c.name = 'capture_image' and c.state = 'queued')
        """,
        {"by": GATEWAY, "cameras": list(device_ids)},
    )


async def after_last_image(tx: db.Connection, device_ids: Sequence[UUID]) -> None:
    """Of these cameras, which held images, those that have sent them all take one now (C-117)."""
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
    await want_capture(tx, [row[0] for row in rows])


async def note_own_images(tx: db.Connection, device_ids: Sequence[UUID]) -> None:
    """These cameras announced an image of this wake: whether they take it unasked (C-117).

    They do if they announced more than they were asked for. And nobody who has announced one waits
    to be told to take it.
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
    await tx.execute(
        "delete from camera_commands where device_id = any(%s::uuid[]) "
        "and name = 'capture_image' and state = 'queued' and created_by = %s",
        (list(device_ids), GATEWAY),
    )


# When a camera was last asked for this image and said nothing of it: perhaps it has it no more.
_IN_VAIN_AT = """
  (select max(o.sent_at) from camera_commands o where o.image_id = i.image_id
    and o.state = 'expired' and o.sent_at > coalesce(i.announced_at, i.created_at))
"""


async def _want(tx: db.Connection, greeted: Sequence[Greeted]) -> None:
    """Queue send_image for what is known by name and not queued already, oldest first.

    What was asked for in vain comes last, or it would be asked for in every wake, and nothing else;
    what has no name comes before it, unless that was in vain since: some firmware knows names only.
    Of what the camera itself could not take there is nothing to send.
    """
    await tx.execute(
        f"""
        with greeted as (
          select * from unnest(%(cameras)s::uuid[], %(failed)s::boolean[]) as g(device_id, failed)
        ), known as (
          select i.device_id, i.company_id, i.image_id, i.image_name, i.captured_at,
            {_IN_VAIN_AT} as in_vain_at
          from greeted g join device_images i on i.device_id = g.device_id
          where i.status <> 'complete'
            and ((g.failed and i.status = 'failed'
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
        insert into camera_commands (command_id, company_id, device_id, name, image_id, image_name,
          created_by, created_at)
        select fn_uuid_v7(), w.company_id, w.device_id, 'send_image', w.image_id, w.image_name,
          %(by)s, fn_now() + w.place * interval '1 microsecond'
            + case when w.in_vain_at is null or w.in_vain_at < (
                select max(o.sent_at) from camera_commands o
                where o.device_id = w.device_id and o.name = 'send_image' and o.state = 'expired'
                  and o.image_id is null and o.image_name is null) then interval '0'
              else interval '2 milliseconds' end
        from wanted w where w.place <= %(most)s
        """.encode(),  # noqa: S608 - our own words
        {
            "cameras": [each.camera.device_id for each in greeted],
            "failed": [each.pending_count > 0 for each in greeted],
            "by": GATEWAY,
            "most": MAX_QUEUED,
        },
    )


async def _want_nameless(tx: db.Connection, greeted: Sequence[Greeted]) -> None:
    """As many as a camera holds beyond those that it is asked for by name.

    One that it was asked for in vain may not be among those it holds.
    """
    await tx.execute(
        f"""
        insert into camera_commands (command_id, company_id, device_id, name, created_by,
          created_at)
        select fn_uuid_v7(), g.company_id, g.device_id, 'send_image', %(by)s,
          fn_now() + interval '1 millisecond'
        from unnest(%(cameras)s::uuid[], %(companies)s::uuid[], %(pending)s::int[])
            as g(device_id, company_id, pending_count),
          lateral generate_series(1, g.pending_count - (
            select count(*)::int from camera_commands c
            left join device_images i on i.image_id = c.image_id
            where c.device_id = g.device_id and c.name = 'send_image' and c.state = 'queued'
              and (i.image_id is null or {_IN_VAIN_AT} is null)))
        """.encode(),  # noqa: S608 - our own words
        {
            "cameras": [each.camera.device_id for each in greeted],
            "companies": [each.camera.company_id for each in greeted],
            "pending": [min(each.pending_count, MAX_QUEUED) for each in greeted],
            "by": GATEWAY,
        },
    )


async def wanted_meanwhile(tx: db.Connection, *, awake_s: float) -> int:
    """People asked for images of cameras that are awake: they need not wait for the next wake."""
    cursor = await tx.execute(
        """
        insert into camera_commands (command_id, company_id, device_id, name, image_id, image_name,
          created_by, created_at)
        select fn_uuid_v7(), i.company_id, i.device_id, 'send_image', i.image_id, i.image_name,
          %s, fn_now()
        from device_images i join camera_states s on s.device_id = i.device_id
        where s.heard_at > (select fn_now()) - %s * interval '1 second' and i.status <> 'complete'
          and i.resend_requested_at is not null
          and not exists (
            select from camera_commands c
            where c.image_id = i.image_id and c.created_at >= i.resend_requested_at)
        """,
        (GATEWAY, awake_s),
    )
    return cursor.rowcount


async def asked(tx: db.Connection, device_ids: Sequence[UUID]) -> set[UUID]:
    """Which of these cameras were, or are to be, asked for an image."""
    rows = await db.fetch_all(
        tx,
        """
        select distinct device_id from camera_commands
        where device_id = any(%s::uuid[]) and name = 'send_image' and state in ('queued', 'sent')
        """,
        list(device_ids),
    )
    return {row[0] for row in rows}


async def answered_with(tx: db.Connection, camera: Camera, image_id: UUID, image_name: str) -> None:
    """An announcement came: a send_image without a name, or of this one, has got its image.

    It need not be asked for by name then.
    """
    await tx.execute(
        """
        delete from camera_commands c
        where c.image_id = %s and c.state = 'queued' and c.created_by = %s and exists (
          select from camera_commands o
          where o.device_id = c.device_id and o.name = 'send_image' and o.state = 'sent'
            and o.image_id is null and o.image_name is null)
        """,
        (image_id, GATEWAY),
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
        {"device": camera.device_id, "image": image_id, "name": image_name},
    )


async def ended(
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
    """The oldest for a camera that is awake; an image is asked for when no other is on its way.

    One of an earlier wake is not, before something of it comes in this one.
    """
    async with tx.cursor(row_factory=class_row(Command)) as cursor:
        await cursor.execute(
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
        return await cursor.fetchone()


async def mark(tx: db.Connection, command_id: UUID, *, unanswerable: bool) -> None:
    """Sent: a send_image waits for its image, all else has no answer and is done."""
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
    cursor = await tx.execute(
        "update camera_commands set state = 'expired', ended_at = fn_now() "
        "where state in ('queued', 'sent') "
        "and (created_at < (select fn_now()) - %s * interval '1 second' "
        # No camera is told to wake at a time that has passed.
        "or (state = 'queued' and wake_at <= (select fn_now())))",
        (LASTS_S,),
    )
    return cursor.rowcount
