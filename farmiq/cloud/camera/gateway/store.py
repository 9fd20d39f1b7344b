"""SQL of the gateway: cameras, transfers of images, their chunks, and how an image ends.

What a batch of messages changes is written in a fixed number of statements, however many it has.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from farmiq.cloud.camera import registry
from farmiq.cloud.camera.gateway.chunks import PendingAck, Transfer
from farmiq.cloud.camera.gateway.wire import Hello, Metadata
from farmiq.plumbing import db, ids, pg_binary

# The current transfer of a camera whose announcement was rejected, or whose chunks contradict the
# image that it announced: no image that is known.
NOTHING_KNOWN = UUID(int=0)
# Of a registered camera as much as at the edge (C-82); whoever else sends gets less of our disk.
MAX_RAW_BYTES = 256 * 1024
MAX_RAW_BYTES_UNKNOWN = 16 * 1024
_MAX_TOPIC = 512
_MAX_REASONS = 30
_MAX_REASON = 400
_NUL = "\x00"
# What decisions are made from; Transfer has the same names.
_KNOWN = tuple(Transfer.__dataclass_fields__)


@dataclass(frozen=True, slots=True)
class Camera:
    """A registered camera, in use or not."""

    mac: str
    device_id: UUID
    company_id: UUID
    dialect: str
    is_active: bool
    pending_count: int | None
    has_site: bool = True


@dataclass(frozen=True, slots=True)
class Wake:
    """An announced image, as it was before this announcement."""

    image_id: UUID
    is_complete: bool
    has_transfer: bool


@dataclass(slots=True)
class Row:
    """A transfer and whose it is; `transfer` is replaced as it changes.

    `digests` are those of a stored image's chunks. `is_changed`: all of it is to be written;
    `has_progress`: more chunks came, and nothing else changed.
    """

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
    acknowledged_count: int = 0
    digests: bytes = b""
    is_new: bool = False
    is_changed: bool = False
    has_progress: bool = False


async def now(tx: db.Connection) -> datetime:
    found: datetime = await db.fetch_value(tx, "select fn_now()")
    return found


# --- cameras

_BY_MAC = f"""
  select distinct on (d.mac) d.mac, d.device_id, d.company_id, d.dialect, d.is_active,
    d.pending_count, d.site_id is not null
  from devices d
  where d.mac = any(%s::text[]) and ({registry.IN_CHARGE} or (not d.is_active and not exists (
    select from devices o where o.mac = d.mac and o.is_active)))
  order by d.mac, d.created_at desc
"""  # noqa: S608 - the text is ours


async def by_mac(tx: db.Connection, macs: Sequence[str]) -> dict[str, Camera]:
    """Who has these addresses: the one in charge, else of those that were retired the last.

    An address that several claim, none proven and none with a login, is nobody's.
    """
    rows = await db.fetch_all(tx, _BY_MAC, list(macs))
    return {row[0]: Camera(*row) for row in rows}


async def lock(tx: db.Connection, device_ids: Sequence[UUID]) -> None:
    """In one order, before anything else of these cameras."""
    await tx.execute(
        "select from devices where device_id = any(%s::uuid[]) order by device_id "
        "for no key update",
        (list(device_ids),),
    )


async def current_transfers(
    tx: db.Connection, device_ids: Sequence[UUID], *, redriven: bool
) -> dict[UUID, UUID | None]:
    """Whose chunks without a name are: a transfer, NOTHING_KNOWN, or of what is announced next.

    `redriven`: of messages that are tried again, which are none of what the camera says now.
    """
    rows = await db.fetch_all(
        tx,
        "select device_id, case when %s then spoke_of else speaks_of end "
        "from devices where device_id = any(%s::uuid[])",
        redriven,
        list(device_ids),
    )
    return {row[0]: row[1] for row in rows}


async def set_current_transfers(
    tx: db.Connection, current: Mapping[UUID, UUID | None], *, redriven: bool
) -> None:
    """Write the current transfers of these cameras, which are locked."""
    await tx.execute(
        """
        update devices d
        set speaks_of = case when %(redriven)s then d.speaks_of else s.transfer_id end,
          spoke_of = case when %(redriven)s then s.transfer_id else d.spoke_of end
        from unnest(%(cameras)s::uuid[], %(transfers)s::uuid[]) as s(device_id, transfer_id)
        where d.device_id = s.device_id
        """,
        {"redriven": redriven, "cameras": list(current), "transfers": list(current.values())},
    )


async def reset_redriven(tx: db.Connection) -> None:
    """Chunks that are tried again follow an announcement that is tried with them, or none."""
    await tx.execute(
        """
        update devices d set spoke_of = null from (
          select device_id from devices where spoke_of is not null
          order by device_id for no key update) o
        where d.device_id = o.device_id
        """
    )


async def note_asked(tx: db.Connection, asked: Sequence[tuple[UUID, UUID]]) -> None:
    """Chunks without a name that come next answer this, unless the camera is at something else.

    `asked`: (camera, transfer). Some cameras greet when they come back in mid-image, and go on with
    it without another announcement.
    """
    if asked:
        await tx.execute(
            """
            update devices d set speaks_of = a.transfer_id
            from unnest(%s::uuid[], %s::uuid[]) as a(device_id, transfer_id)
            where d.device_id = a.device_id and d.speaks_of is null
            """,
            ([each[0] for each in asked], [each[1] for each in asked]),
        )


async def heard(tx: db.Connection, spoken: Sequence[tuple[Camera, str]]) -> None:
    """These cameras, which are locked, were heard just now."""
    device_ids = [camera.device_id for camera, _ in spoken]
    await tx.execute(
        "update devices set last_seen_at = (select fn_now()), "
        "proven_at = coalesce(proven_at, (select fn_now())) where device_id = any(%s::uuid[])",
        (device_ids,),
    )
    await tx.execute(
        """
        insert into camera_states (device_id, company_id, since, heard_at, spelling)
        select s.device_id, s.company_id, clock.now, clock.now, s.spelling
        from unnest(%s::uuid[], %s::uuid[], %s::text[]) as s(device_id, company_id, spelling),
          (select fn_now() as now) clock
        order by s.device_id
        on conflict on constraint camera_states_pkey do update
          set heard_at = excluded.heard_at, spelling = excluded.spelling
        """,
        (
            device_ids,
            [camera.company_id for camera, _ in spoken],
            [spelling for _, spelling in spoken],
        ),
    )


async def greeted(tx: db.Connection, hellos: Sequence[tuple[Camera, Hello]]) -> None:
    """These cameras, which are locked, said HELLO just now; each is here once."""
    device_ids = [camera.device_id for camera, _ in hellos]
    await tx.execute(
        """
        update devices d set pending_count = h.pending_count,
          battery_voltage = coalesce(h.battery_voltage, d.battery_voltage),
          wifi_rssi = coalesce(h.wifi_rssi, d.wifi_rssi),
          firmware = coalesce(h.firmware, d.firmware)
        from unnest(%s::uuid[], %s::integer[], %s::float8[], %s::float8[], %s::text[])
          as h(device_id, pending_count, battery_voltage, wifi_rssi, firmware)
        where d.device_id = h.device_id
        """,
        (
            device_ids,
            [hello.pending_count for _, hello in hellos],
            [hello.battery_voltage for _, hello in hellos],
            [hello.wifi_rssi for _, hello in hellos],
            [hello.firmware for _, hello in hellos],
        ),
    )
    await tx.execute(
        "update camera_states set hello_at = fn_now() where device_id = any(%s::uuid[])",
        (device_ids,),
    )


async def announce(tx: db.Connection, camera: Camera, said: Metadata, *, waited: bool) -> Wake:
    """The wake is written down, or found again: which image it is, and what was known of it.

    The statement sees an image as it was before; a new one it does not see.
    """
    telemetry = {**said.fields, "pending": True} if waited else said.fields
    rows = await db.fetch_all(
        tx,
        """
        with wake as materialized (
          select (fn_wake_ingestion_handler(device_id => %s, captured_at => %s, image_name => %s,
            telemetry_data => %s) ->> 'image_id')::uuid as image_id)
        select w.image_id,
          exists (
            select from device_images i where i.image_id = w.image_id and i.status = 'complete'),
          exists (select from camera_transfers t where t.image_id = w.image_id)
        from wake w
        """,
        camera.device_id,
        said.captured_at,
        said.image_name,
        Jsonb(telemetry),
    )
    return Wake(*rows[0])


async def silent_since_hello(tx: db.Connection, device_ids: Sequence[UUID]) -> list[UUID]:
    """Which of these cameras, in use, have said nothing since their last HELLO."""
    rows = await db.fetch_all(
        tx,
        """
        select s.device_id from camera_states s join devices d on d.device_id = s.device_id
        where s.device_id = any(%s::uuid[]) and s.heard_at <= s.hello_at and d.is_active
        """,
        list(device_ids),
    )
    return [row[0] for row in rows]


async def alert_unassigned(tx: db.Connection, camera: Camera, reason: str) -> None:
    await tx.execute(
        """
        select fn_raise_alert(company_id => %s, alert_type => 'unassigned_device',
          alert_date => fn_now()::date, message => %s, device_id => %s)
        """,
        (camera.company_id, reason, camera.device_id),
    )


# --- transfers

_SELECT = f"""
  select transfer_id, company_id, device_id, image_id, image_name, dialect, spelling,
    announced_at, ended_at, due_at, reason, acknowledged_count,
    case when state = 'complete' then digests end as digests, {", ".join(_KNOWN)}
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


async def transfers(
    tx: db.Connection, transfer_ids: Sequence[UUID], *, lock: bool = True
) -> list[Row]:
    """Those that are still there, locked; but for those that somebody else is at."""
    wanted = "where transfer_id = any(%s::uuid[]) order by transfer_id"
    locked = " for update skip locked" if lock else ""
    return await _rows(tx, _SELECT + wanted + locked, (list(transfer_ids),))


async def due(
    tx: db.Connection, *, whole: bool, most: int, but: Sequence[UUID] = ()
) -> list[tuple[UUID, UUID]]:
    """(transfer, camera) of what has been due for longest, one of a camera; not locked.

    `whole`: all chunks are here and wait to be assembled. Of `but` somebody takes care already.
    """
    rows = await db.fetch_all(
        tx,
        """
        select distinct on (d.device_id) d.transfer_id, d.device_id from (
          select transfer_id, device_id, due_at from camera_transfers
          where due_at <= (select fn_now()) and transfer_id <> all(%s::uuid[])
            and coalesce(state = 'receiving' and received_count = total_chunks, false) = %s
          order by due_at limit %s) d
        order by d.device_id, d.due_at
        """,
        list(but),
        whole,
        most,
    )
    return [(row[0], row[1]) for row in rows]


async def next_due_s(tx: db.Connection) -> float | None:
    """Seconds until an answer is due; None: nothing is waited for."""
    found: float | None = await db.fetch_value(
        tx,
        "select extract(epoch from min(due_at) - fn_now())::float8 from camera_transfers "
        "where due_at is not null and not coalesce("
        "state = 'receiving' and received_count = total_chunks, false)",
    )
    return found


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
_KEYS = ("transfer_id", "company_id", "device_id")
_SAVE = f"""
  insert into camera_transfers ({", ".join(_COLUMNS)}, opened_at)
  select {", ".join(f"r.{name}" for name in _COLUMNS)}, fn_now()
  from unnest({", ".join(f"%({name})s::{kind}[]" for name, kind in _COLUMNS.items())})
    as r({", ".join(_COLUMNS)})
  on conflict on constraint camera_transfers_pkey do update set
    {", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name not in _KEYS)}
"""  # noqa: S608 - names of our own columns


async def save(tx: db.Connection, rows: Sequence[Row]) -> None:
    """Write these transfers as they are now, new ones too, in one statement."""
    if not rows:
        return
    values = {
        name: [getattr(row.transfer if name in _KNOWN else row, name) for row in rows]
        for name in _COLUMNS
    }
    await tx.execute(_SAVE.encode(), values)


async def save_progress(tx: db.Connection, rows: Sequence[Row]) -> None:
    """More chunks of these are here: bitmaps and counts, in one statement."""
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
            db.Uuids(pg_binary.uuid(row.transfer_id) for row in rows),
            db.Byteas(pg_binary.bytea(row.transfer.received) for row in rows),
            [row.transfer.received_count for row in rows],
            [row.transfer.received_bytes for row in rows],
            [row.transfer.heard_at for row in rows],
            [row.due_at for row in rows],
            [row.spelling for row in rows],
        ),
    )


async def remove(tx: db.Connection, transfer_id: UUID) -> None:
    await tx.execute("delete from camera_transfers where transfer_id = %s", (transfer_id,))


async def postpone(tx: db.Connection, transfer_ids: Sequence[UUID], *, wait_s: float) -> None:
    await tx.execute(
        "update camera_transfers set due_at = fn_now() + %s * interval '1 second' "
        "where transfer_id = any(%s::uuid[]) and due_at is not null",
        (wait_s, list(transfer_ids)),
    )


class Standing(NamedTuple):
    """What else decides about a transfer: what its camera has done since."""

    pending_ack: PendingAck
    # Another image of whatever name is on its way: the camera has gone on to it.
    is_at_another: bool
    # It has announced another image of this name since, or together with it.
    is_overtaken: bool


async def standings(tx: db.Connection, rows: Sequence[Row], *, days: float) -> dict[UUID, Standing]:
    """By transfer; its camera is locked.

    Another image that is whole needs no more, but if it came last the camera waits for that one: it
    must not hear ACK_OK before that is stored. What is taken together has one time. The image that
    a camera is at is its current one; if that is none of its images, the one announced last.
    """
    found = await db.fetch_all(
        tx,
        """
        select t.transfer_id, coalesce(s.heard_at, t.heard_at), s.hello_at,
          coalesce(o.is_open, false), o.announced_at, not d.is_active, exists (
            select from camera_transfers n
            where n.device_id = t.device_id and n.transfer_id <> t.transfer_id
              and n.state = 'receiving' and n.received_count < n.total_chunks
              and (n.transfer_id = d.speaks_of
                or (d.speaks_of is distinct from t.transfer_id
                  and (n.announced_at, n.transfer_id) > (t.announced_at, t.transfer_id)))),
          coalesce(o.announced_at >= t.announced_at, false)
        from camera_transfers t
        join devices d on d.device_id = t.device_id
        left join camera_states s on s.device_id = d.device_id
        left join lateral (
          select max(n.announced_at) as announced_at,
            bool_or(n.state = 'receiving'
              and (n.received_count < n.total_chunks or n.announced_at >= t.heard_at)) as is_open
          from camera_transfers n
          where n.device_id = t.device_id and n.image_name = t.image_name
            and n.transfer_id <> t.transfer_id and n.total_chunks is not null
            and n.opened_at > (select fn_now()) - %s * interval '1 day') o on true
        where t.transfer_id = any(%s::uuid[])
        """,
        days,
        [row.transfer_id for row in rows],
    )
    by_id = {row.transfer_id: row for row in rows}
    return {
        each[0]: Standing(
            PendingAck(
                acknowledged_count=by_id[each[0]].acknowledged_count,
                heard_at=by_id[each[0]].transfer.heard_at,
                camera_heard_at=each[1],
                greeted_at=each[2],
                other_is_open=each[3],
                other_announced_at=each[4],
                is_retired=each[5],
            ),
            is_at_another=each[6],
            is_overtaken=each[7],
        )
        for each in found
    }


async def count_acknowledgements(tx: db.Connection, transfer_ids: Sequence[UUID]) -> None:
    """Counted before they are sent: who cannot know whether one arrived sends a repeat."""
    await tx.execute(
        "update camera_transfers set acknowledged_at = fn_now(), "
        "acknowledged_count = acknowledged_count + 1 where transfer_id = any(%s::uuid[])",
        (list(transfer_ids),),
    )


async def acknowledged(
    tx: db.Connection, transfer_ids: Sequence[UUID], *, decided_at: datetime
) -> None:
    """ACK_OK was sent; whoever asked again meanwhile gets another."""
    await tx.execute(
        "update camera_transfers set due_at = case when due_at > %s then due_at end "
        "where transfer_id = any(%s::uuid[])",
        (decided_at, list(transfer_ids)),
    )


# --- chunks


async def store_chunks(tx: db.Connection, found: Sequence[tuple[UUID, UUID, int, bytes]]) -> None:
    """(transfer, company, chunk_id, bytes) of each."""
    if found:
        await tx.execute(
            """
            insert into camera_chunks (transfer_id, company_id, chunk_id, data)
            select * from unnest(%s::uuid[], %s::uuid[], %s::int[], %s::bytea[])
            """,
            (
                db.Uuids(pg_binary.uuid(each[0]) for each in found),
                db.Uuids(pg_binary.uuid(each[1]) for each in found),
                [each[2] for each in found],
                db.Byteas(pg_binary.bytea(each[3]) for each in found),
            ),
        )


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


async def pieces(tx: db.Connection, transfer_ids: Sequence[UUID]) -> dict[UUID, list[bytes]]:
    """By transfer, its chunks in order."""
    cursor = tx.cursor(binary=True)
    await cursor.execute(
        "select transfer_id, data from camera_chunks where transfer_id = any(%s::uuid[]) "
        "order by transfer_id, chunk_id",
        (list(transfer_ids),),
    )
    found: dict[UUID, list[bytes]] = {each: [] for each in transfer_ids}
    for transfer_id, data in await cursor.fetchall():
        found[transfer_id].append(bytes(data))
    return found


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
    tx: db.Connection, transfer_ids: Sequence[UUID], *, numbers: Sequence[int] | None = None
) -> None:
    await tx.execute(
        "delete from camera_chunks where transfer_id = any(%s::uuid[]) "
        "and (%s::int[] is null or chunk_id = any(%s::int[]))",
        (list(transfer_ids), numbers, numbers),
    )


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
    """(transfer, where its image is stored, digests of its chunks): these images are complete.

    One that had failed is a retry, if its name alone says which (C-59). In the order in which
    others lock the days of these images.
    """
    await tx.execute(
        """
        select case when i.status = 'failed' and not exists (
            select from device_images o
            where o.device_id = i.device_id and o.image_name = i.image_name
              and o.status <> 'complete' and o.image_id <> i.image_id)
          then fn_retry_by_id_handler(
            device_id => i.device_id, image_name => i.image_name, new_image_url => s.image_url)
          else fn_image_completion_handler(image_id => i.image_id, image_url => s.image_url) end
        from unnest(%s::uuid[], %s::text[]) with ordinality as s(image_id, image_url, place)
        join device_images i on i.image_id = s.image_id
        order by s.place
        """,
        ([row.image_id for row, _, _ in stored], [key for _, key, _ in stored]),
    )
    await tx.execute(
        """
        update camera_transfers t set digests = s.digests
        from unnest(%s::uuid[], %s::bytea[]) as s(transfer_id, digests)
        where t.transfer_id = s.transfer_id
        """,
        (
            [row.transfer_id for row, _, _ in stored],
            db.Byteas(pg_binary.bytea(digests) for _, _, digests in stored),
        ),
    )


async def fail(tx: db.Connection, image_id: UUID, *, code: str, message: str) -> None:
    await tx.execute(
        "select fn_image_failure_handler(image_id => %s, error_code => %s, error_message => %s)",
        (image_id, code, message),
    )


async def _rows(tx: db.Connection, statement: str, args: Any) -> list[Row]:
    async with tx.cursor(row_factory=dict_row, binary=True) as cursor:
        await cursor.execute(statement.encode(), args)
        found = await cursor.fetchall()
    for row in found:
        row["digests"] = row["digests"] or b""
    return [
        Row(
            **{name: value for name, value in row.items() if name not in _KNOWN},
            transfer=Transfer(**{name: row[name] for name in _KNOWN}),
        )
        for row in found
    ]


def opened(camera: Camera, *, name: str, spelling: str, at: datetime) -> Row:
    """A transfer that is not written yet."""
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
        transfer=Transfer(heard_at=at),
        is_new=True,
        is_changed=True,
    )


# --- what is rejected


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
    """Keep the messages; the same bytes again only raise a count."""
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


def _columns(one: RejectedMessage) -> dict[str, Any]:
    topic = one.topic.encode("utf-8", "backslashreplace")
    most = MAX_RAW_BYTES if one.camera else MAX_RAW_BYTES_UNKNOWN
    return {
        "id": ids.new(),
        "company": one.camera.company_id if one.camera else None,
        "device": one.camera.device_id if one.camera else None,
        "mac": one.mac,
        "topic": topic.decode().replace(_NUL, "\\x00")[:_MAX_TOPIC],
        "raw": one.raw[:most],
        "size": len(one.raw),
        "sha256": hashlib.sha256(topic + b"\0" + one.raw).digest(),
        "kind": one.kind,
        "reasons": storable(one.reasons),
    }


def storable(reasons: Sequence[str]) -> list[str]:
    """As many and as long as a person reads."""
    more = len(reasons) - _MAX_REASONS
    shown = [*reasons[:_MAX_REASONS], *([f"and {more} more"] if more > 0 else [])]
    return [
        each.replace(_NUL, "\\x00").encode("utf-8", "backslashreplace").decode()[:_MAX_REASON]
        for each in shown
    ]
