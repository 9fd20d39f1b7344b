"""A clock that jumps ahead and back opens and locks no day of cameras for good."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from farmiq.cloud.camera.calendar import service
from farmiq.cloud.camera.calendar.clock import CalendarClock
from farmiq.config import CloudSettings
from farmiq.plumbing import db, ids
from farmiq.plumbing.runtime.schedule import Job
from tests.conftest import Database
from tests.sql.camera.farm import Farm

NOON = "2026-03-10T12:00:00+07:00"
STEPS = ("calendar.lock", "calendar.early", "calendar.open", "calendar.pending")


@pytest.fixture
def farm(cloud_db: Database) -> Iterator[Farm]:
    with Farm.connected(cloud_db, at=NOON) as made:
        yield made


@pytest.fixture
async def pool(cloud_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(cloud_db.url, name=str(ids.new()), max_size=8) as opened:
        yield opened


class Calendar:
    """As the service does it, from one start on."""

    def __init__(self, pool: db.Pool, farm: Farm) -> None:
        settings = CloudSettings.load(
            {"FARMIQ_CLOUD_DB_URL": farm.database.url, "FARMIQ_AMQP_URL": "amqp://unused"}
        )
        self._steps: dict[str, Job] = {each.name: each for each in service.all_jobs(pool, settings)}

    async def leader(self) -> None:
        for name in STEPS:
            await self._steps[name].do()


@pytest.fixture
def camera(farm: Farm) -> UUID:
    return farm.device(farm.site(), "0 * * * *")


def days(farm: Farm) -> list[tuple[Any, ...]]:
    return farm.rows(
        "select session_date::text, expected_wake_count, status from site_device_sessions"
        " order by 1"
    )


TODAY = [("2026-03-10", 24, "pending")]


@pytest.mark.parametrize("ahead", [timedelta(days=3), timedelta(hours=13), timedelta(days=400)])
async def test_nothing_opens_or_locks_while_the_clock_is_ahead(
    farm: Farm, pool: db.Pool, camera: UUID, ahead: timedelta
) -> None:
    calendar = Calendar(pool, farm)
    await calendar.leader()
    assert days(farm) == TODAY
    farm.at(farm.now() + ahead)
    await calendar.leader()
    assert days(farm) == TODAY
    # A camera whose clock is right: its wake is of today, and opens no other day.
    farm.wake(camera, NOON, pending=True)
    await calendar.leader()
    farm.at(farm.now() - ahead)
    await calendar.leader()
    assert days(farm) == [("2026-03-10", 24, "in_progress")]
    farm.at("2026-03-11T00:00:30+07:00")  # a jump of half a day, by which the test saves its time
    await Calendar(pool, farm).leader()
    assert [day for day, *_ in days(farm)] == ["2026-03-10", "2026-03-11"]


@pytest.mark.usefixtures("camera")
async def test_days_go_on_by_the_time_before_the_jump(farm: Farm, pool: db.Pool) -> None:
    farm.at("2026-03-10T23:59:00+07:00")
    passed_s = 0.0
    clock = CalendarClock(pool, mono_s=lambda: passed_s)
    open_days = clock.after_check(lambda: service.open_days(pool))
    await open_days()
    farm.at(farm.now() + timedelta(days=30))
    await open_days()
    assert days(farm) == [("2026-03-10", 24, "pending")]
    farm.at(farm.now() + timedelta(minutes=2))
    passed_s += 120
    await open_days()
    assert [day for day, *_ in days(farm)] == ["2026-03-10", "2026-03-11"]
    # A process that starts meanwhile learns it from the one before.
    await CalendarClock(pool).after_check(lambda: service.open_days(pool))()
    assert [day for day, *_ in days(farm)] == ["2026-03-10", "2026-03-11"]
    # After a day of it the jump must have put the clock right.
    farm.at(farm.now() + timedelta(days=1))
    passed_s += 86_400
    await open_days()
    assert len(days(farm)) == 33


async def test_a_wake_before_the_jump_was_seen_opens_no_day_early(
    farm: Farm, pool: db.Pool, camera: UUID
) -> None:
    """Nor is a change of its schedule applied before its day."""
    calendar = Calendar(pool, farm)
    await calendar.leader()
    farm.owner.execute(
        "insert into device_schedule_changes (change_id, company_id, device_id,"
        " new_wake_schedule_cron, requested_at, effective_date)"
        " values (%s, %s, %s, '0 8 * * *', fn_now(), '2026-03-11')",
        (ids.new(), farm.company, camera),
    )
    farm.at(farm.now() + timedelta(days=3))
    farm.wake(camera, "2026-03-09T12:00:00+07:00", pending=True)
    assert days(farm) == [("2026-03-09", 0, "in_progress"), *TODAY]
    assert farm.value("select wake_schedule_cron from devices") == "0 * * * *"


@pytest.mark.usefixtures("camera")
async def test_days_that_a_wrong_clock_opened_are_removed_and_open_anew(
    farm: Farm, pool: db.Pool
) -> None:
    """It was wrong when the calendar started, which cannot tell it from having been off."""
    await Calendar(pool, farm).leader()
    farm.at("2026-03-13T12:00:00+07:00")
    farm.owner.execute("delete from calendar_clock")
    await Calendar(pool, farm).leader()
    assert [day for day, *_ in days(farm)] == [f"2026-03-{day}" for day in (10, 11, 12, 13)]
    # None of them is locked: what was believed last is three days away.
    assert {status for *_, status in days(farm)} == {"pending"}
    farm.at("2026-03-10T12:01:00+07:00")
    after = Calendar(pool, farm)
    await after.leader()
    assert days(farm) == TODAY
    farm.owner.execute("update devices set is_active = false")
    farm.at("2026-03-11T00:00:30+07:00")
    farm.owner.execute("delete from believed_clock")  # twelve hours have passed
    await Calendar(pool, farm).leader()
    assert days(farm) == [("2026-03-10", 24, "locked"), ("2026-03-11", 0, "pending")]


@pytest.mark.usefixtures("camera")
async def test_after_an_outage_days_lock_once_an_edge_agrees_with_the_clock(
    farm: Farm, pool: db.Pool
) -> None:
    await Calendar(pool, farm).leader()
    farm.at("2026-03-11T15:00:00+07:00")
    calendar = Calendar(pool, farm)
    await calendar.leader()
    assert [status for *_, status in days(farm)] == ["pending", "pending"]
    beat(farm, clock_offset_s=-86_400)
    await calendar.leader()
    assert [status for *_, status in days(farm)] == ["pending", "pending"]
    beat(farm, clock_offset_s=2)
    await calendar.leader()
    assert [status for *_, status in days(farm)] == ["locked", "pending"]


@pytest.mark.usefixtures("camera")
async def test_a_pause_of_the_machine_is_no_wrong_clock_if_an_edge_agrees(
    farm: Farm, pool: db.Pool
) -> None:
    calendar = Calendar(pool, farm)
    await calendar.leader()
    farm.at("2026-03-11T03:00:00+07:00")
    beat(farm, clock_offset_s=0)
    await calendar.leader()
    assert [day for day, *_ in days(farm)] == ["2026-03-10", "2026-03-11"]


def beat(farm: Farm, *, clock_offset_s: float) -> None:
    """An edge says how it is."""
    farm.service.execute(
        "insert into edge_heartbeats (tenant_id, edge_cluster_id, received_at, sent_at,"
        " clock_offset_s, versions, waiting, oldest_s, dlq, disk_percent)"
        " values ('t-1', 'edge-1', fn_now(), fn_now(), %s, '{}', 0, 0, 0, 1)"
        " on conflict on constraint edge_heartbeats_pkey do update set"
        " received_at = excluded.received_at, clock_offset_s = excluded.clock_offset_s",
        (clock_offset_s,),
    )


@pytest.mark.usefixtures("camera")
def test_no_day_that_has_begun_can_be_deleted(farm: Farm) -> None:
    farm.call("fn_midnight_session_opener_all")
    for table in ("expected_wakes", "site_device_sessions"):
        with pytest.raises(psycopg.errors.RestrictViolation):
            farm.owner.execute(f"delete from {table}".encode())  # noqa: S608
