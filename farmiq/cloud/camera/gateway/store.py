"""SQL of the gateway: transfers, chunks, the end of an image, quarantine.

A batch of messages is written in a fixed number of statements, whatever its size.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from farmiq.cloud.camera.gateway import commands
from farmiq.cloud.camera.gateway.camera_store import Camera
from farmiq.cloud.camera.gateway.chunks import CameraState, Transfer
from farmiq.plumbing import db, ids

# As at the edge (C-82); less for senders that are not registered.
MAX_RAW_BYTES = 256 * 1024
MAX_RAW_BYTES_UNKNOWN = 16 * 1024
_MAX_TOPIC = 512
_MAX_REASONS = 30
_MAX_REASON = 400
_NUL = "\x00"
_TRANSFER_COLUMNS = tuple(Transfer.__struct_fields__)


@dataclass(slots=True, kw_only=True, eq=False)
class Row:
    """A row of camera_transfers; `transfer` is replaced when it changes.

    `digests` are of the chunks of a stored image, `sizes` the number and size of each chunk that is
    stored of an image without an announcement. `is_changed`: write all columns, not only what
    `new_chunks` change.
    """

    transfer_id: UUID
    company_id: UUID
    device_id: UUID
    image_id: UUID | None = None
    image_name: str
    dialect: str
    spelling: str
    announced_at: datetime | None = None
    ended_at: datetime | None = None
    due_at: datetime | None = None
    reason: str | None = None
    transfer: Transfer
    acknowledged_count: int = 0
    digests: bytes = b""
    sizes: list[tuple[int, int]] = field(default_factory=list)
    is_new: bool = False
    is_changed: bool = False
    new_chunks: dict[int, bytes] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether the image waits to be stored."""
        return self.transfer.state == "receiving" and self.transfer.is_whole


async def now(tx: db.Connection) -> datetime:
    time: datetime = await db.fetch_value(tx, "select fn_now()")
    return time


# --- transfers

_SELECT = f"""
  select transfer_id, company_id, device_id, image_id, image_name, dialect, spelling,
    announced_at, ended_at, due_at, reason, acknowledged_count,
    case when state = 'complete' then coalesce(digests, '') else '' end as digests,
    case when total_chunks is null then array(
      select array[c.chunk_id, octet_length(c.data)] from camera_chunks c
      where c.transfer_id = camera_transfers.transfer_id) else '{{}}' end as sizes,
    {", ".join(_TRANSFER_COLUMNS)}
  from camera_transfers
"""  # noqa: S608 - names of our own columns


async def transfers_of(
    tx: db.Connection, device_ids: Sequence[UUID], *, recent_s: float
) -> list[Row]:
    """Transfers that chunks may belong to: open, failed, or just stored; locked."""
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


async def transfers_of_images(tx: db.Connection, image_ids: Sequence[UUID]) -> list[Row]:
    return await _rows(
        tx,
        _SELECT + "where image_id = any(%s::uuid[]) order by transfer_id for update",
        (list(image_ids),),
    )


async def transfers(tx: db.Connection, transfer_ids: Sequence[UUID]) -> list[Row]:
    """Those that still exist, without those that are locked already; locked."""
    where = "where transfer_id = any(%s::uuid[]) order by transfer_id for update skip locked"
    return await _rows(tx, _SELECT + where, (list(transfer_ids),))


# Those with all chunks are assembled, the others answered.
_IS_WHOLE = "coalesce(state = 'receiving' and received_count = total_chunks, false)"


async def due(tx: db.Connection, *, limit: int) -> list[tuple[UUID, UUID]]:
    """(transfer, camera) of answers, due first, one per camera; not locked."""
    rows = await db.fetch_all(
        tx,
        f"""
        select distinct on (d.device_id) d.transfer_id, d.device_id from (
          select transfer_id, device_id, due_at from camera_transfers
          where due_at <= (select fn_now()) and not {_IS_WHOLE}
          order by due_at limit %s) d
        order by d.device_id, d.due_at
        """,  # noqa: S608 - no input
        limit,
    )
    return [(row[0], row[1]) for row in rows]


async def due_to_store(tx: db.Connection, *, limit: int, exclude: Sequence[UUID]) -> list[Row]:
    """Images with all chunks, due first, one per camera; not locked."""
    rows = await _rows(
        tx,
        f"""{_SELECT}
        where due_at <= (select fn_now()) and {_IS_WHOLE} and transfer_id <> all(%s::uuid[])
        order by due_at limit %s
        """,
        (list(exclude), limit),
    )
    first: dict[UUID, Row] = {}
    for row in rows:
        first.setdefault(row.device_id, row)
    return list(first.values())


async def next_due_s(tx: db.Connection) -> float | None:
    """Seconds until the next answer is due."""
    delay_s: float | None = await db.fetch_value(
        tx,
        f"""
        select extract(epoch from min(due_at) - fn_now())::float8 from camera_transfers
        where due_at is not null and not {_IS_WHOLE}
        """,  # noqa: S608 - no input
    )
    return delay_s


_COLUMNS = {
    "transfer_id": "uuid", "company_id": "uuid", "device_id": "uuid", "image_id": "uuid",
    "image_name": "text", "dialect": "text", "spelling": "text", "announced_at": "timestamptz",
    "ended_at": "timestamptz", "due_at": "timestamptz", "reason": "text", "state": "text",
    "total_chunks": "integer", "image_size": "bigint", "chunk_size": "integer",
    "first_chunk_id": "integer", "sha256": "bytea", "received": "bytea",
    "received_count": "integer", "received_bytes": "bigint", "rounds": "integer",
    "rounds_in_vain": "integer", "spoiled": "integer", "heard_at": "timestamptz",
    "asked_at": "timestamptz",
}  # fmt: skip
_PACKED: dict[str, type[list[bytes]]] = {
    "uuid": db.Uuids, "text": db.Texts, "timestamptz": db.Instants, "integer": db.Integers,
    "bigint": db.Integers, "bytea": db.Byteas,
}  # fmt: skip
_KEYS = ("transfer_id", "company_id", "device_id")
_SAVE = f"""
  insert into camera_transfers ({", ".join(_COLUMNS)}, opened_at)
  select {", ".join(f"r.{name}" for name in _COLUMNS)}, (select fn_now())
  from unnest({", ".join(f"%({name})s::{kind}[]" for name, kind in _COLUMNS.items())})
    as r({", ".join(_COLUMNS)})
  on conflict on constraint camera_transfers_pkey do update set
    {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name not in _KEYS)}
"""  # noqa: S608 - names of our own columns


async def save(tx: db.Connection, rows: Sequence[Row]) -> None:
    """Insert or update all columns, in one statement."""
    if not rows:
        return
    values = {
        name: db.packed(
            _PACKED[kind],
            [getattr(row.transfer if name in _TRANSFER_COLUMNS else row, name) for row in rows],
        )
        for name, kind in _COLUMNS.items()
    }
    await tx.execute(_SAVE.encode(), values)


async def save_progress(tx: db.Connection, rows: Sequence[Row]) -> None:
    """Update what new chunks change, in one statement."""
    if not rows:
        return
    await tx.execute(
        """
        update camera_transfers t set received = r.received, received_count = r.received_count,
          received_bytes = r.received_bytes, rounds_in_vain = 0, heard_at = r.heard_at,
          due_at = r.due_at, spelling = r.spelling
        from unnest(%s::uuid[], %s::bytea[], %s::integer[], %s::bigint[], %s::timestamptz[],
          %s::timestamptz[], %s::text[]) as r(transfer_id, received, received_count,
          received_bytes, heard_at, due_at, spelling)
        where t.transfer_id = r.transfer_id
        """,
        (
            db.packed(db.Uuids, [row.transfer_id for row in rows]),
            db.packed(db.Byteas, [row.transfer.received for row in rows]),
            db.packed(db.Integers, [row.transfer.received_count for row in rows]),
            db.packed(db.Integers, [row.transfer.received_bytes for row in rows]),
            db.packed(db.Instants, [row.transfer.heard_at for row in rows]),
            db.packed(db.Instants, [row.due_at for row in rows]),
            db.packed(db.Texts, [row.spelling for row in rows]),
        ),
    )


async def note_requests(tx: db.Connection, requests: Sequence[Row]) -> None:
    """The next chunks without a name answer these requests, if a camera has no current transfer.

    Some cameras send HELLO when they reconnect during an image and continue without another
    announcement.
    """
    if requests:
        await tx.execute(
            """
            update devices d set speaks_of = a.transfer_id
            from unnest(%s::uuid[], %s::uuid[]) as a(device_id, transfer_id)
            where d.device_id = a.device_id and d.speaks_of is null
            """,
            ([row.device_id for row in requests], [row.transfer_id for row in requests]),
        )


async def remove(tx: db.Connection, transfer_id: UUID) -> None:
    await tx.execute("delete from camera_transfers where transfer_id = %s", (transfer_id,))


async def postpone(tx: db.Connection, transfer_ids: Sequence[UUID], *, wait_s: float) -> None:
    await tx.execute(
        "update camera_transfers set due_at = (select fn_now()) + %s * interval '1 second' "
        "where transfer_id = any(%s::uuid[]) and due_at is not null",
        (wait_s, list(transfer_ids)),
    )


async def camera_states(
    tx: db.Connection, transfer_ids: Sequence[UUID], *, days: float
) -> dict[UUID, CameraState]:
    """By transfer; its camera is locked.

    An image with all chunks does not count as open, except the one announced last: the camera waits
    for its ACK_OK and must not get another one before. Messages of one transaction have the same
    time. A camera sends its current image, or if it has none the one announced last.
    """
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            """
            select t.transfer_id, t.acknowledged_count, t.heard_at,
              coalesce(s.heard_at, t.heard_at) as camera_heard_at, s.hello_at as greeted_at,
              coalesce(o.is_open, false) as other_is_open, o.announced_at as other_announced_at,
              not d.is_active as is_retired, exists (
                select from camera_transfers n
                where n.device_id = t.device_id and n.transfer_id <> t.transfer_id
                  and n.state = 'receiving' and n.received_count < n.total_chunks
                  and (n.transfer_id = d.speaks_of
                    or (d.speaks_of is distinct from t.transfer_id
                      and (n.announced_at, n.transfer_id) > (t.announced_at, t.transfer_id)))
              ) as sends_another,
              coalesce(o.announced_at >= t.announced_at, false) as is_overtaken
            from camera_transfers t
            join devices d on d.device_id = t.device_id
            left join camera_states s on s.device_id = d.device_id
            left join lateral (
              select max(n.announced_at) as announced_at,
                bool_or(n.state = 'receiving'
                  and (n.received_count < n.total_chunks or n.announced_at >= t.heard_at)
                ) as is_open
              from camera_transfers n
              where n.device_id = t.device_id and n.image_name = t.image_name
                and n.transfer_id <> t.transfer_id and n.total_chunks is not null
                and n.opened_at > (select fn_now()) - %s * interval '1 day') o on true
            where t.transfer_id = any(%s::uuid[])
            """,
            (days, list(transfer_ids)),
        )
        return {row.pop("transfer_id"): CameraState(**row) for row in await cursor.fetchall()}


async def count_acknowledgements(tx: db.Connection, transfer_ids: Sequence[UUID]) -> None:
    """Counted before they are sent: after a crash nobody knows whether one was."""
    await tx.execute(
        "update camera_transfers set acknowledged_at = (select fn_now()), "
        "acknowledged_count = acknowledged_count + 1 where transfer_id = any(%s::uuid[])",
        (list(transfer_ids),),
    )


async def note_acknowledged(
    tx: db.Connection, transfer_ids: Sequence[UUID], *, decided_at: datetime
) -> None:
    """ACK_OK was sent; it stays due if the camera repeated the image since."""
    await tx.execute(
        "update camera_transfers set due_at = case when due_at > %s then due_at end "
        "where transfer_id = any(%s::uuid[])",
        (decided_at, list(transfer_ids)),
    )


# --- chunks


async def store_chunks(tx: db.Connection, rows: Sequence[Row]) -> None:
    """Store the new chunks of these rows."""
    chunks = [(row, *chunk) for row in rows for chunk in row.new_chunks.items()]
    if chunks:
        await tx.execute(
            """
            insert into camera_chunks (transfer_id, company_id, chunk_id, data)
            select * from unnest(%s::uuid[], %s::uuid[], %s::int[], %s::bytea[])
            """,
            (
                db.packed(db.Uuids, [row.transfer_id for row, _, _ in chunks]),
                db.packed(db.Uuids, [row.company_id for row, _, _ in chunks]),
                db.packed(db.Integers, [number for _, number, _ in chunks]),
                db.packed(db.Byteas, [data for _, _, data in chunks]),
            ),
        )


async def differing(tx: db.Connection, chunks: Sequence[tuple[UUID, int, bytes]]) -> list[int]:
    """Indexes of those (transfer, chunk_id, bytes) that are stored with other bytes."""
    if not chunks:
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
        [chunk[0] for chunk in chunks],
        [chunk[1] for chunk in chunks],
        db.packed(db.Byteas, [chunk[2] for chunk in chunks]),
    )
    return [row[0] for row in rows]


async def pieces(tx: db.Connection, transfer_ids: Sequence[UUID]) -> dict[UUID, list[bytes]]:
    """The chunks of each transfer, in order."""
    cursor = tx.cursor(binary=True)
    await cursor.execute(
        "select transfer_id, data from camera_chunks where transfer_id = any(%s::uuid[]) "
        "order by transfer_id, chunk_id",
        (list(transfer_ids),),
    )
    chunks: dict[UUID, list[bytes]] = {transfer_id: [] for transfer_id in transfer_ids}
    for transfer_id, data in await cursor.fetchall():
        chunks[transfer_id].append(bytes(data))
    return chunks


async def drop_chunks(
    tx: db.Connection, transfer_ids: Sequence[UUID], *, numbers: Sequence[int] | None = None
) -> None:
    await tx.execute(
        "delete from camera_chunks where transfer_id = any(%s::uuid[]) "
        "and (%s::int[] is null or chunk_id = any(%s::int[]))",
        (list(transfer_ids), numbers, numbers),
    )


async def stored_lately(tx: db.Connection, row: Row, *, recent_s: float) -> list[tuple[UUID, str]]:
    """(transfer, object key) of images of the camera that these chunks may belong to."""
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
    return [(transfer_id, key) for transfer_id, key in rows]


async def schedule_acknowledgement(
    tx: db.Connection, transfer_id: UUID, *, heard_at: datetime, due_at: datetime
) -> None:
    await tx.execute(
        "update camera_transfers set heard_at = greatest(heard_at, %s), due_at = %s "
        "where transfer_id = %s",
        (heard_at, due_at, transfer_id),
    )


# --- how an image ends


async def complete(tx: db.Connection, stored: Sequence[tuple[Row, str, bytes]]) -> None:
    """`stored`: (transfer, object key, digests of its chunks). Their acknowledgements are due.

    Their chunks and requests are not needed any more.

    An image that had failed is a retry if its name is unique (C-59).
    """
    image_ids, keys = [row.image_id for row, _, _ in stored], [key for _, key, _ in stored]
    await tx.execute(
        """
        select fn_retry_by_id_handler(
          device_id => i.device_id, image_name => i.image_name, new_image_url => s.image_url)
        from unnest(%s::uuid[], %s::text[]) as s(image_id, image_url)
        join device_images i on i.image_id = s.image_id
        where i.status = 'failed' and not exists (
          select from device_images o
          where o.device_id = i.device_id and o.image_name = i.image_name
            and o.status <> 'complete' and o.image_id <> i.image_id)
        """,
        (image_ids, keys),
    )
    await tx.execute("select fn_complete_images(%s::uuid[], %s::text[])", (image_ids, keys))
    await tx.execute(
        """
        with complete as (
          update camera_transfers t set state = 'complete', digests = s.digests, reason = null,
            ended_at = (select fn_now()), due_at = (select fn_now())
          from unnest(%s::uuid[], %s::bytea[]) as s(transfer_id, digests)
          where t.transfer_id = s.transfer_id
          returning t.transfer_id, t.image_id
        ), requests as (
          update camera_commands c set state = 'done', ended_at = (select fn_now())
          from complete n where c.image_id = n.image_id and c.name = 'send_image'
            and c.state in ('queued', 'sent'))
        delete from camera_chunks c using complete n where c.transfer_id = n.transfer_id
        """,
        (
            db.packed(db.Uuids, [row.transfer_id for row, _, _ in stored]),
            db.packed(db.Byteas, [digests for _, _, digests in stored]),
        ),
    )


async def fail(tx: db.Connection, image_id: UUID, *, code: str, message: str) -> None:
    """Its requests end with it."""
    await tx.execute(
        "select fn_image_failure_handler(image_id => %s, error_code => %s, error_message => %s)",
        (image_id, code, message),
    )
    await commands.end_requests(tx, [image_id], state="failed")


async def _rows(tx: db.Connection, statement: str, args: Any) -> list[Row]:
    async with tx.cursor(row_factory=dict_row, binary=True) as cursor:
        await cursor.execute(statement.encode(), args)
        records = await cursor.fetchall()
    return [
        Row(transfer=Transfer(**{name: record.pop(name) for name in _TRANSFER_COLUMNS}), **record)
        for record in records
    ]


# --- quarantine


@dataclass(frozen=True, slots=True)
class RejectedMessage:
    """A message for quarantine."""

    topic: str
    raw: bytes
    kind: str
    reasons: list[str]
    mac: str | None = None
    camera: Camera | None = None


async def quarantine(tx: db.Connection, rejected: Sequence[RejectedMessage]) -> None:
    """Store messages; the same bytes again only increase a count."""
    rows = sorted(map(_columns, rejected), key=lambda row: row["sha256"])
    async with tx.cursor() as cursor:
        await cursor.executemany(
            """
            insert into camera_quarantine as q (quarantine_id, company_id, device_id, mac, topic,
              raw, raw_size_bytes, message_sha256, kind, reasons, first_received_at,
              last_received_at)
            values (%(id)s, %(company)s, %(device)s, %(mac)s, %(topic)s, %(raw)s, %(size)s,
              %(sha256)s, %(kind)s, %(reasons)s, fn_now(), fn_now())
            on conflict on constraint camera_quarantine_message_key do update set
              received_count = q.received_count + 1, reasons = excluded.reasons,
              kind = excluded.kind, company_id = excluded.company_id,
              device_id = excluded.device_id, last_received_at = excluded.last_received_at
            """,
            rows,
        )


def _columns(message: RejectedMessage) -> dict[str, Any]:
    topic = message.topic.encode("utf-8", "backslashreplace")
    max_bytes = MAX_RAW_BYTES if message.camera else MAX_RAW_BYTES_UNKNOWN
    return {
        "id": ids.new(),
        "company": message.camera.company_id if message.camera else None,
        "device": message.camera.device_id if message.camera else None,
        "mac": message.mac,
        "topic": topic.decode().replace(_NUL, "\\x00")[:_MAX_TOPIC],
        "raw": message.raw[:max_bytes],
        "size": len(message.raw),
        "sha256": hashlib.sha256(topic + b"\0" + message.raw).digest(),
        "kind": message.kind,
        "reasons": storable(message.reasons),
    }


def storable(reasons: Sequence[str]) -> list[str]:
    """Cut to what a person reads."""
    more = len(reasons) - _MAX_REASONS
    shown = [*reasons[:_MAX_REASONS], *([f"and {more} more"] if more > 0 else [])]
    return [
        reason.replace(_NUL, "\\x00").encode("utf-8", "backslashreplace").decode()[:_MAX_REASON]
        for reason in shown
    ]
