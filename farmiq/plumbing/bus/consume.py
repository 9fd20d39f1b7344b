"""Consuming a queue in batches: one transaction, one acknowledgement, and retries that grow.

queue --batch--> handle --commit--> ack
  what fails --> its retry queues, one after the other --> queue again --> at last the dead letters

A message is acknowledged only when it is committed, or confirmed in the queue it was set aside in.
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiormq
import prometheus_client
from aio_pika.abc import AbstractConnection

from farmiq import crash
from farmiq.plumbing import log, tracing
from farmiq.plumbing.backoff import Backoff, cancelled_so_far, end_if_cancelled
from farmiq.plumbing.bus import amqp, amqp_reader
from farmiq.plumbing.bus import delivery as deliveries
from farmiq.plumbing.bus.amqp import Topology
from farmiq.plumbing.bus.delivery import Delivery, Properties
from farmiq.plumbing.tls import Tls

# A broker takes back messages that are held for half an hour, and counts that as a delivery.
HOLD_S = 600.0
PUBLISH_TIMEOUT_S = 10.0
# After a connection died: so long, or for as many as it may have held, one message at a time.
CAREFUL_S = 60.0
# Messages looked at together: the largest ones must fit into memory so many times.
WINDOW = 200
BROWSE_PATIENCE_S = 3.0

REDELIVERED = prometheus_client.Counter(
    "farmiq_bus_redelivered_total", "Messages the bus delivered not for the first time", ["queue"]
)
RETRIED = prometheus_client.Counter(
    "farmiq_bus_retried_total", "Messages held and handled again after an outage", ["queue"]
)
CONSUMED = prometheus_client.Counter(
    "farmiq_bus_consumed_total", "Messages taken, to be retried, or dead", ["queue", "outcome"]
)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a message was not taken. `final`: trying again cannot help, only a person can."""

    reason: str
    final: bool = True


@dataclass(frozen=True, slots=True)
class Route:
    """A queue, the queues in which its failed messages wait, shortest first, and the last one.

    `exchange` leads to each of them by its name; the default exchange does so for every queue.
    """

    queue: str
    retries: tuple[str, ...]
    dead_letters: str
    exchange: str = ""

    @property
    def max_attempts(self) -> int:
        return len(self.retries) + 1

    def next(self, *, attempts: int, final: bool) -> str:
        """Where a message goes that has failed so often."""
        if final or attempts >= self.max_attempts:
            return self.dead_letters
        return self.retries[attempts - 1]


Handle = Callable[[list[bytes]], Awaitable[Mapping[int, Rejection]]]
_Outcomes = dict[int, "Rejection | None"]


class Consumer:
    """Takes a queue in batches for ever.

    `handle` commits what it takes and returns the positions it did not take, with the reasons. If
    it raises, the batch is tried again one by one, and whichever fails alone counts an attempt. An
    error that `is_outage` says is nobody's fault counts for nothing: the batch is held and asked
    about again for as long as it takes.
    """

    def __init__(
        self,
        url: str,
        *,
        route: Route,
        topology: Topology,
        handle: Handle,
        is_outage: Callable[[Exception], bool],
        max_messages: int = 500,
        linger_s: float = 0.01,
        hold_s: float = HOLD_S,
        tls: Tls | None = None,
    ) -> None:
        self._url, self._route, self._topology, self._tls = url, route, topology, tls
        self._handle, self._is_outage = handle, is_outage
        self._max_messages, self._linger_s, self._hold_s = max_messages, linger_s, hold_s
        self._log = log.get(route.queue)
        # farmiq.{service}.{purpose}.queue
        self._service = route.queue.removeprefix("farmiq.").partition(".")[0]
        self._problem: str | None = "not connected yet"
        self._careful = _Careful()
        self._cancelled = 0

    def problem(self) -> str | None:
        return self._problem and f"queue {self._route.queue}: {self._problem}"

    async def run(self) -> None:
        backoff = Backoff()
        self._cancelled = cancelled_so_far()
        while True:
            end_if_cancelled(beyond=self._cancelled)
            try:
                async with amqp.connection(
                    self._url, name=self._route.queue, tls=self._tls
                ) as opened:
                    await amqp.ensure(opened, self._topology)
                    await self._consume(
                        opened, max_messages=1 if self._careful else self._max_messages
                    )
            except amqp.UNAVAILABLE as error:
                await self._pause(error, backoff)

    async def _consume(self, opened: AbstractConnection, *, max_messages: int) -> None:
        outbox = await confirming(opened)
        try:
            inbox = await subscribe(
                opened, self._route.queue, prefetch=max_messages * 2 if max_messages > 1 else 1
            )
            await self._take(inbox, outbox, max_messages=max_messages)
        except amqp.UNAVAILABLE:
            # Whatever ended it may lie in the queue. All that was delivered counts as tried, so
            # from here on it comes alone, and the queue gives up on nothing else.
            self._careful.begin(self._max_messages * 2)
            raise

    async def _take(
        self, inbox: "Inbox", outbox: aiormq.abc.AbstractChannel, *, max_messages: int
    ) -> None:
        """For ever; one message at a time only until the danger seems to be over."""
        self._problem = None
        while max_messages > 1 or self._careful:
            # The library may lose a cancellation while a connection opens or closes.
            end_if_cancelled(beyond=self._cancelled)
            batch = await inbox.batch(
                max_messages=max_messages, linger_s=self._linger_s if max_messages > 1 else 0.0
            )
            started_ns = time.time_ns()
            outcomes = await self._process(batch)
            if outcomes:
                await self._publish_failed(outbox, batch, outcomes)
                crash.here("consume.after_set_aside")
            await inbox.ack_up_to(batch[-1])
            self._count(batch, outcomes)
            self._log_consumed(batch, outcomes, started_ns)
            self._careful.settled(len(batch))

    async def _process(self, batch: Sequence[Delivery]) -> _Outcomes:
        """As `_tried`; what did not come in whole is not tried at all."""
        outcomes: _Outcomes = {
            index: Rejection(f"its properties cannot be read: {'; '.join(delivery.unreadable)}")
            for index, delivery in enumerate(batch)
            if delivery.unreadable
        }
        readable = [index for index in range(len(batch)) if index not in outcomes]
        if readable:
            tried = await self._tried([batch[index] for index in readable])
            outcomes |= {readable[at]: rejection for at, rejection in tried.items()}
        return outcomes

    async def _tried(self, batch: Sequence[Delivery]) -> _Outcomes:
        """Return rejections by position; None for those to put back: nobody can take them now."""
        backoff = Backoff()
        while True:
            try:
                refused = await self._handle([delivery.body for delivery in batch])
            except Exception as error:  # noqa: BLE001 - whatever it is, only this message pays
                if not self._is_outage(error):
                    return await self._one_by_one(batch, error)
                if time.monotonic() - batch[0].received_at > self._hold_s:
                    return dict.fromkeys(range(len(batch)))
                RETRIED.labels(queue=self._route.queue).inc(len(batch))
                await self._pause(error, backoff)
            else:
                self._problem = None
                return dict(refused)

    async def _one_by_one(self, batch: Sequence[Delivery], error: Exception) -> _Outcomes:
        if len(batch) == 1:
            self._log.error("amqp.failed", error=type(error).__name__)
            return {0: Rejection(f"{type(error).__name__}: {amqp.why(error)}", final=False)}
        outcomes: _Outcomes = {}
        for index, delivery in enumerate(batch):
            alone = await self._tried([delivery])
            if alone:
                outcomes[index] = alone[0]
        return outcomes

    async def _publish_failed(
        self, outbox: aiormq.abc.AbstractChannel, batch: Sequence[Delivery], outcomes: _Outcomes
    ) -> None:
        """Publish each rejected message to its next queue. Waits while there is no room."""
        left = [(batch[index], outcome) for index, outcome in sorted(outcomes.items())]
        backoff = Backoff()
        while left:
            sent = await asyncio.gather(
                *(self._publish(outbox, delivery, outcome) for delivery, outcome in left),
                return_exceptions=True,
            )
            failed = [answer for answer in sent if isinstance(answer, BaseException)]
            for answer in failed:
                if not isinstance(answer, _NO_ROOM):
                    raise answer
            left = [item for item, answer in zip(left, sent, strict=True) if answer is not None]
            if failed:
                await self._pause(ConnectionError(_full(failed[0])), backoff)
        self._problem = None

    async def _publish(
        self, outbox: aiormq.abc.AbstractChannel, delivery: Delivery, rejection: Rejection | None
    ) -> None:
        queue = self._route.queue
        if rejection is None:
            again = deliveries.with_headers(
                delivery.properties,
                {
                    **deliveries.without_deaths(delivery.headers),
                    deliveries.EXCHANGE: delivery.exchange,
                    deliveries.ROUTING_KEY: delivery.routing_key,
                },
            )
            await publish(outbox, queue, delivery.body, again, exchange=self._route.exchange)
            return
        attempts = delivery.attempts + 1
        target = self._route.next(attempts=attempts, final=rejection.final)
        properties = deliveries.failed_properties(
            delivery, queue=queue, attempts=attempts, reason=rejection.reason, at=datetime.now(UTC)
        )
        await publish(outbox, target, delivery.body, properties, exchange=self._route.exchange)
        is_dead = target == self._route.dead_letters
        say = self._log.error if is_dead else self._log.warning
        say(
            "amqp.dead_letter" if is_dead else "amqp.retry_later",
            **_named(delivery),
            attempt=attempts,
            reason=deliveries.printable(rejection.reason),
        )

    def _count(self, batch: Sequence[Delivery], outcomes: _Outcomes) -> None:
        queue = self._route.queue
        REDELIVERED.labels(queue=queue).inc(sum(delivery.redelivered for delivery in batch))
        CONSUMED.labels(queue=queue, outcome="taken").inc(len(batch) - len(outcomes))
        for index, rejection in outcomes.items():
            attempts = batch[index].attempts + 1
            is_dead = rejection is not None and (
                rejection.final or attempts >= self._route.max_attempts
            )
            CONSUMED.labels(queue=queue, outcome="dead" if is_dead else "again").inc()

    def _log_consumed(
        self, batch: Sequence[Delivery], outcomes: _Outcomes, started_ns: int
    ) -> None:
        """Log and trace what was taken; the rest has its own log lines."""
        taken = [delivery for index, delivery in enumerate(batch) if index not in outcomes]
        log.events(self._log, "amqp.consumed", map(_event, taken))
        if tracing.is_on():
            tracing.record(
                tracing.CONSUME,
                self._service,
                map(_event, taken),
                started_ns=started_ns,
                parents=[str(delivery.headers.get("traceparent", "")) for delivery in taken],
            )

    async def _pause(self, error: Exception, backoff: Backoff) -> None:
        self._problem = amqp.why(error)
        wait_s = backoff.next_s()
        self._log.warning("amqp.retry", reason=self._problem, wait_s=round(wait_s, 2))
        await asyncio.sleep(wait_s)


def _named(delivery: Delivery) -> dict[str, str]:
    """What a log says of a message: its own words only, and those as short as they should be."""
    fields = {
        "event_id": delivery.properties.message_id,
        "event_type": delivery.routing_key,
        "trace_id": delivery.headers.get("trace_id"),
    }
    return {name: deliveries.printable(str(value or "-"))[:128] for name, value in fields.items()}


def _event(delivery: Delivery) -> tuple[str, str, str]:
    of = _named(delivery)
    return of["event_id"], of["event_type"], of["trace_id"]


# The broker is there, but the queue is full or has not been made.
_NO_ROOM = (aiormq.exceptions.DeliveryError, aiormq.exceptions.PublishError)


def _full(error: BaseException) -> str:
    if isinstance(error, aiormq.exceptions.PublishError):
        return f"a message cannot be set aside: its queue is missing; {amqp.WHO_CREATES}"
    return "a message cannot be set aside: its queue is full; redrive or discard (farmiq dlq)"


class _Careful:
    """Whether messages are taken one at a time, and for how many and how long still."""

    def __init__(self) -> None:
        self._left, self._until = 0, 0.0

    def __bool__(self) -> bool:
        return self._left > 0 and time.monotonic() < self._until

    def begin(self, messages: int) -> None:
        self._left, self._until = messages, time.monotonic() + CAREFUL_S

    def settled(self, messages: int) -> None:
        self._left -= messages


class Inbox:
    """What a subscription has delivered, in order, until it is taken."""

    def __init__(self, channel: aiormq.abc.AbstractChannel) -> None:
        self._channel = channel
        self._arrived: deque[Delivery] = deque()
        self._any, self._enough = asyncio.Event(), asyncio.Event()
        self._wanted = 1
        self._closed = False

    async def arrive(self, message: aiormq.abc.DeliveredMessage) -> None:
        self._arrived.append(delivered(message))
        self._any.set()
        if len(self._arrived) >= self._wanted:
            self._enough.set()

    def close(self) -> None:
        self._closed = True
        self._any.set()
        self._enough.set()

    async def batch(self, *, max_messages: int, linger_s: float) -> list[Delivery]:
        """At least one, at most `most`, waiting a moment for company. ConnectionError if closed."""
        await self._any.wait()
        if len(self._arrived) < max_messages:
            await self._wait_for(max_messages, linger_s)
        if self._closed:
            raise ConnectionError("the broker closed the channel")
        taken = [self._arrived.popleft() for _ in range(min(max_messages, len(self._arrived)))]
        if not self._arrived:
            self._any.clear()
        return taken

    async def collect(self, count: int, *, within_s: float) -> list[Delivery]:
        """Exactly so many, or what has come when nothing more does for so long."""
        collected: list[Delivery] = []
        with contextlib.suppress(TimeoutError):
            while len(collected) < count:
                async with asyncio.timeout(within_s):
                    collected += await self.batch(max_messages=count - len(collected), linger_s=0.0)
        return collected

    async def _wait_for(self, count: int, linger_s: float) -> None:
        self._wanted = count
        self._enough.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(linger_s):
                await self._enough.wait()

    async def ack_up_to(self, last: Delivery) -> None:
        """Settle it and all before it."""
        await self._channel.basic_ack(last.tag, multiple=True)

    async def ack(self, delivery: Delivery) -> None:
        await self._channel.basic_ack(delivery.tag)


async def subscribe(opened: AbstractConnection, queue: str, *, prefetch: int) -> Inbox:
    channel = await _underlay(opened, confirms=False)
    await channel.basic_qos(prefetch_count=prefetch)
    inbox = Inbox(channel)
    channel.closing.add_done_callback(lambda _: inbox.close())
    await channel.basic_consume(queue, inbox.arrive)
    return inbox


async def browse(
    opened: AbstractConnection, queue: str, *, window: int = WINDOW
) -> AsyncIterator[tuple[Inbox, list[Delivery]]]:
    """What waits in a queue now, oldest first, a window of it at a time.

    Only a window is in memory. Whoever deals with a message acknowledges it; the others are the
    broker's all the time and lie in the queue again when the connection closes, or breaks.
    """
    channel = await _underlay(opened, confirms=False)
    inbox = Inbox(channel)
    channel.closing.add_done_callback(lambda _: inbox.close())
    left = (await channel.queue_declare(queue, passive=True)).message_count or 0
    while left > 0:
        # Each subscription may hold a window; those before it go on holding theirs.
        wanted = min(window, left)
        await channel.basic_qos(prefetch_count=wanted)
        subscription = await channel.basic_consume(queue, inbox.arrive)
        portion = await inbox.collect(wanted, within_s=BROWSE_PATIENCE_S)
        await channel.basic_cancel(str(subscription.consumer_tag))
        if not portion:
            return
        left -= len(portion)
        yield inbox, portion


async def confirming(opened: AbstractConnection) -> aiormq.abc.AbstractChannel:
    """A channel to publish on: the broker confirms, and gives back what no queue takes."""
    return await _underlay(opened, confirms=True)


async def publish(
    channel: aiormq.abc.AbstractChannel,
    queue: str,
    body: bytes,
    properties: Properties,
    *,
    exchange: str = "",
) -> None:
    """To a queue by its name; returns when the broker has confirmed that it is kept."""
    await channel.basic_publish(
        body,
        exchange=exchange,
        routing_key=queue,
        properties=properties,
        mandatory=True,
        timeout=PUBLISH_TIMEOUT_S,
    )


async def _underlay(opened: AbstractConnection, *, confirms: bool) -> aiormq.abc.AbstractChannel:
    channel = await opened.channel(publisher_confirms=confirms, on_return_raises=confirms)
    return await channel.get_underlay_channel()


def delivered(message: aiormq.abc.DeliveredMessage) -> Delivery:
    properties = message.header.properties
    headers: dict[str, Any] = properties.headers or {}
    unreadable = headers.pop(amqp_reader.UNREADABLE, ())
    exchange, key = message.exchange or "", message.routing_key or ""
    return Delivery(
        body=message.body,
        tag=message.delivery_tag or 0,
        exchange=deliveries.origin(exchange, deliveries.EXCHANGE, headers),
        routing_key=deliveries.origin(key, deliveries.ROUTING_KEY, headers),
        redelivered=bool(message.redelivered),
        properties=properties,
        received_at=time.monotonic(),
        # Whoever sends this header too says of their own message that it is not to be taken.
        unreadable=tuple(map(str, unreadable)) if isinstance(unreadable, list) else (),
    )
