"""An edge against a real cloud: its key ends and changes, it says how it is, history goes again."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import msgspec
import pytest

from farmiq.cloud import sink
from farmiq.cloud.analytics import service as analytics
from farmiq.cloud.telemetry import service as telemetry
from farmiq.cloud.weighvision import service as weighvision
from farmiq.config import CloudSettings, EdgeSettings
from farmiq.edge.identity import read_key
from farmiq.edge.ingress import handlers
from farmiq.edge.sync import monitor
from farmiq.edge.sync.cloud import Cloud
from farmiq.edge.sync.forwarder import Forwarder
from farmiq.messages.bus import BusEvent
from farmiq.messages.topics import Place
from farmiq.plumbing import db, http, ids, tokens
from tests.conftest import Database
from tests.integration.cloud.test_edges import CLUSTER, EdgeHost, edge_host
from tests.integration.edge.sync import owed
from tests.integration.edge.sync.owed import make_due, owe, rows
from tests.integration.edge.weighvision.conftest import Weighing, station
from tests.support import databases, devices
from tests.support.until import until
from tests.unit.messages import examples

__all__ = ["edge_host"]  # the fixture: a real cloud, its database and its bus

STATES = "select status, count(*) from sync_outbox group by 1 order by 1"
ALERTS = "select kind, subject from alerts where closed_at is null"


def event(device_id: str = "d", minutes: float = 0) -> BusEvent:
    return msgspec.structs.replace(owed.event("t-001", minutes=minutes), device_id=device_id)


class Edge:
    """An edge that enrolled, with one forwarder that keeps running."""

    def __init__(
        self, database: Database, pool: db.Pool, settings: EdgeSettings, cloud: Cloud
    ) -> None:
        self.database, self.pool, self.settings, self.cloud = database, pool, settings, cloud
        self._forwarder = Forwarder(settings, pool, cloud)

    async def forward(self) -> None:
        make_due(self.database)
        await self._forwarder.forward_once()

    async def delivered(self) -> bool:
        """Whether a round leaves nothing that waits."""
        await self.forward()
        return self.states().keys() == {"acked"}

    def states(self) -> dict[str, int]:
        return dict(rows(self.database, STATES))


@pytest.fixture
async def edge(edge_host: EdgeHost, edge_db: Database) -> AsyncIterator[Edge]:
    await edge_host.enroll()
    edge_host.environment |= {
        "FARMIQ_EDGE_DB_URL": edge_db.url,
        "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
    }
    settings = EdgeSettings.load(edge_host.environment)
    async with (
        db.pool(edge_db.url, name="test") as pool,
        Cloud(lambda: httpx2.AsyncClient(timeout=60), settings) as cloud,
    ):
        yield Edge(edge_db, pool, settings, cloud)


async def test_a_revoked_edge_keeps_what_it_has_says_so_and_goes_on_when_it_is_let_in_again(
    edge_host: EdgeHost, edge: Edge
) -> None:
    await owe(edge.pool, event())
    await until(edge.delivered)
    await edge_host.run("edge", "revoke", CLUSTER)

    async def refused() -> bool:
        await owe(edge.pool, event())
        await edge.forward()
        return rows(edge.database, ALERTS) == [("sync.not_let_in", "t-001")]

    # For a moment the cloud may believe what it knew: what it took then is delivered.
    await until(refused)
    for _ in range(12):
        await edge.forward()
    kept = rows(
        edge.database, "select last_error_message from sync_outbox where status = 'pending'"
    )
    assert kept
    assert all("was revoked" in (said or "was revoked") for (said,) in kept)
    assert edge.states().keys() <= {"acked", "pending"}
    edge_host.key_file.unlink()
    await edge_host.enroll()
    await until(edge.delivered)
    assert rows(edge.database, ALERTS) == []


async def test_a_running_forwarder_finds_a_rotated_key(edge_host: EdgeHost, edge: Edge) -> None:
    await owe(edge.pool, event())
    await until(edge.delivered)
    answer = await edge_host.run("edge", "rotate", "--overlap-hours", "0")
    assert re.search(r"good until \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+\n", answer)
    await owe(edge.pool, event())
    await until(edge.delivered)
    assert edge.states() == {"acked": 2}
    ((good,),) = edge_host.site.rows("select count(*) from edge_keys where valid_until is null")
    assert good == 1


async def test_a_tenant_is_added_to_a_running_edge_by_one_command_and_keeps_its_key(
    edge_host: EdgeHost, edge: Edge
) -> None:
    await owe(edge.pool, msgspec.structs.replace(event(), tenant_id="t-002"))
    await edge.forward()
    told = await edge_host.run("outbox", "stats", code=3)
    assert "PAUSED, 1 times in a row: the cloud refuses this tenant" in told
    assert "HTTP_403: this edge is not registered for tenant 't-002'" in told
    assert "not reached" not in told
    key = edge_host.key_file.read_bytes()
    words = ("edge", "add-tenant", CLUSTER, "--tenant", "t-002")
    assert "speaks for t-002 now" in await edge_host.run(*words)
    await until(edge.delivered)
    assert edge_host.key_file.read_bytes() == key
    assert "speaks for t-002 already" in await edge_host.run(*words)
    done = "select tenant_id from edge_actions where action = 'grant'"
    assert edge_host.site.rows(done) == [("t-002",)]
    assert "no such good key" in await edge_host.run(
        "edge", "add-tenant", "nobody", "--tenant", "t-002", code=1
    )


async def test_an_edge_whose_key_somebody_else_replaced_raises_a_security_alert(
    edge_host: EdgeHost, edge: Edge
) -> None:
    with databases.connected(edge.database.admin_url) as connection:
        connection.execute("insert into sync_state (tenant_id) values ('t-001')")

    async def alerted() -> bool:
        await monitor.send_heartbeats(edge.pool, edge.cloud, edge.settings, seen=None)
        return ("sync.key_replaced", CLUSTER) in rows(edge.database, ALERTS)

    assert not await alerted()
    theirs = tokens.new_key()
    assert (await edge_host.rotate(read_key(edge_host.key_file), theirs)).status_code == 200
    await until(alerted)
    # The new key arrives here as well: it was this edge's own people.
    edge_host.key_file.write_text(json.dumps(theirs), encoding="utf-8")
    assert not await alerted()


async def test_the_edge_says_how_it_is_and_keeps_nothing_of_it(
    edge_host: EdgeHost, edge: Edge
) -> None:
    await owe(edge.pool, event(), event())
    await monitor.send_heartbeats(edge.pool, edge.cloud, edge.settings, seen=None)
    ((waiting, percent, versions, offset),) = edge_host.site.rows(
        "select waiting, disk_percent, versions, clock_offset_s from edge_heartbeats"
    )
    assert waiting == 2
    assert 0 < percent <= 100
    assert versions.keys() == {"farmiq", "contract", "python", "postgresql"}
    assert abs(offset) < 30
    assert edge.states() == {"pending": 2}
    # The devices of this edge have another tenant too, whom the cloud does not know.
    assert ("sync.not_let_in", "t-001") not in rows(edge.database, ALERTS)
    assert json.loads(await edge_host.run("edge", "ls", "--json"))[0]["state"] == "heard"


async def test_an_edge_with_nothing_to_send_hears_that_it_is_not_let_in(
    edge_host: EdgeHost, edge: Edge
) -> None:
    with databases.connected(edge.database.admin_url) as connection:
        connection.execute("insert into sync_state (tenant_id) values ('t-001')")

    async def alerted() -> bool:
        await monitor.send_heartbeats(edge.pool, edge.cloud, edge.settings, seen=None)
        return ("sync.not_let_in", "t-001") in rows(edge.database, ALERTS)

    assert not await alerted()
    await edge_host.run("edge", "revoke", CLUSTER)
    await until(alerted)
    edge_host.key_file.unlink()
    await edge_host.enroll()
    assert not await alerted()


async def test_history_that_the_cloud_lost_comes_back_once(
    edge_host: EdgeHost, edge: Edge, tasks: asyncio.TaskGroup
) -> None:
    """C-99: known to the dedupe of both sides, and yet it gets through on purpose."""
    consumed = http.HttpServer(title="consumer", version="0")
    settings = CloudSettings.model_validate(edge_host.site.settings.model_dump(by_alias=True))
    tasks.create_task(telemetry.run(settings, consumed))
    events = [event(device, minutes) for device in ("d-1", "d-2") for minutes in range(3)]
    await owe(edge.pool, *events)
    await until(edge.delivered)
    stored = "select event_id::text from telemetry_readings order by 1"
    every = sorted((str(each.event_id),) for each in events)
    await until(lambda: edge_host.site.rows(stored) == every)
    with databases.connected(edge_host.site.database.admin_url) as owner:
        owner.execute("delete from telemetry_readings")
        owner.execute("delete from telemetry_latest")
    since, until_ = owed.BORN, owed.BORN + timedelta(minutes=2)

    async def resync(*more: str) -> dict[str, Any]:
        span = (f"--from={since:%Y-%m-%dT%H:%M:%S}", f"--to={until_:%Y-%m-%dT%H:%M:%S}")
        found: dict[str, Any] = json.loads(await edge_host.run("resync", *span, *more, "--json"))
        return found

    assert (await resync("--dry-run"))["tenants"] == {"t-001": 4}
    assert await resync("--device", "d-2") == {"sent": 2, "refused": 0}
    mine = sorted((str(each.event_id),) for each in events[3:5])
    await until(lambda: edge_host.site.rows(stored) == mine)
    for _ in range(2):
        assert await resync() == {"sent": 4, "refused": 0}
    four = sorted((str(each.event_id),) for each in (*events[:2], *events[3:5]))
    await until(lambda: edge_host.site.rows(stored) == four)
    counted = "select sum(reading_count) from telemetry_latest"
    assert edge_host.site.rows(counted) == [(4,)]
    assert edge_host.site.rows("select count(*) from ingestion_dedupe") == [(6,)]
    assert edge_host.site.rows("select count(*) from event_conflicts") == [(0,)]
    noted = rows(edge.database, "select action, detail->>'sent' from audit_log order by audit_id")
    assert noted == [("sync.resync", None), ("sync.resync.ended", "2"), ("sync.resync", None),
                     ("sync.resync.ended", "4"), ("sync.resync", None),
                     ("sync.resync.ended", "4")]  # fmt: skip
    assert edge.states() == {"acked": 6}


async def test_a_suspect_clock_and_the_station_of_a_weighing_reach_the_cloud(
    edge_host: EdgeHost, edge: Edge, tasks: asyncio.TaskGroup
) -> None:
    """From the gateway's transaction to the tables; of a clock that is right nothing is said."""
    place = Place("t-001", "f-001", "b-001", "scale-7")
    devices.register(
        edge.database.admin_url, [devices.at(place, kind="station", station_id=station(place))]
    )
    now = datetime.now(UTC)
    wrong, right = Weighing(place=place, at=now - timedelta(days=8)), Weighing(place=place, at=now)
    where = "iot/telemetry/t-001/f-001/b-001/d-010"
    readings = {
        f"{where}/{metric}": examples.envelope(
            event_id=str(ids.new()), ts=at.isoformat(), payload={"value": 1.0, "unit": "C"}
        )
        for metric, at in (("ahead", now + timedelta(hours=25)), ("buffered", now - timedelta(3)))
    }
    await handlers.commit(edge.pool, [wrong.weight(), right.weight(), *readings.items()])
    await until(edge.delivered)
    settings = CloudSettings.model_validate(edge_host.site.settings.model_dump(by_alias=True))
    server = http.HttpServer(title="consumer", version="0")
    tasks.create_task(sink.run(settings, server, telemetry.READINGS))
    tasks.create_task(sink.run(settings, server, weighvision.SINK))
    flagged = [("ahead", True), ("buffered", False)]
    suspects = "select metric_type, clock_suspect from telemetry_readings order by 1"
    await until(lambda: edge_host.site.rows(suspects) == flagged)
    assert edge_host.site.rows(suspects.replace("readings", "latest")) == flagged
    weighed = "select station_id, clock_suspect from weight_sessions order by 2"
    await until(lambda: edge_host.site.rows(weighed) == [("st-7", False), ("st-7", True)])
    assert edge_host.site.rows("select clock_suspect from weighvision_events order by 1") == [
        (False,), (True,),
    ]  # fmt: skip


@pytest.mark.req("RB-16")
async def test_session_that_a_station_begins_marks_the_day_of_its_batch(
    edge_host: EdgeHost, edge: Edge, tasks: asyncio.TaskGroup
) -> None:
    """From the station's message over outbox, ingestion and bus to analytics."""
    place = Place("t-001", "f-001", "b-001", "scale-7")
    devices.register(
        edge.database.admin_url, [devices.at(place, kind="station", station_id=station(place))]
    )
    with databases.connected(edge_host.site.database.admin_url) as owner:
        owner.execute("insert into farms values ('t-001', 'f-001', 'F', 'UTC')")
        owner.execute("insert into barns values ('t-001', 'f-001', 'b-001', 'B')")
        owner.execute(
            "insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count, "
            "placed_on) values ('t-001', 'lot-7', 'f-001', 'b-001', 'pig', 9, '2026-01-01')"
        )
        owner.execute("delete from analytics_dirty_days")
    settings = CloudSettings.model_validate(edge_host.site.settings.model_dump(by_alias=True))
    server = http.HttpServer(title="consumer", version="0")
    tasks.create_task(sink.run(settings, server, weighvision.SINK))
    tasks.create_task(sink.run(settings, server, analytics.DAYS))

    await handlers.commit(edge.pool, [Weighing(place=place, at=datetime.now(UTC)).created()])
    await until(edge.delivered)

    # It waits for its row, or its day is marked already.
    taken = (
        "select 1 from analytics_pending where family = 'weighvision' union all "
        "select 1 from analytics_dirty_days where batch_id = 'lot-7'"
    )
    await until(lambda: edge_host.site.rows(taken) == [(1,)])
    # Two services read the bus; the one that stores may be the later one.
    stored = "select batch_id from weighvision_events"
    await until(lambda: edge_host.site.rows(stored) == [("lot-7",)])
