"""Where ingress reads: the log of a NATS broker, or a session at any MQTT broker.

Both give batches in the order in which messages came. The log's cursor moves in the transaction
that stores the messages; a session acknowledges a batch after all of it is committed.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar
from zlib import crc32

from farmiq.edge.broker import QOS1
from farmiq.messages import topics
from farmiq.nats_users import subject
from farmiq.plumbing import db
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.messaging import cursor, mqtt, stream
from farmiq.plumbing.messaging.cursor import CursorMovedError, Cursors
from farmiq.plumbing.messaging.stream import LostError, Position
from farmiq.plumbing.runtime import lease
from farmiq.plumbing.tls import Tls

__all__ = ["CursorMovedError", "LogSource", "LostError", "MqttSource", "Progress"]

# Holds what waits in the MQTT session of a gateway that did not read the log yet.
_SESSION_STREAM = "$MQTT_msgs"
# The longest wait for the next message of a session.
SESSION_S = 10.0
# So often a lane without messages moves its cursor, so that the log can be purged.
IDLE_LANE_S = 5.0
# A session of another gateway that is idle in a transaction for so long is frozen.
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

    `end` is the position behind all of the part. Where a transaction ends before, the cursor moves
    behind the newest of its messages that is in the log, if there is one.
    """

    def __init__(
        self, lane: cursor.Lane, messages: Sequence[LogMessage], end: Position | None
    ) -> None:
        self._lane, self._messages, self._end = lane, messages, end

    def __getitem__(self, part: slice) -> "Progress":
        """The cursor of some of the messages; those before are stored."""
        end = self._end
        if part.stop < len(self._messages):
            end = _behind(self._messages[: part.stop], self._lane.position.created)
        return Progress(self._lane, self._messages[part], end)

    async def advance(self, tx: db.Connection) -> None:
        """Raises CursorMovedError."""
        if (end := self._end) is not None:
            await cursor.advance(tx, self._lane, seq=end.seq, stored_at_ns=end.stored_at_ns)

    def committed(self) -> None:
        if self._end is not None:
            self._lane.position = self._end


M = TypeVar("M", bound=Sent)
# In every topic these are at the same level: iot/{kind}/{tenant}/{farm}/{barn}/{device}.
_TENANT, _DEVICE = 2, 5


def by_writer(messages: Sequence[M], writers: int) -> dict[int, list[M]]:
    """The messages of each writer, without empty ones. A device always has the same writer (C-81).

    The sessions of a station count as a device: their topic does not name the device. Rows that
    two writers may both change are locked in the order of their keys, so there is no deadlock.
    """
    if writers == 1:
        return {0: list(messages)} if messages else {}
    writer_by_topic: dict[str, int] = {}
    parts: dict[int, list[M]] = {}
    for message in messages:
        topic = message.topic
        writer = writer_by_topic.get(topic)
        if writer is None:
            writer = writer_by_topic[topic] = writer_of(topic, writers)
        parts.setdefault(writer, []).append(message)
    return parts


def writer_of(topic: str, writers: int) -> int:
    """The number of the writer of a topic: the same in every run, for any text."""
    levels = topic.split("/", _DEVICE + 1)
    sender = "/".join((*levels[_TENANT : _TENANT + 1], *levels[_DEVICE : _DEVICE + 1]))
    return crc32(sender.encode("utf-8", "surrogatepass")) % writers


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
        parts = by_writer(messages, self._writers)
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
        """Age of the newest message that a writer has, if there are newer ones."""
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
        """Return no messages if none come and the cursor of a lane is behind.

        Raises LostError: then `start` again.
        """
        newest = self._newest
        is_behind = newest is not None and self._cursors.stored_seq < newest.seq
        try:
            async with asyncio.timeout(IDLE_LANE_S if is_behind else None):
                messages = await self._reader.batch(max_messages=max_messages, linger_s=linger_s)
        except TimeoutError:
            return []
        return [*map(_log_message, messages)]

    def share(self, messages: Sequence[Sent]) -> dict[int, Part]:
        """The part of each writer; sometimes an empty one, so that its cursor moves."""
        log_messages = [message for message in messages if isinstance(message, LogMessage)]
        last = _behind(log_messages, self._cursors.lanes[0].position.created)
        if last is not None:
            self._newest, self._cursors.read_seq = last, last.seq
        parts: dict[int, Part] = {}
        for number, part in by_writer(log_messages, len(self._stored_before)).items():
            stored_before = self._stored_before[number]
            new = [message for message in part if message.seq > stored_before or message.seq == 0]
            if new:
                # Behind the last one of the lane, messages of this batch belong to other lanes.
                parts[number] = Part(new, Progress(self._cursors.lanes[number], new, last))
        if self._newest is not None:
            self._move_idle(parts, self._newest)
        return parts

    def _move_idle(self, parts: dict[int, Part], last: Position) -> None:
        """Add an empty part for a lane whose cursor is behind for long."""
        now = time.monotonic()
        for number, lane in enumerate(self._cursors.lanes):
            is_new = last.seq > max(self._stored_before[number], lane.position.seq)
            if number not in parts and is_new and now - self._moved_at[number] >= IDLE_LANE_S:
                parts[number] = Part([], Progress(lane, [], last))
            if number in parts:
                self._moved_at[number] = now

    def commit(self, messages: Sequence[Sent]) -> None:
        """Nothing: the cursor moved with the transaction."""

    async def publish(self, topic: str, payload: bytes) -> None:
        self._reader.publish(subject(topic), payload)


def _behind(messages: Sequence[LogMessage], created: str) -> Position | None:
    """The position behind the newest of them that is in the log; None if none is."""
    newest = next((message for message in reversed(messages) if message.seq), None)
    return newest and Position(created, newest.seq, newest.stored_at_ns)


async def session_batches(
    url: str, *, tls: Tls, max_messages: int
) -> AsyncIterator[list[LogMessage]]:
    """What waits in the MQTT session of a gateway that did not read the log yet (D-230).

    It is removed from the broker when the caller has stored all and asks for more.
    """
    filters = [QOS1 + subject(topic) for topic in topics.UP]
    async with stream.reader(url, stream=_SESSION_STREAM, filters=filters, tls=tls) as reader:
        await reader.start(None)
        if not reader.pending:
            return
        last_seq = 0
        while reader.pending or reader.waiting:
            try:
                async with asyncio.timeout(SESSION_S):
                    messages = await reader.batch(max_messages=max_messages)
            except TimeoutError:
                # Another gateway has stored and removed the rest.
                raise LostError("what waited in the session is gone") from None
            last_seq = messages[-1].seq
            yield [*map(_log_message, messages)]
        for name in filters:
            await reader.purge(subject=name, below_seq=last_seq + 1)


def _log_message(message: stream.Message) -> LogMessage:
    topic = topic_of(message.subject)
    return LogMessage(topic, message.payload, message.seq, message.stored_at_ns)


def topic_of(name: str) -> str:
    """The MQTT topic of a subject of the log."""
    return stream.topic(name.removeprefix(QOS1))


# --- the gateway's session at an MQTT broker


async def client_id(pool: db.Pool, *, name: str, given: str | None) -> str:
    """The id to connect under: as `given`, or made once. `name` is that of a lease we hold.

    Whoever connects under a client id takes its session, with what waits in it. So the id is made
    when the gateway first runs and never published; both replicas find it in the database.
    """
    backoff = Backoff(cap_s=2.0)
    while given is None:
        try:
            async with db.transaction(pool) as tx:
                given = await _stored_client_id(tx, name)
        except db.UNAVAILABLE:
            await backoff.wait()
    return given


async def _stored_client_id(tx: db.Connection, name: str) -> str:
    client_id = await db.fetch_value(
        tx,
        "update leases set client_id = coalesce(client_id, %s) where name = %s returning client_id",
        f"{name}-{secrets.token_hex(8)}",
        name,
    )
    return str(client_id)


async def mark_started(tx: db.Connection, name: str) -> bool:
    """Note that the gateway has a session; whether it had one before."""
    had_session = await db.fetch_value(
        tx,
        """
        update leases l set session_began_at = fn_now()
        from (select session_began_at from leases where name = %s) as before
        where l.name = %s returning before.session_began_at is not null
        """,
        name,
        name,
    )
    return bool(had_session)


class SessionWatch:
    """Notices when the broker had no session for us though there must be one.

    `on_lost` is called in the transaction that notes it.
    """

    def __init__(
        self,
        pool: db.Pool,
        broker: mqtt.Client,
        *,
        name: str,
        on_lost: Callable[[db.Connection], Awaitable[None]],
    ) -> None:
        self._pool, self._broker, self._name, self._on_lost = pool, broker, name, on_lost
        self._seen: int | None = None

    async def look(self) -> dict[str, object]:
        if self._broker.problem() is not None or self._broker.new_sessions == self._seen:
            return {}
        new = self._broker.new_sessions
        async with db.transaction(self._pool) as tx:
            had_one = await mark_started(tx, self._name)
            # The very first session of all is new and lost nothing.
            lost = new - (self._seen or 0) - (0 if had_one else 1)
            if lost > 0:
                await self._on_lost(tx)
        self._seen = new
        return {"lost": lost} if lost > 0 else {}
