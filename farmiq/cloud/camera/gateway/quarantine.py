"""What was refused of cameras: kept with every reason, chosen, tried again, given up. Its SQL."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from farmiq.cloud.camera.gateway.store import Camera
from farmiq.plumbing import db, ids

# The name under which deeds stand among those of the bus (dead_letter_actions).
PILE = "camera_quarantine"
# Of a registered camera as much as at the edge (C-82); whoever else sends gets less of our disk.
MOST_RAW_BYTES = 256 * 1024
MOST_RAW_OF_STRANGERS = 16 * 1024
_MOST_TOPIC = 512
_MOST_REASONS = 30
_MOST_REASON = 400
_NUL = "\x00"


@dataclass(frozen=True, slots=True)
class Refused:
    """A message for quarantine."""

    topic: str
    raw: bytes
    kind: str
    reasons: list[str]
    mac: str | None = None
    camera: Camera | None = None


async def keep(tx: db.Connection, refused: Sequence[Refused]) -> None:
    """Keep the messages; the same bytes again only raise a count."""
    rows = sorted(map(_columns, refused), key=lambda row: row["sha256"])
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


def _columns(one: Refused) -> dict[str, Any]:
    topic = one.topic.encode("utf-8", "backslashreplace")
    most = MOST_RAW_BYTES if one.camera else MOST_RAW_OF_STRANGERS
    return {
        "id": ids.new(),
        "company": one.camera.company_id if one.camera else None,
        "device": one.camera.device_id if one.camera else None,
        "mac": one.mac,
        "topic": topic.decode().replace(_NUL, "\\x00")[:_MOST_TOPIC],
        "raw": one.raw[:most],
        "size": len(one.raw),
        "sha256": hashlib.sha256(topic + b"\0" + one.raw).digest(),
        "kind": one.kind,
        "reasons": storable(one.reasons),
    }


def storable(reasons: Sequence[str]) -> list[str]:
    """As many and as long as a person reads."""
    more = len(reasons) - _MOST_REASONS
    shown = [*reasons[:_MOST_REASONS], *([f"and {more} more"] if more > 0 else [])]
    return [
        each.replace(_NUL, "\\x00").encode("utf-8", "backslashreplace").decode()[:_MOST_REASON]
        for each in shown
    ]


@dataclass(frozen=True, slots=True)
class Which:
    """Which rows are meant; what is None does not choose."""

    ids: tuple[UUID, ...] | None = None
    kind: str | None = None
    mac: str | None = None
    reason: str | None = None
    older_than_hours: float | None = None

    @property
    def everything(self) -> bool:
        return self == Which()


@dataclass(frozen=True, slots=True)
class Row:
    """One message, without its bytes."""

    quarantine_id: UUID
    mac: str | None
    topic: str
    kind: str
    reasons: list[str]
    raw_size_bytes: int
    truncated: bool
    received_count: int
    first_received_at: datetime
    last_received_at: datetime
    redriven_count: int
    last_redriven_at: datetime | None


@dataclass(frozen=True, slots=True)
class Held:
    """A row whose lock is ours until the transaction ends."""

    quarantine_id: UUID
    topic: str
    raw: bytes
    came_at: datetime
    kind: str


_CHOSEN = """
  (%(ids)s::uuid[] is null or q.quarantine_id = any(%(ids)s::uuid[]))
  and (%(kind)s::text is null or q.kind = %(kind)s)
  and (%(mac)s::text is null or q.mac = %(mac)s)
  and (%(reason)s::text is null
    or position(lower(%(reason)s) in lower(array_to_string(q.reasons, e'\\n'))) > 0)
  and (%(older)s::float8 is null
    or q.last_received_at < (select fn_now()) - %(older)s * interval '1 hour')
"""
_ROW = """
  q.quarantine_id, q.mac, q.topic, q.kind, q.reasons, q.raw_size_bytes,
  q.raw_size_bytes > octet_length(q.raw) as truncated, q.received_count, q.first_received_at,
  q.last_received_at, q.redriven_count, q.last_redriven_at
"""


async def newest(connection: db.Connection, which: Which, *, most: int) -> list[Row]:
    async with connection.cursor(row_factory=class_row(Row)) as cursor:
        await cursor.execute(
            f"select {_ROW} from camera_quarantine q where {_CHOSEN} "  # noqa: S608 - ours, above
            "order by q.last_received_at desc, q.quarantine_id desc limit %(most)s",
            {**_choice(which), "most": most},
        )
        return await cursor.fetchall()


async def find(connection: db.Connection, quarantine_id: UUID) -> tuple[Row, bytes] | None:
    """One row and its bytes."""
    found = await newest(connection, Which(ids=(quarantine_id,)), most=1)
    raw = await db.fetch_value(
        connection, "select raw from camera_quarantine where quarantine_id = %s", quarantine_id
    )
    return (found[0], bytes(raw)) if found and raw is not None else None


async def counts(connection: db.Connection, which: Which) -> list[dict[str, Any]]:
    """Rows and messages by kind, most rows first."""
    cursor = await connection.execute(
        f"select q.kind, count(*), sum(q.received_count)::bigint from camera_quarantine q "  # noqa: S608
        f"where {_CHOSEN} group by 1 order by 2 desc, 1",
        _choice(which),
    )
    rows = await cursor.fetchall()
    return [{"kind": kind, "rows": number, "messages": messages} for kind, number, messages in rows]


async def chosen(connection: db.Connection, which: Which, *, most: int) -> list[tuple[UUID, bool]]:
    """(row, whether its bytes were cut short), in the order in which they came."""
    cursor = await connection.execute(
        f"""
        select q.quarantine_id, q.raw_size_bytes > octet_length(q.raw)
        from camera_quarantine q where {_CHOSEN} order by q.quarantine_id limit %(most)s
        """,  # noqa: S608
        {**_choice(which), "most": most},
    )
    return [(row[0], row[1]) for row in await cursor.fetchall()]


async def hold(tx: db.Connection, quarantine_id: UUID) -> Held | None:
    """None if it is gone, cut short, or somebody else's just now."""
    rows = await db.fetch_all(
        tx,
        """
        select quarantine_id, topic, raw, first_received_at, kind from camera_quarantine
        where quarantine_id = %s and raw_size_bytes = octet_length(raw)
        for update skip locked
        """,
        quarantine_id,
    )
    if not rows:
        return None
    found, topic, raw, came_at, kind = rows[0]
    return Held(found, topic, bytes(raw), came_at, kind)


async def still(
    tx: db.Connection, quarantine_id: UUID, *, kind: str, reasons: Sequence[str]
) -> None:
    """It was tried again and refused again: it stays, with the reasons of today."""
    await tx.execute(
        """
        update camera_quarantine set kind = %s, reasons = %s,
          redriven_count = redriven_count + 1, last_redriven_at = fn_now()
        where quarantine_id = %s
        """,
        (kind, storable(reasons), quarantine_id),
    )


async def note(
    tx: db.Connection, wanted: Sequence[UUID], *, actor: str, action: str, outcome: str
) -> None:
    """Who did what, beside the deeds on dead letters; what is discarded keeps its bytes there."""
    await tx.execute(
        """
        insert into dead_letter_actions (action_id, actor, action, queue, tenant_id, event_id,
          event_type, reason, outcome, body_sha256, body)
        select fn_uuid_v7(), %(actor)s, %(action)s, %(pile)s, c.tenant_id, q.quarantine_id::text,
          q.kind, array_to_string(q.reasons, '; '), %(outcome)s, q.message_sha256,
          case when %(action)s = 'discard' then q.raw end
        from camera_quarantine q left join companies c on c.company_id = q.company_id
        where q.quarantine_id = any(%(ids)s::uuid[])
        """,
        {
            "actor": actor, "action": action, "pile": PILE, "outcome": outcome,
            "ids": list(wanted),
        },
    )  # fmt: skip


async def drop(tx: db.Connection, wanted: Sequence[UUID]) -> int:
    cursor = await tx.execute(
        "delete from camera_quarantine where quarantine_id = any(%s::uuid[])", (list(wanted),)
    )
    return cursor.rowcount


def _choice(which: Which) -> dict[str, Any]:
    return {
        "ids": list(which.ids) if which.ids is not None else None,
        "kind": which.kind,
        "mac": which.mac,
        "reason": which.reason,
        "older": which.older_than_hours,
    }
