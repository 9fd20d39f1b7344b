"""The cloud's buckets equal a full recompute, whatever came when, in which order and how often."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.cloud import sink
from farmiq.cloud.telemetry import rollups, service
from farmiq.messages import bus
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.cloud.telemetry.conftest import bucket_event, keep, keep_buckets
from tests.integration.edge.telemetry.readings import Reading, execute, recomputed, rows, stored
from tests.support import databases
from tests.support.properties import drawn

# Days of 23, 24 and 25 hours, half hours beside UTC, and clocks set by half an hour.
ZONES = {
    "Europe/Berlin": ("2026-03-28T20Z", "2026-10-24T20Z"),
    "America/Santiago": ("2026-04-04T20Z", "2026-09-05T20Z"),
    "Australia/Lord_Howe": ("2026-04-04T04Z", "2026-10-03T04Z"),
    "Asia/Kathmandu": ("2026-05-01T12Z", "2026-06-01T12Z"),
}
EVERYTHING = (
    "truncate telemetry_readings, telemetry_agg, telemetry_dirty, telemetry_latest, farms, "
    "telemetry_rezoned, telemetry_state cascade"
)
HOUR = timedelta(hours=1)


def register(database: Database, zone: str, *, farm: str = "f-1") -> None:
    with databases.connected(database.admin_url) as connection:
        connection.execute(
            "insert into farms (tenant_id, farm_id, name, timezone) values ('t-1', %s, 'F', %s) "
            "on conflict on constraint farms_pkey do update set timezone = excluded.timezone",
            (farm, zone),
        )


@pytest.mark.req("RB-28")
@given(seed=st.integers(0, 2**32), zone=st.sampled_from(list(ZONES)))
@drawn(10)
def test_buckets_of_late_and_repeated_readings_equal_a_full_recompute(
    cloud_db: Database, company: UUID, seed: int, zone: str
) -> None:
    """Each reading one to three times, in any order and portions, around a change of clocks."""
    del company
    rng = Random(seed)
    execute(cloud_db, EVERYTHING)
    registered_first = rng.random() < 0.5
    if registered_first:
        register(cloud_db, zone)
    begin = datetime.fromisoformat(rng.choice(ZONES[zone]))
    hours = [begin + timedelta(hours=rng.uniform(0, 30)) for _ in range(6)]
    readings = [
        Reading(
            at=rng.choice(hours) + timedelta(seconds=rng.choice([0, 59.999999, 60, 3601, 7250])),
            value=rng.choice([rng.uniform(-40, 60), rng.uniform(-1e12, 1e12), 0.1, 1e-7]),
            device=rng.choice(["d-1", "d-2"]),
            metric=rng.choice(["temperature", "humidity"]),
        )
        for _ in range(rng.randrange(1, 100))
    ]
    sent = [each for each in readings for _ in range(rng.randrange(1, 4))]
    rng.shuffle(sent)

    async def send() -> None:
        async with db.pool(cloud_db.url, name="test") as pool:
            while sent:
                await keep(pool, [sent.pop() for _ in range(min(len(sent), rng.randrange(1, 60)))])
                if rng.random() < 0.4:
                    await rollups.recompute_all(pool, max_hours=rng.choice([1, 5, 2000]))
            if not registered_first:
                register(cloud_db, zone)
            await rollups.recompute_all(pool)

    asyncio.run(send())
    assert stored(cloud_db, zone=zone) == recomputed(readings, zone=zone)
    assert rows(cloud_db, "select count(*) from telemetry_dirty") == [(0,)]


Sums = tuple[int, float, bool]  # count, mean, whether an edge sent it


@given(seed=st.integers(0, 2**32))
@drawn(10)
def test_buckets_that_edges_send_and_readings_meet_in_one_table_in_any_order(
    cloud_db: Database, company: UUID, seed: int
) -> None:
    """Of a minute that both know, the one with more readings counts; hours and days follow."""
    del company
    rng = Random(seed)
    execute(cloud_db, EVERYTHING)
    register(cloud_db, "Europe/Berlin")
    begin = datetime(2026, 3, 28, 21, 55, tzinfo=UTC)  # to Berlin's midnight and on
    minutes = [begin + timedelta(minutes=n) for n in range(rng.randrange(2, 120))]
    minutes = rng.sample(minutes, min(len(minutes), 12))
    expected: dict[datetime, Sums] = {}
    deliveries: list[Reading | BusEvent] = []
    for minute in minutes:
        raw = [Reading(minute + timedelta(seconds=n), float(n)) for n in range(rng.randrange(4))]
        mean = rng.choice([10.0, 20.5])
        versions = sorted(rng.sample(range(1, 6), rng.randrange(3)))
        sent = [bucket_event(minute, mean, count) for count in versions]
        deliveries += [*raw, *sent, *(each for each in sent if rng.random() < 0.3)]
        if versions and versions[-1] >= len(raw):
            expected[minute] = (versions[-1], mean, True)
        elif raw:
            expected[minute] = (len(raw), sum(each.value for each in raw) / len(raw), False)
    rng.shuffle(deliveries)

    async def send() -> None:
        async with db.pool(cloud_db.url, name="test") as pool:
            for each in deliveries:
                if isinstance(each, Reading):
                    await keep(pool, [each])
                else:
                    await keep_buckets(pool, [each])
                if rng.random() < 0.3:
                    await rollups.recompute_all(pool)
            await rollups.recompute_all(pool)

    asyncio.run(send())
    found = rows(
        cloud_db,
        'select "window", bucket_start_at, count::int, avg_value, sent from telemetry_agg',
    )
    assert {row[1]: row[2:] for row in found if row[0] == "1m"} == expected
    assert {(row[1], row[2]) for row in found if row[0] == "1h"} == _sums(
        expected, lambda at: at.replace(minute=0)
    )
    berlin = ZoneInfo("Europe/Berlin")
    assert {(row[1], row[2]) for row in found if row[0] == "1d"} == _sums(
        expected,
        lambda at: at.astimezone(berlin).replace(hour=0, minute=0, fold=0).astimezone(UTC),
    )


def _sums(
    minutes: dict[datetime, Sums], whole: Callable[[datetime], datetime]
) -> set[tuple[datetime, int]]:
    counts: dict[datetime, int] = {}
    for at, (count, _, _) in minutes.items():
        counts[whole(at)] = counts.get(whole(at), 0) + count
    return set(counts.items())


async def test_hours_that_an_edge_sends_are_summed_into_days_of_the_farm(
    pool: db.Pool, cloud_db: Database
) -> None:
    register(cloud_db, "Asia/Bangkok")
    midnight = datetime(2026, 5, 1, 17, tzinfo=UTC)
    await keep_buckets(
        pool,
        [
            bucket_event(midnight - HOUR, 10.0, 4, window="1h"),
            bucket_event(midnight, 20.0, 6, window="1h"),
            bucket_event(midnight + HOUR, 30.0, 2, window="1h"),
        ],
    )
    await rollups.recompute_all(pool)
    days = rows(
        cloud_db,
        "select bucket_start_at, count::int, avg_value, sum_value from telemetry_agg "
        "where \"window\" = '1d' order by 1",
    )
    assert days == [
        (midnight - 24 * HOUR, 4, 10.0, Decimal(40)),
        (midnight, 8, 22.5, Decimal(180)),
    ]


async def test_days_are_recomputed_when_a_farm_is_registered_moved_and_removed(
    pool: db.Pool, cloud_db: Database
) -> None:
    at = datetime(2026, 5, 1, 20, tzinfo=UTC)
    await keep(pool, [Reading(at, 1.0)])
    days = "select bucket_start_at from telemetry_agg where \"window\" = '1d'"
    for zone, begins in (("", 0), ("Asia/Bangkok", 17), ("Asia/Kolkata", 18.5), (None, 0)):
        if zone:
            register(cloud_db, zone)
        elif zone is None:
            execute_plain(cloud_db, "delete from farms")
        await rollups.recompute_all(pool)
        assert rows(cloud_db, days) == [(at.replace(hour=0) + begins * HOUR,)], zone


def execute_plain(database: Database, statement: str) -> None:
    """With triggers, unlike `execute`."""
    with databases.connected(database.admin_url) as connection:
        connection.execute(statement.encode())


async def test_a_day_that_an_edge_sent_stays_when_the_farms_zone_changes(
    pool: db.Pool, cloud_db: Database
) -> None:
    begin = datetime(2026, 5, 1, 17, tzinfo=UTC)
    await keep_buckets(pool, [bucket_event(begin, 1.0, 5, window="1d")])
    register(cloud_db, "Asia/Kolkata")
    await rollups.recompute_all(pool)
    found = 'select "window", bucket_start_at, count::int, sent from telemetry_agg'
    assert rows(cloud_db, found) == [("1d", begin, 5, True)]


async def test_readings_of_a_suspect_clock_are_in_no_bucket(
    pool: db.Pool, cloud_db: Database
) -> None:
    at = datetime(2026, 5, 1, 17, tzinfo=UTC)
    await keep(pool, [Reading(at, 1.0)], clock_suspect=True)
    await keep(pool, [Reading(at, 3.0)])
    await rollups.recompute_all(pool)
    assert rows(cloud_db, "select distinct count::int, avg_value from telemetry_agg") == [(1, 3.0)]


async def test_the_clouds_own_event_is_not_stored_again(pool: db.Pool, cloud_db: Database) -> None:
    at = datetime(2026, 5, 1, 17, tzinfo=UTC)
    await keep(pool, [Reading(at, 1.0)])
    await rollups.recompute_all(pool)
    async with db.transaction(pool) as tx:
        pending = await rollups.pending_aggregates(tx, settle_s=0)
    before = rows(cloud_db, "select * from telemetry_agg order by 1")
    bodies = [bus.write(rollups.event(each)) for each in pending]
    assert len(bodies) == 2
    assert await sink.store_events(pool, bodies, service.AGGREGATES) == {}
    assert rows(cloud_db, "select * from telemetry_agg order by 1") == before
    assert rows(cloud_db, "select aggregation_window from telemetry_latest") == [(None,)]


async def test_a_newer_bucket_of_an_edge_is_the_newest_of_its_series_and_an_older_is_not(
    pool: db.Pool, cloud_db: Database
) -> None:
    at = datetime(2026, 5, 1, 17, tzinfo=UTC)
    latest = "select metric_value, occurred_at, aggregation_window from telemetry_latest"
    await keep(pool, [Reading(at, 1.0)])
    await keep_buckets(pool, [bucket_event(at - HOUR, 7.0, 1)])
    assert rows(cloud_db, latest) == [(1.0, at, None)]
    for mean, count in ((8.0, 3), (9.0, 4), (7.5, 2)):  # the last version came late
        await keep_buckets(pool, [bucket_event(at, mean, count)])
    assert rows(cloud_db, latest) == [(9.0, at + timedelta(minutes=1), "1m")]
    await keep(pool, [Reading(at + HOUR, 2.0)])
    assert rows(cloud_db, latest) == [(2.0, at + HOUR, None)]


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (bucket_event(datetime(2026, 5, 1, 17, 0, 1, tzinfo=UTC), 1.0, 1), "full one of UTC"),
        (
            bucket_event(datetime(2026, 5, 1, tzinfo=UTC), 1.0, 1, length=timedelta(seconds=61)),
            "as long",
        ),
        (
            bucket_event(datetime(2026, 5, 1, tzinfo=UTC), 1.0, 1, window="1d", length=27 * HOUR),
            "26 hours",
        ),
        (bucket_event(datetime(2026, 5, 1, tzinfo=UTC), 1.0, 0), "without readings"),
    ],
)
async def test_a_bucket_that_is_none_is_rejected_with_the_reason(
    pool: db.Pool, bad: BusEvent, why: str
) -> None:
    rejected = await sink.store_events(pool, [bus.write(bad)], service.AGGREGATES)
    assert why in rejected[0].reason
