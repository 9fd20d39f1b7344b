"""Jobs: periodic work of a service, on its own tables."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import prometheus_client
import psycopg

from farmiq.plumbing import db, log
from farmiq.plumbing.backoff import Backoff, cancelled_so_far, end_if_cancelled

RUNS = prometheus_client.Counter(
    "farmiq_chore_runs_total", "Rounds of a chore", ["chore", "outcome"]
)
LAST_RUN = prometheus_client.Gauge(
    "farmiq_chore_last_success_seconds", "When a chore last went well, Unix time", ["chore"]
)
# A machine's clock may be set while a job waits for its hour: it looks again that often.
_LOOK_S = 60.0


@dataclass(frozen=True, slots=True)
class Daily:
    """Once on every day of `zone`, at `at` or as soon after as we run at all.

    `last_done` and `done` remember across restarts when it last went well.
    """

    at: time
    zone: ZoneInfo
    last_done: Callable[[], Awaitable[datetime | None]]
    done: Callable[[datetime], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Job:
    """`do` does one round and returns what it did, for the log; it may be repeated at will.

    With `daily` it runs once a day, and every_s does not count.
    """

    name: str
    every_s: float
    do: Callable[[], Awaitable[dict[str, object]]]
    daily: Daily | None = None


async def run_repeatedly(job: Job) -> None:
    """Run for ever; a database that is unreachable only delays the jobs."""
    backoff = Backoff(cap_s=30.0)
    before = cancelled_so_far()
    while True:
        end_if_cancelled(beyond=before)
        try:
            if job.daily is not None:
                await _until_due(job.daily)
            done = await job.do()
            if job.daily is not None:
                await job.daily.done(datetime.now(UTC))
        except db.UNAVAILABLE as error:
            RUNS.labels(chore=job.name, outcome="away").inc()
            log.get("jobs").warning("job.database_away", name=job.name, error=db.first_line(error))
            end_if_cancelled(beyond=before)
            await backoff.wait()
            continue
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            # What one job cannot do must not end the service that does it; it comes round again.
            RUNS.labels(chore=job.name, outcome="failed").inc()
            log.get("jobs").error(
                "job.failed",
                name=job.name,
                error=db.first_line(error),
                exc_info=not isinstance(error, psycopg.Error),
            )
            end_if_cancelled(beyond=before)
            await backoff.wait()
            continue
        RUNS.labels(chore=job.name, outcome="done").inc()
        LAST_RUN.labels(chore=job.name).set_to_current_time()
        if any(done.values()):
            log.get("jobs").info("job.done", name=job.name, **done)
        if job.daily is None:
            await asyncio.sleep(job.every_s)


def due_at(last_done: datetime | None, now: datetime, *, at: time, zone: ZoneInfo) -> datetime:
    """When a daily job is to run next; not after `now` means now.

    It is the first `at` of a local day after it was last done. An hour that a day has twice counts
    the first time, one that it lacks counts as the hour after. Done in the future was said by a
    clock that was wrong then: it counts as never.
    """
    if last_done is None or last_done > now:
        return now
    day = last_done.astimezone(zone).date()
    today = datetime.combine(day, at, tzinfo=zone).astimezone(UTC)
    if today > last_done:
        return today
    return datetime.combine(day + timedelta(days=1), at, tzinfo=zone).astimezone(UTC)


async def _until_due(daily: Daily) -> None:
    last_done = await daily.last_done()
    while True:
        now = datetime.now(UTC)
        left_s = (due_at(last_done, now, at=daily.at, zone=daily.zone) - now).total_seconds()
        if left_s <= 0:
            return
        await asyncio.sleep(min(left_s, _LOOK_S))
