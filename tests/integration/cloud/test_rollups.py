"""The rollups of `farm/rollups.py` on the cloud's readings, in tables of a schema of their own."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from farmiq.cloud.identity.accounts import add_company
from farmiq.farm import buckets, rollups
from farmiq.farm.buckets import Series
from farmiq.farm.rollups import Rollups, Tables
from farmiq.plumbing import db, ids
from tests.conftest import Database

SCHEMA = """
create schema analytics;
create table analytics.buckets (
  id uuid not null, tenant_id text, farm_id text, barn_id text, device_id text, "window" text,
  bucket_start_at timestamptz, bucket_end_at timestamptz, metric_type text, unit text,
  avg_value float8, min_value float8, max_value float8, sum_value numeric, count bigint,
  last_at timestamptz,
  constraint buckets_key unique (tenant_id, device_id, metric_type, "window", bucket_start_at));
create table analytics.dirty (
  id bigint generated always as identity, marked_at timestamptz, first_at timestamptz,
  tenants text[], devices text[], metrics text[], first_minutes bigint[], last_minutes bigint[],
  first_times timestamptz[], last_times timestamptz[]);
create table analytics.state (
  only_row boolean default true constraint state_pkey primary key,
  raw_from timestamptz default '-infinity', fallback_timezone text default 'UTC');
create table analytics.zones (tenant_id text, farm_id text, timezone text);
create table analytics.rezoned (
  tenant_id text, device_id text, metric_type text,
  constraint rezoned_pkey primary key (tenant_id, device_id, metric_type));
"""
ROLLUPS = Rollups(
    Tables(
        readings="telemetry_readings",
        buckets="analytics.buckets",
        marks="analytics.dirty",
        series="telemetry_latest",
        state="analytics.state",
        zones="analytics.zones",
        rezoned="analytics.rezoned",
        reading_id="event_id",
        arrived_at="stored_at",
    ),
    lock="test",
    raw_from_lock="test raw_from",
)
BUCKETS = """
select tenant_id, "window", bucket_start_at, avg_value, count from analytics.buckets
order by 1, 2, 3
"""


@pytest.fixture
async def pool(cloud_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(cloud_db.admin_url, name="test") as opened:
        yield opened


async def store(pool: db.Pool, tenant_id: str, at: datetime, value: float) -> None:
    """Store one reading and mark its buckets, in one transaction."""
    series: Series = (tenant_id, "d-1", "temperature")
    async with db.transaction(pool) as tx:
        await tx.execute(
            "insert into telemetry_readings (tenant_id, event_id, farm_id, barn_id, device_id, "
            "metric_type, metric_value, unit, occurred_at, trace_id) "
            "values (%s, %s, 'f-1', 'b-1', %s, %s, %s, 'C', %s, 't')",
            (tenant_id, ids.new(), *series[1:], value, at),
        )
        ranges = buckets.dirty_ranges([(series, at)])
        await tx.execute(
            ROLLUPS.insert_marks_sql().encode(), rollups.mark_values(ranges), prepare=False
        )


async def recompute(pool: db.Pool) -> rollups.Recomputed:
    async with db.transaction(pool) as tx:
        assert await ROLLUPS.try_lock(tx)
        return await ROLLUPS.recompute_batch(tx, timezone="Asia/Bangkok")


async def test_rollups_in_another_schema_are_computed_by_tenant_and_local_day(
    pool: db.Pool, cloud_db: Database
) -> None:
    """A late reading is counted in its own minute; 17:00 UTC is midnight in Bangkok."""
    with psycopg.connect(cloud_db.admin_url) as connection:
        connection.execute(SCHEMA.encode())
        add_company(connection, "t-001", name="One")
        add_company(connection, "t-002", name="Two")
    async with db.transaction(pool) as tx:
        await ROLLUPS.initialize(tx, timezone="Asia/Bangkok", retention_days=30)
    day = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
    before, after = day + timedelta(hours=16, minutes=59), day + timedelta(hours=17, seconds=1)
    await store(pool, "t-001", after, 30.0)
    await recompute(pool)
    await store(pool, "t-001", after + timedelta(seconds=20), 31.0)
    await store(pool, "t-001", before, 10.0)
    await store(pool, "t-002", after, 99.0)
    await recompute(pool)
    assert (await recompute(pool)).marks == 0
    local, hour = day + timedelta(hours=17), timedelta(hours=1)
    async with pool.connection() as connection:
        found = await db.fetch_all(connection, BUCKETS)
    assert found == [
        ("t-001", "1d", local - 24 * hour, 10.0, 1),
        ("t-001", "1d", local, 30.5, 2),
        ("t-001", "1h", local - hour, 10.0, 1),
        ("t-001", "1h", local, 30.5, 2),
        ("t-001", "1m", before, 10.0, 1),
        ("t-001", "1m", local, 30.5, 2),
        ("t-002", "1d", local, 99.0, 1),
        ("t-002", "1h", local, 99.0, 1),
        ("t-002", "1m", local, 99.0, 1),
    ]
