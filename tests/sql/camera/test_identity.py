"""Which image, day and site: clocks that are wrong, names that repeat, cameras that move."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.sql.camera.farm import Farm
from tests.sql.camera.verbs import URL, complete, fail, image, payload, retry

NOW = datetime.fromisoformat("2026-03-10T18:00:00+07:00")
EIGHT = "2026-03-10T08:00:00+07:00"
SUSPECT = ("clock_suspect",)
DEAD_CLOCK = "1970-01-01T00:00:05Z"


@pytest.fixture
def device(farm: Farm) -> UUID:
    made = farm.device(farm.site())
    farm.at(NOW)
    return made


def day(farm: Farm, wake: dict[str, Any]) -> str:
    found: str = farm.value(
        "select session_date::text from site_device_sessions where session_id = %s",
        wake["session_id"],
    )
    return found


def count(farm: Farm) -> int:
    found: int = farm.value("select count(*) from device_images")
    return found


@pytest.mark.parametrize(
    ("ago", "said", "suspect"),
    [
        (timedelta(days=6, hours=23), {}, []),
        (timedelta(days=7, hours=1), {}, [SUSPECT]),
        (timedelta(days=7, hours=1), {"pending": True}, []),
        (timedelta(days=400), {"pending": True}, []),
        (timedelta(minutes=-5), {}, []),
        (timedelta(minutes=-30), {}, [SUSPECT]),
        (timedelta(minutes=-30), {"pending": True}, [SUSPECT]),
    ],
)
def test_a_clock_that_cannot_be_right_is_told_and_its_time_kept(
    farm: Farm, device: UUID, ago: timedelta, said: dict[str, Any], suspect: list[tuple[str]]
) -> None:
    captured_at = NOW - ago
    wake = farm.wake(device, captured_at, **said)
    assert payload(farm, wake, "clock_suspect, captured_at") == (bool(suspect), captured_at)
    believed = NOW if suspect else captured_at
    assert day(farm, wake) == str(believed.date())
    assert image(farm, wake, "original_capture_date::text") == str(believed.date())
    assert farm.rows("select alert_type from device_alerts") == suspect


@pytest.mark.parametrize(
    ("captured_at", "waited", "suspect"),
    [
        ("2026-03-10T12:10:00Z", False, False),
        ("2026-03-10T12:10:00.000001Z", False, True),
        ("2026-03-10T12:10:00.000001Z", True, True),
        ("2026-03-03T12:00:00Z", False, False),
        ("2026-03-03T11:59:59.999999Z", False, True),
        ("2026-03-03T11:59:59.999999Z", True, False),
        ("2020-01-01T00:00:00Z", True, False),
        ("2019-12-31T23:59:59Z", True, True),
        (None, True, True),
    ],
)
def test_capture_time_at_the_limits_of_belief(
    farm: Farm, captured_at: str | None, waited: object, suspect: object
) -> None:
    query = "select fn_clock_suspect(%s, '2026-03-10T12:00:00Z', %s)"
    assert farm.value(query, captured_at, waited) is suspect


@pytest.mark.parametrize("captured_at", [None, "infinity", "-infinity", "294276-12-31T23:59:59Z"])
def test_no_time_at_all_is_the_time_of_arrival(
    farm: Farm, device: UUID, captured_at: str | None
) -> None:
    farm.at("2026-03-10T08:10:00+07:00")
    wake = farm.wake(device, captured_at, temperature=20)
    assert payload(farm, wake, "clock_suspect, captured_at = created_at") == (True, True)
    assert (day(farm, wake), wake["wake_index"], wake["is_overage"]) == ("2026-03-10", 1, False)
    assert farm.wake(device, captured_at, temperature=20) == wake
    assert farm.wake(device, captured_at, temperature=21) != wake


@pytest.mark.req("DS-02")
@pytest.mark.parametrize(
    ("captured_at", "told"),
    [
        (None, "{0} came without a time; its arrival at {2} counts as one"),
        (
            DEAD_CLOCK,
            "the clock of the camera cannot be right: {} came with {}; its arrival at {} counts",
        ),
    ],
)
def test_somebody_is_told_what_the_camera_said_and_what_counts_instead(
    farm: Farm, device: UUID, captured_at: str | None, told: str
) -> None:
    farm.at("2026-03-10T08:10:00+07:00")
    farm.wake(device, captured_at, temperature=20)
    farm.wake(device, captured_at, temperature=21)
    query = "select message, details ->> 'captured_at', details ->> 'assumed_at' from device_alerts"
    ((message, said, assumed),) = farm.rows(query)
    assert message == told.format("IMG_001.jpg", DEAD_CLOCK, "2026-03-10T01:10:00Z")
    assert (said is None) is (captured_at is None)
    assert assumed.startswith("2026-03-10T01:10:00")


def test_a_dead_clock_is_not_explained_by_waiting(farm: Farm, device: UUID) -> None:
    wake = farm.wake(device, DEAD_CLOCK, pending=True)
    assert (day(farm, wake), payload(farm, wake, "clock_suspect")) == ("2026-03-10", True)
    assert payload(farm, wake, "captured_at") == datetime.fromisoformat(DEAD_CLOCK)


@pytest.mark.req("FN-13")
def test_a_name_that_repeats_is_a_new_image(farm: Farm, device: UUID) -> None:
    first = farm.wake(device, EIGHT)
    fail(farm, first)
    retry(farm, device, None)
    # Neither failure nor an outstanding request makes a believable new capture the old one.
    assert farm.wake(device, "2026-03-10T16:00:00+07:00")["image_id"] != first["image_id"]


@pytest.mark.req("FN-13", "DS-09")
@pytest.mark.parametrize("captured_at", [None, DEAD_CLOCK, "2099-01-01T00:00:00Z"])
def test_an_image_that_was_asked_for_may_come_with_a_wrong_time(
    farm: Farm, device: UUID, captured_at: str | None
) -> None:
    first = farm.wake(device, EIGHT, temperature=21)
    fail(farm, first)
    assert farm.wake(device, captured_at, temperature=5)["image_id"] != first["image_id"]
    farm.value("select fn_retry_image(%s, null)", first["image_id"])
    sent: dict[str, Any] = {"temperature": 30, "image_size": 999, "total_chunks": 3}
    assert farm.wake(device, captured_at, **sent) == first
    assert payload(farm, first, "captured_at, temperature") == (datetime.fromisoformat(EIGHT), 21)
    assert image(farm, first, "image_size, total_chunks") == (999, 3)
    complete(farm, first)
    # The answer was lost, so it comes once more; another capture of that name is another image.
    assert farm.wake(device, captured_at, **sent) == first
    assert farm.wake(device, captured_at, **{**sent, "image_size": 1_000}) != first


@pytest.mark.req("FN-13")
def test_with_a_wrong_clock_equal_name_and_time_need_equal_content(
    farm: Farm, device: UUID
) -> None:
    said: dict[str, Any] = {"temperature": 20.5, "image_size": 1000, "total_chunks": 4}
    first = farm.wake(device, DEAD_CLOCK, **said)
    complete(farm, first)
    assert farm.wake(device, DEAD_CLOCK, **said, pending=True) == first
    others = [
        farm.wake(device, DEAD_CLOCK, **{**said, **other})
        for other in ({"temperature": 20.6}, {"image_size": 1001}, {"total_chunks": 5})
    ]
    assert count(farm) == 1 + len({wake["image_id"] for wake in others}) == 4
    assert farm.wake(device, DEAD_CLOCK, **{**said, "image_size": 1001}) == others[1]
    late = timedelta(microseconds=3)
    assert payload(farm, others[2], "captured_at") == datetime.fromisoformat(DEAD_CLOCK) + late


@pytest.mark.parametrize("captured_at", [None, DEAD_CLOCK])
def test_content_that_says_little_proves_little(
    farm: Farm, device: UUID, captured_at: str | None
) -> None:
    wake = farm.wake(device, captured_at, total_chunks=4)
    complete(farm, wake)
    assert farm.wake(device, captured_at, total_chunks=4) == wake
    farm.at(NOW + timedelta(hours=2))
    new = farm.wake(device, captured_at, total_chunks=4)
    assert new != wake
    farm.at(NOW + timedelta(hours=4))
    assert farm.wake(device, captured_at, total_chunks=4) == new


def test_a_time_that_was_believed_once_still_names_its_image(farm: Farm, device: UUID) -> None:
    wake = farm.wake(device, EIGHT, battery_voltage=3.9)
    farm.at("2026-03-20T08:00:00+07:00")
    assert farm.wake(device, EIGHT, battery_voltage=3.5) == wake
    assert count(farm) == 1


@pytest.mark.req("DS-02")
@pytest.mark.parametrize(
    ("snap", "captured_at", "expected"),
    [
        (0, "2026-03-09T23:59:59.999+07:00", "2026-03-09"),
        (0, "2026-03-10T00:00:00+07:00", "2026-03-10"),
        (60, "2026-03-09T23:58:59+07:00", "2026-03-09"),
        (60, "2026-03-09T23:59:00+07:00", "2026-03-10"),
    ],
)
def test_a_wake_belongs_to_the_local_date_of_its_capture(
    farm: Farm, snap: int, captured_at: str, expected: str
) -> None:
    device = farm.device(farm.site(early_wake_snap_seconds=snap), "0 0 * * *")
    wake = farm.wake(device, captured_at)
    assert day(farm, wake) == expected
    assert wake["is_overage"] is (expected == "2026-03-09")


@pytest.mark.parametrize("snap", [0, 300])
def test_a_clock_a_little_ahead_finds_tomorrow(farm: Farm, snap: int) -> None:
    device = farm.device(farm.site(early_wake_snap_seconds=snap), "0 0 * * *")
    for clock, captured_at in (("23:51", "00:00"), ("23:47", "23:56")):
        farm.at(f"2026-03-10T{clock}:00+07:00")
        date = "2026-03-11" if captured_at == "00:00" else "2026-03-10"
        wake = farm.wake(device, f"{date}T{captured_at}:00+07:00", f"{clock}.jpg")
        assert day(farm, wake) == date


def test_a_late_image_belongs_to_where_its_camera_stood(farm: Farm) -> None:
    first, second = farm.site(), farm.site()
    device = farm.device(first)  # at noon of the tenth
    farm.at("2026-03-12T12:00:00+07:00")
    farm.owner.execute("update devices set site_id = %s where device_id = %s", (second, device))
    farm.at("2026-03-14T12:00:00+07:00")
    stood = {
        "2026-03-09T08:00:00+07:00": first,
        "2026-03-12T08:00:00+07:00": first,
        "2026-03-12T16:00:00+07:00": second,
    }
    for captured_at, site in stood.items():
        wake = farm.wake(device, captured_at)
        assert payload(farm, wake, "site_id") == site
        assert farm.wake(device, captured_at) == wake
    assert retry(farm, device, URL)["original_captured_at"] == "2026-03-12T09:00:00+00:00"


@pytest.mark.parametrize(
    "change",
    [
        "update devices set site_id = null",
        "update devices set is_active = false",
        "update sites set is_active = false",
        "update pilot_programs set is_active = false",
    ],
)
def test_a_camera_that_stands_nowhere_is_refused_by_name(
    farm: Farm, device: UUID, change: str
) -> None:
    before = farm.wake(device, EIGHT)
    farm.owner.execute(change.encode())
    farm.at("2026-03-11T12:00:00+07:00")
    with pytest.raises(psycopg.Error) as raised:
        farm.wake(device, "2026-03-11T08:00:00+07:00")
    assert raised.value.sqlstate == "FQ002"
    assert f"device {device}" in str(raised.value)
    # What is known goes on: a retry keeps its lineage (C-73).
    assert farm.wake(device, EIGHT) == before
    assert retry(farm, device, URL)["is_complete"] is True
    assert farm.counters(before["session_id"]) == (1, 0, 0)


def test_unassigned_camera_is_alerted_once_a_day(farm: Farm, device: UUID) -> None:
    def told(date: str) -> Any:
        return farm.call(
            "fn_raise_alert",
            company_id=farm.company,
            alert_type="unassigned_device",
            alert_date=datetime.fromisoformat(date).date(),
            message="m",
            device_id=device,
        )

    assert [told("2026-03-10"), told("2026-03-10"), told("2026-03-11")] == [True, False, True]
