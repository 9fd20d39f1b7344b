"""P7: batches of 500 through the cloud's door until they are on the bus, beside a bare publisher.

ours      `farmiq run cloud-ingestion`: token, checks, dedupe, confirmed publish in one transaction;
          sent by the forwarder's own client, two batches on the way
publish   aio-pika alone: 500 publishes gathered, each confirmed; no HTTP, no checks, no database

Both into the same exchange and quorum queue.
"""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import aio_pika
import httpx2
import msgspec

from bench import ingest
from farmiq.cloud import bus
from farmiq.config import EdgeSettings
from farmiq.edge.sync.cloud import Cloud
from farmiq.lab.demo.provision import TENANT_ID, Site
from farmiq.lab.stack import Stack
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import ids
from farmiq.plumbing.bus import amqp

BATCH = 500
SENDERS = 2
ACCEPTED = 202
PAYLOAD = b'{"metric_type":"temperature","metric_value":21.5,"unit":"C"}'


async def endpoint(engines: Stack, site: Site, events: int) -> float:
    """Events per second that the door answers for."""
    settings = EdgeSettings.load({**site.environment, "SYNC_GZIP": "false"})
    batches = list(_batches(events))
    async with ingest.service(engines.root, "cloud-ingestion", site.environment) as running:
        await ingest.until_ready(running, settings.cloud_url)
        async with Cloud(lambda: httpx2.AsyncClient(timeout=30), settings) as cloud:
            await _send(cloud, batches.pop())  # connections and plans are there
            began = time.monotonic()

            async def sender() -> None:
                while batches:
                    await _send(cloud, batches.pop())

            await asyncio.gather(*(sender() for _ in range(SENDERS)))
            return (events - BATCH) / (time.monotonic() - began)


async def _send(cloud: Cloud, batch: list[BusEvent]) -> None:
    answer = await cloud.send(str(ids.new()), TENANT_ID, batch)
    if answer.status != ACCEPTED:
        raise RuntimeError(f"cloud-ingestion answered {answer.status}: {answer.body}")


async def gathered(engines: Stack, events: int) -> float:
    """Events per second of publishing alone."""
    bodies = [_body(event) for batch in _batches(events) for event in batch]
    async with amqp.connection(engines.environment["FARMIQ_AMQP_URL"], name="bench") as opened:
        await amqp.ensure(opened, bus.part(bus.TELEMETRY))
        channel = await opened.channel(publisher_confirms=True)
        exchange = await channel.get_exchange("farmiq.telemetry.exchange", ensure=False)
        began = time.monotonic()
        for start in range(0, events, BATCH):
            part = bodies[start : start + BATCH]
            await asyncio.gather(*(exchange.publish(one, "telemetry.ingested") for one in part))
        return events / (time.monotonic() - began)


async def empty(engines: Stack) -> None:
    """What was published is of no more use, and would slow the next round."""
    async with amqp.connection(engines.environment["FARMIQ_AMQP_URL"], name="bench") as opened:
        await amqp.ensure(opened, bus.part(bus.TELEMETRY))
        channel = await opened.channel()
        await (await channel.get_queue(bus.TELEMETRY_QUEUE)).purge()


def _batches(events: int) -> Iterator[list[BusEvent]]:
    at = datetime.now(UTC)
    for start in range(0, events, BATCH):
        yield [_event(at + timedelta(milliseconds=n)) for n in range(start, start + BATCH)]


def _event(at: datetime) -> BusEvent:
    return BusEvent(
        event_id=ids.new(),
        event_type="telemetry.ingested",
        tenant_id=TENANT_ID,
        farm_id="farm-1",
        barn_id="barn-1",
        device_id=f"d-{at.microsecond // 1000 % 50}",
        occurred_at=at,
        trace_id="trace",
        payload=msgspec.Raw(PAYLOAD),
    )


def _body(event: BusEvent) -> aio_pika.Message:
    return aio_pika.Message(
        msgspec.json.encode(event),
        content_type="application/json",
        message_id=str(event.event_id),
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        headers={"schema_version": "1.0", "trace_id": event.trace_id},
    )
