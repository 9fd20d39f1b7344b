"""Buckets on the bus: after their commit, at least once, each state of a bucket under one id."""

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import aio_pika
import httpx2
import msgspec
import pytest

from farmiq.cloud import sink
from farmiq.cloud.bus import TOPOLOGY
from farmiq.cloud.history import History
from farmiq.cloud.ingestion import service as ingestion
from farmiq.cloud.telemetry import rollups, service
from farmiq.messages import bus, telemetry
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, http
from farmiq.plumbing.bus import amqp
from tests.integration.cloud.conftest import CloudSite, event
from tests.integration.cloud.telemetry.conftest import Start, bucket_event, reading_event
from tests.integration.edge.telemetry.readings import Reading
from tests.support.until import until

QUEUE = "test-listener"
AT = datetime(2026, 5, 1, 17, tzinfo=UTC)
# Each round ends in no time, and none is repeated because the bus was slow to confirm.
AT_ONCE = {
    "CLOUD_TELEMETRY_AGG_SECONDS": "0.2",
    "CLOUD_TELEMETRY_SETTLE_SECONDS": "0",
    "INGESTION_BUS_TIMEOUT_SECONDS": "60",
}
PENDING = "select count(*)::int from telemetry_agg where pending"


class Listener:
    """What is published as telemetry.aggregated, from when it begins on."""

    def __init__(self, channel: aio_pika.abc.AbstractChannel) -> None:
        self._channel = channel
        self.events: list[BusEvent] = []

    async def begin(self) -> None:
        queue = await self._channel.declare_queue(QUEUE, auto_delete=True)
        await queue.bind("farmiq.telemetry.exchange", telemetry.AGGREGATED)

    async def heard(self) -> list[BusEvent]:
        queue = await self._channel.get_queue(QUEUE)
        while message := await queue.get(fail=False):
            self.events.append(bus.read(message.body))
            await message.ack()
        return self.events


@pytest.fixture
async def pool(cloud: CloudSite) -> AsyncIterator[db.Pool]:
    async with db.pool(cloud.database.url, name="test") as opened:
        yield opened


@pytest.fixture
async def publisher(cloud: CloudSite) -> AsyncIterator[amqp.Publisher]:
    url = cloud.settings.amqp_url.get_secret_value()
    async with amqp.publisher(url, name="test", topology=TOPOLOGY) as opened:
        await opened.publish([], timeout_s=60)  # declares all of it
        yield opened


@pytest.fixture
async def listener(cloud: CloudSite, publisher: amqp.Publisher) -> AsyncIterator[Listener]:
    del publisher  # the exchange is there
    async with amqp.connection(
        cloud.settings.amqp_url.get_secret_value(), name="test"
    ) as connection:
        made = Listener(await connection.channel())
        await made.begin()
        yield made


async def keep(pool: db.Pool, *readings: Reading) -> None:
    bodies = [bus.write(reading_event(each)) for each in readings]
    assert await sink.store_events(pool, bodies, service.READINGS) == {}


def reading(seconds: float, value: float, device: str = "d-1") -> Reading:
    return Reading(AT + timedelta(seconds=seconds), value, device, tenant="t-001")


async def publish(pool: db.Pool, publisher: amqp.Publisher) -> int:
    await rollups.recompute_all(pool)
    return await rollups.publish_all(pool, publisher, settle_s=0, timeout_s=60)


async def test_a_bucket_is_published_when_it_ended_and_again_when_it_changes(
    pool: db.Pool, publisher: amqp.Publisher, listener: Listener
) -> None:
    now = datetime.now(UTC)
    await keep(pool, reading(0, 1.0), Reading(now, 5.0, "d-2", tenant="t-001"))
    assert await publish(pool, publisher) == 2, "the hour and the day of d-1; d-2's go on"
    assert await publish(pool, publisher) == 0
    late = reading(30, 3.0)
    await keep(pool, late)
    await keep(pool, late)
    assert await publish(pool, publisher) == 2
    heard = await listener.heard()
    assert len({each.event_id for each in heard}) == len(heard) == 4
    payloads = [telemetry.read_aggregated(each.payload) for each in heard]
    assert [
        (each.aggregation_window, each.count, each.avg_value, each.min_value, each.max_value)
        for each in payloads
    ] == [("1h", 1, 1.0, 1.0, 1.0), ("1d", 1, 1.0, 1.0, 1.0), ("1h", 2, 2.0, 1.0, 3.0),
          ("1d", 2, 2.0, 1.0, 3.0)]  # fmt: skip
    assert {(each.made_by, each.unit) for each in payloads} == {("cloud", "C")}
    assert payloads[0].bucket_start_at == heard[0].occurred_at == AT
    assert (heard[0].farm_id, heard[0].barn_id, heard[0].device_id) == ("f-1", "b-1", "d-1")


async def test_a_bucket_that_an_edge_sent_is_not_published_again(
    pool: db.Pool, publisher: amqp.Publisher, listener: Listener
) -> None:
    """Hours and days of minutes that it sent are the cloud's."""
    for window in ("1m", "1h", "1d"):
        sent = bucket_event(AT, 1.0, 5, window=window, device=f"by-{window}")
        sent = msgspec.structs.replace(sent, tenant_id="t-001")
        assert await sink.store_events(pool, [bus.write(sent)], service.AGGREGATES) == {}
    assert await publish(pool, publisher) == 3
    heard = [
        (each.device_id, telemetry.read_aggregated(each.payload).aggregation_window)
        for each in await listener.heard()
    ]
    assert sorted(heard, key=str) == [("by-1h", "1d"), ("by-1m", "1d"), ("by-1m", "1h")]


async def test_buckets_stay_pending_while_the_bus_is_down(
    cloud: CloudSite, pool: db.Pool, publisher: amqp.Publisher, listener: Listener
) -> None:
    await keep(pool, reading(0, 1.0))
    url = cloud.settings.amqp_url.get_secret_value().rsplit("/", 1)[0] + "/no-such-vhost"
    async with amqp.publisher(url, name="test", topology=TOPOLOGY) as nowhere:
        await service.recompute_and_publish(
            pool,
            nowhere,
            cloud.settings.model_copy(update={"telemetry_settle_s": 0.0}),
            History(None),
        )
    assert cloud.rows(PENDING) == [(2,)]
    assert await publish(pool, publisher) == 2
    assert len(await listener.heard()) == 2


@pytest.mark.req("RB-28")
@pytest.mark.parametrize(
    "point", ["buckets.before_commit", "buckets.after_commit", "buckets.after_publish"]
)
async def test_kill_between_commit_and_publish_loses_no_event_and_makes_none_twice(
    cloud: CloudSite,
    pool: db.Pool,
    listener: Listener,
    start: Start,
    point: str,
) -> None:
    """A repeat is the same event: the same id, the same content."""
    await keep(pool, *(reading(n, float(n), f"d-{n % 3}") for n in range(60)))
    dying = start(point, **AT_ONCE)
    await until(lambda: dying.poll() is not None, within_s=90)
    assert dying.returncode == -signal.SIGKILL
    start(**AT_ONCE)
    await until(
        lambda: (
            cloud.rows("select count(*) from telemetry_dirty") == [(0,)]
            and cloud.rows(PENDING) == [(0,)]
        ),
        within_s=90,
    )
    heard = await listener.heard()
    by_id = {each.event_id: each for each in heard}
    assert len(by_id) == 6, "an hour and a day of three devices"
    assert all(each == by_id[each.event_id] for each in heard)
    assert len(heard) == (12 if point == "buckets.after_publish" else 6)
    said = {
        (each.device_id, bucket.aggregation_window): (bucket.count, bucket.avg_value)
        for each in heard
        for bucket in [telemetry.read_aggregated(each.payload)]
    }
    assert said == {
        (f"d-{device}", window): (20, sum(range(device, 60, 3)) / 20)
        for device in range(3)
        for window in ("1h", "1d")
    }


async def test_a_reading_posted_to_ingestion_is_published_as_part_of_its_hour(
    cloud: CloudSite, listener: Listener, tasks: asyncio.TaskGroup
) -> None:
    """From the edge's batch by ingestion and the bus to cloud-telemetry-service, and on."""
    settings = cloud.settings.model_copy(
        update={"telemetry_settle_s": 0.0, "telemetry_agg_every_s": 0.1}
    )
    server = http.HttpServer(title="cloud", version="0")
    tasks.create_task(ingestion.run(settings, server))
    tasks.create_task(service.run(settings, server))

    async def ready() -> bool:
        running = {"ingestion.bus", "telemetry.bus"} <= server.names
        return running and not await server.problems()

    await until(ready, within_s=60)
    posted = event()
    transport = httpx2.ASGITransport(app=server.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://cloud.test") as client:
        answer = await client.post(
            ingestion.ROUTE,
            json={"events": [posted]},
            headers={"authorization": f"Bearer {cloud.token()}"},
        )
    assert answer.status_code == 202, answer.text

    async def published() -> bool:
        return len(await listener.heard()) == 2

    await until(published, within_s=60)
    hour, _ = listener.events
    bucket = telemetry.read_aggregated(hour.payload)
    assert (bucket.aggregation_window, bucket.avg_value, bucket.count) == ("1h", 26.4, 1)
    assert (bucket.metric_type, bucket.unit) == ("temperature", "C")
    # It comes back to the queue of those that edges send, and is nothing new there.
    await until(lambda: cloud.rows("select count(*) from telemetry_agg where sent") == [(0,)])
    assert cloud.rows("select event_id::text from telemetry_readings") == [(posted["event_id"],)]
