"""RabbitMQ: topology as code, confirmed publishing, and consuming in batches.

Every exchange has an alternate exchange, so a message that no queue wants is kept, not dropped.
Every queue is a quorum queue with a dead-letter queue behind it, so a message that cannot be
understood keeps its bytes.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aio_pika
import aiormq
import prometheus_client
from aio_pika.abc import (
    AbstractChannel,
    AbstractConnection,
    AbstractIncomingMessage,
    ExchangeType,
)

from farmiq.plumbing import log
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.tls import Tls

CONNECT_TIMEOUT_S = 10.0

# What the client raises when the broker is away, refuses or is slow: never the message's fault.
UNAVAILABLE = (
    aiormq.exceptions.AMQPError,
    aio_pika.exceptions.AMQPError,
    ConnectionError,
    OSError,
    TimeoutError,
    asyncio.InvalidStateError,
    RuntimeError,
)


REDELIVERED = prometheus_client.Counter(
    "farmiq_bus_redelivered_total", "Messages the bus delivered not for the first time", ["queue"]
)


RETRIED = prometheus_client.Counter(
    "farmiq_bus_retried_total", "Messages held and handled again after an outage", ["queue"]
)


class BusDownError(Exception):
    """The broker did not confirm: nothing may be acknowledged on the strength of it."""


@dataclass(frozen=True, slots=True)
class Exchange:
    name: str
    alternate: str | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """`bindings` are (exchange, routing key). `dead_letters` names the queue for refused ones."""

    name: str
    bindings: tuple[tuple[str, str], ...] = ()
    dead_letters: str | None = None


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
    """Create what is missing; what exists as described is left alone (RB-31)."""
    for exchange in topology.exchanges:
        arguments: dict[str, Any] = {}
        if exchange.alternate:
            arguments["alternate-exchange"] = exchange.alternate
        await channel.declare_exchange(
            exchange.name, ExchangeType.TOPIC, durable=True, arguments=arguments
        )
    for queue in topology.queues:
        await _declare_queue(channel, queue)


async def _declare_queue(channel: AbstractChannel, queue: Queue) -> None:
    arguments: dict[str, Any] = {"x-queue-type": "quorum"}
    if queue.dead_letters:
        # The default exchange routes by queue name; at-least-once needs reject-publish (C-39).
        arguments |= {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": queue.dead_letters,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-delivery-limit": 50,
        }
    declared = await channel.declare_queue(queue.name, durable=True, arguments=arguments)
    for exchange, routing_key in queue.bindings:
        await declared.bind(exchange, routing_key)


@contextlib.asynccontextmanager
async def connection(
    url: str, *, name: str, tls: Tls | None = None
) -> AsyncIterator[AbstractConnection]:
    context = (tls or Tls()).client() if url.startswith("amqps:") else None
    async with asyncio.timeout(CONNECT_TIMEOUT_S):
        opened = await aio_pika.connect(
            url, ssl_context=context, client_properties={"connection_name": name}
        )
    try:
        yield opened
    finally:
        with contextlib.suppress(*UNAVAILABLE):
            async with asyncio.timeout(5.0):
                await opened.close()


class Publisher:
    """Publishes with confirms over one connection that is opened again when it is lost."""

    def __init__(self, url: str, *, name: str, topology: Topology, tls: Tls | None = None) -> None:
        self._url, self._name, self._topology, self._tls = url, name, topology, tls
        self._stack = contextlib.AsyncExitStack()
        self._channel: AbstractChannel | None = None
        self._opening = asyncio.Lock()

    async def publish(self, messages: Sequence[Outgoing], *, timeout_s: float) -> None:
        """Returns when the broker has confirmed every one. Raises BusDownError otherwise."""
        try:
            async with asyncio.timeout(timeout_s):
                channel = await self._open()
                await asyncio.gather(*(self._publish_one(channel, item) for item in messages))
        except UNAVAILABLE as error:
            await self.close()
            raise BusDownError(f"not confirmed: {_why(error)}") from error

    async def problem(self) -> str | None:
        try:
            async with asyncio.timeout(3.0):
                await self._open()
        except UNAVAILABLE as error:
            return f"message bus does not answer: {_why(error)}"
        return None

    async def close(self) -> None:
        self._channel = None
        stack, self._stack = self._stack, contextlib.AsyncExitStack()
        with contextlib.suppress(*UNAVAILABLE):
            await stack.aclose()

    async def _open(self) -> AbstractChannel:
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                await self.close()
                opened = await self._stack.enter_async_context(
                    connection(self._url, name=self._name, tls=self._tls)
                )
                channel = await opened.channel(publisher_confirms=True, on_return_raises=True)
                await declare(channel, self._topology)
                self._channel = channel
            return self._channel

    @staticmethod
    async def _publish_one(channel: AbstractChannel, item: Outgoing) -> None:
        exchange = await channel.get_exchange(item.exchange, ensure=False)
        await exchange.publish(
            aio_pika.Message(
                item.body,
                content_type="application/json",
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                message_id=item.message_id,
                headers=dict(item.headers),
            ),
            item.routing_key,
            mandatory=True,
        )


@contextlib.asynccontextmanager
async def publisher(
    url: str, *, name: str, topology: Topology, tls: Tls | None = None
) -> AsyncIterator[Publisher]:
    opened = Publisher(url, name=name, topology=topology, tls=tls)
    try:
        yield opened
    finally:
        await opened.close()


class Consumer:
    """Takes a queue in batches for ever.

    `handle` returns the indexes of messages that can never be understood: those go to the
    dead-letter queue, the rest is acknowledged. If it raises one of `retry_on`, it is asked again
    after a pause, for as long as it takes. The messages are held meanwhile: going back to the
    queue would count towards their delivery limit, and a long outage would end in dead letters.
    """

    def __init__(
        self,
        url: str,
        *,
        queue: str,
        topology: Topology,
        handle: Callable[[list[bytes]], Awaitable[set[int]]],
        retry_on: tuple[type[Exception], ...],
        most: int = 500,
        linger_s: float = 0.02,
        tls: Tls | None = None,
    ) -> None:
        self._url, self._queue, self._topology, self._tls = url, queue, topology, tls
        self._handle = handle
        self._retry_on = retry_on
        self._most, self._linger_s = most, linger_s
        self._log = log.get(queue)
        self._problem: str | None = "not connected yet"

    def problem(self) -> str | None:
        return self._problem and f"queue {self._queue}: {self._problem}"

    async def run(self) -> None:
        backoff = Backoff()
        while True:
            try:
                async with connection(self._url, name=self._queue, tls=self._tls) as opened:
                    await self._consume(opened)
            except UNAVAILABLE as error:
                await self._pause(error, backoff)

    async def _pause(self, error: Exception, backoff: Backoff) -> None:
        self._problem = _why(error)
        wait_s = backoff.next_s()
        self._log.warning("amqp.retry", reason=self._problem, wait_s=round(wait_s, 2))
        await asyncio.sleep(wait_s)

    async def _consume(self, opened: AbstractConnection) -> None:
        channel = await opened.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=self._most * 2)
        await declare(channel, self._topology)
        queue = await channel.get_queue(self._queue, ensure=False)
        arrived: asyncio.Queue[AbstractIncomingMessage | None] = asyncio.Queue()
        await queue.consume(arrived.put)
        opened.close_callbacks.add(lambda *_: arrived.put_nowait(None))
        channel.close_callbacks.add(lambda *_: arrived.put_nowait(None))
        self._problem = None
        while True:
            batch = await self._batch(arrived)
            REDELIVERED.labels(queue=self._queue).inc(sum(bool(each.redelivered) for each in batch))
            refused = await self._handled([message.body for message in batch])
            await self._settle(batch, refused)

    async def _handled(self, bodies: list[bytes]) -> set[int]:
        backoff = Backoff()
        while True:
            try:
                refused = await self._handle(bodies)
            except self._retry_on as error:
                RETRIED.labels(queue=self._queue).inc(len(bodies))
                await self._pause(error, backoff)
            else:
                self._problem = None
                return refused

    async def _batch(
        self, arrived: "asyncio.Queue[AbstractIncomingMessage | None]"
    ) -> list[AbstractIncomingMessage]:
        batch = [await arrived.get()]
        deadline = time.monotonic() + self._linger_s
        while len(batch) < self._most and (left := deadline - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    batch.append(await arrived.get())
            except TimeoutError:
                break
        if None in batch:
            raise ConnectionError("the broker closed the channel")
        return [message for message in batch if message is not None]

    async def _settle(self, batch: list[AbstractIncomingMessage], refused: set[int]) -> None:
        for index in sorted(refused):
            await batch[index].reject(requeue=False)
        if len(refused) < len(batch):
            # Refused ones are settled already, so "all up to the last" is exactly the rest.
            last = max(index for index in range(len(batch)) if index not in refused)
            await batch[last].ack(multiple=True)


async def depth(url: str, queue: str, *, tls: Tls | None = None) -> tuple[int, int] | None:
    """(messages waiting, consumers) of a queue, or None if there is no such queue."""
    async with connection(url, name="depth", tls=tls) as opened:
        channel = await opened.channel()
        try:
            found = await channel.declare_queue(queue, passive=True)
        except aiormq.exceptions.ChannelNotFoundEntity:
            return None
        result = found.declaration_result
        return result.message_count or 0, result.consumer_count or 0


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__
