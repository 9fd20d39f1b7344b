"""What an edge says of a sensor, and what the page of latest readings makes of it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from farmiq.cloud import sink, sinks
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.telemetry import queries
from farmiq.cloud.console.telemetry import view as readings
from farmiq.cloud.console.telemetry.view import State
from farmiq.cloud.identity import accounts, session
from farmiq.cloud.telemetry import service as cloud_telemetry
from farmiq.edge.devices import registration
from farmiq.edge.devices import service as edge_devices
from farmiq.edge.telemetry import rollups
from farmiq.messages import bus
from farmiq.messages.bus import BusEvent
from farmiq.messages.topics import Place
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.integration.edge.telemetry.readings import Reading, execute, keep
from tests.support import databases
from tests.support.devices import at as registered

WORKS = (cloud_telemetry.READINGS, cloud_telemetry.AGGREGATES, sinks.DEVICE)
COMPANY = Company(company_id=ids.new(), name="One", tenant_id="t-1", timezone="UTC", email="a@b.c")


@dataclass(frozen=True)
class Sites:
    edge: db.Pool
    cloud: db.Pool
    token: str

    async def synced(self) -> None:
        """Everything the edge owes is in the tables of the cloud."""
        async with db.transaction(self.edge) as tx:
            rows = await db.fetch_all(
                tx,
                "select id, event_type, tenant_id, farm_id, barn_id, device_id, occurred_at, "
                "trace_id, payload_json::text from sync_outbox",
            )
        events = [
            BusEvent(
                event_id=row[0], event_type=row[1], tenant_id=row[2], farm_id=row[3],
                barn_id=row[4], device_id=row[5], occurred_at=row[6], trace_id=row[7],
                payload=msgspec.Raw(row[8].encode()),
            )
            for row in rows
        ]  # fmt: skip
        for work in WORKS:
            bodies = [
                bus.write(each) for each in events if each.event_type in work.work.event_types
            ]
            assert await sink.store_events(self.cloud, bodies, work) == {}

    async def row(self, *, after: timedelta = timedelta(0)) -> readings.Row:
        """What the page says of the only sensor, now or some time later."""
        async with session.as_person(self.cloud, self.token) as connection:
            found = await queries.latest(connection)
        (row,) = readings.view(COMPANY, found, now=datetime.now(UTC) + after).rows
        return row


@pytest.fixture
async def sites(edge_db: Database, cloud_db: Database) -> AsyncIterator[Sites]:
    with databases.connected(cloud_db.admin_url) as connection:
        company_id = accounts.add_company(connection, "t-1", name="One")
        accounts.add_user(connection, "a@b.c", company_id=company_id, password="x" * 12)
        token = accounts.open_sign_in(connection, "a@b.c", lasts=timedelta(hours=1))
    async with (
        db.pool(edge_db.url, name="test") as edge,
        db.pool(cloud_db.url, name="test") as cloud,
    ):
        yield Sites(edge, cloud, token)


@pytest.mark.parametrize("window", ["1m", "1h", "1d"])
async def test_a_metric_switched_to_aggregates_is_not_called_late(
    sites: Sites, edge_db: Database, window: str
) -> None:
    """From the first reading after the switch on, not only when its first bucket is over."""
    now = datetime.now(UTC)
    every_5_s = [Reading(now - timedelta(seconds=age), 20.0) for age in range(80, 60, -5)]
    await keep(sites.edge, every_5_s)
    await rollups.recompute_batch(sites.edge, timezone="UTC", settle_s=30)
    await sites.synced()
    assert (await sites.row()).state is State.LATE
    execute(edge_db, "insert into metric_settings values ('temperature', 'agg', %s)", window)
    await keep(sites.edge, [Reading(now, 22.0)])
    await rollups.recompute_batch(sites.edge, timezone="UTC", settle_s=30)
    await sites.synced()
    row = await sites.row(after=timedelta(seconds=60))
    assert (row.state, row.reading.window) == (State.CURRENT, window)


async def test_a_revoked_sensor_is_not_late_and_is_watched_when_it_is_registered_again(
    sites: Sites,
) -> None:
    key = ("t-1", "d-1")
    await keep(sites.edge, [Reading(datetime.now(UTC), 20.0)])
    async with db.transaction(sites.edge) as tx:
        await registration.revoke(tx, key, actor="test")
    await edge_devices.send_revocations(sites.edge)
    await sites.synced()
    assert (await sites.row(after=timedelta(days=3))).state is State.REVOKED
    async with db.transaction(sites.edge) as tx:
        await registration.add(tx, registered(Place("t-1", "f-1", "b-1", "d-1")), actor="test")
    await edge_devices.send_revocations(sites.edge)
    await sites.synced()
    assert (await sites.row(after=timedelta(days=3))).state is State.LATE


async def test_an_aggregate_of_a_raw_metric_changes_no_reading(
    sites: Sites, cloud_db: Database
) -> None:
    """An edge's token may post one of any metric; what was measured stays as it is."""
    now = datetime.now(UTC)
    await keep(sites.edge, [Reading(now - timedelta(seconds=5), 20.0), Reading(now, 21.0)])
    await sites.synced()

    def measured() -> list[tuple[object, ...]]:
        with databases.connected(cloud_db.admin_url) as owner:
            return owner.execute(
                "select r.event_id, r.metric_value, r.occurred_at, l.reading_count "
                "from telemetry_readings r, telemetry_latest l order by 1"
            ).fetchall()

    before = measured()
    minute = now.replace(second=0, microsecond=0)
    invented = BusEvent(
        event_id=ids.new(), event_type="telemetry.aggregated", tenant_id="t-1", farm_id="f-1",
        barn_id="b-1", device_id="d-1", occurred_at=now, trace_id="trace",
        payload=msgspec.Raw(msgspec.json.encode({
            "metric_type": "temperature", "aggregation_window": "1m", "avg_value": 99.0,
            "min_value": 99.0, "max_value": 99.0, "unit": "C", "count": 7,
            "bucket_start_at": minute, "bucket_end_at": minute + timedelta(minutes=1),
        })),
    )  # fmt: skip
    assert (
        await sink.store_events(sites.cloud, [bus.write(invented)], cloud_telemetry.AGGREGATES)
        == {}
    )
    assert (len(before), measured()) == (2, before)
    reading = (await sites.row()).reading
    assert (reading.value, reading.window) == (99.0, "1m"), "it is shown as what it is"
