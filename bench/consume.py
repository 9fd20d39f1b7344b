"""P8: readings waiting in a queue of the bus until they are in the cloud's tables and acknowledged.

ours         batches, one transaction each, one acknowledgement for all of it
one by one   aio-pika as its tutorial has it: a message, a transaction, an acknowledgement
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import aio_pika
import psycopg

from farmiq.cloud import bus, sink
from farmiq.cloud.identity.accounts import add_company
from farmiq.cloud.sink import Sink
from farmiq.cloud.telemetry import service
from farmiq.lab.stack import Stack
from farmiq.plumbing import db, ids
from farmiq.plumbing.bus import amqp, consume

TENANT = "bench"


@dataclass(frozen=True, slots=True)
class Round:
    """Events per second of each way, measured one after the other."""

    ours: float
    one_by_one: float

    @property
    def ratio(self) -> float:
        return self.ours / self.one_by_one


async def measure(engines: Stack, *, events: int, few: int) -> Round:
    """One round on a migrated cloud database; `few` is the number for the slow way."""
    environment = engines.environment
    with psycopg.connect(environment["FARMIQ_CLOUD_DB_ADMIN_URL"]) as connection:
        add_company(connection, TENANT, name="Bench")
    return Round(
        ours=await _rate(environment, events, partial(drain, into=service.READINGS)),
        one_by_one=await _rate(environment, few, _one_by_one),
    )


Drain = Callable[[str, db.Pool], Awaitable[None]]


async def _rate(environment: Mapping[str, str], events: int, how: Drain) -> float:
    url = environment["FARMIQ_AMQP_URL"]
    await fill(url, events)
    with psycopg.connect(environment["FARMIQ_CLOUD_DB_ADMIN_URL"]) as connection:
        connection.execute("truncate telemetry_readings, telemetry_latest, telemetry_dirty")
    async with db.pool(environment["FARMIQ_CLOUD_DB_URL"], name="bench") as pool:
        await pool.wait()
        started = time.monotonic()
        async with running(how(url, pool)) as task:
            await until_stored(pool, events, task)
            return events / (time.monotonic() - started)


@contextlib.asynccontextmanager
async def running(work: Awaitable[None]) -> AsyncIterator["asyncio.Future[None]"]:
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def drain(url: str, pool: db.Pool, into: Sink) -> None:
    """Consume the queue of readings as a service does."""

    async def handle(bodies: list[bytes]) -> dict[int, consume.Rejection]:
        return await sink.store_events(pool, bodies, into)

    await consume.Consumer(
        url,
        route=bus.TELEMETRY.route(),
        topology=bus.part(bus.TELEMETRY),
        handle=handle,
        is_outage=db.is_outage,
    ).run()


async def _one_by_one(url: str, pool: db.Pool) -> None:
    async with amqp.connection(url, name="bench") as opened:
        channel = await opened.channel()
        await channel.set_qos(prefetch_count=100)
        queue = await channel.get_queue(bus.TELEMETRY_QUEUE)
        async with queue.iterator() as messages:
            async for message in messages:
                await sink.store_events(pool, [message.body], service.READINGS)
                await message.ack()


async def until_stored(
    pool: db.Pool, events: int, task: "asyncio.Future[None] | None" = None
) -> None:
    """Return when so many are stored; raises what ended the task that stores them."""
    while await _stored(pool) < events:
        if task is not None and task.done():
            task.result()
        await asyncio.sleep(0.01)


async def _stored(pool: db.Pool) -> int:
    async with pool.connection() as connection:
        found: int = await db.fetch_value(
            connection, "select coalesce(sum(reading_count), 0)::int from telemetry_latest"
        )
        return found


def _seconds(number: int) -> datetime:
    return datetime(2026, 1, 2, tzinfo=UTC) + timedelta(seconds=number)


async def fill(
    url: str,
    events: int,
    *,
    at: Callable[[int], datetime] = _seconds,
    device: Callable[[int], str] = lambda number: f"d-{number % 50}",
    value: Callable[[int], float] = lambda number: number % 40,
) -> None:
    """Put so many readings into the queue."""
    async with amqp.connection(url, name="fill") as opened:
        await amqp.ensure(opened, bus.part(bus.TELEMETRY))
        channel = await opened.channel(publisher_confirms=True)
        exchange = await channel.get_exchange("farmiq.telemetry.exchange", ensure=False)
        routing_key = "telemetry.ingested"
        for start in range(0, events, 500):
            await asyncio.gather(
                *(
                    exchange.publish(
                        message(number, at(number), device(number), value=value(number)),
                        routing_key,
                    )
                    for number in range(start, min(start + 500, events))
                )
            )


def message(
    number: int, at: datetime, device_id: str, *, value: float, metric: str = "temperature"
) -> aio_pika.Message:
    """One reading as cloud-ingestion publishes it."""
    event_id = str(ids.new())
    body = {
        "event_id": event_id,
        "event_type": "telemetry.ingested",
        "tenant_id": TENANT,
        "farm_id": "f-1",
        "barn_id": "b-1",
        "device_id": device_id,
        "session_id": None,
        "occurred_at": at.isoformat(),
        "trace_id": f"trace-{number}",
        "payload": {"metric_type": metric, "metric_value": value, "unit": "C"},
    }
    return aio_pika.Message(
        json.dumps(body).encode(),
        message_id=event_id,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        headers={"schema_version": "1.0", "trace_id": f"trace-{number}"},
    )
