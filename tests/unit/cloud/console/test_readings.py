import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.telemetry import view as readings
from farmiq.cloud.console.telemetry.view import Reading, State
from farmiq.plumbing import ids
from farmiq.ui.metrics import Catalogue, CatalogueEntry
from farmiq.ui.sparkline import Point

NOW = datetime(2026, 3, 10, 5, 0, tzinfo=UTC)
COMPANY = Company(
    company_id=ids.new(), name="Green", tenant_id="tenant-a", timezone="Asia/Bangkok", email="a@b.c"
)


def before(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def reading(
    device_id: str = "d1",
    metric_type: str = "temperature",
    *,
    age_s: float = 5,
    every_s: float = 60,
    waited_s: float = 0,
    barn_id: str = "barn-1",
    value: float = 21.5,
    window: str | None = None,
    revoked: bool = False,
) -> Reading:
    history = tuple(Point(before(age_s + every_s * back), value) for back in (2, 1, 0))
    return Reading(
        event_id=ids.new(),
        farm_id="farm-1",
        barn_id=barn_id,
        device_id=device_id,
        metric_type=metric_type,
        value=value,
        unit="°C",
        captured_at=before(age_s),
        arrived_at=before(age_s - waited_s),
        count=1234,
        window=window,
        revoked=revoked,
        history=history,
    )


def view(*found: Reading) -> readings.View:
    return readings.view(COMPANY, found, now=NOW)


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Niue"])
def test_readings_from_the_ends_of_the_calendar_are_shown(zone: str) -> None:
    first, last = datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC)
    odd = replace(reading(), captured_at=last, history=(Point(first, 1.0), Point(last, 2.0)))
    (row,) = readings.view(replace(COMPANY, timezone=zone), [odd], now=NOW).rows
    assert row.state is State.AHEAD


@pytest.mark.parametrize(
    ("seconds_ago", "expected_s"),
    [
        ([], 120),
        ([5], 120),
        ([5, 5], 120),
        ([180, 120, 60], 60),
        ([1000, 120, 60, 0], 60),
        ([4, 3, 2, 1], 10),
    ],
)
def test_the_interval_is_the_median_gap(seconds_ago: list[float], expected_s: float) -> None:
    assert readings.expected_interval_s([before(ago) for ago in seconds_ago]) == expected_s


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [
        (0, State.CURRENT),
        (120, State.CURRENT),
        (120.1, State.LATE),
        (-60, State.CURRENT),
        (-61, State.AHEAD),
    ],
)
def test_late_is_older_than_two_intervals(age_s: float, expected: State) -> None:
    assert readings.state(before(age_s), interval_s=60, now=NOW) is expected


@pytest.mark.parametrize(
    ("sensors", "late", "ahead", "expected"),
    [
        (0, 0, 0, "No sensor has reported yet"),
        (1, 0, 0, "The only sensor is current"),
        (24, 0, 0, "All 24 sensors are current"),
        (24, 3, 0, "3 of 24 sensors are late"),
        (24, 1, 0, "1 of 24 sensors is late"),
        (24, 24, 0, "All 24 sensors are late"),
        (1, 1, 0, "The only sensor is late"),
        (24, 0, 1, "1 of 24 sensors has a clock that runs ahead"),
        (24, 0, 2, "2 of 24 sensors have clocks that run ahead"),
        (24, 3, 1, "3 of 24 sensors are late; 1 of 24 sensors has a clock that runs ahead"),
    ],
)
def test_sentence_counts_late_and_ahead_sensors(
    sensors: int, late: int, ahead: int, expected: str
) -> None:
    assert readings.sentence(sensors=sensors, late=late, ahead=ahead) == expected


def test_counts_are_those_of_the_rows() -> None:
    found = view(reading("d1"), reading("d2", age_s=500), reading("d3", age_s=-300))
    assert found.problems == sum(row.is_problem for row in found.rows) == 2
    assert found.sentence.startswith("1 of 3 sensors is late; 1 of 3")
    assert found.title == "(2) Telemetry"


def test_page_is_fetched_again_when_the_next_sensor_turns_late() -> None:
    found = view(reading("d1", age_s=5), reading("d2", age_s=30), reading("d3", age_s=500))
    assert found.refresh_at == before(30) + timedelta(seconds=2 * 60 + readings.REFRESH_AFTER_S)
    assert view(reading(age_s=500)).refresh_at is None


def test_late_sensors_stand_first_in_their_barn_and_their_barn_before_others() -> None:
    found = view(
        reading("d1"),
        reading("d2", barn_id="barn-2"),
        reading("d3", barn_id="barn-2", age_s=500),
        reading("d4", barn_id="barn-3"),
    )
    assert [row.reading.device_id for row in found.rows] == ["d3", "d2", "d1", "d4"]


def test_a_revoked_sensor_is_never_late_and_stands_last() -> None:
    found = view(reading("d1", revoked=True, age_s=9000), reading("d2"), reading("d3", age_s=500))
    assert [row.state for row in found.rows] == [State.LATE, State.CURRENT, State.REVOKED]
    assert found.sentence == "1 of 2 sensors is late"
    alone = view(reading("d1", revoked=True, age_s=9000))
    assert (alone.sentence, alone.problems) == ("Every sensor was revoked", 0)


@pytest.mark.parametrize(
    ("window", "age_s", "expected"),
    [
        ("1m", 100, State.CURRENT),
        ("1m", 181, State.LATE),
        ("1h", 7000, State.CURRENT),
        ("1d", 2 * 86400, State.CURRENT),
        ("1d", 2 * 86400 + 61, State.LATE),
    ],
)
def test_a_metric_sent_as_aggregates_is_late_after_two_windows(
    window: str, age_s: float, expected: State
) -> None:
    (row,) = view(reading(window=window, age_s=age_s, every_s=60)).rows
    assert row.state is expected
    assert row.mean.startswith("mean of")


def test_state_follows_from_as_many_readings_as_today_looks_at() -> None:
    """A sensor that reports more often since yesterday is not called current for hours."""
    slow = [Point(before(60 * 60 * back), 1.0) for back in range(30, 1, -1)]
    fast = [Point(before(300 + 60 * back), 1.0) for back in range(8, -1, -1)]
    (row,) = view(replace(reading(), captured_at=fast[-1].at, history=(*slow, *fast))).rows
    assert (row.interval_s, row.state) == (60, State.LATE)


def test_names_of_registered_barns_and_labels_of_the_catalogue_are_shown() -> None:
    catalogue = Catalogue([CatalogueEntry("temperature", "Room temperature", 2)])
    found = readings.view(
        COMPANY,
        [reading("barn-1-climate", value=26.0), reading("co2-1", "co2", value=1790.4)],
        now=NOW,
        catalogue=catalogue,
        names={("farm-1", "barn-1"): ("North barn", "Hill Farm")},
    )
    (barn,) = found.barns
    assert (barn.name, barn.farm_name) == ("North barn", "Hill Farm")
    assert [
        (device.label, row.metric.label, row.value)
        for device in barn.devices
        for row in device.rows
    ] == [
        ("climate", "Room temperature", "26.00"),
        ("co2-1", "CO₂", "1,790"),
    ]


def test_rows_stand_by_barn_and_device_whatever_their_order() -> None:
    found = view(
        reading("d2", barn_id="barn-2"),
        reading("d1", "temperature"),
        reading("d1", "humidity"),
    )
    assert [(barn.barn_id, len(barn.rows)) for barn in found.barns] == [
        ("barn-1", 2),
        ("barn-2", 1),
    ]
    (device,) = found.barns[0].devices
    assert [row.metric.label for row in device.rows] == ["Humidity", "Temperature"]


def test_a_reading_that_waited_says_when_it_arrived() -> None:
    (waited,) = view(reading(age_s=4000, waited_s=3900)).rows
    assert waited.arrived == "11:58:20"
    (prompt,) = view(reading(waited_s=2)).rows
    assert prompt.arrived == ""


def test_keys_are_valid_html_ids_and_unique() -> None:
    found = view(reading("a", "b c"), reading("a b", "c"), reading('"><script>', "x"))
    keys = {row.key for row in found.rows}
    assert len(keys) == 3
    assert all(key.removeprefix("s-").isalnum() for key in keys)


def test_json_of_readings_is_valid_for_any_value() -> None:
    twin = readings.as_json(view(reading("d1", value=float("nan")), reading("d2")))
    first, second = json.loads(json.dumps(twin, allow_nan=False))["readings"]
    assert first["metric_value"] is None
    assert second["metric_value"] == 21.5
    assert second["state"] == "current"
    assert second["expected_interval_s"] == 60
