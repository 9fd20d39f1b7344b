"""Months: the first day of one that is some months away."""

from datetime import date, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.farm.months import add_months, partition_months

days = st.dates(min_value=date(1900, 1, 1), max_value=date(2900, 12, 31))


@pytest.mark.parametrize(
    ("day", "months", "first"),
    [
        (date(2025, 1, 31), 0, date(2025, 1, 1)),
        (date(2025, 1, 31), 1, date(2025, 2, 1)),
        (date(2025, 1, 1), -1, date(2024, 12, 1)),
        (date(2024, 12, 31), 1, date(2025, 1, 1)),
        (date(2024, 2, 29), 12, date(2025, 2, 1)),
        (date(2025, 11, 30), 2, date(2026, 1, 1)),
        (date(2025, 6, 15), -18, date(2023, 12, 1)),
    ],
)
def test_add_months_crosses_years(day: date, months: int, first: date) -> None:
    assert add_months(day, months) == first


@given(day=days, months=st.integers(-600, 600))
def test_add_months_there_and_back_is_the_first_of_the_month(day: date, months: int) -> None:
    away = add_months(day, months)

    assert away.day == 1
    assert add_months(away, -months) == day.replace(day=1)


@given(day=days, retention_days=st.integers(1, 3650))
def test_partition_months_follow_each_other_without_a_gap(day: date, retention_days: int) -> None:
    ready = partition_months(day, retention_days)

    assert ready[0] <= day - timedelta(days=retention_days) < add_months(ready[0], 1)
    assert ready[-1] == add_months(day, 2)
    assert all(add_months(month, 1) == after for month, after in pairwise(ready))
