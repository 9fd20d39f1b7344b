"""Forecasts as people see them: dates, bands, and reasons where nobody can say."""

import math
from dataclasses import replace
from datetime import date, timedelta

import pytest

from farmiq.cloud.figures.forecast import Batch, WeighedDay, Weights, describe, path

BATCH = Batch(
    batch_id="b",
    placed_on=date(2026, 3, 1),
    age_at_placing_days=1,
    closed_on=None,
    target_weight_kg=2.5,
    target_on=None,
    today=date(2026, 4, 1),
)


def weighed(days: int, batch: Batch = BATCH) -> Weights:
    """Broilers that were weighed each day since they were placed."""
    weighed_days = [
        WeighedDay(BATCH.day(age), 7.5 * math.exp(-math.exp(1.64 - 0.042 * age)), 100, 10.0)
        for age in range(1, days + 1)
    ]
    return Weights(batch, weighed_days)


def test_forecast_names_days_of_the_calendar() -> None:
    found = describe(weighed(30), on=date(2026, 4, 6), target_kg=None)
    assert (found.method, found.weighed_days, found.reason) == ("gompertz", 30, None)
    assert found.last_weighed_on == date(2026, 3, 30)
    assert (found.weight.on, found.weight.age_days) == (date(2026, 4, 6), 37)
    true_kg = 7.5 * math.exp(-math.exp(1.64 - 0.042 * 37))
    assert found.weight.weight_kg == pytest.approx(true_kg, rel=0.03)
    assert found.weight.low_kg
    assert found.weight.high_kg
    assert found.weight.low_kg < true_kg < found.weight.high_kg
    assert found.target
    assert found.target.reached_on
    assert found.target.earliest_on
    reached = next(age for age in range(99) if 7.5 * math.exp(-math.exp(1.64 - 0.042 * age)) >= 2.5)
    assert abs((found.target.reached_on - BATCH.day(reached)).days) <= 1
    assert found.target.earliest_on <= found.target.reached_on


def test_day_that_nobody_names_is_the_target_date_or_today() -> None:
    assert describe(weighed(30), on=None, target_kg=None).weight.on == BATCH.today
    planned = replace(BATCH, target_on=date(2026, 4, 11))
    assert describe(weighed(30, planned), on=None, target_kg=None).weight.on == planned.target_on


def test_target_of_the_request_counts_before_the_batchs() -> None:
    found = describe(weighed(30), on=None, target_kg=1.0)
    assert found.target
    assert found.target.target_kg == 1.0
    assert found.target.reached_on
    assert found.target.reached_on < date(2026, 3, 30)


def test_batch_without_a_target_has_no_target_day() -> None:
    without = replace(BATCH, target_weight_kg=None)
    assert describe(weighed(30, without), on=None, target_kg=None).target is None


def test_too_few_weighings_say_so_everywhere() -> None:
    found = describe(weighed(2), on=None, target_kg=None)
    reason = "there are weighings of 2 days; 3 are needed"
    assert (found.method, found.reason, found.weight.reason) == (None, reason, reason)
    assert found.target
    assert found.target.reason == reason
    assert found.weight.weight_kg is None


def test_animals_that_left_are_not_foreseen() -> None:
    closed = replace(BATCH, closed_on=date(2026, 3, 31))
    found = describe(weighed(30, closed), on=date(2026, 4, 6), target_kg=None)
    assert found.weight.reason == "the animals left on 2026-03-31"
    assert found.target
    assert found.target.reason == "the animals left on 2026-03-31"


def test_day_that_is_too_far_is_refused_alone() -> None:
    found = describe(weighed(30), on=BATCH.today + timedelta(days=400), target_kg=None)
    assert found.weight.reason
    assert "allow a forecast of 30 days" in found.weight.reason
    assert found.target
    assert found.target.reason is None


def test_path_goes_from_the_last_weighing_to_the_day_asked_for() -> None:
    points = path(weighed(30), until=date(2026, 4, 6))
    assert [on for on, _ in points] == [BATCH.day(age) for age in range(30, 38)]
    asked = describe(weighed(30), on=date(2026, 4, 6)).weight
    last = points[-1][1]
    assert (last.kg, last.low_kg, last.high_kg) == (asked.weight_kg, asked.low_kg, asked.high_kg)


def test_path_ends_where_the_data_allow_no_forecast() -> None:
    assert not path(weighed(2), until=date(2026, 4, 6))
    assert len(path(weighed(30), until=date(2027, 4, 6))) == 31
    closed = replace(BATCH, closed_on=date(2026, 4, 1))
    assert [on for on, _ in path(weighed(30, closed), until=date(2026, 4, 6))][
        -1
    ] == closed.closed_on


def test_batch_of_unknown_age_has_a_trend_and_no_curve_from_birth() -> None:
    found = describe(weighed(30, replace(BATCH, age_at_placing_days=None)), on=date(2026, 4, 3))
    assert (found.method, found.reason) == ("trend", None)
    # Days since they were placed.
    assert found.weight.age_days == 33
    assert found.weight.weight_kg
