"""Hold batches back while more events wait for a consumer than it stores in a second or two.

A queue is first in, first out, so a backlog in it delays live events. Held back here, the backlog
of an outage stays in the edge's outbox, where live events go first (C-92). A queue whose consumer
is down or makes no progress holds nothing back: its events wait in the queue, and other services
get theirs.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass

import prometheus_client
from aio_pika.abc import AbstractChannel

from farmiq.cloud import bus
from farmiq.plumbing import log
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.tls import Tls

# No batch is held longer: the edge waits for the response.
MAX_HOLD_S = 5.0
# A queue from which nothing was consumed for so long holds nothing back.
STALLED_S = 3.0
LOOK_S = 0.1
# Queues that got nothing for so long are not measured.
IDLE_S = 10.0

HELD_S = prometheus_client.Counter(
    "farmiq_ingestion_held_seconds_total", "How long batches were held back for slow consumers"
)

# Analytics only marks days and holds nothing back (C-112).
_QUEUES: Mapping[str, tuple[str, ...]] = {
    event_type: tuple(work.queue for work in bus.SINKS if event_type in work.event_types)
    for work in bus.SINKS
    for event_type in work.event_types
}


def per_queue(event_types: Iterable[str]) -> Counter[str]:
    """How many of these events go into each queue."""
    return Counter(queue for event_type in event_types for queue in _QUEUES.get(event_type, ()))


@dataclass(slots=True)
class Depth:
    """The state of one queue.

    `on_the_way`: admitted and being published. `published`: since the last measurement began.
    """

    published_at: float
    waiting: int = 0
    on_the_way: int = 0
    published: int = 0
    has_consumer: bool = False
    moved_at: float = 0.0

    def looked(self, waiting: int, consumers: int, *, seen: int, now: float) -> None:
        """`seen`: how many of the published were so before the measurement, which counted them."""
        left_the_queue = self.waiting + seen - waiting
        if left_the_queue > 0 or not waiting:
            self.moved_at = now
        self.waiting, self.has_consumer = waiting, consumers > 0
        self.published -= seen

    def is_full(self, limit: int, *, now: float) -> bool:
        moves = self.has_consumer and now - self.moved_at < STALLED_S
        return moves and self.waiting + self.published + self.on_the_way >= limit


class Backpressure:
    """`admitted` waits until the consumers have room for a batch, at most MAX_HOLD_S."""

    def __init__(self, url: str, *, limit: int, tls: Tls | None = None) -> None:
        self._url, self._limit, self._tls = url, limit, tls
        self._depths: dict[str, Depth] = {}
        self._changed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def admitted(self, event_types: Iterable[str]) -> AsyncIterator[None]:
        """Publish the batch in this block: it counts from now on."""
        counts = per_queue(event_types)
        started_at = _now()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_HOLD_S), self._changed:
                await self._changed.wait_for(lambda: not self._is_full(counts))
        now = _now()
        HELD_S.inc(now - started_at)
        depths = {queue: self._depths.setdefault(queue, Depth(now)) for queue in counts}
        for queue, depth in depths.items():
            depth.published_at = now
            depth.on_the_way += counts[queue]
        try:
            yield
        finally:
            for queue, depth in depths.items():
                depth.on_the_way -= counts[queue]
                depth.published += counts[queue]

    def _is_full(self, queues: Iterable[str]) -> bool:
        now = _now()
        return any(
            queue in self._depths and self._depths[queue].is_full(self._limit, now=now)
            for queue in queues
        )

    async def watch(self) -> None:
        """Measure the queues that are written to, for ever."""
        while True:
            try:
                async with amqp.connection(self._url, name="ingestion", tls=self._tls) as opened:
                    channel = await opened.channel()
                    while True:
                        await self.look(channel)
                        await asyncio.sleep(LOOK_S)
            except amqp.UNAVAILABLE as error:
                log.get("cloud-ingestion").debug("ingestion.depths_unknown", error=amqp.why(error))
                await self._clear()
                await asyncio.sleep(1.0)

    async def look(self, channel: AbstractChannel) -> None:
        now = _now()
        self._depths = {
            queue: depth
            for queue, depth in self._depths.items()
            if depth.waiting or depth.on_the_way or now - depth.published_at < IDLE_S
        }
        for queue, depth in list(self._depths.items()):
            seen = depth.published
            queue_state = await channel.declare_queue(queue, passive=True)
            result = queue_state.declaration_result
            waiting, consumers = result.message_count or 0, result.consumer_count or 0
            depth.looked(waiting, consumers, seen=seen, now=_now())
        async with self._changed:
            self._changed.notify_all()

    async def _clear(self) -> None:
        """An unknown state holds nothing back; publishing shows whether the bus is there."""
        self._depths = {}
        async with self._changed:
            self._changed.notify_all()


def _now() -> float:
    return asyncio.get_running_loop().time()
