"""Edge ingest: messages waiting at the broker until they are stored and acknowledged.

ceiling      the same client, subscribing and acknowledging, with no database behind it
ours         dedupe, telemetry_raw and sync_outbox in one transaction per batch, PUBACK after it
one by one   the same with one transaction per message
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

import psycopg

from farmiq.config import EdgeSettings
from farmiq.edge.devices import desk, entry
from farmiq.edge.ingress import service
from farmiq.messages import topics
from farmiq.plumbing import http, ids, mqtt
from farmiq.simulate import farm
from farmiq.stack import Stack

PUBLISHERS = 8


@dataclass(frozen=True, slots=True)
class Round:
    """Events per second of each way, measured one after the other."""

    ceiling: float
    ours: float
    one_by_one: float


async def register(admin_url: str) -> None:
    """The door takes messages of registered devices only. Safe to repeat."""
    devices = [
        entry.read({**asdict(each.place), "wants_receipts": True})
        for each in farm.farm("bench", barns=PUBLISHERS)
    ]
    async with await psycopg.AsyncConnection.connect(admin_url) as connection:
        known = {line for line, *_ in await desk.taken(connection, list(enumerate(devices)))}
        lacking = [device for line, device in enumerate(devices) if line not in known]
        await desk.add_all(connection, lacking, actor="bench")


async def measure(engines: Stack, *, events: int, few: int) -> Round:
    """One round; `few` is the number for the slow way, which would take minutes otherwise."""
    return Round(
        ceiling=await _rate(engines, events, lambda url, name: _only_receive(url, name, events)),
        ours=await _rate(engines, events, lambda _, name: _ingest(engines, name, events, 500)),
        one_by_one=await _rate(engines, few, lambda _, name: _ingest(engines, name, few, 1)),
    )


async def _rate(
    engines: Stack, events: int, drain: Callable[[str, str], Awaitable[float]]
) -> float:
    """Fill a fresh persistent session with events, then time how fast it is emptied."""
    client_id = f"bench-{ids.new().hex}"
    url = engines.environment["FARMIQ_EDGE_MQTT_URL"]
    async with mqtt.connected(url, client_id=client_id, topics=topics.UP) as session:
        await session.until_up()
    await _fill(engines.environment["FARMIQ_DEVICES_MQTT_URL"], events)
    seconds = await drain(url, client_id)
    # A clean connection under the same name makes the broker forget the session.
    async with mqtt.connected(url, client_id=client_id, keep_session=False) as session:
        await session.until_up()
    return events / seconds


async def _fill(url: str, events: int) -> None:
    devices = farm.farm("bench", barns=PUBLISHERS)
    shares = [range(n, events, PUBLISHERS) for n in range(PUBLISHERS)]
    await asyncio.gather(
        *(_publish(url, device, len(share)) for device, share in zip(devices, shares, strict=False))
    )


async def _publish(url: str, device: farm.Device, count: int) -> None:
    async with mqtt.connected(url, client_id=f"fill-{ids.new().hex}", keep_session=False) as link:
        await link.until_up()
        for start in range(0, count, 200):
            await asyncio.gather(
                *(_publish_one(link, device, seq) for seq in range(start, min(start + 200, count)))
            )


async def _publish_one(link: mqtt.Client, device: farm.Device, seq: int) -> None:
    sending = farm.message(
        device, device.metrics[0], at=datetime.now(UTC), event_id=ids.new(), seq=seq, chance=0.5
    )
    await link.publish(sending.topic, sending.raw)


async def _only_receive(url: str, client_id: str, events: int) -> float:
    started, left = time.monotonic(), events
    async with mqtt.connected(url, client_id=client_id, topics=topics.UP) as link:
        while left > 0:
            messages = await link.batch(most=500, linger_s=0.005)
            link.ack(messages)
            left -= len(messages)
        return time.monotonic() - started


async def _ingest(engines: Stack, client_id: str, events: int, batch: int) -> float:
    admin = engines.environment["FARMIQ_EDGE_DB_ADMIN_URL"]
    with psycopg.connect(admin) as connection:
        connection.execute("truncate telemetry_raw, sync_outbox, ingress_dedupe")
    settings = EdgeSettings.load(
        {
            **engines.environment,
            "FARMIQ_EDGE_MQTT_CLIENT_ID": client_id,
            "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
            "FARMIQ_EDGE_KEY_FILE": "none",
            "INGRESS_BATCH_EVENTS": str(batch),
            "INGRESS_LINGER_MS": "5" if batch > 1 else "0",
        }
    )
    started = time.monotonic()
    gateway = asyncio.create_task(service.run(settings, http.Door(title="bench", version="0")))
    async with await psycopg.AsyncConnection.connect(admin, autocommit=True) as connection:
        while True:
            cursor = await connection.execute("select count(*) from telemetry_raw")
            row = await cursor.fetchone()
            if row is not None and row[0] >= events:
                break
            if gateway.done():
                gateway.result()
            await asyncio.sleep(0.02)
    seconds = time.monotonic() - started
    gateway.cancel()
    await asyncio.wait([gateway])
    return seconds
