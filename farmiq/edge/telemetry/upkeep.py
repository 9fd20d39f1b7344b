"""Telemetry's chores on its own tables: a month has its partition before it begins."""

from datetime import date

from farmiq.edge.telemetry import store
from farmiq.plumbing import db

# The month before (replays after an outage) to two ahead (a clock that runs early, a lazy box).
MONTHS = range(-1, 3)


async def make_months(pool: db.Pool, *, today: date) -> list[date]:
    """Make the partitions around `today`; returns the months made now."""
    months = [shift(today, months=count) for count in MONTHS]
    async with db.transaction(pool) as tx:
        return [month for month in months if await store.make_month(tx, month)]


def shift(day: date, *, months: int) -> date:
    """The first day of the month that many months away."""
    index = day.year * 12 + day.month - 1 + months
    return date(index // 12, index % 12 + 1, 1)
