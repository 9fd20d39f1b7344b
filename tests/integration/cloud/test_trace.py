"""`farmiq trace`: an event is found by whichever table still knows it."""

import asyncio
from uuid import UUID, uuid4

from farmiq import trace
from farmiq.cloud import bus, landing
from farmiq.cloud.feed import service as feed
from farmiq.plumbing import http
from farmiq.plumbing.delivery import Properties
from tests.conftest import Database
from tests.integration.cloud.conftest import CloudSite
from tests.integration.cloud.test_deadletter_poison import put
from tests.integration.cloud.test_landing import kept, sample, written
from tests.until import until


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
        hops = await trace.trace(
            event_id, edge_url=edge_db.url, cloud_url=cloud.database.url, amqp_url=None
        )
        return {hop.place: hop.at is not None for hop in hops}

    assert await places(UUID(event["event_id"])) == {
        "ingestion_dedupe": False,
        bus.FEED.queue: False,
        "feed_events": True,
    }
    assert await places(uuid4()) == {}
