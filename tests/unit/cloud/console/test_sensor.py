"""The page of a sensor: ranges, points and gaps."""

from datetime import UTC, datetime, timedelta

import pytest

from farmiq.cloud.console.telemetry import sensor
from farmiq.cloud.console.telemetry.sensor import Dot, Range, RangeName, Sensor
from farmiq.cloud.series import CloudBucket

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def bucket(minute: int, value: float = 20.0, *, count: int = 6) -> CloudBucket:
    begin = NOW + minute * MINUTE
    return CloudBucket(
        "farm-1", "barn-1", "d1", "temperature", begin, begin + MINUTE, value, value - 1,
        value + 1, count, "°C",
    )  # fmt: skip


def dots(*minutes: int, interval_s: float = 10.0, end: datetime = NOW) -> list[Dot]:
    return sensor.dots(
        [bucket(minute) for minute in minutes],
        shown=Range(NOW - 10 * MINUTE, end, None),
        step_s=60,
        interval_s=interval_s,
        now=NOW,
    )


def minutes(found: list[Dot]) -> list[tuple[float, bool]]:
    return [((dot.at - NOW) / MINUTE, dot.is_gap) for dot in found]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("6h", "1 minute"), ("24h", "5 minutes"), ("7d", "30 minutes"), ("30d", "2 hours"),
     ("90d", "4 hours")],
)  # fmt: skip
def test_point_is_as_long_as_the_budget_of_the_range_asks_for(
    name: RangeName, expected: str
) -> None:
    step = sensor.step(sensor.SPANS[name], window=None)
    assert sensor.step_words(step) == expected
    assert step.max_points(sensor.SPANS[name], series=1) <= sensor.BUDGET


def test_point_of_a_metric_sent_by_the_hour_is_no_shorter() -> None:
    assert sensor.step_words(sensor.step(timedelta(hours=6), window="1h")) == "1 hour"


def test_points_without_a_break_have_no_gap() -> None:
    assert minutes(dots(*range(-10, 0))) == [(minute, False) for minute in range(-10, 0)]


def test_time_without_readings_is_a_gap_and_its_table_says_from_when() -> None:
    found = dots(-10, -9, -4, -3, -2, -1)
    assert minutes(found) == [
        (-10, False), (-9, False), (-8, True), (-4, False), (-3, False), (-2, False), (-1, False),
    ]  # fmt: skip
    assert sensor.gap_count(found) == 1


def test_minutes_between_slow_readings_are_no_gap() -> None:
    assert not any(gap for _, gap in minutes(dots(-10, -5, -1, interval_s=240)))


def test_chart_reaches_both_ends_of_the_range_where_nothing_came() -> None:
    found = dots(-6, -5)
    assert minutes(found) == [(-10, True), (-6, False), (-5, False), (-4, True), (0, True)]
    assert sensor.gap_count(found) == 2


def test_time_that_has_not_come_yet_is_no_gap() -> None:
    found = dots(*range(-10, 0), end=NOW + timedelta(hours=1))
    assert sensor.gap_count(found) == 0
    assert found[-1].at < NOW


def test_range_without_readings_is_one_gap() -> None:
    assert minutes(dots()) == [(-10, True), (0, True)]
    assert sensor.summary(dots()) is None


def test_mean_of_a_range_counts_readings_and_not_points() -> None:
    found = [
        Dot(NOW, 10.0, 9.0, 11.0, 1),
        Dot(NOW + MINUTE),
        Dot(NOW + 2 * MINUTE, 20.0, 19.0, 23.0, 9),
    ]
    summary = sensor.summary(found)
    assert summary == sensor.Summary(low=9.0, mean=19.0, high=23.0, count=10)


def test_range_of_a_url_is_the_named_one_or_a_day() -> None:
    assert sensor.chosen("6h", None, None, now=NOW).begin == NOW - timedelta(hours=6)
    assert sensor.chosen(None, None, None, now=NOW).name == "24h"


def test_dragged_range_has_at_least_ten_minutes_and_keeps_its_address() -> None:
    found = sensor.chosen(None, NOW, NOW + MINUTE, now=NOW)
    assert (found.span, found.name) == (sensor.MIN_SPAN, None)
    assert found.query == {"from": "2026-03-10T11:55:30Z", "to": "2026-03-10T12:05:30Z"}


@pytest.mark.parametrize(
    ("begin", "end", "reason"),
    [
        (NOW, None, "give both"),
        (None, NOW, "give both"),
        (NOW, NOW, "not after"),
        (NOW, NOW - MINUTE, "not after"),
        (NOW - timedelta(days=732), NOW, "731 days"),
    ],
)
def test_range_that_makes_no_sense_is_refused_with_a_reason(
    begin: datetime | None, end: datetime | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        sensor.chosen(None, begin, end, now=NOW)


def test_address_of_a_sensor_survives_any_name() -> None:
    odd = Sensor("a b", 'x"><script>')
    assert odd.href == "/telemetry/a%20b/x%22%3E%3Cscript%3E"
    assert sensor.parse_sensor(odd.text) == odd
    assert sensor.parse_sensor("no-metric") is None
    assert sensor.compare_address([odd], range="7d").endswith("&range=7d")
