"""An edge's alerts on their way: from its tables over the real ingestion onto the bus (C-110)."""

import json
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from aio_pika.abc import AbstractQueue

from farmiq.cloud.edges import api as edges
from farmiq.edge import alerts, losses
from farmiq.edge.alerts import Alert
from farmiq.edge.ingress import handlers
from farmiq.edge.sync import monitor
from farmiq.messages.topics import Place
from farmiq.plumbing import db
from farmiq.plumbing.bus import amqp
from tests.integration.cloud.test_edges import CLUSTER, EdgeHost, edge_host, heartbeat, person
from tests.integration.cloud.test_with_an_edge import Edge, edge
from tests.integration.edge.sync.owed import rows
from tests.support.until import until

__all__ = ["edge", "edge_host"]  # fixtures: an edge, and a real cloud

DISK = Alert("disk.filling", "disk", "warning", "the disk is 85 % full", whole_edge=True)
OWN = Alert("media.missing", "t-001/d-010", "warning", "image x is not in the store")
# Of a tenant that has devices here too, and for whom this edge is not enrolled.
OTHERS = Alert("media.missing", "t-1/d-1", "warning", "image y is not in the store")


@pytest.fixture
async def bus(edge_host: EdgeHost) -> AsyncIterator[AbstractQueue]:
    """A queue bound to everything that edges say of themselves."""
    url = edge_host.site.settings.amqp_url.get_secret_value()
    async with amqp.connection(url, name="test") as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind("farmiq.edge.exchange", "#")
        yield queue


async def taken(queue: AbstractQueue, count: int) -> list[dict[str, Any]]:
    messages = [await queue.get(timeout=60, no_ack=True) for _ in range(count)]
    assert await queue.get(fail=False, no_ack=True) is None
    return [json.loads(message.body) for message in messages]


async def beat(edge: Edge) -> None:
    await monitor.send_heartbeats(edge.pool, edge.cloud, edge.settings, seen=None)


async def test_alerts_of_an_outage_reach_the_bus_in_order_and_only_their_tenant(
    edge: Edge, bus: AbstractQueue
) -> None:
    await beat(edge)
    async with db.transaction(edge.pool) as tx:
        for alert in (DISK, OWN, OTHERS, OWN):
            await alerts.raise_(tx, alert)
    async with db.transaction(edge.pool) as tx:
        await alerts.close(tx, kind=OWN.kind, subject=OWN.subject)
    waiting = rows(edge.database, "select tenant_id, count(*) from sync_outbox group by 1")
    assert waiting == [("t-001", 3)]
    await until(edge.delivered)
    found = await taken(bus, 3)
    assert {event["tenant_id"] for event in found} == {"t-001"}
    assert "image y" not in json.dumps(found)
    assert "t-1" not in json.dumps(found)
    own = [event for event in found if event["payload"]["subject"] == "d-010"]
    assert [event["event_type"] for event in own] == ["edge.alert.opened", "edge.alert.closed"]
    assert own[0]["occurred_at"] <= own[1]["occurred_at"]
    assert own[0]["payload"]["alert_id"] == own[1]["payload"]["alert_id"]
    assert (own[1]["farm_id"], own[1]["barn_id"], own[1]["device_id"]) == (
        "f-001", "b-001", "d-010",
    )  # fmt: skip
    (disk,) = [event for event in found if event["payload"]["subject"] == "disk"]
    assert (disk["farm_id"], disk["payload"]["edge_cluster_id"]) == (None, CLUSTER)


async def test_heartbeat_carries_the_totals_and_the_cloud_sees_which_alerts_are_missing(
    edge_host: EdgeHost, edge: Edge
) -> None:
    await beat(edge)
    place = Place("t-001", "f-001", "b-001", "d-010")
    async with db.transaction(edge.pool) as tx:
        for alert in (DISK, OWN, OTHERS):
            await alerts.raise_(tx, alert)
        await losses.of_quarantine(tx, [place, place], reason="over the limit")
    topic = "iot/telemetry/t-001/f-001/b-001/d-010/temperature"
    await handlers.commit(edge.pool, [(topic, b"no json"), (topic.replace("t-001", "t-1"), b"no")])
    await until(edge.delivered)
    await beat(edge)

    async def seen(tenant: str = "t-001") -> list[dict[str, Any]]:
        header = {"authorization": f"Bearer {person(edge_host.site, tenant)}"}
        answer = await edge_host.client.get(edges.ROOT, headers=header)
        return [found["heartbeat"] for found in answer.json()["edges"]]

    (found,) = await seen()
    totals = ("open_alerts", "quarantine", "dead_letters", "losses", "farms", "alerts_missing")
    assert [found[name] for name in totals] == [2, 1, 0, 2, ["f-001"], 2]
    assert await seen("t-002") == []
    assert "alerts 2 (2 not as here)" in await edge_host.run("edge", "ls")
    assert "alerts_missing" in await edge_host.run("edge", "show", CLUSTER)
    # What cloud-alerts-service makes of the two events.
    with psycopg.connect(edge_host.site.database.admin_url) as owner:
        owner.execute(
            """
            insert into alert_episodes (tenant_id, episode_id, cause, source, severity, subject,
              edge_cluster_id, message, opened_at, last_at)
            select 't-001', gen_random_uuid(), n::text, 'edge', 'warning', 's', %s, 'm',
              now() - interval '1 hour', now() from generate_series(1, 2) n
            """,
            (CLUSTER,),
        )
    missing = f"select fn_edge_alerts_missing('t-001', '{CLUSTER}')"
    assert edge_host.site.rows(missing) == [(0,)]
    first = "update alert_episodes set state = 'resolved', resolved_at = now() {} where cause = '1'"
    for change, difference in (
        (first.format("+ interval '1 hour'"), 0),  # after that heartbeat
        (first.format("- interval '1 minute'"), 1),
        ("update edge_heartbeats set oldest_s = 61", None),
    ):
        with psycopg.connect(edge_host.site.database.admin_url) as owner:
            owner.execute(change.encode())
        assert edge_host.site.rows(missing) == [(difference,)]
    # An edge of an older version says nothing of it.
    await edge_host.post(edge_host.token(), heartbeat(), edges.HEARTBEAT)
    assert [(await seen())[0][name] for name in totals] == [None, None, 0, None, None, None]
