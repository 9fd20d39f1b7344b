"""Pure: the weeks and months that reports are about, by the dates of the farm."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

Kind = Literal["week", "month"]
KINDS: tuple[Kind, ...] = ("week", "month")
# By the clock of the farm, on the day after the period.
DUE_AT = time(6, 0)
# Not the first and the last years of the calendar, which have no week before or day after.
_WEEK = re.compile(r"([12]\d{3})-W(\d{2})")
_MONTH = re.compile(r"([12]\d{3})-(\d{2})")


@dataclass(frozen=True, slots=True)
class Period:
    """From `first` to `last`, both included: Monday to Sunday, or a calendar month."""

    kind: Kind
    first: date
    last: date

    @property
    def name(self) -> str:
        """2026-W46 or 2026-10."""
        if self.kind == "month":
            return f"{self.first:%Y-%m}"
        year, week, _ = self.first.isocalendar()
        return f"{year:04}-W{week:02}"

    @property
    def days(self) -> list[date]:
        count = (self.last - self.first).days + 1
        return [self.first + timedelta(days=n) for n in range(count)]

    def before(self) -> "Period":
        return containing(self.kind, self.first - timedelta(days=1))

    def due_at(self, zone: ZoneInfo) -> datetime:
        """When its report is made: six in the morning of the farm, on the day after it."""
        day = self.last + timedelta(days=1)
        return datetime.combine(day, DUE_AT, tzinfo=zone).astimezone(UTC)

    def bounds(self, zone: ZoneInfo) -> tuple[datetime, datetime]:
        """The instants at which it begins and ends, by the clocks of the farm."""
        begin, end = self.first, self.last + timedelta(days=1)
        return (
            datetime.combine(begin, time(), tzinfo=zone).astimezone(UTC),
            datetime.combine(end, time(), tzinfo=zone).astimezone(UTC),
        )


def containing(kind: Kind, day: date) -> Period:
    """The week or month with this day."""
    if kind == "week":
        first = day - timedelta(days=day.weekday())
        return Period(kind, first, first + timedelta(days=6))
    first = day.replace(day=1)
    following = (first + timedelta(days=31)).replace(day=1)
    return Period(kind, first, following - timedelta(days=1))


def latest_due(kind: Kind, *, now: datetime, zone: ZoneInfo) -> Period:
    """The newest period whose report is due by now."""
    period = containing(kind, now.astimezone(zone).date()).before()
    return period if period.due_at(zone) <= now else period.before()


def parse(text: str) -> Period:
    """Such as 2026-W46 or 2026-10. Raises ValueError."""
    if match := _WEEK.fullmatch(text):
        year, week = int(match[1]), int(match[2])
        try:
            return containing("week", date.fromisocalendar(year, week, 1))
        except ValueError:
            raise ValueError(f"{text} is no week: the year has fewer") from None
    if (match := _MONTH.fullmatch(text)) and 1 <= int(match[2]) <= 12:  # noqa: PLR2004
        return containing("month", date(int(match[1]), int(match[2]), 1))
    raise ValueError(f"{text!r} is neither a week such as 2026-W46 nor a month such as 2026-10")
