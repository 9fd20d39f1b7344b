"""Partitions of a table by month: which there should be, which there are, and how one is made.

The database makes and drops them, by functions of the tables' owner; here is when and how often.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

import psycopg

from farmiq import crash
from farmiq.plumbing import db

T = TypeVar("T")

MONTHS_AHEAD = 2  # partitions for a clock that runs early, or a machine that was off
LOCK_TRIES = 20
LOCK_PAUSE_S = 0.5

# Readers, intake and retention go before a change of the partitions: that is tried again.
_LOCKED = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


def partition_months(today: date, days_back: int) -> list[date]:
    """The months from so many days back to two months ahead."""
    first = (today - timedelta(days=days_back)).replace(day=1)
    count = (today.year - first.year) * 12 + today.month - first.month + MONTHS_AHEAD
    return [add_months(first, number) for number in range(count + 1)]


def add_months(day: date, months: int) -> date:
    """The first day of the month that many months later."""
    index = day.year * 12 + day.month - 1 + months
    return date(index // 12, index % 12 + 1, 1)


def days_before(day: date, days: int = 0) -> datetime:
    """Midnight in UTC, that many days before."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=days)


async def today(tx: db.Connection) -> date:
    day: date = await db.fetch_value(tx, "select (fn_now() at time zone 'UTC')::date")
    return day


async def partitions(tx: db.Connection, table: str) -> list[date]:
    """The months that have a partition."""
    rows = await db.fetch_all(
        tx,
        """
        select to_date(right(c.relname, 7), 'YYYY_MM')
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = %s::regclass and c.relname ~ '_[0-9]{4}_[0-9]{2}$'
        order by 1
        """,
        table,
    )
    return [month for (month,) in rows]


async def create_partition(pool: db.Pool, month: date) -> bool:
    """Create a month's partition of the readings; False if it is there, or the table is busy.

    The next run tries again; until then the default partition takes its rows.
    """

    async def create(tx: db.Connection) -> bool:
        made: bool = await db.fetch_value(tx, "select fn_make_telemetry_month(%s)", month)
        crash.here("telemetry.in_partition_upkeep")
        return made

    return await when_unlocked(pool, create) or False


async def drop_partition(pool: db.Pool, month: date) -> bool:
    """Drop a month's partition of the readings; False if something of it has to stay."""

    async def drop(tx: db.Connection) -> bool:
        outcome = await db.fetch_value(tx, "select fn_drop_telemetry_month(%s)", month)
        return bool(outcome == "dropped")

    return await when_unlocked(pool, drop) or False


async def when_unlocked(pool: db.Pool, do: Callable[[db.Connection], Awaitable[T]]) -> T | None:
    """Do it in a transaction, again if the table is locked; None if it stays locked."""
    for _ in range(LOCK_TRIES):
        try:
            async with db.transaction(pool) as tx:
                return await do(tx)
        except _LOCKED:
            await asyncio.sleep(LOCK_PAUSE_S)
    return None
