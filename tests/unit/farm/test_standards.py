"""Breed standards between the ages that they name."""

import pytest

from farmiq.farm import standards
from farmiq.farm.standards import StandardRow

STANDARD = (
    StandardRow(0, weight_kg=0.04, mortality_pct=0.0),
    StandardRow(10, weight_kg=0.34, daily_gain_g=45.0, feed_conversion=1.0, mortality_pct=1.0),
    StandardRow(20, weight_kg=0.94, daily_gain_g=75.0, feed_conversion=1.2, mortality_pct=1.5),
)


@pytest.mark.parametrize(
    ("age", "weight"), [(0, 0.04), (5, 0.19), (10, 0.34), (15, 0.64), (20, 0.94), (21, None)]
)
def test_standard_between_two_ages_is_on_a_straight_line(age: int, weight: float | None) -> None:
    found = standards.expected(STANDARD, "weight_kg", age)
    assert found == (None if weight is None else pytest.approx(weight))


def test_column_of_a_standard_counts_at_the_ages_that_have_it() -> None:
    assert standards.expected(STANDARD, "daily_gain_g", 9) is None
    assert standards.expected(STANDARD, "daily_gain_g", 15) == pytest.approx(60.0)
    assert standards.expected((), "weight_kg", 1) is None
