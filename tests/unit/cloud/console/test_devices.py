"""What the pages about devices say."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.devices import connectivity, detail
from farmiq.cloud.console.devices import view as devices
from farmiq.cloud.console.devices.connectivity import Span
from farmiq.cloud.console.devices.detail import TimelineEvent
from farmiq.cloud.console.devices.view import BarnDevice, CameraDevice, DevicesQuery
from farmiq.ui import look
from farmiq.ui.metrics import Catalogue
from tests.unit.cloud.console import test_sites

NOW = datetime(2026, 11, 15, 5, 30, tzinfo=UTC)
BANGKOK = ZoneInfo("Asia/Bangkok")
COMPANY = Company(
    company_id=UUID(int=1), name="One", tenant_id="t-1", timezone="Asia/Bangkok", email="a@b.c"
)


def barn_device(device_id: str = "climate-1", **changes: Any) -> BarnDevice:
    return BarnDevice(
        **{
            "device_id": device_id,
            "farm_id": "farm-1",
            "barn_id": "barn-1",
            "farm_name": "Hill",
            "barn_name": "Barn 1",
            "timezone": "Asia/Bangkok",
            "state": "online",
            "status_at": NOW - timedelta(hours=3),
            "status_seen_at": NOW - timedelta(hours=3),
            "firmware": "1.0",
            "signal_dbm": -60.0,
            "battery_v": None,
            "backlog": 0,
            "alarms": [],
            "health": {},
            "revoked": False,
            "revoked_at": None,
            "last_reading_at": NOW - timedelta(seconds=30),
            "last_arrived_at": NOW - timedelta(seconds=29),
            "sensors": 2,
            "last_weighing_at": None,
            "weighings": 0,
            **changes,
        }
    )


def camera(**changes: Any) -> CameraDevice:
    return CameraDevice(
        **{
            "device_id": UUID(int=3),
            "device_name": "Device-001",
            "mac": "0226F6B7E447",
            "dialect": "standard",
            "is_active": True,
            "firmware": "2.4",
            "last_seen_at": NOW - timedelta(minutes=5),
            "battery_voltage": 3.9,
            "wifi_rssi": -60.0,
            "pending_count": 0,
            "wake_schedule_cron": "*/30 * * * *",
            "slot_index": None,
            "created_at": NOW - timedelta(days=90),
            "proven_at": NOW - timedelta(days=90),
            "site_id": UUID(int=2),
            "site_name": "River House",
            "timezone": "Asia/Bangkok",
            "here_since": NOW - timedelta(days=90),
            "missed": 0,
            "failed": 0,
            **changes,
        }
    )


def view(
    *found: BarnDevice | CameraDevice,
    late: Mapping[str, int] | None = None,
    query: DevicesQuery | None = None,
) -> devices.View:
    return devices.view(
        COMPANY,
        [one for one in found if isinstance(one, BarnDevice)],
        [one for one in found if isinstance(one, CameraDevice)],
        late_sensors=late or {},
        query=query or DevicesQuery(),
        now=NOW,
    )


def unheard_for(time: timedelta) -> dict[str, Any]:
    """A station that has said nothing for so long."""
    at = NOW - time
    return {
        "sensors": 0, "weighings": 4, "last_reading_at": None, "last_arrived_at": None,
        "status_at": at, "status_seen_at": at, "last_weighing_at": at,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "late", "key", "is_problem"),
    [
        ({}, 0, "online", False),
        ({}, 1, "late", True),
        ({"state": "error", "health": {"scale_ok": False}}, 0, "error", True),
        # A device that measured after it was reported offline is not offline.
        ({"state": "offline"}, 0, "online", False),
        ({"state": "offline", "status_at": NOW}, 0, "offline", True),
        ({"revoked": True, "revoked_at": NOW}, 2, "revoked", False),
        # It was registered again at another edge, which sends what it measures.
        ({"revoked": True, "revoked_at": NOW - timedelta(hours=1)}, 0, "online", False),
        # D-534: a station reports when something changes.
        (unheard_for(timedelta(minutes=30)), 0, "online", False),
        (unheard_for(timedelta(minutes=31)), 0, "quiet", False),
        (unheard_for(timedelta(days=1)), 0, "quiet", False),
        (unheard_for(timedelta(days=1, minutes=1)), 0, "silent", True),
        # Its last word was long ago, and it weighed since.
        ({**unheard_for(timedelta(days=2)), "last_weighing_at": NOW}, 0, "online", False),
        # Sensors go by the pace of their readings, which made none of them late.
        ({**unheard_for(timedelta(days=2)), "sensors": 1}, 0, "online", False),
    ],
)
def test_device_of_a_barn_is_well_or_says_what_is_wrong(
    changes: dict[str, Any], late: int, key: str, *, is_problem: bool
) -> None:
    condition = devices.condition_of_barn(barn_device(**changes), late, now=NOW)
    assert (condition.key, condition.is_problem) == (key, is_problem)


@pytest.mark.parametrize(
    ("changes", "key", "is_problem"),
    [
        ({}, "online", False),
        ({"missed": 1}, "online", False),
        ({"missed": 2}, "silent", True),
        ({"battery_voltage": 3.59}, "battery", True),
        ({"failed": 1}, "failed", True),
        ({"site_id": None}, "unassigned", False),
        ({"last_seen_at": None}, "never", False),
        ({"is_active": False, "missed": 9}, "retired", False),
    ],
)
def test_camera_is_well_or_says_what_is_wrong(
    changes: dict[str, Any], key: str, *, is_problem: bool
) -> None:
    condition = devices.condition_of_camera(camera(**changes))
    assert (condition.key, condition.is_problem) == (key, is_problem)


def test_devices_with_problems_come_first_and_the_sentence_counts_them() -> None:
    found = view(
        barn_device("a-1"),
        barn_device("z-1", state="offline", status_at=NOW),
        barn_device("old", revoked=True, revoked_at=NOW),
        camera(missed=3),
    )
    assert {row.name for row in found.rows[:2]} == {"z-1", "Device-001"}
    assert found.rows[-1].condition.key == "revoked"
    assert found.sentence == "2 of 3 devices need attention"
    assert found.title == "(2) Devices"
    problems = view(barn_device(), camera(missed=3), query=DevicesQuery(show="problems"))
    assert [row.name for row in problems.rows] == ["Device-001"]
    assert view(barn_device()).sentence == "The only device is in touch"


def test_quiet_station_is_neither_called_in_touch_nor_a_problem() -> None:
    quiet = barn_device("scale-1", **unheard_for(timedelta(hours=2)))
    found = view(barn_device(), quiet)
    assert found.sentence == "1 of 2 devices was not heard lately; no other needs attention"
    assert (found.problems, found.title) == (0, "Devices")
    silent = barn_device("scale-2", **unheard_for(timedelta(days=2)))
    assert view(barn_device(), quiet, silent).sentence == "1 of 3 devices needs attention"


def test_time_of_a_clock_that_runs_ahead_is_not_when_a_device_was_seen() -> None:
    ahead = barn_device(last_reading_at=NOW + timedelta(days=1))
    assert ahead.seen_at(NOW) == NOW - timedelta(hours=3)


def test_weigh_station_is_told_from_a_sensor() -> None:
    assert barn_device().kind == devices.SENSOR
    station = barn_device("scale-1", sensors=0, last_reading_at=None, weighings=4)
    assert station.kind == devices.STATION
    assert devices.barn_row(station, 0, now=NOW).href == "/devices/station/scale-1"
    # Its camera may have readings of its own.
    watching = barn_device("scale-1", sensors=1, last_reading_at=NOW, weighings=4)
    assert watching.kind == devices.STATION


def states(found: connectivity.Connectivity, day: int = -1) -> list[str]:
    return [cell.state for cell in found.days[day].cells]


def test_hours_without_readings_are_gaps_after_the_first_reading() -> None:
    begin = connectivity.begin_at(NOW, BANGKOK)
    hours = {begin + timedelta(days=6, hours=hour): 60 for hour in (2, 3, 5, 12)}
    found = connectivity.of_readings(hours, interval_s=60, now=NOW, zone=BANGKOK)
    today = states(found)
    assert len(found.days) == 7
    assert today[:7] == [
        "not-owed", "not-owed", "received", "received", "overdue", "received", "overdue",
    ]  # fmt: skip
    # It is 12:30 there: what is still to come is no gap.
    assert today[12:14] == ["received", "due"]
    assert (found.received, found.gaps) == (4, 7)
    daily = connectivity.of_readings(hours, interval_s=86_400, now=NOW, zone=BANGKOK)
    assert daily.gaps == 0


def test_day_on_which_the_clocks_change_has_its_own_number_of_hours() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    now = datetime(2026, 10, 25, 20, tzinfo=UTC)
    found = connectivity.of_readings({}, interval_s=60, now=now, zone=berlin)
    assert [len(day.cells) for day in found.days] == [24, 24, 24, 24, 24, 24, 25]


def test_zone_of_half_an_hour_has_24_cells_a_day() -> None:
    kolkata = ZoneInfo("Asia/Kolkata")
    found = connectivity.of_readings({}, interval_s=60, now=NOW, zone=kolkata)
    assert {len(day.cells) for day in found.days} == {24}


def test_station_without_animals_has_no_gap_unless_it_was_offline() -> None:
    begin = connectivity.begin_at(NOW, BANGKOK) + timedelta(days=6)
    offline = [Span(begin + timedelta(hours=3), begin + timedelta(hours=5))]
    found = connectivity.of_weighings(
        {begin + timedelta(hours=1): 4}, offline, now=NOW, zone=BANGKOK
    )
    assert states(found)[:6] == [
        "not-owed", "received", "not-owed", "overdue", "overdue", "not-owed",
    ]  # fmt: skip


def test_hour_of_a_camera_shows_its_worst_wake() -> None:
    wakes = [
        test_sites.wake(3, "complete"),
        test_sites.wake(2.9, "failed"),
        test_sites.wake(5, "complete"),
        test_sites.wake(6),
    ]
    found = connectivity.of_wakes(
        wakes, test_sites.camera(), now=test_sites.NOW, zone=test_sites.BANGKOK
    )
    assert states(found)[8:12] == ["overdue", "received", "not-owed", "failed"]


def event(kind: str, **changes: Any) -> TimelineEvent:
    empty = dict.fromkeys(("word", "detail", "count", "about", "revoked"))
    return TimelineEvent(**{"key": "k", "at": NOW, "kind": kind, **empty, **changes})


def page_of(device: BarnDevice, *events: TimelineEvent, dropped: int = 0) -> detail.View:
    return detail.of_barn(
        COMPANY,
        device,
        sensors=[],
        catalogue=Catalogue(),
        connectivity=connectivity.of_readings({}, interval_s=60, now=NOW, zone=BANGKOK),
        events=events,
        measured=[],
        dropped=dropped,
        now=NOW,
    )


def test_timeline_says_what_happened_in_words() -> None:
    found = page_of(
        barn_device(),
        event("device.status", word="offline"),
        event("device.buffer.dropped", about="telemetry", detail="full", count=12),
        event("device.command.answered", about="failed", detail="no such pump"),
        event("device.status", word="offline", revoked=True),
    )
    assert [(row.word, row.tone, row.detail) for row in found.events] == [
        ("Went offline", "bad", ""),
        ("Dropped for lack of space", "bad", "telemetry · full"),
        ("Answered a command", "bad", "failed · no such pump"),
        ("Revoked at its edge", "muted", ""),
    ]


def test_camera_page_has_the_schedule_in_words_and_the_address_of_its_radio() -> None:
    found = detail.of_camera(
        COMPANY,
        camera(),
        connectivity=connectivity.of_readings({}, interval_s=60, now=NOW, zone=BANGKOK),
        events=[event("schedule", word="0 8 * * *", about="waiting")],
        measured=[],
        failed=[(UUID(int=9), "IMG.jpg", NOW, None, None)],
        images=[],
        login=None,
        now=NOW,
    )
    assert found.schedule == "every 30 minutes"
    assert ("MAC address", "02:26:F6:B7:E4:47") in found.facts
    assert found.events[0].detail == "at 08:00 daily · waits for midnight"
    as_operator = replace(found, company=replace(COMPANY, role="operator"))
    assert ">Resend<" in look.part("device_detail.html", "parts", as_operator, "c")
    assert ">Resend<" not in look.part("device_detail.html", "parts", found, "c")


@pytest.mark.parametrize(
    ("changes", "tone"),
    [
        ({}, "good"),
        ({"revoked_at": NOW}, "bad"),
        ({"paused_until": NOW + timedelta(minutes=1)}, "warn"),
        ({"paused_until": NOW - timedelta(minutes=1)}, "good"),
        (None, "warn"),
    ],
)
def test_camera_page_says_how_its_login_is(changes: dict[str, Any] | None, tone: str) -> None:
    made = {"made_at": NOW, "revoked_at": None, "paused_until": None}
    login = None if changes is None else detail.Login(**{**made, **changes})
    found = detail.of_camera(
        COMPANY, camera(),
        connectivity=connectivity.of_readings({}, interval_s=60, now=NOW, zone=BANGKOK),
        events=[], measured=[], failed=[], images=[], login=login, now=NOW,
    )  # fmt: skip
    assert found.login_words[0] == tone


def test_names_of_devices_are_escaped() -> None:
    evil = "<script>alert(1)</script>"
    found = view(camera(device_name=evil, firmware=evil, site_name=evil))
    assert "<script>" not in look.part("device_list.html", "devices", found)
    shown = look.part("device_detail.html", "parts", page_of(barn_device(barn_name=evil)), "c")
    assert "<script>" not in shown
