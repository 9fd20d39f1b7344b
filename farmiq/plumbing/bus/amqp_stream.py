"""A channel to RabbitMQ that only publishes: whole batches in one buffer, confirms counted.

The client that we use elsewhere makes a future and takes a lock for every message; in the cloud's
ingestion that is most of the work. Here a batch is one write and one future. Frames are pamqp's.
"""

import asyncio
import contextlib
import ssl
import struct
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from pamqp import base, commands, exceptions, frame, header, heartbeat
from pamqp.common import FieldTable

from farmiq.plumbing import hosts

HEARTBEAT_S = 30
PLAIN_PORT, TLS_PORT = 5672, 5671
CHANNEL = 1
READ_BYTES = 2**16
CAPABILITIES: FieldTable = {
    "publisher_confirms": True,
    "basic.nack": True,
    "authentication_failure_close": True,
}
_HEAD = struct.Struct(">BHI")  # type, channel, size; an end byte follows the content
_FRAME_COST = _HEAD.size + 1
# No right, declared otherwise, no such vhost. What is not there (404) is made when we reconnect.
_NOT_ALLOWED = {403, 406, 530}

Frame = TypeVar("Frame")


class ClosedError(ConnectionError):
    """The broker or the network has ended the connection, or the channel on it."""


class DeniedError(ClosedError):
    """The broker ended it because of what we asked for: a person must act before it helps."""


class NotAcceptedError(ConnectionError):
    """The broker did not take a message."""


class NoQueueError(NotAcceptedError):
    """No queue wants a message, not even that for what no other queue wants."""


class Sending(Protocol):
    """What is published; amqp.Outgoing is one."""

    @property
    def exchange(self) -> str: ...
    @property
    def routing_key(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def message_id(self) -> str: ...
    @property
    def headers(self) -> Mapping[str, str]: ...


@dataclass(slots=True, eq=False)
class Unconfirmed:
    """Messages written together, until the broker has answered for each."""

    left: int
    written_at: float
    done: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    def confirmed(self) -> None:
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(None)

    def failed(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Link:
    """One connection with one channel in confirm mode, opened by `opened`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = b""
        self._frame_bytes = 2**17
        self._heartbeat_s = float(HEARTBEAT_S)
        self._tag = 0
        self._waiting: dict[int, Unconfirmed] = {}
        self._select_waiters: deque[asyncio.Future[None]] = deque()
        self._ended: Exception | None = None

    @property
    def is_closed(self) -> bool:
        return self._ended is not None

    async def publish(self, messages: Sequence[Sending]) -> None:
        """Returns when the broker has confirmed every one; raises ConnectionError otherwise."""
        if self._ended is not None:
            raise self._ended
        if not messages:
            return
        max_bytes = self._frame_bytes - _FRAME_COST
        written = b"".join(part for message in messages for part in frames(message, max_bytes))
        # Only now: the broker counts what is written, and a tag too many would shift all others.
        batch = Unconfirmed(len(messages), time.monotonic())
        for _ in messages:
            self._tag += 1
            self._waiting[self._tag] = batch
        self._writer.write(written)
        await self._writer.drain()
        await batch.done

    async def ping(self) -> None:
        """Returns when the broker has answered on this channel: asked for confirms once more."""
        if self._ended is not None:
            raise self._ended
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._select_waiters.append(answered)
        self._say(commands.Confirm.Select())
        await answered

    def unconfirmed_s(self) -> float:
        """How long the oldest message has been waiting for the broker's word."""
        oldest = next(iter(self._waiting.values()), None)
        return time.monotonic() - oldest.written_at if oldest else 0.0

    # What the broker says.

    async def listen(self) -> None:
        """Answers until the connection ends; then everything that waits has failed."""
        try:
            while True:
                # Two missed heartbeats: the broker is gone.
                async with asyncio.timeout(2 * self._heartbeat_s):
                    answer = await self._next()
                self.hear(answer)
        except (OSError, TimeoutError, exceptions.PAMQPException) as error:
            self._end(
                error
                if isinstance(error, ClosedError)
                else ClosedError(str(error) or "the broker is silent")
            )
            # What is unsent stays so: a broker that reads nothing would keep the socket, and us.
            self._writer.transport.abort()

    async def beat(self) -> None:
        """Say now and then that we are there."""
        while self._ended is None:
            await asyncio.sleep(self._heartbeat_s / 2)
            self._writer.write(frame.marshal(heartbeat.Heartbeat(), 0))

    def hear(self, method: object) -> None:
        match method:
            case commands.Basic.Ack():
                for batch in self._answered(method.delivery_tag, many=method.multiple):
                    batch.confirmed()
            case commands.Basic.Nack():
                for batch in self._answered(method.delivery_tag, many=method.multiple):
                    batch.failed(NotAcceptedError("a queue is full or a node is away (nack)"))
            case commands.Basic.Return():
                # The batch is unknown: all senders that wait send again; dedupe absorbs that.
                why = f"{method.reply_text}: {method.exchange} {method.routing_key}"
                for batch in {*self._waiting.values()}:
                    batch.failed(NoQueueError(f"no queue for a message ({why})"))
            case commands.Confirm.SelectOk():
                # Answers come in order; who has stopped waiting still has its place.
                if self._select_waiters and not (answered := self._select_waiters.popleft()).done():
                    answered.set_result(None)
            case commands.Channel.Close() | commands.Connection.Close():
                raise _closed(method)
            case _:
                pass  # heartbeats, and the content of what was returned

    def _answered(self, tag: int, *, many: bool) -> Iterator[Unconfirmed]:
        if not many:
            if tag in self._waiting:
                yield self._waiting.pop(tag)
            return
        while self._waiting and (first := next(iter(self._waiting))) <= tag:
            yield self._waiting.pop(first)

    def _end(self, error: Exception) -> None:
        self._ended = error
        for batch in {*self._waiting.values()}:
            batch.failed(error)
        self._waiting.clear()
        for answered in self._select_waiters:
            if not answered.done():
                answered.set_exception(error)
        self._select_waiters.clear()
        self._writer.close()

    # The opening, a question and an answer at a time.

    async def open(self, *, user: str, password: str, vhost: str, name: str) -> None:
        self._writer.write(frame.marshal(header.ProtocolHeader(0, 9, 1), 0))
        await self._expect(commands.Connection.Start)
        self._say(
            commands.Connection.StartOk(
                {"product": "farmiq", "connection_name": name, "capabilities": CAPABILITIES},
                "PLAIN", f"\0{user}\0{password}", "en_US",
            ),
            channel=0,
        )  # fmt: skip
        tune = await self._expect(commands.Connection.Tune)
        self._frame_bytes = tune.frame_max or self._frame_bytes
        self._heartbeat_s = min(HEARTBEAT_S, tune.heartbeat or HEARTBEAT_S)
        self._say(
            commands.Connection.TuneOk(tune.channel_max, self._frame_bytes, int(self._heartbeat_s)),
            channel=0,
        )
        self._say(commands.Connection.Open(vhost), channel=0)
        await self._expect(commands.Connection.OpenOk)
        self._say(commands.Channel.Open())
        await self._expect(commands.Channel.OpenOk)
        self._say(commands.Confirm.Select())
        await self._expect(commands.Confirm.SelectOk)

    async def close(self) -> None:
        """Say goodbye, for as long as a second if the broker does not read."""
        if self._ended is None:
            self._say(commands.Connection.Close(200, "goodbye", 0, 0), channel=0)
        self._end(ClosedError("closed by us"))
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()
        self._writer.transport.abort()

    def _say(self, command: base.Frame, *, channel: int = CHANNEL) -> None:
        self._writer.write(frame.marshal(command, channel))

    async def _expect(self, wanted: type[Frame]) -> Frame:
        while True:
            method = await self._next()
            if isinstance(method, wanted):
                return method
            if isinstance(method, commands.Connection.Close | commands.Channel.Close):
                raise _closed(method)

    async def _next(self) -> Any:
        """The next frame. A broker that does not like us just hangs up."""
        while True:
            if len(self._buffer) >= _HEAD.size:
                _, _, size = _HEAD.unpack_from(self._buffer)
                if len(self._buffer) > _HEAD.size + size:
                    used, _, method = frame.unmarshal(self._buffer)
                    self._buffer = self._buffer[used:]
                    return method
            received = await self._reader.read(READ_BYTES)
            if not received:
                raise ClosedError("the broker has closed the connection")
            self._buffer += received


@contextlib.asynccontextmanager
async def opened(
    url: str, *, name: str, context: ssl.SSLContext | None, within_s: float
) -> AsyncIterator[Link]:
    """A link to the broker of an amqp: or (with a context) amqps: address."""
    link = await hosts.first(
        url,
        lambda node: _open(node, name=name, context=context),
        failed=(OSError, exceptions.PAMQPException),
        within_s=within_s,
    )
    tasks = [asyncio.create_task(link.listen()), asyncio.create_task(link.beat())]
    try:
        yield link
    finally:
        await link.close()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _closed(method: commands.Channel.Close | commands.Connection.Close) -> ClosedError:
    kind = DeniedError if method.reply_code in _NOT_ALLOWED else ClosedError
    return kind(f"{method.reply_code} {method.reply_text}")


async def _open(url: str, *, name: str, context: ssl.SSLContext | None) -> Link:
    parts = urlsplit(url)
    port = parts.port or (TLS_PORT if context else PLAIN_PORT)
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
    link = Link(reader, writer)
    try:
        await link.open(
            user=unquote(parts.username or "guest"),
            password=unquote(parts.password or "guest"),
            vhost=unquote(parts.path[1:]) or "/",
            name=name,
        )
    except BaseException:
        writer.transport.abort()
        raise
    return link


# A message as frames.


@lru_cache(maxsize=256)
def _publish_frame(exchange: str, routing_key: str) -> bytes:
    return frame.marshal(
        commands.Basic.Publish(exchange=exchange, routing_key=routing_key, mandatory=True), CHANNEL
    )


def frames(message: Sending, max_bytes: int) -> list[bytes]:
    """The frames of one message, its body in parts of at most so many bytes."""
    body = message.body
    parts = [_publish_frame(message.exchange, message.routing_key), _header_frame(message)]
    for at in range(0, len(body), max_bytes):
        part = body[at : at + max_bytes]
        parts += (_HEAD.pack(_BODY, CHANNEL, len(part)), part, _END)
    return parts


def _header_frame(message: Sending) -> bytes:
    """Written by hand: it is the one frame that differs from message to message."""
    table = b"".join(
        _short(name) + b"S" + _LONG.pack(len(text)) + text
        for name, text in ((name, value.encode()) for name, value in message.headers.items())
    )
    properties = b"".join(
        (
            _CONTENT.pack(_BASIC, 0, len(message.body), _HAS),
            _JSON,
            _LONG.pack(len(table)),
            table,
            _PERSISTENT,
            _short(message.message_id),
        )
    )
    return _HEAD.pack(_HEADER, CHANNEL, len(properties)) + properties + _END


def _short(text: str) -> bytes:
    encoded = text.encode()
    return bytes((len(encoded),)) + encoded


_HEADER, _BODY, _END = 2, 3, b"\xce"
_BASIC = 60
_CONTENT = struct.Struct(">HHQH")
_LONG = struct.Struct(">I")
# content_type, headers, delivery_mode and message_id are there, in this order.
_HAS = 1 << 15 | 1 << 13 | 1 << 12 | 1 << 7
_JSON, _PERSISTENT = _short("application/json"), b"\x02"
