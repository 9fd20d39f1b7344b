"""`farmiq trace`: an event is found by whichever table still knows it."""

import asyncio
from functools import partial
from uuid import UUID, uuid4

import psycopg

from farmiq import trace
from farmiq.cloud import bus, landing
from farmiq.cloud.feed import service as feed
from farmiq.config import CloudSettings
from farmiq.plumbing import http
from farmiq.plumbing.delivery import Properties
from tests.conftest import Database
from tests.integration.cloud.conftest import CloudSite
from tests.integration.cloud.test_deadletter import has, url_of
from tests.integration.cloud.test_deadletter_poison import put
from tests.integration.cloud.test_landing import kept, quick, sample, written
from tests.until import until

__all__ = ["quick"]


async def test_an_event_that_only_its_familys_table_knows_is_found(
    cloud: CloudSite, edge_db: Database, tasks: asyncio.TaskGroup
) -> None:
    """As after a resync, when door and edge have forgotten it long ago."""
    event = sample("feed.lot.received")
    await put(cloud, bus.FEED.queue, (written(event), Properties()))
    door = http.Door(title="test", version="0")
    tasks.create_task(landing.run(cloud.settings, door, feed.LANDING))
    await until(lambda: kept(cloud, "feed_events"))

    async def places(event_id: UUID) -> dict[str, bool]:
        hops = await trace.trace(event_id, trace.Sites(edge_db.url, cloud.database.url))
        return {hop.place: hop.at is not None for hop in hops}

    assert await places(UUID(event["event_id"])) == {
        "ingestion_dedupe": False,
        bus.FEED.queue: False,
        "feed_events": True,
    }
    assert await places(uuid4()) == {}


async def test_a_dead_letter_says_its_reason_and_the_next_command(
    cloud: CloudSite, quick: CloudSettings, tasks: asyncio.TaskGroup
) -> None:
    """From the cloud alone: nobody there has the edge's database."""
    event = sample("feed.lot.received", payload={"lot_id": 7})
    with psycopg.connect(cloud.database.admin_url) as owner:
        owner.execute(
            "insert into ingestion_dedupe (tenant_id, event_id, event_type, content_hash, batch_id)"
            " values (%(tenant_id)s, %(event_id)s, %(event_type)s, '', 'batch-1')",
            {name: event[name] for name in ("tenant_id", "event_id", "event_type")},
        )
    await put(cloud, bus.FEED.queue, (written(event), Properties()))
    door = http.Door(title="test", version="0")
    tasks.create_task(landing.run(quick, door, feed.LANDING))
    await until(partial(has, url_of(cloud), bus.FEED.dead_letters, 1))
    sites = trace.Sites(None, cloud.database.url, url_of(cloud))
    hops = await trace.trace(UUID(event["event_id"]), sites)
    assert [(hop.site, hop.is_visible) for hop in hops] == [
        ("edge", False), ("cloud", True), ("cloud", True), ("cloud", True),
    ]  # fmt: skip
    assert "a dead letter after 1 attempts" in hops[2].note
    assert "missing required field" in hops[2].note
    assert hops[2].next.endswith(f"farmiq dlq redrive --event-id {event['event_id']}")
    assert not trace.is_delivered(hops)


async def test_a_reading_that_goes_in_aggregates_waits_for_nothing(
    cloud: CloudSite, edge_db: Database
) -> None:
    event_id = uuid4()
    with psycopg.connect(edge_db.admin_url) as owner:
        owner.execute("insert into metric_settings values ('co2', 'agg')")
        owner.execute(
            "insert into telemetry_raw (id, tenant_id, farm_id, barn_id, device_id, metric_type, "
            "metric_value, unit, occurred_at) "
            "values (%s, 't', 'f', 'b', 'd', 'co2', 1, 'ppm', now())",
            (event_id,),
        )
    for cloud_url in (cloud.database.url, None):
        hops = await trace.trace(event_id, trace.Sites(edge_db.url, cloud_url))
        last = [hop for hop in hops if hop.is_visible][-1]
        assert "not sent by itself: co2 goes as aggregates (`farmiq metric ls`)" in last.note
        assert trace.is_delivered(hops)
