"""The calendar opens and locks each site's day, whatever stopped it and however many there are."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import httpx2
import pytest
import structlog
from prometheus_client import REGISTRY

from farmiq import crash
from farmiq.cloud.camera.calendar import service, zones
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.sql.camera.farm import Farm
from tests.support import preloaded
from tests.support.until import until

# A midnight or two of each place pass until the calendar is back; in New York the clock goes back
# an hour meanwhile.
STOPPED = "2026-10-31T12:00:00Z"
BACK = "2026-11-02T00:00:00Z"
ZONES = ("Asia/Bangkok", "UTC", "America/New_York", "Pacific/Kiritimati", "Australia/Lord_Howe")
POINTS = [
    "calendar.before_lock_commit",
    "calendar.after_lock_commit",
    "calendar.before_open_commit",
    "calendar.after_open_commit",
    "calendar.before_pending_commit",
]


@pytest.fixture
def farm(cloud_db: Database) -> Iterator[Farm]:
    with Farm.connected(cloud_db, at=STOPPED) as made:
        yield made


@pytest.fixture
async def pool(cloud_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(cloud_db.url, name=str(ids.new()), max_size=8) as opened:
        yield opened


async def a_round(pool: db.Pool) -> None:
    """What the calendar does every minute."""
    await service.lock_days(pool)
    await service.open_days(pool)
    await service.fail_pending(pool, older_than_s=300)


def days(farm: Farm, site: UUID) -> list[tuple[Any, ...]]:
    return farm.rows(
        "select session_date::text, expected_wake_count, config_changed_flag, status"
        " from site_device_sessions where site_id = %s order by 1",
        site,
    )


def ask(farm: Farm, device: UUID, cron: str, effective: str) -> None:
    farm.owner.execute(
        "insert into device_schedule_changes (change_id, company_id, device_id,"
        " new_wake_schedule_cron, requested_at, effective_date) values (%s, %s, %s, %s, %s, %s)",
        (ids.new(), farm.company, device, cron, farm.now(), effective),
    )


def metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def put_up(farm: Farm) -> dict[str, UUID]:
    """A site in each zone with a camera of every hour that is to wake every half an hour."""
    sites = {zone: farm.site(zone) for zone in ZONES}
    for zone, site in sites.items():
        camera = farm.device(site, "0 * * * *")
        today = datetime.fromisoformat(farm.value("select fn_local_date(%s, fn_now())::text", zone))
        ask(farm, camera, "*/30 * * * *", str((today + timedelta(days=1)).date()))
        ask(farm, camera, "0 8 * * *", str((today + timedelta(days=2)).date()))
    return sites


EXPECTED = {
    "Asia/Bangkok": [
        ("2026-10-31", 24, False, "locked"),
        ("2026-11-01", 48, True, "locked"),
        ("2026-11-02", 1, True, "pending"),
    ],
    "UTC": [
        ("2026-10-31", 24, False, "locked"),
        ("2026-11-01", 48, True, "locked"),
        ("2026-11-02", 1, True, "pending"),
    ],
    # It is the evening of the first, which has 25 hours.
    "America/New_York": [
        ("2026-10-31", 24, False, "locked"),
        ("2026-11-01", 50, True, "pending"),
    ],
    "Pacific/Kiritimati": [
        ("2026-11-01", 24, False, "locked"),
        ("2026-11-02", 48, True, "pending"),
    ],
    "Australia/Lord_Howe": [
        ("2026-10-31", 24, False, "locked"),
        ("2026-11-01", 48, True, "locked"),
        ("2026-11-02", 1, True, "pending"),
    ],
}


@pytest.mark.req("DB2-01", "FN-02", "FN-04")
async def test_after_36_hours_everything_is_made_up_for(farm: Farm, pool: db.Pool) -> None:
    sites = put_up(farm)
    await a_round(pool)
    farm.at(BACK)
    await a_round(pool)
    await a_round(pool)
    assert {zone: days(farm, site) for zone, site in sites.items()} == EXPECTED
    # Nobody woke: every locked day with more than two expected wakes has its alert.
    assert farm.rows(
        "select alert_type, count(*)::int from device_alerts group by 1 order by 1"
    ) == [("missed_wakes", 8)]


async def test_several_replicas_at_once(farm: Farm, pool: db.Pool) -> None:
    sites = put_up(farm)
    await asyncio.gather(*(a_round(pool) for _ in range(4)))
    farm.at(BACK)
    for _ in range(2):
        await asyncio.gather(*(a_round(pool) for _ in range(4)))
    assert {zone: days(farm, site) for zone, site in sites.items()} == EXPECTED
    assert farm.value("select count(*)::int from device_alerts") == 8


def start(
    farm: Farm, port: int, *, crash_at: str = "", often_s: float = 0.2
) -> "subprocess.Popen[bytes]":
    environment = {
        "FARMIQ_CLOUD_DB_URL": farm.database.url,
        "FARMIQ_AMQP_URL": "amqp://unused",
        "FARMIQ_CLOUD_HTTP_PORT": str(port),
        "CAMERA_CALENDAR_SECONDS": str(often_s),
        "FARMIQ_CRASH_AT": crash_at,
    }
    return preloaded.run(service.NAME, environment)


def ended(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is not None


def shown(port: int, path: str, what: str) -> bool:
    try:
        answer = httpx2.get(f"http://127.0.0.1:{port}{path}", timeout=60)
    except httpx2.HTTPError:
        return False
    return answer.status_code == 200 and what in answer.text


@pytest.mark.timeout(600)
async def test_killed_at_every_point_nothing_is_lost_or_doubled(
    farm: Farm, free_port: Callable[[], int]
) -> None:
    """One after the other dies over the same work; the last one finishes it."""
    assert [point for point in crash.POINTS if point.startswith("calendar.")] == POINTS
    sites = put_up(farm)
    farm.call("fn_midnight_session_opener_all")
    wake = farm.wake(farm.value("select device_id from devices limit 1"), STOPPED)
    farm.at(BACK)
    for point in POINTS:
        dying = start(farm, free_port(), crash_at=point)
        await until(partial(ended, dying), within_s=90)
        assert dying.returncode == -signal.SIGKILL, point
    port = free_port()
    living = start(farm, port)
    try:
        await until(
            lambda: {zone: days(farm, site) for zone, site in sites.items()} == EXPECTED,
            within_s=90,
        )
        await until(partial(shown, port, "/readyz", '"ready"'), within_s=90)
        await until(
            partial(shown, port, "/metrics", 'calendar_sites_failing{step="open"} 0.0'), within_s=90
        )
        await until(lambda: farm.counters(wake["session_id"]) == (0, 1, 0))
    finally:
        living.terminate()
        living.wait(timeout=60)
    assert farm.counters(wake["session_id"]) == (0, 1, 0)
    assert farm.rows(
        "select alert_type, count(*)::int from device_alerts group by 1 order by 1"
    ) == [("high_failure_rate", 1), ("image_transmission_failed", 1), ("missed_wakes", 8)]


async def test_a_site_that_fails_is_told_and_the_others_open(farm: Farm, pool: db.Pool) -> None:
    good, bad = farm.site(), farm.site()
    with farm.owner.transaction():
        farm.owner.execute("set local session_replication_role = replica")
        farm.owner.execute("update sites set timezone = 'Nowhere' where site_id = %s", (bad,))
    with structlog.testing.capture_logs() as said:
        await a_round(pool)
    assert len(days(farm, good)) == 1
    assert metric("farmiq_calendar_sites_failing", step="open") == 1
    assert [line["name"] for line in said if line["event"] == "calendar.open_failed"] == [str(bad)]
    farm.owner.execute("update sites set timezone = 'UTC' where site_id = %s", (bad,))
    await a_round(pool)
    assert metric("farmiq_calendar_sites_failing", step="open") == 0


async def test_counters_that_differ_are_told_counted_and_set_right(
    farm: Farm, pool: db.Pool
) -> None:
    site = farm.site()
    farm.call("fn_midnight_session_opener", site_id=site)
    mended = metric("farmiq_calendar_counters_mended_total")
    await service.recount(pool)
    assert metric("farmiq_calendar_counters_mended_total") == mended
    farm.unguarded("update site_device_sessions set extra_wake_count = 3")
    with structlog.testing.capture_logs() as said:
        await service.recount(pool)
    assert metric("farmiq_calendar_counters_mended_total") == mended + 1
    assert metric("farmiq_calendar_counters_differing") == 0
    ((line),) = (line for line in said if line["event"] == "calendar.counters_differ")
    assert line["name"] == str(site)
    assert "'extra': 3" in line["reason"]
    assert "'extra': 0" in line["reason"]
    assert farm.rows("select alert_type, site_id from device_alerts") == [("counters_differ", site)]
    assert farm.value("select extra_wake_count from site_device_sessions") == 0
    # What a day expects is never changed: that stays to be looked at.
    farm.unguarded("update site_device_sessions set expected_wake_count = 7")
    await service.recount(pool)
    assert metric("farmiq_calendar_counters_differing") == 1
    assert metric("farmiq_calendar_counters_mended_total") == mended + 1


async def test_zones_on_which_the_two_sides_agree(
    farm: Farm, pool: db.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for zone in ZONES:
        farm.site(zone)
    await service.compare_zones(pool)
    assert metric("farmiq_calendar_zones_differing") == 0

    async def other(_connection: db.Connection, names: list[str]) -> dict[str, str]:
        return dict.fromkeys(names, "they differ")

    monkeypatch.setattr(zones, "differing", other)
    await service.compare_zones(pool)
    assert metric("farmiq_calendar_zones_differing") == len(ZONES)
