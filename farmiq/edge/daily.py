"""Daily jobs of the edge, and deletion of old rows in portions (C-41)."""

from collections.abc import Awaitable, Callable
from datetime import datetime, time
from typing import Protocol
from zoneinfo import ZoneInfo

from farmiq.config import EdgeSettings
from farmiq.plumbing import db
from farmiq.plumbing.runtime import clock
from farmiq.plumbing.runtime.schedule import Daily, Job

PORTION = 5_000


def daily_job(
    pool: db.Pool,
    settings: EdgeSettings,
    name: str,
    do: Callable[[], Awaitable[dict[str, object]]],
) -> Job:
    """A job for UPKEEP_AT of every day; one that was missed runs after the next start.

    The table chore_runs has the time of the last success. After the clock has jumped the job does
    nothing: most of these jobs delete what is old.
    """
    guard = clock.AgeGuard(pool, name)

    async def last_done() -> datetime | None:
        await guard.look()
        async with pool.connection() as connection:
            last_done_at: datetime | None = await db.fetch_value(
                connection, "select last_done_at from chore_runs where chore = %s", name
            )
        return last_done_at

    async def done(at: datetime) -> None:
        async with db.transaction(pool) as tx:
            await tx.execute(
                "insert into chore_runs (chore, last_done_at) values (%s, %s) "
                "on conflict on constraint chore_runs_pkey do update set "
                "last_done_at = excluded.last_done_at",
                (name, at),
            )

    when = Daily(
        time.fromisoformat(settings.upkeep_at), ZoneInfo(settings.timezone), last_done, done
    )
    return Job(name, 0.0, guard.guard(do), daily=when)


class Purge(Protocol):
    """Deletes at most `max_rows` rows that are older than `days`; returns how many."""

    async def __call__(self, tx: db.Connection, *, days: float, max_rows: int) -> int: ...


async def purge_all(pool: db.Pool, purge: Purge, *, days: float) -> int:
    """Delete all old rows in short transactions; return how many."""
    deleted = 0
    while True:
        async with db.transaction(pool) as tx:
            count = await purge(tx, days=days, max_rows=PORTION)
        deleted += count
        if count < PORTION:
            return deleted
