"""Read a JetStream stream of NATS as a log: in order, from a cursor that the reader keeps itself.

Nothing is acknowledged to the broker. The caller stores what it read and its position in one
transaction, and reads on from there after a crash (cursor.py). The broker holds messages until
`purge` is called.

Sequence numbers are used again when the broker's files were restored or lost. So a position is
the number and the time of its message: if the message at that number has another time, reading
begins again with the first message that is there, and the caller's dedupe absorbs what it has.
"""

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from farmiq.plumbing import log
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.messaging import nats
from farmiq.plumbing.messaging.nats import NatsError
from farmiq.plumbing.tls import Tls

# One request for messages: so many if not said otherwise, at most so many bytes, and so long.
PULL_MESSAGES = 1_000
PULL_BYTES = 8 * 2**20
PULL_S = 30.0
HEARTBEAT_S = 2.0
# While a request is open the broker sends heartbeats; a silent broker is gone.
SILENT_S = 3 * HEARTBEAT_S
# The broker removes a consumer without requests after this time.
INACTIVE_S = 30.0

_MESSAGE_NOT_FOUND = 10037
# A request has ended, in these words, because it is full; any other 409 ends the consumer.
_REQUEST_OVER = ("Batch Completed", "MaxBytes")
# Of an MQTT message with QoS 0.
_QOS0 = b"\r\nNmqtt-Pub:0\r\n"
# $JS.ACK.stream.consumer.deliveries.seq.consumer-seq.time.pending; newer servers say more.
_SHORT_REPLY = 9


class LostError(Exception):
    """The connection or the consumer is gone: start again from the position in the database."""


class Message(NamedTuple):
    """`seq` 0: no stream holds it, it was sent with QoS 0."""

    seq: int
    subject: str
    payload: bytes
    stored_at_ns: int


@dataclass(frozen=True, slots=True)
class Position:
    """A message that was stored, in which stream. `seq` 0: none was stored yet."""

    created: str
    seq: int
    stored_at_ns: int


@dataclass(frozen=True, slots=True)
class Info:
    """A stream as the broker describes it."""

    created: str
    first_seq: int
    last_seq: int
    messages: int
    bytes: int
    max_bytes: int

    @property
    def share(self) -> float:
        """How full it is."""
        return self.bytes / self.max_bytes if self.max_bytes > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading began. `rewound` says why it is not where the position was, or is empty.

    `lost` messages between the two are neither stored nor in the stream.
    """

    created: str
    after_seq: int
    rewound: str = ""
    lost: int = 0


class _State(msgspec.Struct, frozen=True):
    first_seq: int = 0
    last_seq: int = 0
    messages: int = 0
    bytes: int = 0


class _Config(msgspec.Struct, frozen=True):
    max_bytes: int = -1


class _StreamInfo(msgspec.Struct, frozen=True):
    created: str = ""
    config: _Config = _Config()
    state: _State = _State()


class _StoredMessage(msgspec.Struct, frozen=True):
    time: str


class Reader:
    """Open it with `reader()`; then `start`, and `batch` until LostError, and `start` again."""

    def __init__(
        self,
        url: str,
        *,
        stream: str,
        filters: Sequence[str] = (),
        unlogged: Sequence[str] = (),
        pull: int = PULL_MESSAGES,
        tls: Tls | None = None,
    ) -> None:
        """`filters` are the subjects to read; none: all of the stream.

        `pull` is how many messages one request asks for, and with it what a batch has at most.
        On the subjects `unlogged` MQTT messages with QoS 0 are heard as they come; those that come
        while nobody listens, or faster than they are taken, are lost.
        """
        self._url, self.stream, self._filters, self._tls = url, stream, filters, tls
        self._unlogged, self._pull = unlogged, pull
        self._backoff = Backoff(cap_s=5.0)
        self._server: nats.Connection | None = None
        self._consumer = ""
        self._inbox = ""
        self._waiting: deque[Message] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._requested_count = 0
        self._request = 0
        self._delivered = 0
        self._heard_at = 0.0
        self._lost: str | None = "not connected yet"
        self.pending = 0
        self._log = log.get(stream)

    # --- what a service uses

    def problem(self) -> str | None:
        """Why nothing can be read, in a sentence, or None."""
        return None if self._lost is None else f"broker: {self._lost}"

    @property
    def waiting(self) -> int:
        """Messages received and not taken yet."""
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    async def start(self, position: Position | None, *, after_seq: int | None = None) -> Start:
        """Connect, for as long as it takes, and begin to read behind `position`.

        With `after_seq` reading begins there instead, if the message at `position` is still the
        one that it was.
        """
        while True:
            try:
                await self._connect()
                start = await self._where(position, after_seq)
                await self._consume(start.after_seq + 1)
            except NatsError as error:
                self._lost = str(error)
                wait_s = self._backoff.next_s()
                self._log.warning("stream.reconnect", reason=self._lost, wait_s=round(wait_s, 2))
                await asyncio.sleep(wait_s)
                continue
            self._lost = None
            self._log.info("stream.reading", count=self.pending, reason=start.rewound or None)
            return start

    async def batch(
        self, *, max_messages: int, max_bytes: int = PULL_BYTES, linger_s: float = 0.0
    ) -> list[Message]:
        """The next messages: as soon as there is one, plus what follows within the linger.

        Raises LostError.
        """
        if not self._waiting:
            await self._until_arrived(None)
        deadline = time.monotonic() + linger_s
        while len(self._waiting) < max_messages and self._waiting_bytes < max_bytes:
            left_s = deadline - time.monotonic()
            # With nothing more at the broker the linger may bring some; with more, it will.
            if left_s <= 0 or not await self._until_arrived(left_s):
                break
        self._check()
        taken: list[Message] = []
        size = 0
        while self._waiting and len(taken) < max_messages and size < max_bytes:
            message = self._waiting.popleft()
            taken.append(message)
            size += len(message.payload)
        self._waiting_bytes -= size
        self._request_more()
        return taken

    def publish(self, subject: str, payload: bytes) -> None:
        """Publish with QoS 0: subscribers get it at most once; no error if there are none."""
        if self._server is None or self._lost is not None:
            raise LostError(self._lost or "not connected")
        self._server.publish(subject, payload)

    async def info(self) -> Info:
        """Raises NatsError."""
        return await info(self._connected(), self.stream)

    async def purge(self, *, below_seq: int | None = None, subject: str | None = None) -> int:
        """Remove messages before a number or of a subject; how many. Raises NatsError."""
        options = {"seq": below_seq, "filter": subject}
        body = {name: value for name, value in options.items() if value is not None}
        answer = await self._request_api(f"STREAM.PURGE.{self.stream}", body)
        return int(answer.get("purged", 0))

    async def close(self) -> None:
        server, self._server = self._server, None
        self._lost = "closed"
        if server is None:
            return
        if self._consumer:
            with contextlib.suppress(NatsError):
                subject = f"$JS.API.CONSUMER.DELETE.{self.stream}.{self._consumer}"
                await server.request(subject, timeout_s=1.0)
        await server.close()

    # --- where to begin

    async def _connect(self) -> None:
        if self._server is not None:
            self._server.abort()
        self._server = None
        self._server = await nats.connect(self._url, tls=self._tls)

    async def _where(self, position: Position | None, after_seq: int | None) -> Start:
        info = await self.info()
        before_first = max(0, info.first_seq - 1)
        if position is None or position.seq == 0:
            return Start(info.created, before_first)
        begin_seq = position.seq if after_seq is None else after_seq
        lost = max(0, before_first - begin_seq) if position.created == info.created else 0
        rewound = await self._rewound(position, info)
        if rewound or lost:
            return Start(info.created, before_first, rewound, lost)
        return Start(info.created, begin_seq)

    async def _rewound(self, position: Position, info: Info) -> str:
        """Return why the position does not belong to this stream, or nothing."""
        if position.created != info.created:
            return "the broker made the stream anew"
        if position.seq > info.last_seq:
            return f"the stream ends at {info.last_seq}, before {position.seq}: files were restored"
        if position.seq == info.first_seq - 1:
            return ""  # all that was stored is purged, nothing more
        answer = await self._request_api(
            f"STREAM.MSG.GET.{self.stream}", {"seq": position.seq}, unless=_MESSAGE_NOT_FOUND
        )
        if "message" not in answer:
            return f"message {position.seq} is gone"
        stored = msgspec.convert(answer["message"], _StoredMessage)
        if _nanoseconds(stored.time) != position.stored_at_ns:
            return f"message {position.seq} is another one: files were restored"
        return ""

    async def _consume(self, from_seq: int) -> None:
        self._consumer = f"farmiq-{secrets.token_hex(6)}"
        config: dict[str, Any] = {
            "name": self._consumer,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": from_seq,
            "ack_policy": "none",
            "mem_storage": True,
            "inactive_threshold": int(INACTIVE_S * 1e9),
        }
        if self._filters:
            config["filter_subjects"] = list(self._filters)
        self._waiting.clear()
        self._waiting_bytes = self._requested_count = self._delivered = 0
        answer = await self._request_api(
            f"CONSUMER.CREATE.{self.stream}.{self._consumer}",
            {"stream_name": self.stream, "config": config},
        )
        self.pending = int(answer.get("num_pending", 0))
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        server = self._connected()
        server.subscribe(f"{self._inbox}.*", self._take)
        for subject in self._unlogged:
            server.subscribe(subject, self._take_unlogged)
        self._heard_at = time.monotonic()
        self._request_more()

    # --- what comes

    def _request_more(self) -> None:
        """Ask for the next messages, unless there are enough here or asked for."""
        if (
            self._requested_count
            or len(self._waiting) >= self._pull
            or self._waiting_bytes >= PULL_BYTES
        ):
            return
        self._requested_count = self._pull
        self._request += 1
        request = {
            "batch": self._pull,
            "max_bytes": PULL_BYTES,
            "expires": int(PULL_S * 1e9),
            "idle_heartbeat": int(HEARTBEAT_S * 1e9),
        }
        self._connected().publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{self._consumer}",
            msgspec.json.encode(request),
            reply=f"{self._inbox}.{self._request}",
        )
        self._heard_at = time.monotonic()

    def _take(self, message: nats.Message) -> None:
        self._heard_at = time.monotonic()
        if not message.reply.startswith("$JS.ACK."):
            is_of_this_request = message.subject.endswith(f".{self._request}")
            self._take_status(message.status, is_over=is_of_this_request)
            return
        words = message.reply.split(".")
        at = 5 if len(words) == _SHORT_REPLY else 7
        consumer_seq = int(words[at + 1])
        self._delivered += 1
        if consumer_seq != self._delivered:
            self._fail(f"message {self._delivered} of the consumer did not come")
            return
        self._requested_count -= 1
        self.pending = int(words[at + 3])
        seq, stored_at_ns = int(words[at]), int(words[at + 2])
        self._waiting.append(Message(seq, message.subject, message.payload, stored_at_ns))
        self._waiting_bytes += len(message.payload)
        if self._requested_count <= 0:
            self._requested_count = 0
            self._request_more()
        self._arrived.set()

    def _take_unlogged(self, message: nats.Message) -> None:
        has_room = self._waiting_bytes < 2 * PULL_BYTES and len(self._waiting) < 2 * self._pull
        if _QOS0 in message.headers and has_room:
            self._waiting.append(Message(0, message.subject, message.payload, time.time_ns()))
            self._waiting_bytes += len(message.payload)
            self._arrived.set()

    def _take_status(self, status: str, *, is_over: bool) -> None:
        """Handle the status of a request; `is_over`: of the one that we wait for."""
        code = status[:3]
        if code == "100":  # a heartbeat
            return
        if code in {"404", "408"} or any(text in status for text in _REQUEST_OVER):
            if is_over:
                self._requested_count = 0
                self._request_more()
        else:
            self._fail(f"the consumer is gone: {status}")

    def _fail(self, reason: str) -> None:
        self._lost = reason
        self._waiting.clear()
        self._waiting_bytes = 0
        self._arrived.set()

    async def _until_arrived(self, within_s: float | None) -> bool:
        """Whether something came in time. Raises LostError."""
        deadline = None if within_s is None else time.monotonic() + within_s
        self._arrived.clear()
        while True:
            self._check()
            left_s = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
            if left_s <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._arrived.wait()
                    self._check()
                    return True

    def _check(self) -> None:
        server = self._server
        if self._lost is None and (server is None or server.closed.is_set()):
            self._fail(f"connection lost: {server.reason if server else ''}")
        elif (
            self._lost is None
            and self._requested_count
            and time.monotonic() - self._heard_at > SILENT_S
        ):
            self._fail(f"the broker has said nothing for {SILENT_S:g} s")
        if self._lost is not None:
            raise LostError(self._lost)

    def _connected(self) -> nats.Connection:
        if self._server is None:
            raise NatsError("not connected")
        return self._server

    async def _request_api(
        self, subject: str, body: dict[str, Any], *, unless: int = 0
    ) -> dict[str, Any]:
        return await request(self._connected(), subject, body, unless=unless)


@contextlib.asynccontextmanager
async def reader(
    url: str,
    *,
    stream: str,
    filters: Sequence[str] = (),
    unlogged: Sequence[str] = (),
    pull: int = PULL_MESSAGES,
    tls: Tls | None = None,
) -> AsyncIterator[Reader]:
    opened = Reader(url, stream=stream, filters=filters, unlogged=unlogged, pull=pull, tls=tls)
    try:
        yield opened
    finally:
        await opened.close()


async def request(
    server: nats.Connection, subject: str, body: dict[str, Any], *, unless: int = 0
) -> dict[str, Any]:
    """A request to JetStream. Raises NatsError if it fails, but for the error `unless`."""
    raw = await server.request(f"$JS.API.{subject}", msgspec.json.encode(body))
    answer: dict[str, Any] = msgspec.json.decode(raw)
    error = answer.get("error")
    if error is not None and error.get("err_code") != unless:
        raise NatsError(f"{subject}: {error.get('description')}")
    return answer


async def info(server: nats.Connection, stream: str) -> Info:
    """Raises NatsError."""
    answer = msgspec.convert(await request(server, f"STREAM.INFO.{stream}", {}), _StreamInfo)
    state = answer.state
    return Info(
        answer.created,
        state.first_seq,
        state.last_seq,
        state.messages,
        state.bytes,
        answer.config.max_bytes,
    )


def topic(subject: str) -> str:
    """The MQTT topic of a subject: levels end in dots, and a dot in a level is two slashes."""
    if "/" not in subject:
        return subject.replace(".", "/")
    levels = subject.split(".")
    return "/".join("" if level == "/" else level.replace("//", ".") for level in levels)


def _nanoseconds(written: str) -> int:
    """A moment as the broker writes it: RFC 3339 with up to nine decimals."""
    whole, _, decimals = written.removesuffix("Z").partition(".")
    seconds = datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()
    return int(seconds) * 10**9 + int(decimals.ljust(9, "0") or 0)
