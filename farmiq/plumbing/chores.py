"""Chores: work that comes round again, in a service's own time and on its own tables."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import prometheus_client

from farmiq.plumbing import db, log
from farmiq.plumbing.backoff import Backoff

RUNS = prometheus_client.Counter(
    "farmiq_chore_runs_total", "Rounds of a chore", ["chore", "outcome"]
)
LAST_RUN = prometheus_client.Gauge(
    "farmiq_chore_last_success_seconds", "When a chore last went well, Unix time", ["chore"]
)


@dataclass(frozen=True, slots=True)
class Chore:
    """`do` does one round and returns what it did, for the log; it may be repeated at will."""

    name: str
    every_s: float
    do: Callable[[], Awaitable[dict[str, object]]]


async def keep_doing(chore: Chore) -> None:
    """Rounds without end; a database that is away only delays them."""
    backoff = Backoff(cap_s=30.0)
    while True:
        try:
            done = await chore.do()
        except db.UNAVAILABLE as error:
            RUNS.labels(chore=chore.name, outcome="away").inc()
            log.get("chores").warning(
                "chore.database_away", chore=chore.name, error=db.first_line(error)
            )
            await backoff.wait()
            continue
        RUNS.labels(chore=chore.name, outcome="done").inc()
        LAST_RUN.labels(chore=chore.name).set_to_current_time()
        if any(done.values()):
            log.get("chores").info("chore.done", chore=chore.name, **done)
        await asyncio.sleep(chore.every_s)
