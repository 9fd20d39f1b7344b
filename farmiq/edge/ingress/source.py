"""Where ingress reads: the log of a NATS broker, or a session at any MQTT broker.

Both give batches in the order in which messages came. The log's cursor moves in the transaction
that stores the messages; a session acknowledges a batch after all of it is committed.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from farmiq.edge.broker import QOS1
from farmiq.edge.ingress import lanes
from farmiq.messages import topics
from farmiq.nats_users import subject
from farmiq.plumbing import cursor, db, lease, mqtt, stream
from farmiq.plumbing.cursor import CursorMovedError, Cursors
from farmiq.plumbing.stream import LostError, Position
from farmiq.plumbing.tls import Tls

__all__ = ["CursorMovedError", "LogSource", "LostError", "MqttSource", "Progress"]

# What waited in the gateway's MQTT session before it read the log.
_SESSION_STREAM = "$MQTT_msgs"
# So long the next of what waited in a session may take.
SESSION_S = 10.0
# A lane that no message came for moves its cursor that often, so that the log can be purged.
IDLE_LANE_S = 5.0
# A session of another gateway that waits so long within its transaction is frozen.
_FROZEN_S = 1.0


class Sent(Protocol):
    """A message as it was read."""

    @property
    def topic(self) -> str: ...
    @property
    def payload(self) -> bytes: ...


class LogMessage(NamedTuple):
    topic: str
    payload: bytes
    seq: int
    stored_at_ns: int


class Progress:
    """The cursor of a lane, which moves with the transactions of its part of a batch.

    `marks` are the positions behind each message; None where the cursor stays, before the first
    message that is in the log. With no message: one position to move to.
    """

    def __init__(self, lane: cursor.Lane, marks: Sequence[Position | None]) -> None:
        self._lane, self._marks = lane, marks

    def slice(self, start: int, stop: int) -> "Progress":
        return Progress(self._lane, self._marks[start:stop])

    async def advance(self, tx: db.Connection) -> None:
        """Raises CursorMovedError."""
        if (last := self._marks[-1]) is not None:
            await cursor.advance(tx, self._lane, seq=last.seq, stored_at_ns=last.stored_at_ns)

    def committed(self) -> None:
        if (last := self._marks[-1]) is not None:
            self._lane.position = last


@dataclass(slots=True)
class Part:
    """What one writer stores in one transaction."""

    messages: Sequence[Sent]
    progress: Progress | None = None


class Source(Protocol):
    def problem(self) -> str | None: ...
    async def read(self, *, max_messages: int, linger_s: float) -> list[Sent]: ...
    def share(self, messages: Sequence[Sent]) -> dict[int, Part]: ...
    def commit(self, messages: Sequence[Sent]) -> None: ...
    async def publish(self, topic: str, payload: bytes) -> None: ...


class MqttSource:
    """A session at an MQTT broker. `commit` acknowledges what is stored."""

    def __init__(self, broker: mqtt.Client, *, writers: int) -> None:
        self._broker, self._writers = broker, writers

    def problem(self) -> str | None:
        return self._broker.problem()

    async def read(self, *, max_messages: int, linger_s: float) -> list[Sent]:
        return [*await self._broker.batch(max_messages=max_messages, linger_s=linger_s)]

    def share(self, messages: Sequence[Sent]) -> dict[int, Part]:
        parts = lanes.share(messages, self._writers)
        return {writer: Part(part) for writer, part in parts.items()}

    def commit(self, messages: Sequence[Sent]) -> None:
        self._broker.ack(message for message in messages if isinstance(message, mqtt.Message))

    async def publish(self, topic: str, payload: bytes) -> None:
        await self._broker.publish(topic, payload)


class LogSource:
    """The log of a NATS broker, read from the cursors in the database. Use `start` first."""

    def __init__(
        self, pool: db.Pool, reader: stream.Reader, cursors: Cursors, *, name: str
    ) -> None:
        self._pool, self._reader, self._cursors, self._name = pool, reader, cursors, name
        # Up to here messages may be stored already, by lane: reading begins at the slowest.
        self._stored_before: list[int] = []
        self._moved_at: list[float] = []
        self._newest: Position | None = None

    def problem(self) -> str | None:
        return self._reader.problem()

    @property
    def lag_s(self) -> float:
        """How old the newest message is that a writer has, if there are newer ones."""
        if self._newest is None or not self._cursors.lag:
            return 0.0
        return max(0.0, time.time() - self._newest.stored_at_ns / 1e9)

    async def start(self, report: Callable[[db.Connection, stream.Start], Awaitable[None]]) -> None:
        """Take the cursors over and begin to read behind them. Raises CursorMovedError."""
        async with db.autocommit(self._pool) as tx:
            # A gateway that is frozen in its transaction keeps the cursors locked.
            await lease.end_frozen(tx, self._name, frozen_s=_FROZEN_S)
        await self._cursors.start(report)
        self._stored_before = [lane.position.seq for lane in self._cursors.lanes]
        self._moved_at = [time.monotonic()] * len(self._stored_before)
        self._newest = None

    async def read(self, *, max_messages: int, linger_s: float) -> list[Sent]:
        """Nothing, where nothing comes and a lane's cursor has stayed behind.

        Raises LostError: then `start` again.
        """
        newest = self._newest
        is_behind = newest is not None and self._cursors.stored_seq < newest.seq
        try:
            async with asyncio.timeout(IDLE_LANE_S if is_behind else None):
                found = await self._reader.batch(max_messages=max_messages, linger_s=linger_s)
        except TimeoutError:
            return []
        return [
            LogMessage(topic_of(each.subject), each.payload, each.seq, each.stored_at_ns)
            for each in found
        ]

    def share(self, messages: Sequence[Sent]) -> dict[int, Part]:
        """Each writer's part; now and then an empty one, so that no cursor stays behind."""
        found = [message for message in messages if isinstance(message, LogMessage)]
        last = next((self._behind(message) for message in reversed(found) if message.seq), None)
        if last is not None:
            self._newest, self._cursors.read_seq = last, last.seq
        parts: dict[int, Part] = {}
        for number, part in lanes.share(found, len(self._stored_before)).items():
            stored_before = self._stored_before[number]
            new = [each for each in part if each.seq > stored_before or each.seq == 0]
            if new:
                lane = self._cursors.lanes[number]
                parts[number] = Part(new, Progress(lane, self._marks(new, last)))
        if self._newest is not None:
            self._move_idle(parts, self._newest)
        return parts

    def _behind(self, message: LogMessage) -> Position:
        created = self._cursors.lanes[0].position.created
        return Position(created, message.seq, message.stored_at_ns)

    def _marks(
        self, messages: Sequence[LogMessage], last: Position | None
    ) -> list[Position | None]:
        marks: list[Position | None] = []
        mark = None
        for message in messages:
            mark = self._behind(message) if message.seq else mark
            marks.append(mark)
        # What lies behind its own last message in this batch is no concern of the lane.
        marks[-1] = last
        return marks

    def _move_idle(self, parts: dict[int, Part], last: Position) -> None:
        """Add an empty part for a lane whose cursor has stayed behind for long."""
        now = time.monotonic()
        for number, lane in enumerate(self._cursors.lanes):
            is_new = last.seq > max(self._stored_before[number], lane.position.seq)
            if number not in parts and is_new and now - self._moved_at[number] >= IDLE_LANE_S:
                parts[number] = Part([], Progress(lane, [last]))
            if number in parts:
                self._moved_at[number] = now

    def commit(self, messages: Sequence[Sent]) -> None:
        """Nothing: the cursor moved with the transaction."""

    async def publish(self, topic: str, payload: bytes) -> None:
        self._reader.publish(subject(topic), payload)


async def session_batches(
    url: str, *, tls: Tls, max_messages: int
) -> AsyncIterator[list[LogMessage]]:
    """What waits in the MQTT session of a gateway that did not read the log yet (D-230).

    It is removed from the broker when the caller has stored all of it and comes for more.
    """
    filters = [QOS1 + subject(each) for each in topics.UP]
    async with stream.reader(url, stream=_SESSION_STREAM, filters=filters, tls=tls) as reader:
        await reader.start(None)
        if not reader.pending:
            return
        last_seq = 0
        while reader.pending or reader.waiting:
            try:
                async with asyncio.timeout(SESSION_S):
                    found = await reader.batch(max_messages=max_messages)
            except TimeoutError:
                # Another gateway has stored and removed the rest.
                raise LostError("what waited in the session is gone") from None
            last_seq = found[-1].seq
            yield [
                LogMessage(topic_of(each.subject), each.payload, each.seq, each.stored_at_ns)
                for each in found
            ]
        for each in filters:
            await reader.purge(subject=each, below_seq=last_seq + 1)


def topic_of(name: str) -> str:
    """The MQTT topic of a subject of the log."""
    return stream.topic(name.removeprefix(QOS1))
