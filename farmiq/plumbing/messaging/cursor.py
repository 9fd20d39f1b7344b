"""How far a gateway has read a broker's log, kept in the database with what it read (D-228).

A cursor moves by compare-and-set in the transaction that stores the messages: a crash at any line
stores both or neither, and of two gateways that read the same messages only one can commit. Each
gateway that begins to read takes the next fencing token, which ends the writing of the one before.
Messages may be shared among lanes, each with a cursor of its own.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from farmiq.plumbing import db
from farmiq.plumbing.messaging.stream import Info, Position, Reader, Start

Outcome = TypeVar("Outcome")

# A log that is so full holds nothing that is stored.
CROWDED_SHARE = 0.5


class CursorMovedError(Exception):
    """Another gateway has begun to read, or our own last commit is not known to have failed."""


@dataclass(slots=True)
class Lane:
    """The cursor of one lane, as we last wrote or read it."""

    stream: str
    number: int
    position: Position
    fencing_token: int


class Cursors:
    """The cursors of a log: where reading begins, and what may be purged."""

    def __init__(self, pool: db.Pool, reader: Reader, *, lanes: int, hold_s: float) -> None:
        """`hold_s`: so long the log holds what is stored, for a database that is restored."""
        self._pool, self._reader, self._lane_count, self._hold_s = pool, reader, lanes, hold_s
        self.lanes: list[Lane] = []
        # When we looked, and up to where all was stored then.
        self._reached: deque[tuple[float, int]] = deque()
        # How often reading began, and whether it has: meanwhile the cursors may be of another log.
        self.starts, self._is_started = 0, False
        self._last_seq = self.read_seq = 0

    @property
    def stored_seq(self) -> int:
        """All messages up to here are in the database."""
        return min((lane.position.seq for lane in self.lanes), default=0)

    def has_stored(self, seq: int) -> bool:
        """Whether all messages up to this one are in the database."""
        return not seq or (self._is_started and self.stored_seq >= seq)

    @property
    def lag(self) -> int:
        """Messages that the broker has and that were not read yet."""
        return max(self._reader.pending + self._reader.waiting, self._last_seq - self.read_seq)

    async def start(self, report: Callable[[db.Connection, Start], Awaitable[None]]) -> Start:
        """Take the cursors over and begin to read behind them.

        `report` is called with a log that does not go on where it was read last, in the
        transaction that moves the cursors there. Raises CursorMovedError.
        """
        self.starts, self._is_started = self.starts + 1, False
        self._reached.clear()
        async with db.transaction(self._pool) as tx:
            self.lanes = await claim(tx, self._reader.stream, lanes=self._lane_count)
        furthest = max((lane.position for lane in self.lanes), key=lambda position: position.seq)
        start = await self._reader.start(furthest, after_seq=self.stored_seq)
        if start.rewound or start.lost or start.created != furthest.created:
            async with db.transaction(self._pool) as tx:
                await report(tx, start)
                await restart(tx, self.lanes, start)
        self._last_seq = self.read_seq = start.after_seq
        self._is_started = True
        return start

    async def purge(self) -> tuple[Info, int]:
        """Remove what was stored a while ago, or all of it where the log fills up; how many.

        The message at the cursor stays: it tells whether the broker's files are still the same.
        Raises NatsError.
        """
        info = await self._reader.info()
        if not self._is_started or info.created != self.lanes[0].position.created:
            return info, 0  # the numbers of the cursors are of another log
        self._last_seq = info.last_seq
        now, stored_seq = time.monotonic(), self.stored_seq
        if not self._reached or self._reached[-1][1] != stored_seq:
            self._reached.append((now, stored_seq))
        below_seq = stored_seq if info.share >= CROWDED_SHARE else 0
        while self._reached and self._reached[0][0] <= now - self._hold_s:
            below_seq = max(below_seq, self._reached.popleft()[1])
        if below_seq <= info.first_seq:
            return info, 0
        return info, await self._reader.purge(below_seq=below_seq)


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
        start = min(positions, key=lambda position: position.seq, default=Position("", 0, 0))
        positions = [start] * lanes
    claimed = [Lane(stream, number, position, token) for number, position in enumerate(positions)]
    await replace(tx, claimed)
    return claimed


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
    lowest = await db.fetch_value(
        tx, "select min(seq) from broker_cursors where stream = %s", stream
    )
    return int(lowest or 0)


async def commit_bisecting(
    count: int,
    commit: Callable[[slice], Awaitable[Outcome]],
    isolate_poison: Callable[[int, Exception], Awaitable[Outcome]],
) -> list[Outcome]:
    """Commit messages in one transaction; if one breaks it, in halves until it is alone (C-81).

    This holds for any exception: the broker would send a message that stops the service again.
    `commit` gets the slice of the messages that it commits, `isolate_poison` the index of the one
    that cannot be stored. Returns the outcome of each transaction. Raises CursorMovedError, and
    what a database that is away raises.
    """

    async def attempt(begin: int, end: int) -> list[Outcome]:
        try:
            return [await commit(slice(begin, end))]
        except Exception as error:
            if db.is_outage(error) or isinstance(error, CursorMovedError) or begin == end:
                raise
            if end - begin == 1:
                return [await isolate_poison(begin, error)]
        middle = (begin + end) // 2
        return await attempt(begin, middle) + await attempt(middle, end)

    return await attempt(0, count)
