"""Daily jobs of the edge (C-41)."""

from collections.abc import Awaitable, Callable
from datetime import datetime, time
from zoneinfo import ZoneInfo

from farmiq.config import EdgeSettings
from farmiq.plumbing import db, retention
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime import clock
from farmiq.plumbing.runtime.schedule import Daily, Job


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


def retention_job(pool: db.Pool, settings: EdgeSettings, name: str, *retentions: Retention) -> Job:
    """A daily job that deletes what is over its time."""

    async def purge() -> dict[str, object]:
        return {"count": await retention.purge(pool, *retentions)}

    return daily_job(pool, settings, name, purge)
