"""Pure: breed standards, what animals of a breed are expected to be at an age."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StandardRow:
    age_days: int
    weight_kg: float | None = None
    daily_gain_g: float | None = None
    feed_conversion: float | None = None
    mortality_pct: float | None = None


def expected(standard: Sequence[StandardRow], column: str, age_days: int | None) -> float | None:
    """The standard's value at an age, between its ages on a straight line; None outside them.

    Nothing is expected of animals whose age nobody knows.
    """
    if age_days is None:
        return None
    known = [
        (row.age_days, value) for row in standard if (value := getattr(row, column)) is not None
    ]
    known.sort()
    at = bisect_left(known, age_days, key=lambda pair: pair[0])
    if at == len(known):
        return None
    age, value = known[at]
    if age == age_days:
        return float(value)
    if at == 0:
        return None
    before, start = known[at - 1]
    return float(start + (value - start) * (age_days - before) / (age - before))
