"""RabbitMQ: a connection, topology as code, and confirmed publishing. Consuming is `consume.py`.

Every exchange has an alternate exchange, so a message that no queue wants is kept, not dropped.
Every queue is a quorum queue; what dies in one moves on at least once, with its bytes.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aio_pika
import aiormq
from aio_pika.abc import AbstractChannel, AbstractConnection, ExchangeType

from farmiq.plumbing import hosts
from farmiq.plumbing.bus import amqp_reader, amqp_stream
from farmiq.plumbing.tls import Tls, advice

CONNECT_TIMEOUT_S = 10.0
# To connect and declare everything: a slow broker takes longer than a caller waits.
OPEN_TIMEOUT_S = 60.0
# Below the time that a check of readiness has.
PING_WITHIN_S = 2.0
CONFIRMED_WITHIN_S = 3.0
# Far above our own count of attempts: every crash of a consumer counts as a delivery (C-39).
DELIVERY_LIMIT = 50
WHO_CREATES = "`farmiq topology apply` creates it"

# Raised if the broker is unreachable, refuses or is slow; never the fault of a message.
UNAVAILABLE = (
    aiormq.exceptions.AMQPError,
    aio_pika.exceptions.AMQPError,
    ConnectionError,
    OSError,
    TimeoutError,
    asyncio.InvalidStateError,
    RuntimeError,
)


class MissingError(ConnectionError):
    """An exchange or a queue is not there, and this login may not create it."""


# Of these: the login, its rights, the vhost or the topology have to be mended.
NEEDS_PERSON = (
    MissingError,
    amqp_stream.DeniedError,
    amqp_stream.NoQueueError,
    aiormq.exceptions.AuthenticationError,
    aiormq.exceptions.ChannelAccessRefused,
    aiormq.exceptions.ChannelPreconditionFailed,
    aiormq.exceptions.ConnectionNotAllowed,
    aiormq.exceptions.ProbableAuthenticationError,
)


class BusDownError(Exception):
    """The broker did not confirm: nothing may be acknowledged on the strength of it.

    `needs_person`: trying again does not help until somebody acts.
    """

    def __init__(self, text: str, *, needs_person: bool = False) -> None:
        super().__init__(text)
        self.needs_person = needs_person


@dataclass(frozen=True, slots=True)
class Exchange:
    """`alternate` is the exchange for what no queue of this one wants."""

    name: str
    alternate: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {"alternate-exchange": self.alternate} if self.alternate else {}


@dataclass(frozen=True, slots=True)
class Queue:
    """`bindings` are (exchange, routing key).

    `former_bindings` are of earlier versions; `farmiq topology apply` removes them when none runs.
    `dead_letters` names the queue for what dies here: refused, delivered too often, or, where
    there is a `ttl_ms`, older than that.
    """

    name: str
    bindings: tuple[tuple[str, str], ...] = ()
    former_bindings: tuple[tuple[str, str], ...] = ()
    dead_letters: str | None = None
    ttl_ms: int | None = None

    @property
    def arguments(self) -> dict[str, str | int]:
        given: dict[str, str | int] = {"x-queue-type": "quorum"}
        if self.dead_letters:
            # The default exchange routes by queue name; at-least-once needs reject-publish (C-39).
            given |= {
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": self.dead_letters,
                "x-dead-letter-strategy": "at-least-once",
                "x-overflow": "reject-publish",
                "x-delivery-limit": DELIVERY_LIMIT,
            }
        if self.ttl_ms is not None:
            given["x-message-ttl"] = self.ttl_ms
        return given


@dataclass(frozen=True, slots=True)
class Topology:
    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]


@dataclass(frozen=True, slots=True)
class Outgoing:
    exchange: str
    routing_key: str
    body: bytes
    message_id: str
    headers: dict[str, str] = field(default_factory=dict)


async def declare(channel: AbstractChannel, topology: Topology) -> None:
    """Create what is missing; what exists as described is left alone (RB-31).

    Bindings that this version replaced stay: an older one that still runs may need them (D-582).
    """
    for exchange in topology.exchanges:
        await channel.declare_exchange(
            exchange.name, ExchangeType.TOPIC, durable=True, arguments=exchange.arguments
        )
    for queue in topology.queues:
        arguments: dict[str, Any] = dict(queue.arguments)
        declared = await channel.declare_queue(queue.name, durable=True, arguments=arguments)
        for source, routing_key in queue.bindings:
            await declared.bind(source, routing_key)


async def ensure(opened: AbstractConnection, topology: Topology) -> None:
    """All of it is there. A login that may not create anything sees whether somebody else has.

    Raises MissingError, which names what is not there and who must act.
    """
    try:
        async with opened.channel() as channel:
            await declare(channel, topology)
    except aiormq.exceptions.ChannelAccessRefused:
        await _look_for(opened, topology)


async def _look_for(opened: AbstractConnection, topology: Topology) -> None:
    channel = await opened.channel()
    name = ""
    try:
        for exchange in topology.exchanges:
            name = f"exchange {exchange.name}"
            await channel.declare_exchange(exchange.name, passive=True)
        for queue in topology.queues:
            name = f"queue {queue.name}"
            await channel.declare_queue(queue.name, passive=True)
    except aiormq.exceptions.ChannelNotFoundEntity:
        raise MissingError(f"there is no {name}: {WHO_CREATES}") from None


@contextlib.asynccontextmanager
async def connection(
    url: str, *, name: str, tls: Tls | None = None
) -> AsyncIterator[AbstractConnection]:
    opened = await hosts.first(
        url,
        partial(
            aio_pika.connect,
            ssl_context=_tls_context(url, tls),
            client_properties={"connection_name": name},
            connection_class=amqp_reader.Connection,
        ),
        failed=UNAVAILABLE,
        within_s=CONNECT_TIMEOUT_S,
    )
    try:
        yield opened
    finally:
        with contextlib.suppress(*UNAVAILABLE):
            async with asyncio.timeout(5.0):
                await opened.close()


def _tls_context(url: str, tls: Tls | None) -> ssl.SSLContext | None:
    return (tls or Tls()).client() if url.startswith("amqps:") else None


class Publisher:
    """Publishes with confirms over one connection that is opened again when it is lost."""

    def __init__(self, url: str, *, name: str, topology: Topology, tls: Tls | None = None) -> None:
        self._url, self.name, self._topology, self._tls = url, name, topology, tls
        self._stack = contextlib.AsyncExitStack()
        self._link: amqp_stream.Link | None = None
        self._opening: asyncio.Task[amqp_stream.Link] | None = None

    async def publish(self, messages: Sequence[Outgoing], *, timeout_s: float) -> None:
        """Returns when the broker has confirmed every one. Raises BusDownError otherwise."""
        link = None
        try:
            async with asyncio.timeout(timeout_s):
                link = await self._open()
                await link.publish(messages)
        except UNAVAILABLE as error:
            if link is not None and link is self._link:
                await self._close_link()
            raise BusDownError(
                f"not confirmed: {why(error)}", needs_person=isinstance(error, NEEDS_PERSON)
            ) from error

    async def problem(self) -> str | None:
        """What is wrong with the bus, in a sentence: it is asked on the way that publishes go."""
        try:
            async with asyncio.timeout(PING_WITHIN_S):
                link = await self._open()
                await link.ping()
        except TimeoutError:
            return f"message bus does not answer: nothing within {PING_WITHIN_S:g} s"
        except UNAVAILABLE as error:
            return f"message bus does not answer: {why(error)}"
        if (waited_s := link.unconfirmed_s()) > CONFIRMED_WITHIN_S:
            return f"message bus does not confirm: a message has waited for {waited_s:.0f} s"
        return None

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        await self._close_link()

    async def _close_link(self) -> None:
        self._link = None
        stack, self._stack = self._stack, contextlib.AsyncExitStack()
        with contextlib.suppress(*UNAVAILABLE):
            await stack.aclose()

    async def _open(self) -> amqp_stream.Link:
        """The link. A caller that waits no longer does not end the opening of a slow one."""
        if self._link is not None and not self._link.is_closed:
            return self._link
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._connect())
            # Read here, since all callers may have gone.
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._opening)

    async def _connect(self) -> amqp_stream.Link:
        await self._close_link()
        async with asyncio.timeout(OPEN_TIMEOUT_S):
            async with connection(self._url, name=self.name, tls=self._tls) as declaring:
                await ensure(declaring, self._topology)
            self._link = await self._stack.enter_async_context(
                amqp_stream.opened(
                    self._url,
                    name=self.name,
                    context=_tls_context(self._url, self._tls),
                    within_s=CONNECT_TIMEOUT_S,
                )
            )
        return self._link


@contextlib.asynccontextmanager
async def publisher(
    url: str, *, name: str, topology: Topology, tls: Tls | None = None
) -> AsyncIterator[Publisher]:
    opened = Publisher(url, name=name, topology=topology, tls=tls)
    try:
        yield opened
    finally:
        await opened.close()


@dataclass(frozen=True, slots=True)
class QueueCount:
    """How many messages wait in a queue, and how many consumers it has."""

    messages: int
    consumers: int


async def counts(
    url: str, queues: Iterable[str], *, tls: Tls | None = None
) -> dict[str, QueueCount]:
    """Each of these queues, counted; those that are not there are left out."""
    count_by_queue = {}
    async with connection(url, name="depths", tls=tls) as opened:
        channel = await opened.channel()
        for name in queues:
            try:
                declared = await channel.declare_queue(name, passive=True)
            except aiormq.exceptions.ChannelNotFoundEntity:
                channel = await opened.channel()
                continue
            result = declared.declaration_result
            count_by_queue[name] = QueueCount(result.message_count or 0, result.consumer_count or 0)
    return count_by_queue


async def depths(url: str, queues: Iterable[str], *, tls: Tls | None = None) -> dict[str, int]:
    """Messages waiting in each of these queues; those that are not there are left out."""
    counted = await counts(url, queues, tls=tls)
    return {name: count.messages for name, count in counted.items()}


async def depth(url: str, queue: str, *, tls: Tls | None = None) -> tuple[int, int] | None:
    """(messages waiting, consumers) of a queue, or None if there is no such queue."""
    async with connection(url, name="depth", tls=tls) as opened:
        channel = await opened.channel()
        try:
            declared = await channel.declare_queue(queue, passive=True)
        except aiormq.exceptions.ChannelNotFoundEntity:
            return None
        result = declared.declaration_result
        return result.message_count or 0, result.consumer_count or 0


def why(error: BaseException) -> str:
    return advice(error) or str(error) or type(error).__name__
