"""When a daily job is due, and that it is made up for when it was missed (RT-12)."""

import asyncio
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.schedule import Daily, Job, due_at

UTC_ZONE = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")
AT = time(2, 0)
MOMENTS = st.integers(0, 3 * 365 * 86400).map(lambda s: datetime.fromtimestamp(1.7e9 + s, UTC))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.req("RT-12")
@pytest.mark.parametrize(
    ("last_done", "now", "due"),
    [
        (None, "2025-05-05 09:00", "2025-05-05 09:00"),
        ("2025-05-05 02:00", "2025-05-05 09:00", "2025-05-06 02:00"),
        ("2025-05-05 01:59", "2025-05-05 01:59", "2025-05-05 02:00"),
        ("2025-05-01 02:00", "2025-05-05 09:00", "2025-05-02 02:00"),
        ("2099-01-01 02:00", "2025-05-05 09:00", "2025-05-05 09:00"),
    ],
)
def test_daily_job_is_due_at_its_next_hour_after_it_was_done(
    last_done: str | None, now: str, due: str
) -> None:
    found = due_at(utc(last_done) if last_done else None, utc(now), at=AT, zone=UTC_ZONE)
    assert found == utc(due)


@pytest.mark.parametrize(
    ("at", "last_done", "due"),
    [
        # The hour that this day lacks, and the one that it has twice.
        (time(2, 30), "2025-03-29 12:00", "2025-03-30 01:30"),
        (time(2, 30), "2025-10-25 12:00", "2025-10-26 00:30"),
        (time(2, 30), "2025-10-26 00:30", "2025-10-27 01:30"),
    ],
)
def test_a_day_with_an_odd_hour_has_one_round_too(at: time, last_done: str, due: str) -> None:
    done = utc(last_done)
    assert due_at(done, done, at=at, zone=BERLIN) == utc(due)


@given(MOMENTS, st.times(), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Bangkok"]))
def test_rounds_follow_each_other_by_about_a_day(last_done: datetime, at: time, zone: str) -> None:
    at = at.replace(tzinfo=None, microsecond=0)
    first = due_at(last_done, last_done, at=at, zone=ZoneInfo(zone))
    second = due_at(first, first, at=at, zone=ZoneInfo(zone))
    assert last_done < first <= last_done + timedelta(hours=25)
    assert timedelta(hours=22) < second - first < timedelta(hours=26)


@pytest.mark.req("RT-12")
async def test_daily_job_that_missed_its_hour_runs_at_once() -> None:
    noted: list[datetime] = []
    done = asyncio.Event()

    async def last_done() -> datetime | None:
        return noted[-1] if noted else datetime.now(UTC) - timedelta(days=3)

    async def note(at: datetime) -> None:
        noted.append(at)
        done.set()

    async def work() -> dict[str, object]:
        return {"count": 1}

    job = Job("test", 0.0, work, daily=Daily(AT, UTC_ZONE, last_done, note))
    running = asyncio.create_task(schedule.run_repeatedly(job))
    async with asyncio.timeout(60):
        await done.wait()
    await asyncio.sleep(0)
    running.cancel()
    assert len(noted) == 1


@pytest.mark.parametrize("error", [psycopg.OperationalError("gone"), ValueError("odd data")])
async def test_job_that_fails_is_tried_again(error: Exception) -> None:
    rounds = 0
    enough = asyncio.Event()

    async def work() -> dict[str, object]:
        nonlocal rounds
        rounds += 1
        if rounds == 1:
            raise error
        enough.set()
        return {}

    running = asyncio.create_task(schedule.run_repeatedly(Job("test", 3600.0, work)))
    async with asyncio.timeout(60):
        await enough.wait()
    running.cancel()
    assert rounds == 2
