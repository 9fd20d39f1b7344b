"""Months made ahead and dropped behind, exact to the day, and what must not be dropped."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from farmiq.config import EdgeSettings
from farmiq.edge.telemetry import jobs, rollups, service
from farmiq.farm import months
from farmiq.plumbing import db, http, ids
from tests.conftest import Database
from tests.integration.edge.telemetry.readings import (
    WAITING,
    Reading,
    execute,
    keep,
    keep_at,
    move_clock,
    recomputed,
    rows,
    stored,
)
from tests.integration.edge.telemetry.test_rollups import recompute_all
from tests.support import databases
from tests.support.until import until

ACKED = "update sync_outbox set status = 'acked'"
COUNT = "select count(*) from telemetry_raw"
OPEN = "select subject from alerts where kind = 'telemetry.retention_refused' and closed_at is null"


async def purge(pool: db.Pool, **days: int) -> dict[str, object]:
    return await jobs.purge_expired(
        pool, timezone="UTC", **{"raw_days": 90, "agg_days": 365, **days}
    )


def partitions(database: Database) -> list[str]:
    found = rows(
        database,
        "select inhrelid::regclass::text from pg_inherits i join pg_class c on c.oid = inhrelid "
        "where inhparent = 'telemetry_raw'::regclass and c.relkind = 'r' order by 1",
    )
    return [name for (name,) in found]


async def test_wrong_clock_raises_one_alert_of_its_barn_until_none_comes(
    pool: db.Pool, edge_db: Database
) -> None:
    open_alerts = (
        "select subject, seen_count from alerts where kind = 'telemetry.wrong_clock' "
        "and closed_at is null"
    )
    now = datetime.now(UTC)
    await keep(pool, [Reading(now - timedelta(days=6), 20.0)])
    assert rows(edge_db, open_alerts) == []
    long_ago = now - timedelta(days=400)
    devices = ["d-1", "d-2"]
    await keep(pool, [Reading(long_ago, 45.0, device=device) for device in devices])
    await jobs.close_clock_alerts(pool)
    assert rows(edge_db, open_alerts) == [("t-1/f-1/b-1", 2)]
    move_clock(edge_db, "16 minutes")
    assert await jobs.close_clock_alerts(pool) == {"closed": 1}
    assert rows(edge_db, open_alerts) == []


class TestMonths:
    @pytest.mark.req("RT-06")
    async def test_partitions_cover_the_retention_and_two_months_ahead(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        made = await jobs.create_partitions(pool, retention_days=90)
        today = datetime.now(UTC).date()
        assert made == months.partition_months(today, 90)
        assert await jobs.create_partitions(pool, retention_days=90) == []
        await keep(pool, [Reading(datetime.now(UTC) - timedelta(days=60), 1.0)])
        assert rows(edge_db, "select count(*) from telemetry_raw_default") == [(0,)]

    async def test_partitions_follow_the_clock(self, pool: db.Pool, edge_db: Database) -> None:
        await jobs.create_partitions(pool, retention_days=90)
        move_clock(edge_db, "40 days")
        made = await jobs.create_partitions(pool, retention_days=90)
        in_forty_days = datetime.now(UTC).date() + timedelta(days=40)
        assert made[-1] == months.add_months(in_forty_days, 2)

    async def test_rows_of_the_default_partition_move_in_batches_unchanged(
        self, pool: db.Pool, edge_db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jobs, "BATCH", 10)
        ahead = datetime.now(UTC) + timedelta(days=10)
        readings = [Reading(ahead + timedelta(minutes=n), float(n)) for n in range(35)]
        await keep(pool, readings)
        assert rows(edge_db, "select count(*) from telemetry_raw_default") == [(35,)]
        await jobs.create_partitions(pool, retention_days=90)
        assert rows(edge_db, "select count(*) from telemetry_raw_default") == [(0,)]
        found = rows(edge_db, "select id, metric_value, clock_suspect from telemetry_raw")
        assert sorted(found) == sorted((each.id, each.value, True) for each in readings)

    async def test_unfinished_partition_is_finished(self, pool: db.Pool, edge_db: Database) -> None:
        """Killed between two portions: the table is there, not attached; an id came again.

        Also a month that nobody would make by now.
        """
        at = datetime(2031, 3, 5, tzinfo=UTC)
        readings = [Reading(at + timedelta(minutes=n), 1.0) for n in range(9)]
        await keep(pool, readings)
        moved = rows(edge_db, "select fn_move_telemetry_month('2031-03-01', 4)")
        assert (moved, rows(edge_db, COUNT)) == ([(4,)], [(5,)])
        hidden = rows(edge_db, "select id from telemetry_raw_2031_03 limit 1")[0][0]
        execute(
            edge_db,
            "insert into telemetry_raw select * from telemetry_raw_2031_03 where id = %s",
            hidden,
        )
        assert date(2031, 3, 1) in await jobs.create_partitions(pool, retention_days=90)
        assert sorted(rows(edge_db, "select id from telemetry_raw")) == sorted(
            (each.id,) for each in readings
        )
        assert "telemetry_raw_2031_03" in partitions(edge_db)

    @pytest.mark.req("DB-04")
    async def test_buckets_recomputed_beside_an_unfinished_partition_are_right_afterwards(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        """Rows on their way cannot be seen: a bucket that is made again meanwhile is too small."""
        execute(edge_db, "insert into metric_settings values ('temperature', 'agg', '1h')")
        at = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
        readings = [Reading(at + timedelta(seconds=n), float(n)) for n in range(90)]
        await keep(pool, readings)
        await recompute_all(pool)
        assert rows(edge_db, "select fn_move_telemetry_month(%s, 50)", at.date()) == [(50,)]
        readings.append(Reading(at, 7.0))
        await keep(pool, readings[-1:])
        await recompute_all(pool)
        told = (
            "select (payload_json->>'count')::int from sync_outbox "
            "order by (payload_json->>'count')::int"
        )
        assert rows(edge_db, told) == [(41,), (90,)]
        await jobs.create_partitions(pool, retention_days=90)
        await recompute_all(pool)
        assert stored(edge_db, zone="UTC") == recomputed(readings, zone="UTC")
        assert rows(edge_db, told) == [(41,), (90,), (91,)]

    async def test_a_month_made_beside_a_recomputation_hides_no_reading(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        """Who reads sees rows where they were or where they moved to, never in neither place."""
        readings = [Reading(datetime.now(UTC), 1.0)]
        await keep(pool, readings)
        await rollups.initialize(pool, timezone="UTC", retention_days=90)
        async with asyncio.TaskGroup() as tasks, db.transaction(pool) as tx:
            await tx.execute("select fn_make_telemetry_month(%s)", (readings[0].at.date(),))
            tasks.create_task(recompute_all(pool))
            await until(lambda: rows(edge_db, WAITING))
        assert stored(edge_db, zone="UTC") == recomputed(readings, zone="UTC")

    async def test_buckets_are_not_final_while_their_partition_is_unfinished(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await rollups.initialize(pool, timezone="UTC", retention_days=90)
        at = datetime.now(UTC).replace(second=0) - timedelta(days=60)
        readings = [Reading(at + timedelta(seconds=n), float(n)) for n in range(9)]
        await keep(pool, readings)
        execute(edge_db, ACKED)
        rows(edge_db, "select fn_move_telemetry_month(%s, 4)", at.date())
        await purge(pool, raw_days=20)
        assert rows(edge_db, OPEN) == [("telemetry_raw",)]
        await jobs.create_partitions(pool, retention_days=90)
        await purge(pool, raw_days=20)
        assert (rows(edge_db, OPEN), rows(edge_db, COUNT)) == ([], [(0,)])
        assert stored(edge_db, zone="UTC") == recomputed(readings, zone="UTC")

    async def test_partition_change_gives_way_to_a_transaction_that_does_not_end(
        self, pool: db.Pool, edge_db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It neither waits for ever nor lets intake queue up behind it."""
        monkeypatch.setattr(months, "LOCK_TRIES", 2)
        monkeypatch.setattr(months, "LOCK_PAUSE_S", 0.01)
        with databases.connected(edge_db.url) as busy:
            busy.execute(
                "insert into telemetry_raw values (%s, 't', 'f', 'b', 'd', now(), 'm', 1, 'u')",
                (ids.new(),),
            )
            assert await jobs.create_partitions(pool, retention_days=90) == []
            await keep(pool, [Reading(datetime.now(UTC), 1.0)])
            busy.commit()
        assert len(await jobs.create_partitions(pool, retention_days=90)) >= 5
        assert rows(edge_db, COUNT) == [(2,)]

    async def test_intake_continues_while_partitions_come_and_go(
        self, pool: db.Pool, edge_db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No deadlock, no error, nothing missing: jobs take their locks in intake's order."""
        monkeypatch.setattr(months, "LOCK_PAUSE_S", 0.01)
        now = datetime.now(UTC)
        written: list[Reading] = []

        async def write(device: str, working: "asyncio.Future[Any]") -> None:
            while not working.done():
                batch = [Reading(now - timedelta(days=n), 1.0, device) for n in range(0, 60, 7)]
                await keep(pool, [*batch, Reading(now + timedelta(days=400), 1.0, device)])
                written.extend(batch)

        async def work() -> None:
            for ahead in ("0", "30 days", "200 days", "400 days"):
                move_clock(edge_db, ahead)
                await jobs.create_partitions(pool, retention_days=1000)
                await once_more()

        async def once_more() -> None:
            await rollups.recompute_batch(pool, timezone="UTC")

        working = asyncio.gather(work())
        await asyncio.gather(working, write("d-1", working), write("d-2", working))
        found = rows(edge_db, "select count(*) from telemetry_raw where metric_value = 1")
        assert found[0][0] == len(written) + len(written) // 9


class TestRetention:
    @pytest.mark.req("RT-01", "RT-06")
    @pytest.mark.parametrize(("ahead", "left"), [("89 days", 1), ("91 days", 0)])
    async def test_reading_is_stored_for_89_days_and_gone_after_91(
        self, pool: db.Pool, edge_db: Database, ahead: str, left: int
    ) -> None:
        await jobs.create_partitions(pool, retention_days=90)
        await keep(pool, [Reading(datetime.now(UTC), 1.0)])
        execute(edge_db, ACKED)
        move_clock(edge_db, ahead)
        await purge(pool)
        assert rows(edge_db, COUNT) == [(left,)]
        assert rows(edge_db, OPEN) == []

    @pytest.mark.req("RT-01", "RT-13")
    async def test_boundary_month_loses_exactly_its_expired_days(
        self, pool: db.Pool, edge_db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(jobs, "BATCH", 7)
        now = datetime.now(UTC)
        await jobs.create_partitions(pool, retention_days=90)
        days = [now - timedelta(days=n) for n in range(60)]
        await keep(pool, [Reading(at, 1.0, f"d-{n % 3}") for at in days for n in range(3)])
        execute(edge_db, ACKED)
        for retention_days in (45, 20, 3):
            done = await purge(pool, raw_days=retention_days)
            cut = now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(
                days=retention_days
            )
            assert rows(edge_db, COUNT) == [(3 * sum(at >= cut for at in days),)]
            assert done["refused"] == 0

    async def test_expired_months_are_dropped(self, pool: db.Pool, edge_db: Database) -> None:
        await rollups.initialize(pool, timezone="UTC", retention_days=90)
        await jobs.create_partitions(pool, retention_days=90)
        now = datetime.now(UTC)
        await keep(pool, [Reading(now - timedelta(days=n), 1.0) for n in range(0, 90, 5)])
        execute(edge_db, ACKED)
        done = await purge(pool, raw_days=1)
        assert done["months"] == len(months.partition_months(now.date(), 90)) - 3 - (
            (now - timedelta(days=1)).month != now.month
        )
        assert rows(edge_db, COUNT) == [(1,)]
        assert rows(
            edge_db, "select sum(count)::int from telemetry_agg where \"window\" = '1h'"
        ) == [(18,)]

    @pytest.mark.req("RT-02")
    @pytest.mark.parametrize(("ahead", "left"), [("364 days", 3), ("367 days", 0)])
    async def test_buckets_are_stored_for_a_year(
        self, pool: db.Pool, edge_db: Database, ahead: str, left: int
    ) -> None:
        await keep(pool, [Reading(datetime.now(UTC), 1.0)])
        execute(edge_db, ACKED)
        await recompute_all(pool)
        move_clock(edge_db, ahead)
        await purge(pool)
        assert rows(edge_db, "select count(*) from telemetry_agg") == [(left,)]
        assert rows(edge_db, "select count(*) from telemetry_latest") == [(1 if left else 0,)]

    @pytest.mark.req("RT-07")
    async def test_series_stays_while_a_reading_or_bucket_of_it_does(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await jobs.create_partitions(pool, retention_days=90)
        now = datetime.now(UTC)
        unsynced, owed = Reading(now, 1.0, "unsynced"), Reading(now, 1.0, "owed")
        await keep(pool, [unsynced, owed, Reading(now, 1.0, "gone")])
        await recompute_all(pool)
        execute(edge_db, ACKED)
        execute(edge_db, "update sync_outbox set status = 'dlq' where id = %s", unsynced.id)
        execute(
            edge_db,
            "update telemetry_agg set owed = true where device_id = 'owed' and \"window\" = '1d'",
        )
        move_clock(edge_db, "367 days")
        listed = "select device_id from telemetry_latest order by 1"
        for _ in range(2):
            await purge(pool)
            assert rows(edge_db, listed) == [("owed",), ("unsynced",)]
        execute(edge_db, ACKED)
        execute(edge_db, "update telemetry_agg set owed = false")
        await purge(pool)
        assert (rows(edge_db, listed), rows(edge_db, COUNT)) == ([], [(0,)])

    async def test_suspect_readings_expire_by_their_arrival(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await jobs.create_partitions(pool, retention_days=90)
        await keep(pool, [Reading(datetime(year, 1, 1, tzinfo=UTC), 1.0) for year in (1970, 2100)])
        execute(edge_db, ACKED)
        for ahead, left in (("89 days", 2), ("91 days", 0)):
            move_clock(edge_db, ahead)
            await purge(pool)
            assert rows(edge_db, COUNT) == [(left,)]

    @pytest.mark.req("RT-07")
    @pytest.mark.parametrize("status", ["pending", "claimed", "sending", "dlq"])
    @pytest.mark.parametrize("raw_days", [1, 20])
    async def test_unacknowledged_readings_stay_and_raise_an_alert(
        self, pool: db.Pool, edge_db: Database, status: str, raw_days: int
    ) -> None:
        await jobs.create_partitions(pool, retention_days=90)
        now = datetime.now(UTC)
        unsynced = Reading(now - timedelta(days=50), 1.0)
        suspect = Reading(datetime(1970, 1, 1, tzinfo=UTC), 1.0)
        others = [Reading(now - timedelta(days=50, minutes=n), 1.0) for n in range(1, 5)]
        await keep(pool, [unsynced, suspect, *others])
        execute(edge_db, ACKED)
        execute(
            edge_db,
            "update sync_outbox set status = %s where id = any(%s)",
            status,
            [unsynced.id, suspect.id],
        )
        move_clock(edge_db, "30 days")
        for _ in range(2):
            await purge(pool, raw_days=raw_days)
            assert sorted(rows(edge_db, "select id from telemetry_raw")) == sorted(
                [(unsynced.id,), (suspect.id,)]
            )
            month = f"telemetry_raw_{unsynced.at:%Y_%m}"
            assert sorted(rows(edge_db, OPEN)) == [(month,), ("telemetry_raw_default",)]
        execute(edge_db, ACKED)
        await purge(pool, raw_days=raw_days)
        assert (rows(edge_db, COUNT), rows(edge_db, OPEN)) == ([(0,)], [])

    @pytest.mark.req("RT-07")
    async def test_partition_with_an_unsynced_reading_is_not_dropped(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await jobs.create_partitions(pool, retention_days=90)
        at = datetime.now(UTC) - timedelta(days=60)
        await keep(pool, [Reading(at, 1.0)])
        drop = "select fn_drop_telemetry_month(%s)"
        assert rows(edge_db, drop, at.date()) == [("needed",)]
        execute(edge_db, "insert into telemetry_state (raw_from) values (now())")
        assert rows(edge_db, drop, at.date()) == [("unsynced",)]
        execute(edge_db, "update sync_outbox set priority = -3")
        assert rows(edge_db, drop, at.date()) == [("unsynced",)]
        execute(edge_db, ACKED)
        assert rows(edge_db, drop, at.date()) == [("dropped",)]
        assert rows(edge_db, drop, at.date()) == [("missing",)]

    async def test_readings_of_a_dirty_bucket_stay_and_raise_an_alert(
        self, pool: db.Pool, edge_db: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await rollups.initialize(pool, timezone="UTC", retention_days=90)
        await jobs.create_partitions(pool, retention_days=90)
        await keep(pool, [Reading(datetime.now(UTC), 1.0)])
        execute(edge_db, ACKED)
        move_clock(edge_db, "91 days")
        recompute = rollups.recompute_all

        async def cannot(*_: object, **__: object) -> bool:
            return False

        monkeypatch.setattr(rollups, "recompute_all", cannot)
        await purge(pool)
        assert (rows(edge_db, COUNT), rows(edge_db, OPEN)) == ([(1,)], [("telemetry_raw",)])
        monkeypatch.setattr(rollups, "recompute_all", recompute)
        await purge(pool)
        assert (rows(edge_db, COUNT), rows(edge_db, OPEN)) == ([(0,)], [])
        assert rows(edge_db, "select count(*) from telemetry_agg") == [(3,)]

    async def test_reading_of_a_purged_day_changes_no_bucket(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await jobs.create_partitions(pool, retention_days=90)
        await rollups.initialize(pool, timezone="UTC", retention_days=90)
        now = datetime.now(UTC)
        then = [Reading(now - timedelta(days=30, minutes=n), float(n)) for n in range(90)]
        await keep(pool, then)
        execute(edge_db, ACKED)
        await purge(pool, raw_days=20)
        assert rows(edge_db, COUNT) == [(0,)]
        before = stored(edge_db, zone="UTC")
        assert before == recomputed(then, zone="UTC")
        late = Reading(now - timedelta(days=30), 999.0)
        await keep(pool, [late])
        done = await rollups.recompute_batch(pool, timezone="UTC")
        assert (done.marks, done.too_late) == (1, 1)
        assert stored(edge_db, zone="UTC") == before
        assert rows(edge_db, "select id from telemetry_raw") == [(late.id,)]


class TestToldByBuckets:
    """Readings that go to the cloud as buckets stay until the cloud has these (C-42)."""

    @pytest.mark.req("RT-07")
    @pytest.mark.parametrize(
        ("window", "days", "status"),
        [("1m", 20, "pending"), ("1h", 70, "dlq"), ("1d", 70, "sending"), ("1d", 20, "claimed")],
    )
    async def test_readings_stay_until_their_bucket_is_acknowledged(
        self, pool: db.Pool, edge_db: Database, window: str, days: int, status: str
    ) -> None:
        """Whatever the metric's setting is by now; what the cloud has goes, month or not."""
        await jobs.create_partitions(pool, retention_days=90)
        await rollups.initialize(pool, timezone="UTC", retention_days=90)
        execute(edge_db, "insert into farms values ('t-1', 'f-1', 'Asia/Kathmandu')")
        execute(edge_db, "insert into metric_settings values ('co2', 'agg', %s)", window)
        at = datetime.now(UTC).replace(hour=12) - timedelta(days=days)
        told = [Reading(at + timedelta(hours=n), 1.0, metric="co2") for n in (0, 11)]
        plain = Reading(at, 1.0)
        await keep(pool, [*told, plain])
        await recompute_all(pool)
        execute(edge_db, "update metric_settings set sync = 'raw'")
        execute(edge_db, ACKED)
        execute(
            edge_db,
            "update sync_outbox set status = %s where event_type = 'telemetry.aggregated'",
            status,
        )
        await purge(pool, raw_days=10)
        assert await jobs.purge_delivered_readings(pool) == 0
        assert sorted(rows(edge_db, "select id from telemetry_raw")) == sorted(
            (each.id,) for each in told
        )
        assert rows(edge_db, OPEN) == [(f"telemetry_raw_{at:%Y_%m}",)]
        execute(edge_db, ACKED)
        assert await jobs.purge_delivered_readings(pool) == 2

    @pytest.mark.req("RT-07")
    async def test_readings_stay_until_their_bucket_is_sent(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        """Also those beside the months, and when a whole month is asked for."""
        await rollups.initialize(pool, timezone="UTC", retention_days=90)
        execute(edge_db, "insert into metric_settings values ('co2', 'agg', '1m')")
        at = datetime.now(UTC) - timedelta(days=70)
        await keep(pool, [Reading(at, 1.0, metric="co2"), Reading(at, 1.0)])
        execute(edge_db, ACKED)
        move_clock(edge_db, "12 days")
        await purge(pool, raw_days=10)
        assert rows(edge_db, "select metric_type from telemetry_raw_default") == [("co2",)]
        await jobs.create_partitions(pool, retention_days=90)
        drop = "select fn_drop_telemetry_month(%s)"
        assert rows(edge_db, drop, at.date()) == [("unsynced",)]
        await recompute_all(pool)
        assert rows(edge_db, drop, at.date()) == [("unsynced",)]
        execute(edge_db, ACKED)
        assert rows(edge_db, drop, at.date()) == [("dropped",)]

    async def test_pending_buckets_of_other_days_and_series_keep_nothing(
        self, pool: db.Pool, edge_db: Database
    ) -> None:
        await jobs.create_partitions(pool, retention_days=90)
        await rollups.initialize(pool, timezone="UTC", retention_days=90)
        execute(edge_db, "insert into metric_settings values ('co2', 'agg', '1m')")
        at = datetime.now(UTC).replace(hour=12) - timedelta(days=40)
        waits = Reading(at, 1.0, metric="co2")
        others = [Reading(at + timedelta(days=n), 1.0, metric="co2") for n in (-2, -1, 1, 2)]
        others += [Reading(at, 1.0, device="d-2", metric="co2")]
        others += [Reading(at, 1.0, tenant="t-2", metric="co2")]
        await keep(pool, [waits, *others])
        await recompute_all(pool)
        execute(
            edge_db,
            ACKED + " where (tenant_id, device_id, occurred_at) <> ('t-1', 'd-1', %s)",
            at.replace(second=0, microsecond=0),
        )
        await purge(pool, raw_days=10)
        assert rows(edge_db, "select id from telemetry_raw") == [(waits.id,)]


async def test_purging_delivered_readings_leaves_the_newest_days_and_what_is_unsynced(
    pool: db.Pool, edge_db: Database
) -> None:
    await jobs.create_partitions(pool, retention_days=90)
    now = datetime.now(UTC)
    readings = [Reading(now - timedelta(days=n), 1.0) for n in range(60)]
    await keep(pool, readings)
    execute(edge_db, ACKED)
    waiting = readings[40]
    execute(edge_db, "update sync_outbox set status = 'pending' where id = %s", waiting.id)
    assert await jobs.purge_delivered_readings(pool) == 51
    assert rows(edge_db, COUNT) == [(9,)]
    assert (waiting.id,) in rows(edge_db, "select id from telemetry_raw")
    assert stored(edge_db, zone="UTC") == recomputed(readings, zone="UTC")
    assert await jobs.purge_delivered_readings(pool) == 0


async def test_service_runs_its_jobs(edge_db: Database, tasks: asyncio.TaskGroup) -> None:
    settings = EdgeSettings.load(
        {
            "FARMIQ_EDGE_DB_URL": edge_db.url,
            "FARMIQ_EDGE_MQTT_URL": "mqtt://127.0.0.1:9",
            "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
            "FARMIQ_EDGE_KEY_FILE": "none",
            "TELEMETRY_AGG_EVERY_SECONDS": "0.05",
            "TELEMETRY_RAW_RETENTION_DAYS": "40",
        }
    )
    now = datetime.now(UTC)
    async with db.pool(edge_db.url, name="test") as pool:
        await jobs.create_partitions(pool, retention_days=90)
        await keep_at(pool, [Reading(now - timedelta(days=50), 5.0)], now=now)
        task = tasks.create_task(service.run(settings, http.HttpServer(title="test", version="0")))
        # In a thread: upkeep may hold the table while it waits for this loop.
        await until(lambda: asyncio.to_thread(lambda: rows(edge_db, COUNT) == [(0,)]))
        await until(lambda: asyncio.to_thread(lambda: len(partitions(edge_db)) >= 4))
        reading = Reading(now, 1.0)
        await keep(pool, [reading])
        await until(lambda: stored(edge_db, zone="UTC") == recomputed([reading], zone="UTC"))
        task.cancel()
