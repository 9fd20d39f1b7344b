"""Daily chores of the edge: when each last went well is kept in its database (C-41)."""

from collections.abc import Awaitable, Callable
from datetime import datetime, time
from zoneinfo import ZoneInfo

from farmiq.config import EdgeSettings
from farmiq.plumbing import clock, db
from farmiq.plumbing.schedule import Daily, Job


def daily(
    pool: db.Pool,
    settings: EdgeSettings,
    name: str,
    do: Callable[[], Awaitable[dict[str, object]]],
) -> Job:
    """A chore for UPKEEP_AT of every day; one missed while we were off runs when we are back.

    It does nothing after the clock has jumped: most of these delete what is old.
    """
    guard = clock.AgeGuard(pool, name)

    async def last_done() -> datetime | None:
        await guard.look()
        async with pool.connection() as connection:
            found: datetime | None = await db.fetch_value(
                connection, "select last_done_at from chore_runs where chore = %s", name
            )
        return found

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
