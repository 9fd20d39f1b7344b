"""Readings and edges' buckets as they come from the bus, in the tables of the cloud."""

import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol
from uuid import UUID

import msgspec
import pytest

from farmiq.cloud import sink
from farmiq.cloud.identity.accounts import add_company
from farmiq.cloud.telemetry import service
from farmiq.farm.buckets import LENGTHS, Window
from farmiq.messages import bus, telemetry
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.integration.cloud.conftest import CloudSite
from tests.integration.edge.telemetry.readings import Reading
from tests.support import databases, preloaded


@pytest.fixture
def company(cloud_db: Database) -> UUID:
    with databases.connected(cloud_db.admin_url) as connection:
        return add_company(connection, "t-1", name="One")


@pytest.fixture
async def pool(cloud_db: Database, company: UUID) -> AsyncIterator[db.Pool]:
    del company
    async with db.pool(cloud_db.url, name="test") as opened:
        yield opened


class Start(Protocol):
    def __call__(self, crash_at: str = "", **settings: str) -> subprocess.Popen[bytes]: ...


@pytest.fixture
def start(cloud: CloudSite, engines: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts `farmiq run cloud-telemetry-service` that dies at a crash point, or not."""
    running: list[subprocess.Popen[bytes]] = []
    environment = {
        "FARMIQ_CLOUD_DB_URL": cloud.settings.db_url.get_secret_value(),
        "FARMIQ_AMQP_URL": cloud.settings.amqp_url.get_secret_value(),
        "FARMIQ_EDGE_KEYS_FILE": str(cloud.settings.edge_keys_file),
        "FARMIQ_CLOUD_HTTP_PORT": str(cloud.settings.http_port),
        "FARMIQ_CLOUD_S3_URL": engines["FARMIQ_CLOUD_S3_URL"],
    }

    def run(crash_at: str = "", **settings: str) -> subprocess.Popen[bytes]:
        own = {"FARMIQ_CRASH_AT": crash_at, **settings}
        running.append(preloaded.run(service.NAME, {**environment, **own}, log=tmp_path / "log"))
        return running[-1]

    yield run
    for process in running:
        process.kill()
        process.wait()


def reading_event(reading: Reading, *, clock_suspect: bool = False) -> BusEvent:
    payload = telemetry.Reading(
        metric_type=reading.metric, metric_value=reading.value, unit=reading.unit
    )
    return BusEvent(
        event_id=reading.id, event_type=telemetry.INGESTED, tenant_id=reading.tenant,
        farm_id=reading.farm, barn_id=reading.barn, device_id=reading.device,
        occurred_at=reading.at, trace_id="trace-1", clock_suspect=clock_suspect,
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )  # fmt: skip


def bucket_event(
    begin: datetime, mean: float, count: int, *, window: Window = "1m", device: str = "d-1",
    length: timedelta | None = None, farm: str = "f-1",
) -> BusEvent:  # fmt: skip
    """As an edge sends it: least and most lie one beside the mean."""
    payload = telemetry.TelemetryAggregated(
        metric_type="temperature", aggregation_window=window, avg_value=mean, min_value=mean - 1,
        max_value=mean + 1, unit="C", count=count, bucket_start_at=begin,
        bucket_end_at=begin + (length or LENGTHS[window]),
    )  # fmt: skip
    return BusEvent(
        event_id=ids.new(), event_type=telemetry.AGGREGATED, tenant_id="t-1", farm_id=farm,
        barn_id="b-1", device_id=device, occurred_at=begin, trace_id="trace-1",
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )  # fmt: skip


async def keep(pool: db.Pool, readings: Iterable[Reading], *, clock_suspect: bool = False) -> None:
    bodies = [bus.write(reading_event(each, clock_suspect=clock_suspect)) for each in readings]
    assert await sink.store_events(pool, bodies, service.READINGS) == {}


async def keep_buckets(pool: db.Pool, events: Iterable[BusEvent]) -> None:
    bodies = [bus.write(each) for each in events]
    assert await sink.store_events(pool, bodies, service.AGGREGATES) == {}
