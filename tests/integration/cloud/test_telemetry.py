"""cloud-telemetry-service: the same event any number of times, in any order, has one effect."""

import asyncio
import json
import random
from collections.abc import AsyncIterator

import psycopg
import pytest

from farmiq.cloud import sink
from farmiq.cloud.bus import TELEMETRY, TELEMETRY_QUEUE, TOPOLOGY
from farmiq.cloud.telemetry import service
from farmiq.plumbing import db, http
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.bus.consume import Rejection
from tests.integration.cloud.conftest import CloudSite, event
from tests.support.until import until


def bodies(*events: dict[str, object]) -> list[bytes]:
    return [json.dumps(each).encode() for each in events]


async def land(pool: db.Pool, deliveries: list[bytes]) -> dict[int, Rejection]:
    return await sink.store_events(pool, deliveries, service.READINGS)


@pytest.fixture
async def pool(cloud: CloudSite) -> AsyncIterator[db.Pool]:
    async with db.pool(cloud.database.url, name="test") as opened:
        yield opened


@pytest.mark.req("RB-28")
async def test_each_event_three_times_in_any_order_gives_the_same_rows(
    cloud: CloudSite, pool: db.Pool
) -> None:
    events = [event(occurred_at=f"2025-01-02T10:00:{n:02}Z") for n in range(30)]
    deliveries = bodies(*events * 3)
    random.Random(7).shuffle(deliveries)
    for start in range(0, len(deliveries), 7):
        assert await land(pool, deliveries[start : start + 7]) == {}
    assert cloud.rows("select count(*) from telemetry_readings") == [(30,)]
    assert cloud.rows("select reading_count, event_id::text from telemetry_latest") == [
        (30, events[-1]["event_id"])
    ]


async def test_a_reading_without_a_device_is_a_dead_letter_and_stops_nobody(
    cloud: CloudSite, pool: db.Pool
) -> None:
    absent = {key: value for key, value in event().items() if key != "device_id"}
    assert set(await land(pool, bodies(absent, event(), event(device_id=None)))) == {0, 2}
    assert cloud.rows("select count(*) from telemetry_readings") == [(1,)]


async def test_a_reading_with_a_suspect_clock_is_newest_only_while_there_is_no_other(
    cloud: CloudSite, pool: db.Pool
) -> None:
    ahead = event(occurred_at="2037-01-02T12:00:00Z", clock_suspect=True)
    latest = "select event_id::text, clock_suspect from telemetry_latest"
    await land(pool, bodies(ahead))
    assert cloud.rows(latest) == [(ahead["event_id"], True)]
    right = event()
    await land(pool, bodies(event(occurred_at="2038-01-02T12:00:00Z", clock_suspect=True), right))
    await land(pool, bodies(event(occurred_at="2039-01-02T12:00:00Z", clock_suspect=True)))
    assert cloud.rows(latest) == [(right["event_id"], False)]


async def test_the_newest_reading_wins_whatever_arrives_later(
    cloud: CloudSite, pool: db.Pool
) -> None:
    newer = event(occurred_at="2025-01-02T12:00:00Z")
    older = event(occurred_at="2025-01-02T11:00:00Z", payload={
        "metric_type": "temperature", "metric_value": 1.0, "unit": "C"})  # fmt: skip
    await land(pool, bodies(newer))
    await land(pool, bodies(older))
    assert cloud.rows("select metric_value, reading_count from telemetry_latest") == [(26.4, 2)]


async def test_what_is_announced_names_the_company_by_its_id_alone(
    cloud: CloudSite, pool: db.Pool
) -> None:
    (company,) = cloud.rows("select company_id::text from companies where tenant_id = 't-001'")
    async with await psycopg.AsyncConnection.connect(cloud.database.url, autocommit=True) as ear:
        await ear.execute("listen telemetry_changed")
        await land(pool, bodies(event(), event()))
        heard = [notice.payload async for notice in ear.notifies(timeout=60, stop_after=1)]
    assert heard == [company[0]]


async def test_what_cannot_be_understood_is_pointed_out_and_the_rest_kept(
    cloud: CloudSite, pool: db.Pool
) -> None:
    mixed = [b"garbage", *bodies(event()), b"{}", *bodies(event(event_type="unknown.type"))]
    assert set(await land(pool, mixed)) == {0, 2, 3}
    assert cloud.rows("select count(*) from telemetry_readings") == [(1,)]


async def test_poison_goes_to_the_dead_letters_with_its_bytes_and_the_rest_is_stored(
    cloud: CloudSite, tasks: asyncio.TaskGroup
) -> None:
    url = cloud.settings.amqp_url.get_secret_value()
    server = http.HttpServer(title="test", version="0")
    running = tasks.create_task(service.run(cloud.settings, server))
    poison = b'{"event_id": "poison"}'
    outgoing = [
        amqp.Outgoing("farmiq.telemetry.exchange", "telemetry.ingested", body, "x")
        for body in (*bodies(event()), poison, *bodies(event()))
    ]
    async with amqp.publisher(url, name="test", topology=TOPOLOGY) as publisher:
        await publisher.publish(outgoing, timeout_s=60)
    await until(lambda: cloud.rows("select count(*) from telemetry_readings") == [(2,)])

    async def dead() -> bool:
        return await amqp.depth(url, TELEMETRY.dead_letters) == (1, 0)

    await until(dead)
    assert await amqp.depth(url, TELEMETRY_QUEUE) == (0, 1)
    async with amqp.connection(url, name="test") as connection:
        channel = await connection.channel()
        message = await (await channel.get_queue(TELEMETRY.dead_letters)).get()
        assert message is not None
        assert message.body == poison
        await message.ack()
    running.cancel()
