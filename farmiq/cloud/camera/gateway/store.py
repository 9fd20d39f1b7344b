"""Transfers of images and their chunks, and how an image ends. SQL."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from farmiq.cloud.camera.gateway.cameras import Camera
from farmiq.cloud.camera.gateway.chunks import Owed, State, Transfer
from farmiq.plumbing import db, ids, pg_binary

# What decisions are made from; Transfer has the same names.
_KNOWN = tuple(Transfer.__dataclass_fields__)


@dataclass(slots=True)
class Row:
    """A transfer and whose it is; `transfer` is replaced as it changes."""

    transfer_id: UUID
    company_id: UUID
    device_id: UUID
    image_id: UUID | None
    image_name: str
    dialect: str
    spelling: str
    announced_at: datetime | None
    ended_at: datetime | None
    due_at: datetime | None
    reason: str | None
    transfer: Transfer
    told: int = 0
    is_new: bool = False
    is_changed: bool = False


async def now(tx: db.Connection) -> datetime:
    found: datetime = await db.fetch_value(tx, "select fn_now()")
    return found


# --- transfers

_SELECT = f"""
  select transfer_id, company_id, device_id, image_id, image_name, dialect, spelling,
    announced_at, ended_at, due_at, reason, acknowledged_count as told, {", ".join(_KNOWN)}
  from camera_transfers
"""  # noqa: S608 - names of our own columns


async def transfers_of(
    tx: db.Connection, device_ids: Sequence[UUID], *, recent_s: float
) -> list[Row]:
    """What chunks of these cameras may belong to: open, failed, or just stored; locked."""
    return await _rows(
        tx,
        _SELECT
        + """
        where device_id = any(%s::uuid[]) and (state = 'receiving'
          or (state = 'failed' and due_at is not null)
          or (state = 'complete'
            and greatest(ended_at, heard_at) > (select fn_now()) - %s * interval '1 second'))
        order by transfer_id for update
        """,
        (list(device_ids), recent_s),
    )


async def transfer_of_image(tx: db.Connection, image_id: UUID) -> Row | None:
    rows = await _rows(tx, _SELECT + "where image_id = %s for update", (image_id,))
    return rows[0] if rows else None


async def transfer(tx: db.Connection, transfer_id: UUID) -> Row | None:
    """Locked, unless somebody else is at it."""
    rows = await _rows(
        tx, _SELECT + "where transfer_id = %s for update skip locked", (transfer_id,)
    )
    return rows[0] if rows else None


async def next_due(
    tx: db.Connection, *, busy: Sequence[UUID], answering: bool = True
) -> tuple[UUID, UUID] | None:
    """(transfer, camera) of what has been due for longest, if its camera is not being served.

    Without `answering` no ACK_OK that is owed is among it.
    """
    rows = await db.fetch_all(
        tx,
        """
        select transfer_id, device_id from camera_transfers
        where due_at <= (select fn_now()) and device_id <> all(%s::uuid[])
          and (%s or state <> 'complete')
        order by due_at limit 1
        """,
        list(busy),
        answering,
    )
    return (rows[0][0], rows[0][1]) if rows else None


async def keep(tx: db.Connection, row: Row) -> None:
    """Write a transfer as it is now."""
    values = {name: getattr(row.transfer, name) for name in _KNOWN} | {
        "transfer_id": row.transfer_id,
        "company_id": row.company_id,
        "device_id": row.device_id,
        "image_id": row.image_id,
        "image_name": row.image_name,
        "dialect": row.dialect,
        "spelling": row.spelling,
        "announced_at": row.announced_at,
        "ended_at": row.ended_at,
        "due_at": row.due_at,
        "reason": row.reason,
    }
    await tx.execute(_KEEP.encode(), values)


_COLUMNS = (
    "transfer_id", "company_id", "device_id", "image_id", "image_name", "dialect", "spelling",
    "announced_at", "ended_at", "due_at", "reason", *_KNOWN,
)  # fmt: skip
_KEEP = f"""
  insert into camera_transfers ({", ".join(_COLUMNS)}, opened_at)
  values ({", ".join(f"%({name})s" for name in _COLUMNS)}, fn_now())
  on conflict on constraint camera_transfers_pkey do update set
    {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[3:])}
"""  # noqa: S608 - names of our own columns


async def remove(tx: db.Connection, transfer_id: UUID) -> None:
    await tx.execute("delete from camera_transfers where transfer_id = %s", (transfer_id,))


async def postpone(tx: db.Connection, transfer_id: UUID, *, wait_s: float) -> None:
    await tx.execute(
        "update camera_transfers set due_at = fn_now() + %s * interval '1 second' "
        "where transfer_id = %s and due_at is not null",
        (wait_s, transfer_id),
    )


async def owed(tx: db.Connection, row: Row, *, in_hand: bool, behind: bool, days: float) -> Owed:
    """What decides about this image's ACK_OK; its camera is locked.

    Another image that is whole needs no more, but if it came last the camera waits for that one: it
    must not hear ACK_OK before that is stored. What is taken together has one time.
    """
    rows = await db.fetch_all(
        tx,
        """
        select coalesce(s.heard_at, %s), s.hello_at, coalesce(o.is_open, false),
          o.announced_at, not d.is_active
        from (
          select max(announced_at) as announced_at,
            bool_or(state = 'receiving'
              and (received_count < total_chunks or announced_at >= %s)) as is_open
          from camera_transfers
          where device_id = %s and image_name = %s and transfer_id <> %s
            and total_chunks is not null
            and opened_at > (select fn_now()) - %s * interval '1 day') o
        join devices d on d.device_id = %s
        left join camera_states s on s.device_id = d.device_id
        """,
        row.transfer.heard_at,
        row.transfer.heard_at,
        row.device_id,
        row.image_name,
        row.transfer_id,
        days,
        row.device_id,
    )
    camera_heard_at, greeted_at, is_open, announced_at, is_retired = rows[0]
    return Owed(
        told=row.told,
        heard_at=row.transfer.heard_at,
        camera_heard_at=camera_heard_at,
        greeted_at=greeted_at,
        other_is_open=is_open,
        other_announced_at=announced_at,
        in_hand=in_hand,
        behind=behind,
        is_retired=is_retired,
    )


async def is_overtaken(tx: db.Connection, row: Row) -> bool:
    """Whether its camera has announced another image of this name since, or together with it."""
    found: bool = await db.fetch_value(
        tx,
        "select exists (select from camera_transfers where device_id = %s and image_name = %s "
        "and transfer_id <> %s and announced_at >= %s)",
        row.device_id,
        row.image_name,
        row.transfer_id,
        row.announced_at,
    )
    return found


async def is_at_another(tx: db.Connection, row: Row) -> bool:
    """Whether its camera has gone on with another image, of whatever name, that is on its way.

    That is the one it speaks of; if it speaks of none of them, the one announced last.
    """
    found: bool = await db.fetch_value(
        tx,
        """
        select exists (
          select from camera_transfers t join devices d on d.device_id = t.device_id
          where t.device_id = %s and t.transfer_id <> %s and t.state = 'receiving'
            and t.received_count < t.total_chunks
            and (t.transfer_id = d.speaks_of
              or (d.speaks_of is distinct from %s
                and (t.announced_at, t.transfer_id) > (%s::timestamptz, %s::uuid))))
        """,
        row.device_id,
        row.transfer_id,
        row.transfer_id,
        row.announced_at,
        row.transfer_id,
    )
    return found


async def telling(tx: db.Connection, transfer_id: UUID) -> None:
    """Counted before it is sent: who cannot know whether it arrived sends a repeat."""
    await tx.execute(
        "update camera_transfers set acknowledged_at = fn_now(), "
        "acknowledged_count = acknowledged_count + 1 where transfer_id = %s",
        (transfer_id,),
    )


async def told(tx: db.Connection, transfer_id: UUID, *, owed_since: datetime) -> None:
    """The camera was told; if it asked again meanwhile it is told again."""
    await tx.execute(
        "update camera_transfers set due_at = case when due_at > %s then due_at end "
        "where transfer_id = %s",
        (owed_since, transfer_id),
    )


# --- chunks


async def keep_chunks(tx: db.Connection, found: Sequence[tuple[UUID, UUID, int, bytes]]) -> None:
    """(transfer, company, chunk_id, bytes) of each."""
    if found:
        await tx.execute(
            """
            insert into camera_chunks (transfer_id, company_id, chunk_id, data)
            select * from unnest(%s::uuid[], %s::uuid[], %s::int[], %s::bytea[])
            """,
            (
                [each[0] for each in found],
                [each[1] for each in found],
                [each[2] for each in found],
                db.Byteas(pg_binary.bytea(each[3]) for each in found),
            ),
        )


async def is_here(
    tx: db.Connection, transfer_ids: Sequence[UUID], number: int, data: bytes
) -> bool:
    """Whether one of these has this very chunk, written before."""
    found: bool = await db.fetch_value(
        tx,
        "select exists (select from camera_chunks "
        "where transfer_id = any(%s::uuid[]) and chunk_id = %s and data = %s)",
        list(transfer_ids),
        number,
        data,
    )
    return found


async def differing(tx: db.Connection, found: Sequence[tuple[UUID, int, bytes]]) -> list[int]:
    """Which of these (transfer, chunk_id, bytes) are here with other bytes, by their places."""
    if not found:
        return []
    rows = await db.fetch_all(
        tx,
        """
        select r.place::int - 1 from camera_chunks c
        join unnest(%s::uuid[], %s::int[], %s::bytea[]) with ordinality
            as r(transfer_id, chunk_id, data, place)
          on r.transfer_id = c.transfer_id and r.chunk_id = c.chunk_id
        where c.data <> r.data
        order by r.place
        """,
        [each[0] for each in found],
        [each[1] for each in found],
        db.Byteas(pg_binary.bytea(each[2]) for each in found),
    )
    return [row[0] for row in rows]


async def pieces(tx: db.Connection, transfer_id: UUID) -> list[bytes]:
    rows = await db.fetch_all(
        tx,
        "select data from camera_chunks where transfer_id = %s order by chunk_id",
        transfer_id,
    )
    return [bytes(row[0]) for row in rows]


async def sizes(tx: db.Connection, transfer_id: UUID) -> list[tuple[int, int]]:
    """(chunk_id, bytes) of the chunks that are here."""
    rows = await db.fetch_all(
        tx,
        "select chunk_id, octet_length(data) from camera_chunks where transfer_id = %s "
        "order by chunk_id",
        transfer_id,
    )
    return [(row[0], row[1]) for row in rows]


async def drop_chunks(
    tx: db.Connection, transfer_id: UUID, *, numbers: Sequence[int] | None = None
) -> None:
    await tx.execute(
        "delete from camera_chunks where transfer_id = %s "
        "and (%s::int[] is null or chunk_id = any(%s::int[]))",
        (transfer_id, numbers, numbers),
    )


async def digests(tx: db.Connection, transfer_id: UUID) -> bytes:
    found: bytes | None = await db.fetch_value(
        tx, "select digests from camera_transfers where transfer_id = %s", transfer_id
    )
    return bytes(found or b"")


async def stored_lately(tx: db.Connection, row: Row, *, recent_s: float) -> list[tuple[UUID, str]]:
    """(transfer, where it is stored) of its camera's images that these chunks may be of."""
    rows = await db.fetch_all(
        tx,
        """
        select t.transfer_id, i.image_url
        from camera_transfers t join device_images i on i.image_id = t.image_id
        where t.device_id = %s and t.state = 'complete' and %s in ('', t.image_name)
          and greatest(t.ended_at, t.heard_at) > (select fn_now()) - %s * interval '1 second'
        order by greatest(t.ended_at, t.heard_at) desc limit 3
        """,
        row.device_id,
        row.image_name,
        recent_s,
    )
    return [(each[0], each[1]) for each in rows]


async def owe_acknowledgement(
    tx: db.Connection, transfer_id: UUID, *, heard_at: datetime, due_at: datetime
) -> None:
    await tx.execute(
        "update camera_transfers set heard_at = greatest(heard_at, %s), due_at = %s "
        "where transfer_id = %s",
        (heard_at, due_at, transfer_id),
    )


# --- how an image ends


async def complete(tx: db.Connection, row: Row, *, key: str, digests: bytes) -> None:
    """The image is stored. One that had failed is a retry, if its name alone says which (C-59)."""
    is_retry = await db.fetch_value(
        tx,
        """
        select i.status = 'failed' and not exists (
          select from device_images o
          where o.device_id = i.device_id and o.image_name = i.image_name
            and o.status <> 'complete' and o.image_id <> i.image_id)
        from device_images i where i.image_id = %s
        """,
        row.image_id,
    )
    if is_retry:
        await tx.execute(
            "select fn_retry_by_id_handler(device_id => %s, image_name => %s, new_image_url => %s)",
            (row.device_id, row.image_name, key),
        )
    else:
        await tx.execute(
            "select fn_image_completion_handler(image_id => %s, image_url => %s)",
            (row.image_id, key),
        )
    await tx.execute(
        "update camera_transfers set digests = %s where transfer_id = %s",
        (digests, row.transfer_id),
    )


async def fail(tx: db.Connection, image_id: UUID, *, code: str, message: str) -> None:
    await tx.execute(
        "select fn_image_failure_handler(image_id => %s, error_code => %s, error_message => %s)",
        (image_id, code, message),
    )


async def _rows(tx: db.Connection, statement: str, args: Any) -> list[Row]:
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(statement.encode(), args)
        found = await cursor.fetchall()
    return [
        Row(
            **{name: value for name, value in row.items() if name not in _KNOWN},
            transfer=Transfer(**{name: _plain(row[name]) for name in _KNOWN}),
        )
        for row in found
    ]


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, (bytes, memoryview)) else value


def opened(camera: Camera, *, name: str, spelling: str, at: datetime) -> Row:
    """A transfer that is not written yet."""
    state: State = "receiving"
    return Row(
        transfer_id=ids.new(),
        company_id=camera.company_id,
        device_id=camera.device_id,
        image_id=None,
        image_name=name,
        dialect=camera.dialect,
        spelling=spelling,
        announced_at=None,
        ended_at=None,
        due_at=None,
        reason=None,
        transfer=Transfer(state=state, heard_at=at),
        is_new=True,
        is_changed=True,
    )
