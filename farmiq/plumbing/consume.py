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
from farmiq.plumbing import amqp, amqp_salvage, log
from farmiq.plumbing import delivery as deliveries
from farmiq.plumbing.amqp import Topology
from farmiq.plumbing.backoff import Backoff, cancelled_so_far, end_if_cancelled
from farmiq.plumbing.delivery import Delivery, Properties
from farmiq.plumbing.tls import Tls

# A broker takes messages away that are held for half an hour, and counts it as a delivery.
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
class Refused:
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
    def most_attempts(self) -> int:
        return len(self.retries) + 1

    def next(self, *, attempts: int, final: bool) -> str:
        """Where a message goes that has failed so often."""
        if final or attempts >= self.most_attempts:
            return self.dead_letters
        return self.retries[attempts - 1]


Handle = Callable[[list[bytes]], Awaitable[Mapping[int, Refused]]]
_Verdicts = dict[int, "Refused | None"]


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
        most: int = 500,
        linger_s: float = 0.01,
        hold_s: float = HOLD_S,
        tls: Tls | None = None,
    ) -> None:
        self._url, self._route, self._topology, self._tls = url, route, topology, tls
        self._handle, self._is_outage = handle, is_outage
        self._most, self._linger_s, self._hold_s = most, linger_s, hold_s
        self._log = log.get(route.queue)
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
                    await self._consume(opened, most=1 if self._careful else self._most)
            except amqp.UNAVAILABLE as error:
                await self._pause(error, backoff)

    async def _consume(self, opened: AbstractConnection, *, most: int) -> None:
        outbox = await confirming(opened)
        try:
            inbox = await subscribe(opened, self._route.queue, prefetch=most * 2 if most > 1 else 1)
            await self._take(inbox, outbox, most=most)
        except amqp.UNAVAILABLE:
            # Whatever ended it may lie in the queue. All that was delivered counts as tried, so
            # from here on it comes alone, and the queue gives up on nothing else.
            self._careful.begin(self._most * 2)
            raise

    async def _take(self, inbox: "Inbox", outbox: aiormq.abc.AbstractChannel, *, most: int) -> None:
        """For ever; one message at a time only until the danger seems to be over."""
        self._problem = None
        while most > 1 or self._careful:
            # The library may have lost it while a connection came or went; nobody says it twice.
            end_if_cancelled(beyond=self._cancelled)
            batch = await inbox.batch(most=most, linger_s=self._linger_s if most > 1 else 0.0)
            verdicts = await self._judged(batch)
            if verdicts:
                await self._set_aside(outbox, batch, verdicts)
                crash.here("consume.after_set_aside")
            await inbox.ack_up_to(batch[-1])
            self._count(batch, verdicts)
            self._tell(batch, verdicts)
            self._careful.settled(len(batch))

    async def _judged(self, batch: Sequence[Delivery]) -> _Verdicts:
        """As `_tried`; what did not come in whole is not tried at all."""
        found: _Verdicts = {
            index: Refused(f"its properties cannot be read: {'; '.join(each.unreadable)}")
            for index, each in enumerate(batch)
            if each.unreadable
        }
        readable = [index for index in range(len(batch)) if index not in found]
        if readable:
            tried = await self._tried([batch[index] for index in readable])
            found |= {readable[at]: verdict for at, verdict in tried.items()}
        return found

    async def _tried(self, batch: Sequence[Delivery]) -> _Verdicts:
        """Refused, by position; None for those to be put back because nobody can take them now."""
        backoff = Backoff()
        while True:
            try:
                refused = await self._handle([each.body for each in batch])
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

    async def _one_by_one(self, batch: Sequence[Delivery], error: Exception) -> _Verdicts:
        if len(batch) == 1:
            self._log.error("amqp.failed", error=type(error).__name__)
            return {0: Refused(f"{type(error).__name__}: {amqp.why(error)}", final=False)}
        found: _Verdicts = {}
        for index, each in enumerate(batch):
            alone = await self._tried([each])
            if alone:
                found[index] = alone[0]
        return found

    async def _set_aside(
        self, outbox: aiormq.abc.AbstractChannel, batch: Sequence[Delivery], verdicts: _Verdicts
    ) -> None:
        """Each refused one is confirmed where it waits next. Holds while there is no room."""
        left = [(batch[index], verdict) for index, verdict in sorted(verdicts.items())]
        backoff = Backoff()
        while left:
            sent = await asyncio.gather(
                *(self._publish(outbox, each, verdict) for each, verdict in left),
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
        self, outbox: aiormq.abc.AbstractChannel, each: Delivery, verdict: Refused | None
    ) -> None:
        queue = self._route.queue
        if verdict is None:
            again = deliveries.with_headers(
                each.properties,
                {
                    **deliveries.without_deaths(each.headers),
                    deliveries.EXCHANGE: each.exchange,
                    deliveries.ROUTING_KEY: each.routing_key,
                },
            )
            await publish(outbox, queue, each.body, again, exchange=self._route.exchange)
            return
        attempts = each.attempts + 1
        target = self._route.next(attempts=attempts, final=verdict.final)
        properties = deliveries.set_aside(
            each, queue=queue, attempts=attempts, reason=verdict.reason, at=datetime.now(UTC)
        )
        await publish(outbox, target, each.body, properties, exchange=self._route.exchange)
        is_dead = target == self._route.dead_letters
        say = self._log.error if is_dead else self._log.warning
        say(
            "amqp.dead_letter" if is_dead else "amqp.retry_later",
            **_named(each),
            attempt=attempts,
            reason=deliveries.printable(verdict.reason),
        )

    def _count(self, batch: Sequence[Delivery], verdicts: _Verdicts) -> None:
        queue = self._route.queue
        REDELIVERED.labels(queue=queue).inc(sum(each.redelivered for each in batch))
        CONSUMED.labels(queue=queue, outcome="taken").inc(len(batch) - len(verdicts))
        for index, verdict in verdicts.items():
            attempts = batch[index].attempts + 1
            is_dead = verdict is not None and (
                verdict.final or attempts >= self._route.most_attempts
            )
            CONSUMED.labels(queue=queue, outcome="dead" if is_dead else "again").inc()

    def _tell(self, batch: Sequence[Delivery], verdicts: _Verdicts) -> None:
        """What was taken; the rest is told apart."""
        taken = (_named(each) for index, each in enumerate(batch) if index not in verdicts)
        log.events(
            self._log,
            "amqp.consumed",
            ((of["event_id"], of["event_type"], of["trace_id"]) for of in taken),
        )

    async def _pause(self, error: Exception, backoff: Backoff) -> None:
        self._problem = amqp.why(error)
        wait_s = backoff.next_s()
        self._log.warning("amqp.retry", reason=self._problem, wait_s=round(wait_s, 2))
        await asyncio.sleep(wait_s)


def _named(each: Delivery) -> dict[str, str]:
    """What a log says of a message: its own words only, and those as short as they should be."""
    said = {
        "event_id": each.properties.message_id,
        "event_type": each.routing_key,
        "trace_id": each.headers.get("trace_id"),
    }
    return {name: deliveries.printable(str(value or "-"))[:128] for name, value in said.items()}


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

    async def batch(self, *, most: int, linger_s: float) -> list[Delivery]:
        """At least one, at most `most`, waiting a moment for company. ConnectionError if closed."""
        await self._any.wait()
        if len(self._arrived) < most:
            await self._wait_for(most, linger_s)
        if self._closed:
            raise ConnectionError("the broker closed the channel")
        taken = [self._arrived.popleft() for _ in range(min(most, len(self._arrived)))]
        if not self._arrived:
            self._any.clear()
        return taken

    async def collect(self, count: int, *, within_s: float) -> list[Delivery]:
        """Exactly so many, or what has come when nothing more does for so long."""
        found: list[Delivery] = []
        with contextlib.suppress(TimeoutError):
            while len(found) < count:
                async with asyncio.timeout(within_s):
                    found += await self.batch(most=count - len(found), linger_s=0.0)
        return found

    async def _wait_for(self, count: int, linger_s: float) -> None:
        self._wanted = count
        self._enough.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(linger_s):
                await self._enough.wait()

    async def ack_up_to(self, last: Delivery) -> None:
        """Settle it and all before it."""
        await self._channel.basic_ack(last.tag, multiple=True)

    async def ack(self, each: Delivery) -> None:
        await self._channel.basic_ack(each.tag)


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
        found = await inbox.collect(wanted, within_s=BROWSE_PATIENCE_S)
        await channel.basic_cancel(str(subscription.consumer_tag))
        if not found:
            return
        left -= len(found)
        yield inbox, found


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
    found = message.header
    properties = found.properties
    headers: dict[str, Any] = properties.headers or {}
    exchange, key = message.exchange or "", message.routing_key or ""
    return Delivery(
        body=message.body,
        tag=message.delivery_tag or 0,
        exchange=deliveries.origin(exchange, deliveries.EXCHANGE, headers),
        routing_key=deliveries.origin(key, deliveries.ROUTING_KEY, headers),
        redelivered=bool(message.redelivered),
        properties=properties,
        received_at=time.monotonic(),
        unreadable=found.unreadable if isinstance(found, amqp_salvage.Salvaged) else (),
    )
