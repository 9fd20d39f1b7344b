"""Aggregates equal a full recompute, whatever came when, in which order and how often."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.ingress import handlers as ingress
from farmiq.edge.telemetry import api, handlers, jobs, rollups
from farmiq.edge.telemetry.rollups import recompute_batch
from farmiq.edge.telemetry.store import ROLLUPS
from farmiq.plumbing import db
from tests.conftest import Database
from tests.integration.edge.telemetry.readings import (
    Reading,
    execute,
    keep,
    keep_at,
    recomputed,
    rows,
    stored,
)
from tests.support import databases
from tests.support.properties import drawn
from tests.support.until import until

ZONES = ["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/Santiago", "Australia/Lord_Howe"]
EVERYTHING = (
    "truncate telemetry_raw, telemetry_agg, telemetry_dirty, telemetry_latest, ingress_dedupe, "
    "sync_outbox, farms, telemetry_rezoned, metric_settings"
)


async def recompute_all(pool: db.Pool, *, timezone: str = "UTC", max_hours: int = 2000) -> None:
    while not (await recompute_batch(pool, timezone=timezone, max_hours=max_hours)).is_nothing:
        pass


def late(rng: Random, *, now: datetime, count: int) -> list[Reading]:
    """Readings of up to 60 days ago, many in the same hours and minutes."""
    hours = [now - timedelta(days=rng.uniform(0.1, 60)) for _ in range(6)]
    return [
        Reading(
            at=rng.choice(hours) + timedelta(seconds=rng.choice([0, 59.999999, 60, 3601, 7250])),
            value=rng.choice([rng.uniform(-40, 60), rng.uniform(-1e12, 1e12), 0.1, 1e-7]),
            device=rng.choice(["d-1", "d-2"]),
            metric=rng.choice(["temperature", "humidity"]),
        )
        for _ in range(count)
    ]


@pytest.mark.req("DB-04")
@given(seed=st.integers(0, 2**32), zone=st.sampled_from(ZONES))
@drawn(25)
def test_buckets_of_late_readings_in_any_order_equal_a_full_recompute(
    edge_db: Database, seed: int, zone: str
) -> None:
    """Any order, any duplication, any batch split, workers in between: the same buckets."""
    execute(edge_db, EVERYTHING)
    rng = Random(seed)
    readings = late(rng, now=datetime.now(UTC), count=rng.randrange(1, 150))
    sent = readings + rng.choices(readings, k=rng.randrange(40))
    rng.shuffle(sent)

    async def send() -> None:
        async with db.pool(edge_db.url, name="test") as pool:
            while sent:
                batch = [sent.pop() for _ in range(min(len(sent), rng.randrange(1, 60)))]
                await keep(pool, batch)
                if rng.random() < 0.4:
                    await recompute_batch(pool, timezone=zone, max_hours=rng.choice([1, 5, 2000]))
            await recompute_all(pool, timezone=zone)

    asyncio.run(send())
    assert stored(edge_db, zone=zone) == recomputed(readings, zone=zone)
    assert rows(edge_db, "select count(*) from telemetry_dirty") == [(0,)]


@given(seed=st.integers(0, 2**32))
@drawn(15)
def test_minute_recomputed_while_it_fills_equals_a_full_recompute(
    edge_db: Database, seed: int
) -> None:
    """Readings in order, some late, some at the same time: added to, or made from all of them."""
    execute(edge_db, EVERYTHING)
    rng = Random(seed)
    starts_at = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    at = [starts_at + timedelta(seconds=rng.choice([1, 59, 3599]))]
    while len(at) < 80:
        at.append(at[-1] + timedelta(seconds=rng.choice([0, 0.000001, 0.5, 3, 40])))
    readings = [Reading(each, rng.uniform(-40, 60), unit=rng.choice("CF")) for each in at]
    sent = sorted(readings, key=lambda each: each.at + timedelta(seconds=rng.choice([0] * 9 + [9])))

    async def send() -> None:
        async with db.pool(edge_db.url, name="test") as pool:
            while sent:
                await keep(pool, [sent.pop(0) for _ in range(min(len(sent), rng.randrange(1, 9)))])
                if rng.random() < 0.7:
                    await recompute_batch(pool, timezone="UTC", max_hours=rng.choice([1, 2000]))
            await recompute_all(pool)

    asyncio.run(send())
    assert stored(edge_db, zone="UTC") == recomputed(readings, zone="UTC")
    units = rows(
        edge_db, "select unit from telemetry_agg where \"window\" = '1m' order by bucket_start_at"
    )
    by_minute: dict[datetime, Reading] = {}
    for each in sorted(readings, key=lambda each: (each.at, each.id)):
        by_minute[each.at.replace(second=0, microsecond=0)] = each
    assert units == [(each.unit,) for _, each in sorted(by_minute.items())]


async def test_minute_adds_later_readings_and_is_recomputed_for_a_late_one(
    pool: db.Pool, edge_db: Database
) -> None:
    """A reading is taken away behind our back: only who reads all of the minute notices."""
    count = "select distinct count::int from telemetry_agg"
    at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=1)
    first = Reading(at + timedelta(seconds=10), 1.0)
    await keep(pool, [first, Reading(at + timedelta(seconds=20), 2.0)])
    await recompute_all(pool)
    execute(edge_db, "delete from telemetry_raw where id = %s", first.id)
    await keep(pool, [Reading(at + timedelta(seconds=30), 3.0)])
    await recompute_all(pool)
    assert rows(edge_db, count) == [(3,)]
    await keep(pool, [Reading(at + timedelta(seconds=15), 4.0)])
    await recompute_all(pool)
    assert rows(edge_db, count) == [(3,)]
    await keep(pool, [Reading(at + timedelta(seconds=30), 5.0)])  # as late as what is counted
    await recompute_all(pool)
    assert rows(edge_db, count) == [(4,)]


@pytest.mark.parametrize("forgotten", ["update telemetry_agg set last_at = null",
    "update telemetry_dirty set first_times = null, last_times = null"])  # fmt: skip
async def test_minute_marked_by_an_earlier_version_is_recomputed_from_all_readings(
    pool: db.Pool, edge_db: Database, forgotten: str
) -> None:
    at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=1)
    readings = [Reading(at + timedelta(seconds=20 * n), float(n)) for n in range(5)]
    await keep(pool, readings[:2])
    await recompute_all(pool)
    await keep(pool, readings[2:])
    execute(edge_db, forgotten)
    await recompute_all(pool)
    assert stored(edge_db, zone="UTC") == recomputed(readings, zone="UTC")


async def test_batch_leaves_marks_that_came_after_the_round_began(pool: db.Pool) -> None:
    now = datetime.now(UTC)
    await keep(pool, [Reading(now, 1.0)])
    async with pool.connection() as connection:
        up_to = await ROLLUPS.newest_mark(connection)
    await keep(pool, [Reading(now, 2.0)])
    assert (await recompute_batch(pool, timezone="UTC", up_to=up_to)).marks == 1
    assert (await recompute_batch(pool, timezone="UTC", up_to=up_to)).is_nothing
    assert (await recompute_batch(pool, timezone="UTC")).marks == 1


async def test_buckets_with_concurrent_writers_and_workers_equal_a_full_recompute(
    pool: db.Pool, edge_db: Database
) -> None:
    """Devices stay with one writer; workers may be as many as they like."""
    rng = Random(7)
    now = datetime.now(UTC)
    everything: list[Reading] = []

    async def write(device: str) -> None:
        for _ in range(15):
            batch = [
                Reading(now - timedelta(seconds=rng.uniform(0, 300)), rng.gauss(20, 5), device)
                for _ in range(20)
            ]
            everything.extend(batch)
            await keep(pool, batch)

    async def work(writing: "asyncio.Future[Any]") -> None:
        while not writing.done():
            await recompute_batch(pool, timezone="UTC")

    writing = asyncio.gather(write("d-1"), write("d-2"))
    await asyncio.gather(writing, work(writing), work(writing), work(writing))
    await recompute_all(pool)
    assert stored(edge_db, zone="UTC") == recomputed(everything, zone="UTC")


async def test_mark_added_while_its_bucket_is_recomputed_is_not_lost(
    pool: db.Pool, edge_db: Database
) -> None:
    at = datetime.now(UTC) - timedelta(hours=3)
    first, second = Reading(at, 1.0), Reading(at, 2.0)
    await keep(pool, [first])
    async with db.transaction(pool) as tx:
        assert await ROLLUPS.try_lock(tx)
        marks = await ROLLUPS.oldest_marks(tx)
        ranges = await ROLLUPS.marked_ranges(tx, marks)
        await ROLLUPS.recompute_minutes(tx, ranges)
        await keep(pool, [second])  # the bucket has been read; the mark has not been deleted
        await ROLLUPS.recompute_hours(tx, ranges)
        await ROLLUPS.delete_marks(tx, marks)
    assert rows(edge_db, "select count(*) from telemetry_dirty") == [(1,)]
    await recompute_all(pool)
    assert stored(edge_db, zone="UTC") == recomputed([first, second], zone="UTC")


async def test_batch_does_nothing_while_somebody_else_recomputes(pool: db.Pool) -> None:
    await keep(pool, [Reading(datetime.now(UTC), 1.0)])
    async with db.transaction(pool) as tx:
        assert await ROLLUPS.try_lock(tx)
        assert (await recompute_batch(pool, timezone="UTC")).is_nothing
    assert (await recompute_batch(pool, timezone="UTC")).marks == 1


async def test_batch_is_bounded_by_hours(pool: db.Pool) -> None:
    now = datetime.now(UTC)
    for day in range(30):
        await keep(pool, [Reading(now - timedelta(days=day, hours=hour), 1.0) for hour in range(4)])
    done = await recompute_batch(pool, timezone="UTC", max_hours=10)
    assert (done.marks, done.hours) == (1, 4)
    done = await recompute_batch(pool, timezone="UTC", max_hours=40)
    assert (done.marks, done.hours) == (7, 28)


@pytest.mark.parametrize(
    ("day", "zone", "hours"),
    [
        ("2026-10-25", "Europe/Berlin", 25),
        ("2026-03-29", "Europe/Berlin", 23),
        ("2026-07-01", "Asia/Kathmandu", 24),
        ("2026-04-05", "Australia/Lord_Howe", 24.5),
        ("2026-11-01", "America/Havana", 25),
        ("2026-03-08", "America/Havana", 23),
    ],
)
async def test_days_follow_the_farms_clock_when_it_changes(
    pool: db.Pool, edge_db: Database, day: str, zone: str, hours: float
) -> None:
    noon = datetime.fromisoformat(f"{day}T12:00:00Z")
    readings = [Reading(noon + timedelta(minutes=15 * n), float(n)) for n in range(-160, 161)]
    execute(edge_db, "insert into farms values ('t-1', 'f-1', %s)", zone)
    await keep_at(pool, readings, now=noon)
    await recompute_all(pool)
    assert stored(edge_db, zone=zone) == recomputed(readings, zone=zone)
    ((count, length),) = rows(
        edge_db,
        "select count, extract(epoch from bucket_end_at - bucket_start_at)::float8 "
        "from telemetry_agg where \"window\" = '1d' and bucket_start_at <= %s "
        "and bucket_end_at > %s",
        noon,
        noon,
    )
    assert (count, length) == (hours * 4, hours * 3600)


async def test_days_are_recomputed_when_a_farm_changes_its_zone(
    pool: db.Pool, edge_db: Database
) -> None:
    now = datetime.now(UTC)
    readings = [Reading(now - timedelta(minutes=37 * n), n / 7) for n in range(200)]
    await keep(pool, readings)
    await rollups.initialize(pool, timezone="UTC", retention_days=90)
    await recompute_all(pool)
    for zone in ("Asia/Kolkata", "Asia/Bangkok"):
        execute(edge_db, "delete from farms")
        execute(edge_db, "insert into farms values ('t-1', 'f-1', %s)", zone)
        execute(
            edge_db,
            "insert into telemetry_rezoned select tenant_id, device_id, metric_type "
            "from telemetry_latest on conflict do nothing",
        )
        while await rollups.recompute_next_rezoned(pool, timezone="UTC"):
            pass
        assert stored(edge_db, zone=zone) == recomputed(readings, zone=zone)


async def test_days_are_recomputed_when_the_default_zone_changes(
    pool: db.Pool, edge_db: Database
) -> None:
    readings = [
        Reading(datetime.now(UTC) - timedelta(minutes=53 * n), float(n)) for n in range(100)
    ]
    await keep(pool, readings)
    for zone in ("UTC", "America/New_York"):
        await rollups.initialize(pool, timezone=zone, retention_days=90)
        while await rollups.recompute_next_rezoned(pool, timezone=zone):
            pass
        await recompute_all(pool, timezone=zone)
        assert stored(edge_db, zone=zone) == recomputed(readings, zone=zone)


async def test_days_are_not_recomputed_while_the_default_zone_stays(
    pool: db.Pool,
) -> None:
    now = datetime.now(UTC)
    await keep(pool, [Reading(now, 5.0)])
    counts = []
    for zone in ("UTC", "UTC", "Asia/Bangkok", "Asia/Bangkok"):
        await rollups.initialize(pool, timezone=zone, retention_days=90)
        counts.append(0)
        while await rollups.recompute_next_rezoned(pool, timezone=zone):
            counts[-1] += 1
    assert counts == [1, 0, 1, 0]


async def test_device_that_moves_to_another_zone_is_counted_in_one_day(
    pool: db.Pool, edge_db: Database
) -> None:
    """Hours are counted where the device ended them, and every hour in one day."""
    execute(edge_db, "insert into farms values ('t-1', 'east', 'Asia/Tokyo')")
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
    stayed = [Reading(now - timedelta(minutes=20 * n), 1.0, farm="west") for n in range(1, 200)]
    here = Reading(now + timedelta(minutes=1), 2.0, farm="west")
    moved = Reading(now + timedelta(minutes=50), 3.0, farm="east")
    await keep(pool, stayed)
    await keep(pool, [here])
    await recompute_all(pool)
    before = rows(edge_db, "select sum(count)::int from telemetry_agg where \"window\" = '1d'")
    await keep(pool, [moved])
    await recompute_all(pool)
    after = rows(edge_db, "select sum(count)::int from telemetry_agg where \"window\" = '1d'")
    assert (before, after) == ([(200,)], [(201,)])


async def test_buckets_accept_values_of_any_size(pool: db.Pool, edge_db: Database) -> None:
    at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(hours=1)
    for values in ([1.7e308, 1.7e308], [5e-324, 5e-324], [1e308, -1e308, 1e-300], [0.0, -0.0]):
        execute(edge_db, EVERYTHING)
        await keep(pool, [Reading(at, value) for value in values])
        await recompute_all(pool)
        found = rows(edge_db, "select count, min_value, max_value from telemetry_agg")
        assert found == [(len(values), min(values), max(values))] * 3
    execute(edge_db, EVERYTHING)
    tenths = [Reading(at + timedelta(seconds=n), 0.1) for n in range(10)]
    await keep(pool, tenths)
    await recompute_all(pool)
    assert rows(edge_db, "select distinct sum_value, avg_value from telemetry_agg") == [
        (Decimal("1.0"), 0.1)
    ]


class TestSuspectClocks:
    """1970 and 2100: kept, flagged, beside the months, in no bucket."""

    @pytest.mark.req("DB-02")
    async def test_suspect_readings_are_stored_and_in_no_bucket(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await rollups.initialize(pool, timezone="UTC", retention_days=90)
        now = datetime.now(UTC)
        good = Reading(now - timedelta(minutes=5), 1.0)
        odd = [Reading(datetime(year, 1, 1, tzinfo=UTC), 9.0) for year in (1970, 2026, 2100)]
        await keep(pool, [good, *odd])
        await recompute_all(pool)
        assert rows(edge_db, "select count(*), sum(clock_suspect::int) from telemetry_raw") == [
            (4, 3)
        ]
        assert stored(edge_db, zone="UTC") == recomputed([good], zone="UTC")

    async def test_reading_from_a_clock_ahead_stays_out_of_buckets_when_its_time_comes(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        ahead = datetime.now(UTC) + timedelta(days=3)
        await keep(pool, [Reading(ahead, 9.0)])
        await recompute_all(pool)
        real = Reading(ahead, 1.0)
        arrived = ahead + timedelta(seconds=1)
        with databases.connected(edge_db.admin_url) as connection:
            connection.execute(
                "insert into telemetry_raw values (%s, 't-1', 'f-1', 'b-1', 'd-1', %s, "
                "'temperature', 1.0, 'C', %s, false)",
                (real.id, ahead, arrived),
            )
            minute = int(ahead.timestamp() // 60)
            connection.execute(
                "insert into telemetry_dirty (first_at, tenants, devices, metrics, first_minutes, "
                "last_minutes, owed_metrics) values (%s, '{t-1}', '{d-1}', '{temperature}', "
                "%s, %s, '{}')",
                (ahead, [minute], [minute]),
            )
        await recompute_all(pool)
        assert stored(edge_db, zone="UTC") == recomputed([real], zone="UTC")


class TestSyncAsAggregates:
    """`farmiq metric set … --sync agg`: buckets are owed to the cloud, not readings."""

    async def test_bucket_is_sent_when_it_ends_and_again_when_it_changes(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        execute(edge_db, "insert into metric_settings values ('temperature', 'agg', '1m')")
        at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=10)
        await keep(pool, [Reading(at, 20.0), Reading(at, 21.0), Reading(at, 50.0, metric="co2")])
        await recompute_all(pool)
        owed = "select event_type, payload_json, occurred_at, id from sync_outbox order by id"
        raw, first = sorted(rows(edge_db, owed), key=lambda row: row[0] != "telemetry.ingested")
        assert raw[1]["metric_type"] == "co2"
        assert first[:3] == (
            "telemetry.aggregated",
            {
                "metric_type": "temperature",
                "aggregation_window": "1m",
                "avg_value": 20.5,
                "min_value": 20.0,
                "max_value": 21.0,
                "unit": "C",
                "count": 2,
                "bucket_start_at": at.isoformat().replace("+00:00", "Z"),
                "bucket_end_at": (at + timedelta(minutes=1)).isoformat().replace("+00:00", "Z"),
            },
            at,
        )
        await recompute_all(pool)
        assert len(rows(edge_db, owed)) == 2
        await keep(pool, [Reading(at, 25.0)])
        await recompute_all(pool)
        again = [row for row in rows(edge_db, owed) if row not in (raw, first)]
        assert [(row[1]["count"], row[1]["avg_value"]) for row in again] == [(3, 22.0)]
        assert again[0][3].version == 7

    async def test_first_bucket_is_sent_open_and_ended_the_next_only_ended(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        execute(edge_db, "insert into metric_settings values ('temperature', 'agg', '1h')")
        told = (
            "select payload_json->>'aggregation_window', payload_json->'count', occurred_at "
            "from sync_outbox order by occurred_at, payload_json->'count'"
        )
        now = datetime.now(UTC)
        hour = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        at = hour + timedelta(minutes=30)
        execute(edge_db, "insert into test_clock (ahead) values (%s)", at - now)
        await keep(pool, [Reading(at, 20.0)])
        await recompute_all(pool)
        first = [("1h", 1, hour)]
        assert rows(edge_db, told) == first
        await keep(pool, [Reading(at, 21.0)])
        await recompute_all(pool)
        assert rows(edge_db, told) == first
        after = hour + timedelta(hours=1)
        execute(edge_db, "update test_clock set ahead = ahead + '31 minutes'")
        await keep(pool, [Reading(after, 22.0)])
        await recompute_all(pool)
        assert rows(edge_db, told) == [*first, ("1h", 2, hour)]
        execute(edge_db, "update test_clock set ahead = ahead + '1 hour'")
        await recompute_all(pool)
        assert rows(edge_db, told) == [*first, ("1h", 2, hour), ("1h", 1, after)]

    @pytest.mark.parametrize("order", list(itertools.product(("raw", "agg"), repeat=3)))
    async def test_every_reading_is_sent_or_in_a_sent_bucket_whenever_sync_is_switched(
        self, pool: db.Pool, edge_db: Database, order: tuple[str, ...]
    ) -> None:
        """The switch comes between readings of one minute; no pass has run in between."""
        at = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=10)
        for number, sync in enumerate(order):
            execute(
                edge_db,
                "insert into metric_settings values ('temperature', %s, '1m') "
                "on conflict (metric_type) do update set sync = excluded.sync",
                sync,
            )
            await keep(pool, [Reading(at + timedelta(seconds=number), float(number))])
        for _ in range(4):
            await recompute_batch(pool, timezone="UTC", max_hours=1)
        told = rows(edge_db, "select event_type, (payload_json->>'count')::int from sync_outbox")
        assert sum(kind == "telemetry.ingested" for kind, _ in told) == order.count("raw")
        buckets = [count for kind, count in told if kind == "telemetry.aggregated"]
        assert max(buckets, default=0) == (3 if "agg" in order else 0)

    @pytest.mark.req("DB-04")
    async def test_readings_in_no_bucket_are_sent_one_by_one(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        """A clock in 1970, in 2100, a day and a bit ahead, and readings later than raw is kept."""
        execute(edge_db, "insert into metric_settings values ('temperature', 'agg', '1m')")
        await rollups.initialize(pool, timezone="UTC", retention_days=90)
        now = datetime.now(UTC)
        away = [timedelta(days=1, hours=1), -timedelta(days=92), -timedelta(days=3650)]
        odd = [Reading(now + each, 1.0) for each in away]
        odd += [Reading(datetime(year, 1, 1, tzinfo=UTC), 1.0) for year in (1970, 2100)]
        late = [Reading(now - timedelta(days=days), 1.0) for days in (89, 2)]
        await keep(pool, [Reading(now - timedelta(hours=11, minutes=59, seconds=59), 1.0)])
        await keep(pool, [*odd, *late])
        await recompute_all(pool)
        told = rows(edge_db, "select id from sync_outbox where event_type = 'telemetry.ingested'")
        assert sorted(told) == sorted((each.id,) for each in odd)
        assert rows(
            edge_db, "select count(*) from sync_outbox where event_type = 'telemetry.aggregated'"
        ) == [(3,)]

    async def test_retention_waits_for_a_reading_that_counts_on_its_bucket(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        """Retention waits for who counts on a bucket, and sees the mark then."""
        execute(edge_db, "insert into metric_settings values ('temperature', 'agg', '1m')")
        await rollups.initialize(pool, timezone="UTC", retention_days=90)
        late = Reading(datetime.now(UTC) - timedelta(days=40), 1.0)
        async with db.transaction(pool) as tx:
            arrivals, _ = ingress.parse([late.message])
            assert await handlers.record(tx, arrivals) == []
            closing = asyncio.create_task(
                jobs.purge_expired(pool, raw_days=20, agg_days=365, timezone="UTC")
            )
            await until(lambda: asyncio.to_thread(_waits_for_a_lock, edge_db))
        await closing
        assert stored(edge_db, zone="UTC") == recomputed([late], zone="UTC")
        await recompute_all(pool)
        assert rows(edge_db, "select event_type from sync_outbox") == [("telemetry.aggregated",)]

    @pytest.mark.parametrize("window", ["1d", "1h"])
    async def test_pending_days_stay_pending_in_the_new_zone(
        self, pool: db.Pool, edge_db: Database, window: str
    ) -> None:
        """Also if the metric is sent by the hour by now: its readings were counted on for days."""
        execute(edge_db, "insert into metric_settings values ('temperature', 'agg', '1d')")
        now = datetime.now(UTC)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        before = Reading(midnight - timedelta(hours=30), 5.0)
        await rollups.initialize(pool, timezone="UTC", retention_days=90)
        await keep(pool, [before])
        await recompute_all(pool)
        assert rows(edge_db, TOLD_DAYS) == [(midnight - timedelta(days=2), 1)]
        await keep(pool, [Reading(midnight, 1.0), Reading(now, 2.0)])
        await recompute_batch(pool, timezone="UTC", settle_s=1e9)
        execute(edge_db, "update metric_settings set agg_window = %s", window)
        execute(edge_db, "insert into farms values ('t-1', 'f-1', 'Asia/Kathmandu')")
        execute(edge_db, "insert into telemetry_rezoned values ('t-1', 'd-1', 'temperature')")
        assert await rollups.recompute_next_rezoned(pool, timezone="UTC")
        execute(edge_db, "insert into test_clock (ahead) values ('3 days')")
        await recompute_all(pool)
        old = (midnight - timedelta(days=2), midnight)  # the latter while it was open
        told = [row for row in rows(edge_db, TOLD_DAYS) if row[0] not in old]
        assert sum(count for _, count in told) == 2
        assert {(at.hour, at.minute) for at, _ in told} == {(18, 15)}

    async def test_day_that_a_device_leaves_for_another_zone_is_pending_there(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        execute(edge_db, "insert into metric_settings values ('temperature', 'agg', '1d')")
        execute(edge_db, "insert into farms values ('t-1', 'east', 'Asia/Tokyo')")
        hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=5)
        await keep(pool, [Reading(hour, 1.0, farm="west")])
        await recompute_batch(pool, timezone="UTC", settle_s=1e9)
        execute(edge_db, "update metric_settings set sync = 'raw'")
        await keep(pool, [Reading(hour + timedelta(minutes=50), 2.0, farm="east")])
        await recompute_batch(pool, timezone="UTC", settle_s=1e9)
        execute(edge_db, "insert into test_clock (ahead) values ('3 days')")
        await recompute_all(pool)
        while_open, over = sorted(count for _, count in rows(edge_db, TOLD_DAYS))
        assert (while_open, over) == (1, 2)


TOLD_DAYS = """
select occurred_at, (payload_json->>'count')::int from sync_outbox
where event_type = 'telemetry.aggregated' order by id
"""


def _waits_for_a_lock(database: Database) -> bool:
    waiting = rows(
        database,
        "select count(*) from pg_locks l join pg_database d on d.oid = l.database "
        "where d.datname = current_database() and l.locktype = 'advisory' and not l.granted",
    )
    return waiting == [(1,)]


@pytest.mark.req("DB-16")
async def test_rows_made_at_the_edge_have_ids_of_version_7(
    pool: db.Pool, edge_db: Database
) -> None:
    """Readings and most of the outbox have the ids of their devices."""
    execute(edge_db, "insert into metric_settings values ('temperature', 'agg', '1m')")
    await keep(pool, [Reading(datetime.now(UTC) - timedelta(minutes=5), 20.0)])
    await ingress.commit(pool, [("iot/telemetry/t-1/f-1/b-1/d-1/temperature", b"{")])
    await recompute_all(pool)
    for column in ("telemetry_agg.id", "sync_outbox.id", "quarantine.quarantine_id"):
        table, _, name = column.partition(".")
        made = rows(edge_db, f"select {name} from {table}")  # noqa: S608
        assert {row[0].version for row in made} == {7}, column


class TestManyNames:
    """A device may have a stated number of series; whatever names it invents, no more."""

    async def test_readings_over_the_series_limit_are_stored_and_sent_and_raise_an_alert(
        self, pool: db.Pool, edge_db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(handlers, "MAX_SERIES", 3)
        execute(edge_db, "insert into metric_settings values ('m-4', 'agg', '1m')")
        at = datetime.now(UTC) - timedelta(minutes=5)
        good = [Reading(at, 1.0, metric=f"m-{n}") for n in range(3)]
        beyond = [Reading(at, 2.0, metric=f"m-{n}") for n in range(3, 6)]
        healthy = Reading(at, 3.0, "d-2")
        await keep(pool, good[:2])
        for batch in ([*good, *beyond, healthy], [Reading(at, 4.0, metric="m-9")]):
            await keep(pool, batch)
        await recompute_all(pool)
        assert stored(edge_db, zone="UTC") == recomputed([*good, healthy], zone="UTC")
        names = rows(edge_db, "select device_id, metric_type from telemetry_latest order by 1, 2")
        assert names == [*[("d-1", f"m-{n}") for n in range(3)], ("d-2", "temperature")]
        assert rows(edge_db, "select count(*) from telemetry_raw") == [(8,)]
        assert rows(edge_db, "select event_type, count(*) from sync_outbox group by 1") == [
            ("telemetry.ingested", 8)
        ]
        assert rows(edge_db, "select kind, subject, seen_count from alerts") == [
            ("telemetry.too_many_metrics", "t-1/d-1", 4)
        ]
        place = {"tenant": "t-1", "device": "d-1", "metric": "m-4"}
        hours = {"from": at - timedelta(hours=1), "to": at + timedelta(hours=1)}
        asked = api.RangeFilter.model_validate({**place, **hours})
        found = await api.Walk(pool, asked, "raw").page(10)
        assert [each.id for each in found] == [beyond[1].id]

    async def test_partition_created_late_gives_them_no_buckets(
        self, pool: db.Pool, edge_db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(handlers, "MAX_SERIES", 1)
        at = datetime.now(UTC) - timedelta(minutes=5)
        good = Reading(at, 1.0, metric="a")
        await keep(pool, [good, Reading(at, 1.0, metric="b"), Reading(at, 1.0, metric="c")])
        assert rows(edge_db, "select fn_move_telemetry_month(%s, 2)", at.date()) == [(2,)]
        await jobs.create_partitions(pool, retention_days=90)
        await recompute_all(pool)
        assert stored(edge_db, zone="UTC") == recomputed([good], zone="UTC")
