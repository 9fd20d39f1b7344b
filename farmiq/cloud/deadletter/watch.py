"""How full the queues are: metrics, a table for pages, and a log line before one is full."""

import asyncio

import prometheus_client

from farmiq.cloud import bus, topology
from farmiq.cloud.deadletter import store
from farmiq.config import CloudSettings
from farmiq.plumbing import db, log
from farmiq.plumbing.backoff import Attempts, Backoff, cancelled_so_far, end_if_cancelled
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.bus.amqp import QueueCount

NAME = "cloud-deadletter-service"
EVERY_S = 15.0
# Half of a week's room is used: there are days left to act.
TOO_FULL = 0.5

WAITING = prometheus_client.Gauge(
    "farmiq_bus_queue_messages", "Messages waiting in a queue of the bus", ["queue"]
)
ROOM = prometheus_client.Gauge(
    "farmiq_bus_queue_limit", "Messages a queue of the bus has room for", ["queue"]
)


def limits(settings: CloudSettings) -> dict[str, int]:
    """Room in every queue that is watched."""
    days, scale = settings.bus_outage_days, settings.bus_scale
    return {
        **{work.queue: bus.max_waiting(work, days=days, scale=scale) for work in bus.WORKS},
        bus.UNROUTED_QUEUE: round(topology.MAX_DEAD_LETTERS * scale),
        **{work.dead_letters: round(topology.MAX_DEAD_LETTERS * scale) for work in bus.WORKS},
    }


class Watch:
    def __init__(self, settings: CloudSettings, pool: db.Pool) -> None:
        self._url, self._tls = settings.amqp_url.get_secret_value(), settings.tls
        self._limits, self._pool = limits(settings), pool
        self._attempts = Attempts("message bus does not answer", problem="not connected yet")

    def problem(self) -> str | None:
        return self._attempts.problem

    async def run(self) -> None:
        backoff = Backoff()
        before = cancelled_so_far()
        while True:
            end_if_cancelled(beyond=before)
            try:
                with self._attempts:
                    counts = await self.counts()
            except amqp.UNAVAILABLE:
                await backoff.wait()
                continue
            for queue, count in counts.items():
                self._publish(queue, count.messages)
            await self._store(counts)
            await asyncio.sleep(EVERY_S)

    async def counts(self) -> dict[str, QueueCount]:
        return await amqp.counts(self._url, self._limits, tls=self._tls)

    async def _store(self, counts: dict[str, QueueCount]) -> None:
        try:
            async with db.transaction(self._pool) as tx:
                await store.store_counts(tx, counts, self._limits)
        except db.UNAVAILABLE as error:  # pages show how old the numbers are
            log.get(NAME).warning("deadletter.no_database", error=db.first_line(error))

    def _publish(self, queue: str, count: int) -> None:
        limit = self._limits[queue]
        WAITING.labels(queue=queue).set(count)
        ROOM.labels(queue=queue).set(limit)
        if count > limit * TOO_FULL:
            log.get(NAME).error("bus.queue_filling", queue=queue, count=count, limit=limit)
