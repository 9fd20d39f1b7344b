"""`farmiq trace`: an event is found by whichever table still knows it."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from farmiq import trace, trace_hops
from farmiq.cloud import bus, sink
from farmiq.cloud.alerts import service as alerts
from farmiq.cloud.feed import service as feed
from farmiq.config import CloudSettings
from farmiq.plumbing import http
from farmiq.plumbing.bus import amqp
from farmiq.plumbing.bus.delivery import Properties
from tests.conftest import Database
from tests.integration.cloud.conftest import CloudSite
from tests.integration.cloud.test_deadletter import has, url_of
from tests.integration.cloud.test_deadletter_poison import put
from tests.integration.cloud.test_sinks import kept, outgoing, quick, sample, written
from tests.support import databases
from tests.support.until import until

__all__ = ["quick"]


async def test_an_event_that_only_its_familys_table_knows_is_found(
    cloud: CloudSite, edge_db: Database, tasks: asyncio.TaskGroup
) -> None:
    """As after a resync, when door and edge have forgotten it long ago."""
    event = sample("feed.lot.received")
    await put(cloud, bus.FEED.queue, (written(event), Properties()))
    server = http.HttpServer(title="test", version="0")
    tasks.create_task(sink.run(cloud.settings, server, feed.EVENTS))
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
    _accept(cloud, event)
    await put(cloud, bus.FEED.queue, (written(event), Properties()))
    server = http.HttpServer(title="test", version="0")
    tasks.create_task(sink.run(quick, server, feed.EVENTS))
    await until(partial(has, url_of(cloud), bus.FEED.dead_letters, 1))
    sites = trace.Sites(None, cloud.database.url, url_of(cloud))
    hops = await trace.trace(UUID(event["event_id"]), sites)
    assert [(hop.site, hop.is_visible) for hop in hops] == [
        ("edge", False), ("cloud", True), ("cloud", True), ("cloud", True),
    ]  # fmt: skip
    assert "a dead letter after 1 attempts" in hops[2].note
    assert "missing required field" in hops[2].note
    assert hops[2].next.endswith(f"farmiq dlq redrive --event-id {event['event_id']}")
    assert not trace_hops.is_delivered(hops)


async def test_an_alert_of_an_edge_is_followed_to_its_episode(
    cloud: CloudSite, edge_db: Database, tasks: asyncio.TaskGroup
) -> None:
    opened, closed = (sample(f"edge.alert.{word}") for word in ("opened", "closed"))
    everywhere = trace.Sites(edge_db.url, cloud.database.url, url_of(cloud))
    in_the_cloud = trace.Sites(None, cloud.database.url, url_of(cloud))

    async def last(event: dict[str, Any], sites: trace.Sites) -> tuple[bool, str]:
        hops = await trace.trace(UUID(event["event_id"]), sites)
        assert [hop.place for hop in hops[-2:]] == [bus.EDGE.queue, "alert_episodes"]
        return trace_hops.is_delivered(hops), " ".join(hop.note for hop in hops[-2:])

    for event in (opened, closed):
        _owe(edge_db, event)
        _accept(cloud, event)
    async with amqp.publisher(url_of(cloud), name="test", topology=bus.part(bus.EDGE)) as publisher:
        await publisher.publish([outgoing(opened["event_type"], written(opened))], timeout_s=60)
        for sites in (everywhere, in_the_cloud):
            is_delivered, note = await last(opened, sites)
            assert (is_delivered, "(1 waiting) not taken yet" in note) == (False, True), note
        server = http.HttpServer(title="test", version="0")
        tasks.create_task(sink.run(cloud.settings, server, alerts.EDGE))
        await until(lambda: cloud.rows("select from alert_episodes"))
        episode = f"episode {opened['payload']['alert_id']}"
        assert await last(opened, everywhere) == (True, f"confirmed by the bus {episode} active")
        assert await last(opened, in_the_cloud) == (
            True,
            "confirmed by the bus taken by cloud-alerts-service",
        )
        no_bus = trace.Sites(edge_db.url, cloud.database.url)
        assert "the bus cannot be seen here" in (await last(closed, no_bus))[1]
        await publisher.publish([outgoing(closed["event_type"], written(closed))], timeout_s=60)
        await until(lambda: cloud.rows("select from alert_episodes where state = 'resolved'"))
    assert await last(closed, no_bus) == (True, f"confirmed by the bus {episode} resolved")


@pytest.mark.parametrize(
    ("event_type", "queue", "table"),
    [
        ("telemetry.aggregated", bus.AGGREGATES.queue, "telemetry_agg"),
        ("media.stored", bus.MEDIA.queue, "media_events"),
        ("inference.completed", bus.INFERENCE.queue, "inference_events"),
        ("device.status", bus.DEVICE.queue, "device_events"),
        ("edge.alert.opened", bus.EDGE.queue, "alert_episodes"),
    ],
)
async def test_an_event_that_is_no_reading_passes_no_table_of_readings(
    cloud: CloudSite, edge_db: Database, event_type: str, queue: str, table: str
) -> None:
    event = sample(event_type)
    _owe(edge_db, event)
    hops = await trace.trace(UUID(event["event_id"]), trace.Sites(edge_db.url, cloud.database.url))
    assert [hop.place for hop in hops] == [
        "sync_outbox", "edge-sync-forwarder", "ingestion_dedupe", queue, table,
    ]  # fmt: skip


async def test_a_reading_that_goes_in_aggregates_waits_for_nothing(
    cloud: CloudSite, edge_db: Database
) -> None:
    event_id = uuid4()
    with databases.connected(edge_db.admin_url) as owner:
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
        assert trace_hops.is_delivered(hops)


async def test_last_is_the_event_that_waits_and_else_the_newest_in_the_cloud(
    cloud: CloudSite, edge_db: Database
) -> None:
    waits, delivered, on_its_way = uuid4(), uuid4(), uuid4()
    now = datetime.now(UTC)
    seen = {delivered: 90, waits: 60, on_its_way: 0}
    with databases.connected(edge_db.admin_url) as owner:
        for event_id, seconds in seen.items():
            owner.execute(
                "insert into ingress_dedupe (tenant_id, event_id, first_seen_at, content_hash) "
                "values ('t-001', %s, %s, '')",
                (event_id, now - timedelta(seconds=seconds)),
            )
            owner.execute(
                "insert into sync_outbox (id, tenant_id, event_type, payload_json) "
                "values (%s, 't-001', 'telemetry.ingested', '{}')",
                (event_id,),
            )
        owner.execute("update sync_outbox set last_error_code = 'NETWORK_ERROR', attempt_count = 3")
        owner.execute(
            "insert into sync_state (tenant_id, consecutive_failures, paused_until) "
            "values ('t-001', 3, fn_now() + interval '30 s')"
        )
    _keep_reading(cloud, delivered)
    sites = trace.Sites(edge_db.url, cloud.database.url)
    assert await trace.last_event(sites) == waits
    assert "the last 3 tries of tenant t-001 failed (NETWORK_ERROR); paused until" in " ".join(
        hop.note for hop in await trace.trace(waits, sites)
    )
    _keep_reading(cloud, waits)
    assert await trace.last_event(sites) == waits, "it is the newest that has arrived"
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("delete from ingress_dedupe")
    _keep_reading(cloud, on_its_way)
    assert await trace.last_event(sites) == on_its_way


def _owe(edge_db: Database, event: dict[str, Any]) -> None:
    """As a service of the edge does."""
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute(
            "insert into sync_outbox (id, tenant_id, event_type, payload_json) "
            "values (%s, %s, %s, %s)",
            (
                event["event_id"],
                event["tenant_id"],
                event["event_type"],
                json.dumps(event["payload"]),
            ),
        )


def _accept(cloud: CloudSite, event: dict[str, Any]) -> None:
    """As cloud-ingestion does when the bus has confirmed it."""
    with databases.connected(cloud.database.admin_url) as owner:
        owner.execute(
            "insert into ingestion_dedupe (tenant_id, event_id, event_type, content_hash, batch_id)"
            " values (%(tenant_id)s, %(event_id)s, %(event_type)s, '', 'batch-1')",
            {name: event[name] for name in ("tenant_id", "event_id", "event_type")},
        )


def _keep_reading(cloud: CloudSite, event_id: UUID) -> None:
    """As cloud-telemetry-service stores it."""
    with databases.connected(cloud.database.admin_url) as owner:
        owner.execute(
            "insert into telemetry_readings (tenant_id, event_id, farm_id, barn_id, device_id, "
            "metric_type, metric_value, unit, occurred_at, trace_id) "
            "values ('t-001', %s, 'f', 'b', 'd', 'm', 1, 'C', now(), 'trace')",
            (event_id,),
        )
        owner.execute(
            "insert into telemetry_latest (tenant_id, event_id, farm_id, barn_id, device_id, "
            "metric_type, metric_value, unit, occurred_at, reading_count) "
            "values ('t-001', %s, 'f', 'b', 'd', 'm', 1, 'C', now(), 1) "
            "on conflict on constraint telemetry_latest_pkey do update set "
            "event_id = excluded.event_id, stored_at = clock_timestamp()",
            (event_id,),
        )
