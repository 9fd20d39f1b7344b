"""Pure: how long a range may be, and how long its points are, so that all are within a budget.

Points of minutes, hours and single days stay where they are when the range moves on. Points of two
days and more are counted from the range's beginning, so another range has other points.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from farmiq.farm.buckets import LENGTHS, Window

# Whole parts of an hour or a day, and then days.
_MINUTES = (1, 2, 5, 10, 15, 30)
_HOURS = (1, 2, 3, 4, 6, 8, 12)
_DAYS = (1, 2, 7, 14, 28, 91, 364)


@dataclass(frozen=True, slots=True)
class Step:
    """A point is made of `count` buckets of this window."""

    window: Window
    count: int

    @property
    def length(self) -> timedelta:
        return LENGTHS[self.window] * self.count

    def max_points(self, span: timedelta, *, series: int) -> int:
        """How many there can be: a range that begins within a point has one more."""
        return series * (-(-span // self.length) + 1)


STEPS = (
    *(Step("1m", count) for count in _MINUTES),
    *(Step("1h", count) for count in _HOURS),
    *(Step("1d", count) for count in _DAYS),
)


def finest(
    span: timedelta, *, series: int, budget: int, window: Window | None = None
) -> Step | None:
    """The shortest step within the budget, of this window if one is named; None if none is."""
    return next(
        (
            step
            for step in STEPS
            if window in (None, step.window)
            and step.max_points(span, series=max(series, 1)) <= budget
        ),
        None,
    )


def check_span(
    begin: datetime | None,
    end: datetime,
    *,
    bucket: str | None,
    max_spans: Mapping[Any, timedelta],
) -> None:
    """Raises ValueError if a range is empty or longer than its bucket allows.

    Without a bucket that of days counts.
    """
    max_span = max_spans[bucket or "1d"]
    if begin is not None and begin >= end:
        raise ValueError("is not after from")
    if begin is not None and end - begin > max_span:
        named = f"bucket={bucket}" if bucket else "any bucket"
        raise ValueError(f"is more than {max_span.days} days after from, the most for {named}")


def at_least(step: Step, window: Window | None) -> Step:
    """The step for a series that has no buckets shorter than this window."""
    if window is None or LENGTHS[window] <= LENGTHS[step.window]:
        return step
    # As long as the other points, or one bucket.
    return Step(window, max(1, step.length // LENGTHS[window]))
