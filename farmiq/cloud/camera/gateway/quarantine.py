"""What was refused of cameras: listed, chosen, tried again after it was mended, given up."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import class_row

from farmiq.cloud.camera.gateway import handlers, store
from farmiq.cloud.camera.gateway.chunks import Pace
from farmiq.cloud.camera.gateway.wire import Sent
from farmiq.plumbing import db
from farmiq.plumbing.backoff import Backoff

# The name under which deeds stand among those of the bus (dead_letter_actions).
PILE = "camera_quarantine"


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
        (kind, store.storable(reasons), quarantine_id),
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


# --- tried again
#
# Each message in a transaction of its own: what is taken leaves quarantine together with its
# effect, what is refused stays with the reasons of today. A crash at any line leaves either.

PORTION = 100
_ATTEMPTS = 5
# Chunks of these kinds were refused by the image that they came for: they are of no other.
_COMPARED = frozenset({"limits", "conflict"})


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the `chosen` rows; `truncated` ones cannot be tried: their bytes are cut."""

    chosen: int
    truncated: int = 0
    accepted: int = 0
    refused: int = 0
    gone: int = 0
    dry_run: bool = False


async def redrive(
    pool: db.Pool, which: Which, *, pace: Pace, actor: str, most: int, dry_run: bool = False
) -> Result:
    """Try the rows again, in the order in which they came.

    Raises db.UNAVAILABLE if the database stays away.
    """
    async with pool.connection() as connection:
        meant = await chosen(connection, which, most=most)
    whole = [quarantine_id for quarantine_id, is_cut in meant if not is_cut]
    truncated = len(meant) - len(whole)
    if dry_run:
        return Result(len(meant), truncated, dry_run=True)
    async with db.transaction(pool) as tx:
        await store.reset_redriven(tx)
    done = [await _patiently(pool, each, pace=pace, actor=actor) for each in whole]
    accepted, refused = done.count("accepted"), done.count("refused")
    return Result(len(meant), truncated, accepted, refused, len(whole) - accepted - refused)


async def discard(
    pool: db.Pool, which: Which, *, actor: str, most: int, dry_run: bool = False
) -> Result:
    """Give the rows up for good; who did it and the bytes stand in dead_letter_actions."""
    async with pool.connection() as connection:
        meant = [each for each, _ in await chosen(connection, which, most=most)]
    gone = 0
    for start in range(0, 0 if dry_run else len(meant), PORTION):
        portion = meant[start : start + PORTION]
        async with db.transaction(pool) as tx:
            await note(tx, portion, actor=actor, action="discard", outcome="discarded")
            gone += await drop(tx, portion)
    return Result(len(meant), gone=gone, dry_run=dry_run)


async def _patiently(pool: db.Pool, quarantine_id: UUID, *, pace: Pace, actor: str) -> str:
    """A deadlock with the gateway, or a moment without the database, is tried again."""
    backoff = Backoff(cap_s=2.0)
    for _ in range(_ATTEMPTS - 1):
        try:
            return await _one(pool, quarantine_id, pace=pace, actor=actor)
        except db.UNAVAILABLE:
            await backoff.wait()
    return await _one(pool, quarantine_id, pace=pace, actor=actor)


async def _one(pool: db.Pool, quarantine_id: UUID, *, pace: Pace, actor: str) -> str:
    async with db.transaction(pool) as tx:
        held = await hold(tx, quarantine_id)
        if held is None:
            return "gone"
        kind, reasons = await _refusal(tx, held, pace)
        outcome = "refused" if reasons else "accepted"
        ids = [quarantine_id]
        await note(tx, ids, actor=actor, action="redrive", outcome=outcome)
        if reasons:
            await still(tx, quarantine_id, kind=kind, reasons=reasons)
        else:
            await drop(tx, ids)
    return outcome


async def _refusal(tx: db.Connection, held: Held, pace: Pace) -> tuple[str, list[str]]:
    """Why the door does not take it, and of which kind that is; no reasons if it was taken."""
    try:
        async with tx.transaction():
            outcome = await handlers.apply(
                tx, [Sent(held.topic, held.raw)], pace, came_at=held.came_at,
                was_compared=held.kind in _COMPARED,
            )  # fmt: skip
    except psycopg.Error as error:
        if not db.is_data_error(error):
            raise
        return "database", [f"cannot be kept: {db.first_line(error)}"]
    return next(((one.kind, one.reasons) for one in outcome.rejected), ("", []))
