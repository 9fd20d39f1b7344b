"""How many animals can still die or leave on a day."""

from datetime import date, timedelta

import pytest

from farmiq.farm import heads
from farmiq.farm.heads import Noted

FIRST = date(2026, 5, 1)


def noted(*records: tuple[int, str, float]) -> list[Noted]:
    return [Noted(FIRST + timedelta(days=day), kind, value) for day, kind, value in records]


@pytest.mark.parametrize(
    ("records", "day", "there"),
    [
        ([], 3, 100),
        ([(1, "mortality", 30), (2, "cull", 10)], 3, 60),
        # Who dies later was still there, and must not be counted twice.
        ([(1, "mortality", 30), (5, "mortality", 50)], 3, 20),
        ([(2, "head_count", 40), (2, "mortality", 5)], 3, 40),
        # Somebody counts again later: deaths after that are of those.
        ([(5, "head_count", 40), (6, "mortality", 40)], 3, 100),
        ([(3, "mortality", 10), (3, "head_count", 40)], 3, 90),
        ([(2, "head_count", 40), (2, "head_count", 30)], 3, 30),
        ([(1, "mortality", 130)], 3, 0),
    ],
)
def test_animals_left_are_those_who_have_not_gone(
    records: list[tuple[int, str, float]], day: int, there: int
) -> None:
    assert heads.left(100, noted(*records), FIRST + timedelta(days=day)) == there


def test_too_many_dead_are_refused_with_the_number_of_animals() -> None:
    assert heads.too_many("mortality", 3, 3) is None
    assert heads.too_many("head_count", 30, 3) is None
    assert "1 animal is left" in str(heads.too_many("cull", 2, 1))
