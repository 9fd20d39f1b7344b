"""How far a gateway has read a broker's log, kept in the database with what it read (D-228).

A cursor moves by compare-and-set in the transaction that stores the messages: a crash at any line
stores both or neither, and of two gateways that read the same messages only one can commit. Each
gateway that begins to read takes the next fencing token, which ends the writing of the one before.
Messages may be shared among lanes, each with a cursor of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from farmiq.plumbing import db
from farmiq.plumbing.stream import Position, Start


class CursorMovedError(Exception):
    """Another gateway has begun to read, or our own last commit is not known to have failed."""


@dataclass(slots=True)
class Lane:
    """The cursor of one lane, as we last wrote or read it."""

    stream: str
    number: int
    position: Position
    fencing_token: int


async def claim(tx: db.Connection, stream: str, *, lanes: int) -> list[Lane]:
    """Begin to read: the lanes, each with the next fencing token.

    If there were other lanes before, all of them begin at the one that is furthest behind.
    """
    # Rows are written anew: who waits for one of them would find none.
    await tx.execute("select pg_advisory_xact_lock(hashtext('broker_cursors:' || %s))", (stream,))
    rows = await db.fetch_all(
        tx,
        """
        select lane, created, seq, stored_at_ns, fencing_token from broker_cursors
        where stream = %s order by lane for update
        """,
        stream,
    )
    token = max((row[4] for row in rows), default=0) + 1
    positions = [Position(row[1], row[2], row[3]) for row in rows]
    if len(positions) != lanes:
        start = min(positions, key=lambda each: each.seq, default=Position("", 0, 0))
        positions = [start] * lanes
    found = [Lane(stream, number, each, token) for number, each in enumerate(positions)]
    await replace(tx, found)
    return found


async def restart(tx: db.Connection, lanes: Sequence[Lane], start: Start) -> None:
    """All lanes begin where reading began: the stream is new, or another than it was.

    Raises CursorMovedError.
    """
    await check(tx, lanes)
    for lane in lanes:
        lane.position = Position(start.created, start.after_seq, 0)
    await replace(tx, lanes)


async def check(tx: db.Connection, lanes: Sequence[Lane]) -> None:
    """Raise CursorMovedError if another gateway has begun to read; hold it off until the commit."""
    stream, token = lanes[0].stream, lanes[0].fencing_token
    rows = await db.fetch_all(
        tx,
        "select 1 from broker_cursors where stream = %s and fencing_token = %s for update",
        stream,
        token,
    )
    if len(rows) != len(lanes):
        raise CursorMovedError(f"another gateway reads {stream}")


async def replace(tx: db.Connection, lanes: Sequence[Lane]) -> None:
    """Write all lanes of a stream anew, whatever there was."""
    stream = lanes[0].stream
    await tx.execute("delete from broker_cursors where stream = %s", (stream,))
    for lane in lanes:
        at = lane.position
        await tx.execute(
            """
            insert into broker_cursors (stream, lane, created, seq, stored_at_ns, fencing_token)
            values (%s, %s, %s, %s, %s, %s)
            """,
            (stream, lane.number, at.created, at.seq, at.stored_at_ns, lane.fencing_token),
        )


async def advance(tx: db.Connection, lane: Lane, *, seq: int, stored_at_ns: int) -> None:
    """Move a lane's cursor, in the transaction that stores what lies before.

    The caller moves `lane.position` when that is committed. Raises CursorMovedError.
    """
    moved = await tx.execute(
        """
        update broker_cursors set seq = %s, stored_at_ns = %s, moved_at = fn_now()
        where stream = %s and lane = %s and seq = %s and fencing_token = %s
        """,
        (seq, stored_at_ns, lane.stream, lane.number, lane.position.seq, lane.fencing_token),
    )
    if moved.rowcount != 1:
        raise CursorMovedError(f"lane {lane.number} of {lane.stream} is not at {lane.position.seq}")


async def stored_seq(tx: db.Connection, stream: str) -> int:
    """All messages up to here are stored; 0 if nothing was read yet."""
    found = await db.fetch_value(
        tx, "select min(seq) from broker_cursors where stream = %s", stream
    )
    return int(found or 0)
