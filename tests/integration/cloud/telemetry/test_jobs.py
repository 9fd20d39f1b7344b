"""Months of the cloud's readings: made ahead and for what comes late, dropped by age."""

import asyncio
from datetime import UTC, date, datetime, timedelta

import pytest

from farmiq.cloud.history import History
from farmiq.cloud.telemetry import jobs, rollups
from farmiq.farm import months
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.cloud.telemetry.conftest import keep
from tests.integration.edge.telemetry.readings import (
    WAITING,
    Reading,
    execute,
    move_clock,
    rows,
)
from tests.sql import security
from tests.support import databases
from tests.support.until import until

PLACES = "select tableoid::regclass::text, count(*)::int from telemetry_readings group by 1"


def now() -> datetime:
    return datetime.now(UTC)


async def test_months_are_made_ahead_and_for_late_readings(
    pool: db.Pool, cloud_db: Database
) -> None:
    """Until there is a month the default partition takes its rows; a wrong clock's stay there."""
    await keep(pool, [Reading(now(), 1.0), Reading(datetime(2024, 2, 29, 12, tzinfo=UTC), 2.0)])
    await keep(pool, [Reading(datetime(1970, 1, 1, tzinfo=UTC), 3.0),
                      Reading(datetime(2090, 1, 1, tzinfo=UTC), 4.0)])  # fmt: skip
    assert rows(cloud_db, PLACES) == [("telemetry_readings_default", 4)]
    made = await jobs.create_partitions(pool)
    today = now().date()
    assert sorted(made) == [date(2024, 2, 1), *months.partition_months(today, jobs.DAYS_BACK)]
    assert await jobs.create_partitions(pool) == []
    assert sorted(rows(cloud_db, PLACES)) == [
        ("telemetry_readings_2024_02", 1),
        (f"telemetry_readings_{today:%Y_%m}", 1),
        ("telemetry_readings_default", 2),
    ]
    move_clock(cloud_db, "40 days")
    (next_month,) = await jobs.create_partitions(pool)
    assert next_month > max(made)
    with databases.connected(cloud_db.admin_url) as connection:
        assert security.problems(connection) == []


async def test_readings_that_were_moved_are_the_same_and_still_known(
    pool: db.Pool, cloud_db: Database
) -> None:
    readings = [Reading(now() - timedelta(hours=n), float(n)) for n in range(200)]
    await keep(pool, readings)
    everything = "select * from telemetry_readings order by event_id"
    before = rows(cloud_db, everything)
    await jobs.create_partitions(pool)
    await keep(pool, readings)
    assert rows(cloud_db, everything) == before
    assert rows(cloud_db, "select reading_count::int from telemetry_latest") == [(200,)]


async def test_a_month_made_beside_a_recomputation_hides_no_reading(
    pool: db.Pool, cloud_db: Database
) -> None:
    """Who reads sees rows where they were or where they moved to, never in neither place."""
    at = datetime(2026, 5, 1, 17, tzinfo=UTC)
    await keep(pool, [Reading(at, 1.0)])
    async with asyncio.TaskGroup() as tasks, db.transaction(pool) as tx:
        await tx.execute("select fn_make_telemetry_month(%s)", (at.date(),))
        tasks.create_task(rollups.recompute_all(pool))
        await until(lambda: rows(cloud_db, WAITING))
    made = rows(cloud_db, 'select "window", count::int from telemetry_agg order by 1')
    assert made == [("1d", 1), ("1h", 1), ("1m", 1)]


async def test_retention_drops_readings_to_the_day_and_leaves_their_buckets(
    pool: db.Pool, cloud_db: Database
) -> None:
    await jobs.create_partitions(pool)
    midnight = now().replace(hour=0, minute=0, second=0, microsecond=0)
    ages = [1, 29, 31, 60, 90]
    await keep(pool, [Reading(midnight - timedelta(days=days, hours=-1), 1.0) for days in ages])
    buckets = "select count(*)::int from telemetry_agg"
    done = await jobs.purge_expired(pool, raw_days=30, minutes_days=60, archived=History(None))
    assert rows(cloud_db, "select count(*)::int from telemetry_readings") == [(2,)]
    assert done == {"readings": 3, "minutes": 1}
    assert rows(cloud_db, buckets) == [(14,)]
    assert rows(cloud_db, f"{buckets} where \"window\" = '1m'") == [(4,)]
    # What is late for a bucket that is final changes nothing.
    await keep(pool, [Reading(midnight - timedelta(days=31), 100.0)])
    await rollups.recompute_all(pool)
    assert rows(cloud_db, "select max(max_value) from telemetry_agg") == [(1.0,)]


async def test_a_month_is_not_dropped_while_a_bucket_needs_it(
    pool: db.Pool, cloud_db: Database
) -> None:
    await jobs.create_partitions(pool)
    month = months.add_months(now().date(), -2)
    await keep(pool, [Reading(months.days_before(month), 1.0)])
    async with db.transaction(pool) as tx:
        needed = await db.fetch_value(tx, "select fn_drop_telemetry_month(%s)", month)
    assert needed == "needed"
    await rollups.recompute_all(pool)
    execute(cloud_db, "update telemetry_state set raw_from = now()")
    assert await months.drop_partition(pool, month)
    assert not await months.drop_partition(pool, month)
    assert rows(cloud_db, "select count(*)::int from telemetry_agg") == [(3,)]


@pytest.mark.parametrize("function", ["fn_make_telemetry_month", "fn_drop_telemetry_month"])
async def test_people_may_not_make_or_drop_months(cloud_db: Database, function: str) -> None:
    may = f"select has_function_privilege('authenticated', '{function}(date)', 'execute')"
    assert rows(cloud_db, may) == [(False,)]
