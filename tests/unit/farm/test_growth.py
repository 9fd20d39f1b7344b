"""Growth curves: exact on exact data, honest about noise, silent where there is nothing to say."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.farm import growth
from farmiq.farm.growth import Curve, DailyMean, NotEnoughDataError
from tests.unit.farm import back_test

PAGE = Path(__file__).parents[3] / "docs/integrate/figures.md"


def exact(ages: range, *, mature_kg: float = 7.5, rate: float = 0.042) -> list[DailyMean]:
    """Many animals of a broiler batch that follows Gompertz's curve."""
    return [DailyMean(age, gompertz(age, mature_kg, rate), 1000, 0.1) for age in ages]


def gompertz(age: int, mature_kg: float = 7.5, rate: float = 0.042) -> float:
    return mature_kg * math.exp(-math.exp(1.64 - rate * age))


def test_curve_through_exact_weights_foresees_them() -> None:
    curve = growth.fit(exact(range(1, 31)))
    assert curve.method == "gompertz"
    for age in (35, 42):
        estimate = curve.at(age)
        assert estimate.low_kg < gompertz(age) < estimate.high_kg
        assert estimate.kg == pytest.approx(gompertz(age), rel=0.02)
    target = curve.reach(2.5)
    reached = next(age for age in range(100) if gompertz(age) >= 2.5)
    assert abs(target.age_days - reached) <= 1
    assert target.latest_age_days
    assert target.earliest_age_days <= reached <= target.latest_age_days


def test_target_that_is_reached_already_lies_in_the_past() -> None:
    curve = growth.fit(exact(range(1, 31)))
    arrival = curve.reach(gompertz(20))
    assert abs(arrival.age_days - 20) <= 1
    assert arrival.latest_age_days
    assert arrival.latest_age_days < 30


def test_days_in_any_order_give_the_same_curve() -> None:
    days = exact(range(1, 20))
    assert growth.fit(days[::-1]) == growth.fit(days)


def test_young_batch_gets_a_trend_that_ends_soon() -> None:
    curve = growth.fit(exact(range(2, 9)))
    assert curve.method == "trend"
    assert curve.at(12).kg == pytest.approx(gompertz(12), rel=0.1)
    with pytest.raises(NotEnoughDataError, match="allow a forecast of 10 days; this is 20 days"):
        curve.at(28)


def test_animals_that_do_not_grow_get_a_trend() -> None:
    curve = growth.fit([DailyMean(age, 600.0, 10, 60.0) for age in range(700, 730)])
    assert curve.method == "trend"
    assert curve.at(735).kg == pytest.approx(600)


@pytest.mark.parametrize(
    ("days", "reason"),
    [
        ([], "there are no weighings yet"),
        ([DailyMean(5, 0.2, 0)], "there are no weighings yet"),
        (exact(range(5, 7)), "there are weighings of 2 days; 3 are needed"),
        (exact(range(5, 60, 20)), "there are weighings of 1 of the last 10 days"),
    ],
)
def test_too_few_weighings_give_no_curve_but_the_reason(days: list[DailyMean], reason: str) -> None:
    with pytest.raises(NotEnoughDataError, match=reason):
        growth.fit(days)


def test_band_that_is_too_wide_is_no_answer() -> None:
    days = [DailyMean(age, 0.05 * age * (1 + 0.4 * (-1) ** age), 3, 0.05) for age in range(10, 14)]
    with pytest.raises(NotEnoughDataError, match="may be anything from"):
        growth.fit(days).at(20)


def test_target_beyond_the_forecast_says_what_is_reached_instead() -> None:
    with pytest.raises(NotEnoughDataError, match=r"20 kg is not reached within the 30 days"):
        growth.fit(exact(range(1, 31))).reach(20)


def test_day_before_the_first_weighing_is_no_forecast() -> None:
    with pytest.raises(NotEnoughDataError, match="before the first weighing"):
        growth.fit(exact(range(5, 31))).at(4)


a_day = st.builds(
    DailyMean,
    age_days=st.integers(0, 1000),
    mean_kg=st.floats(0.001, 3000),
    count=st.integers(1, 5000),
    sd_kg=st.none() | st.floats(0, 500) | st.just(1e300),
)


@given(days=st.lists(a_day, max_size=30, unique_by=lambda day: day.age_days))
def test_any_weighings_give_a_curve_or_a_reason(days: list[DailyMean]) -> None:
    try:
        curve = growth.fit(days)
    except NotEnoughDataError:
        return
    _check(curve)


@pytest.mark.parametrize("sd_kg", [1e9, 1e200])
def test_absurd_spread_gives_a_reason_and_no_error(sd_kg: float) -> None:
    days = [DailyMean(age, 0.05 * age, 5, sd_kg) for age in range(1, 12)]
    with pytest.raises(NotEnoughDataError):
        growth.fit(days).at(25)


@given(
    start=st.integers(0, 300),
    weights=st.lists(st.floats(0.03, 900), min_size=8, max_size=40),
)
def test_any_weights_of_days_in_a_row_give_a_curve_or_a_reason(
    start: int, weights: list[float]
) -> None:
    _check(growth.fit([DailyMean(start + n, kg, 5, None) for n, kg in enumerate(weights)]))


def _check(curve: Curve) -> None:
    for age in (curve.last_age_days, curve.last_age_days + 1, curve.max_age_days):
        try:
            estimate = curve.at(age)
        except NotEnoughDataError:
            continue
        assert 0 < estimate.low_kg <= estimate.kg <= estimate.high_kg < math.inf
    for target_kg in (0.01, 2.5, 115.0):
        try:
            arrival = curve.reach(target_kg)
        except NotEnoughDataError:
            continue
        assert arrival.earliest_age_days <= arrival.age_days
        assert (arrival.latest_age_days or math.inf) >= arrival.age_days


def test_bands_hold_what_they_promise_and_beat_a_straight_line() -> None:
    """Batches of several kinds, asked at several ages; the page prints this very table."""
    weights, arrivals = back_test.run()
    for cases in (back_test.total(weights), back_test.total(arrivals)):
        assert 0.7 <= cases.coverage <= 0.9
        assert cases.error <= cases.line_error
    # Silence is not accuracy: it must say something in most cases.
    assert len(back_test.total(weights).errors) > 0.7 * back_test.total(weights).asked
    printed = "\n".join(back_test.table(weights, arrivals))
    print(printed)  # noqa: T201
    assert printed in PAGE.read_text()


@pytest.mark.parametrize(("freedom", "t"), [(1, 3.078), (3, 1.638), (10, 1.372), (1000, 1.282)])
def test_quantile_is_students(freedom: int, t: float) -> None:
    assert growth.quantile(freedom) == pytest.approx(t, rel=0.12 if freedom == 1 else 0.01)
