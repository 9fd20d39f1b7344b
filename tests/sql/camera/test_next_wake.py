"""When a camera is told to wake next (C-118)."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.sql.camera.farm import Farm

HOURLY = "0 * * * *"


def told(farm: Farm, device: UUID, **seconds: float) -> Any:
    return farm.call("fn_wake_to_tell", device_id=device, **seconds)


def local(farm: Farm, device: UUID, **seconds: float) -> str:
    found = told(farm, device, **seconds)
    return f"{found.astimezone(farm.now().tzinfo) + timedelta(hours=7):%d %H:%M:%S}"


def at(farm: Farm, time: str) -> None:
    farm.owner.execute("set timezone = 'UTC'")
    farm.at(f"2026-03-10T{time}+07:00")


def camera(farm: Farm, cron: str = HOURLY) -> UUID:
    site = farm.site()
    device = farm.device(site, cron)
    farm.call("fn_midnight_session_opener", site_id=site)
    return device


@pytest.mark.parametrize(
    ("woke", "expected"),
    [
        ("08:00:00", "10 09:00:00"),
        ("08:29:00", "10 09:00:00"),
        # It counts for nine o'clock: to wake then would be to wake twice for it.
        ("08:57:00", "10 10:00:00"),
        ("08:31:00", "10 10:00:00"),
    ],
)
def test_the_window_that_a_wake_was_counted_for_is_not_told_again(
    farm: Farm, woke: str, expected: str
) -> None:
    at(farm, woke)
    device = camera(farm)
    farm.wake(device, f"2026-03-10T{woke}+07:00")
    assert local(farm, device) == expected


def test_counted_window_is_not_told_again_after_an_older_image(farm: Farm) -> None:
    at(farm, "08:57:00")
    device = camera(farm)
    farm.wake(device, "2026-03-10T08:57:00+07:00")
    farm.wake(device, "2026-03-10T03:00:00+07:00", "IMG_OLD.jpg", pending=True)
    farm.wake(device, "2026-03-10T08:58:00+07:00", "IMG_TWICE.jpg")
    assert local(farm, device) == "10 10:00:00"


@pytest.mark.parametrize(
    ("now", "min_seconds", "expected"),
    [
        ("08:59:00", 60, "10 10:00:00"),  # 09:00 is not later than in a minute
        ("08:58:58", 60, "10 09:00:00"),
        ("08:59:50", 0, "10 09:00:00"),
        ("08:30:00", 3600, "10 10:00:00"),
    ],
)
def test_a_wake_that_is_too_near_is_not_told(
    farm: Farm, now: str, min_seconds: float, expected: str
) -> None:
    at(farm, now)
    assert local(farm, camera(farm), min_seconds=min_seconds) == expected


def test_next_wake_is_after_now(farm: Farm) -> None:
    at(farm, "08:00:00")
    device = camera(farm)
    farm.wake(device, "2026-03-10T08:00:00+07:00")
    for now, expected in (("08:00:30", "10 09:00:00"), ("11:20:00", "10 12:00:00")):
        at(farm, now)
        assert local(farm, device) == expected


def test_a_camera_without_schedule_is_told_nothing(farm: Farm) -> None:
    at(farm, "08:00:00")
    assert told(farm, camera(farm, None), spread_seconds=600) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("cron", ["0 * * * *", "*/10 * * * *", "59 23 * * *", "30 */6 * * *"])
def test_an_offset_is_fixed_and_its_wake_counts_for_its_window(farm: Farm, cron: str) -> None:
    at(farm, "12:00:00")
    site = farm.site()
    devices = [farm.device(site, cron) for _ in range(20)]
    farm.call("fn_midnight_session_opener", site_id=site)
    plain = {device: told(farm, device) for device in devices}
    spread = {device: told(farm, device, spread_seconds=1800) for device in devices}
    offsets = {device: spread[device] - plain[device] for device in devices}
    assert all(timedelta(0) <= offset < timedelta(minutes=30) for offset in offsets.values())
    # A minute before midnight there is room for a quarter of it alone.
    assert len(set(offsets.values())) > 5
    assert spread == {device: told(farm, device, spread_seconds=1800) for device in devices}
    farm.at(max(spread.values()) + timedelta(seconds=5))
    for device in devices:
        # Five seconds late, as cameras are.
        farm.wake(device, spread[device] + timedelta(seconds=5))
    taken = dict(
        farm.rows(
            """
            select p.device_id, e.expected_at from device_wake_payloads p join expected_wakes e
              on e.session_id = p.site_device_session_id and e.device_id = p.device_id
                and e.wake_window_index = p.wake_window_index
            where not p.overage_flag
            """
        )
    )
    assert taken == plain


def test_a_window_far_ahead_that_a_wrong_clock_counted_does_not_silence_a_camera(
    farm: Farm,
) -> None:
    at(farm, "08:00:00")
    device = camera(farm)
    farm.at("2026-03-14T08:00:00+07:00")
    farm.wake(device, None)  # it has no clock: the cloud's counts
    at(farm, "08:00:10")
    assert local(farm, device) == "10 09:00:00"


def test_after_the_last_wake_of_a_day_the_next_day_is_told(farm: Farm) -> None:
    at(farm, "15:55:00")
    device = camera(farm, "0 8,16 * * *")
    farm.wake(device, "2026-03-10T15:55:00+07:00")
    assert local(farm, device) == "11 08:00:00"


def ahead(farm: Farm, by: timedelta) -> None:
    """The clock jumps, and the calendar has seen it."""
    farm.at(farm.now() + by)
    farm.owner.execute(
        "insert into calendar_clock (looked_at, ahead) values (fn_now(), %s)"
        " on conflict on constraint calendar_clock_pkey do update set"
        " looked_at = excluded.looked_at, ahead = excluded.ahead",
        (by,),
    )


def test_a_clock_that_is_known_to_be_ahead_sends_no_camera_to_sleep_for_days(farm: Farm) -> None:
    at(farm, "08:00:00")
    device = camera(farm)
    farm.wake(device, "2026-03-10T08:00:00+07:00")
    ahead(farm, timedelta(days=3))
    assert local(farm, device) == "10 09:00:00"


def test_the_camera_knows_better_than_a_calendar_that_stood_still(farm: Farm) -> None:
    """A machine that was paused looks like a clock that has jumped."""
    at(farm, "08:00:00")
    device = camera(farm)
    ahead(farm, timedelta(hours=3))
    farm.wake(device, datetime.fromisoformat("2026-03-10T11:00:00+07:00"))
    assert local(farm, device) == "10 12:00:00"


@pytest.mark.parametrize("spread_s", [0, 600])
def test_cameras_asked_together_are_told_what_each_is_told_alone(
    farm: Farm, spread_s: float
) -> None:
    """Those of one site and schedule are computed once, but for what is a camera's own."""
    at(farm, "08:29:00")
    sites = [farm.site(), farm.site("America/Lima")]
    every = [farm.device(site, cron) for site in sites for cron in (HOURLY, HOURLY, "30 * * * *")]
    changing, retired, early = (farm.device(sites[0], HOURLY) for _ in range(3))
    for site in sites:
        farm.call("fn_midnight_session_opener", site_id=site)
    farm.wake(early, "2026-03-10T08:29:00+07:00")
    farm.wake(every[0], "2026-03-10T08:31:00+07:00")
    farm.owner.execute("update devices set is_active = false where device_id = %s", (retired,))
    farm.owner.execute(
        "insert into device_schedule_changes (change_id, company_id, device_id,"
        " new_wake_schedule_cron, requested_at, effective_date)"
        " values (fn_uuid_v7(), %s, %s, '15 6 * * *', fn_now(), '2026-03-10')",
        (farm.company, changing),
    )
    together = dict(
        farm.rows(
            "select * from fn_wakes_to_tell(%s::uuid[], 60, %s)",
            [*every, changing, retired, early],
            spread_s,
        )
    )
    assert together == {
        device: told(farm, device, min_seconds=60, spread_seconds=spread_s) for device in together
    }
    assert set(together) == {*every, changing, retired, early}
    assert together[retired] is None
    assert len(set(together.values())) > len(sites)
