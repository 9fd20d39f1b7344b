"""P16: readings into the cloud's tables with rollups beside it, and without.

off   readings are stored, nothing is marked or computed
on    as cloud-telemetry-service does it: marks in the same transaction, and every ten seconds
      minutes, hours and days are computed and published

500 series, a reading every ten seconds each, as fast as they are taken. The CPU of the database
counts all of the computing, also what is left when the last reading is stored.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import psycopg

from bench import consume, machine, results
from bench.results import Result
from farmiq import config
from farmiq.cloud import bus, sink
from farmiq.cloud.identity.accounts import add_company
from farmiq.cloud.sink import Sink
from farmiq.cloud.telemetry import jobs, rollups, service, store
from farmiq.lab import stack
from farmiq.messages import telemetry
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, migrations
from farmiq.plumbing.bus import amqp
from farmiq.services import SQL

ENGINES = ("postgres-cloud", "rabbitmq")
SERIES = 500
EVERY_S = 10.0
BEHIND_S = 60.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rounds: int = 3
    events: int = 100_000


@dataclass(frozen=True, slots=True)
class Taken:
    """Readings per second, CPU of the database for each, and how far the rollups were behind."""

    per_s: float
    database_us: float
    behind_s: float = 0.0


async def measure(plan: Plan, say: Say) -> list[Result]:
    """P16; saved to bench/results.json and docs/develop/bench.md."""
    here = machine.description()
    root = config.state_dir() / "stacks" / "bench-rollups"
    stack.remove(root)  # what an interrupted run has left
    off: list[Taken] = []
    on: list[Taken] = []
    with stack.start(root, engines=ENGINES, say=say) as engines:
        admin_url = engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
        migrations.apply(admin_url, SQL["cloud"])
        with psycopg.connect(admin_url) as connection:
            add_company(connection, consume.TENANT, name="Bench")
        for _ in range(plan.rounds):
            off.append(await _take(engines, plan.events, with_rollups=False))
            on.append(await _take(engines, plan.events, with_rollups=True))
            say(
                f"rollups on {on[-1].per_s:>7,.0f}/s  off {off[-1].per_s:,.0f}/s   database CPU "
                f"{on[-1].database_us:.0f} µs, off {off[-1].database_us:.0f} µs a reading; "
                f"{on[-1].behind_s:.1f} s behind"
            )
    stack.remove(root)
    found = results.of_runs(
        "P16",
        "readings/s into the cloud with rollups / without",
        [one.per_s / other.per_s for one, other in zip(on, off, strict=True)],
        target=">= 0.9",
        detail={
            "with, readings/s": [round(one.per_s) for one in on],
            "without, readings/s": [round(one.per_s) for one in off],
            "with, database CPU µs a reading": [round(one.database_us) for one in on],
            "without, database CPU µs a reading": [round(one.database_us) for one in off],
            "behind when the last reading was stored, s": [round(one.behind_s, 1) for one in on],
        },
    )
    found = replace(found, sound=all(one.behind_s <= BEHIND_S for one in on))
    results.save([found], machine=here)
    return [found]


async def _take(engines: stack.Stack, events: int, *, with_rollups: bool) -> Taken:
    environment = engines.environment
    url = environment["FARMIQ_AMQP_URL"]
    with psycopg.connect(environment["FARMIQ_CLOUD_DB_ADMIN_URL"]) as connection:
        connection.execute(
            "truncate telemetry_readings, telemetry_latest, telemetry_agg, telemetry_dirty"
        )
    await consume.fill(url, events, at=_at, device=lambda number: f"d-{number % SERIES}")
    async with (
        db.pool(environment["FARMIQ_CLOUD_DB_URL"], name="bench") as pool,
        amqp.publisher(url, name="bench", topology=bus.TOPOLOGY) as publisher,
    ):
        await jobs.create_partitions(pool)
        await rollups.recompute_all(pool)  # remembers that it has begun
        pid = engines.pid("postgres-cloud")
        before_s, started = machine.cpu_s(pid), time.monotonic()
        taking = consume.drain(url, pool, service.READINGS if with_rollups else OFF)
        async with (
            consume.running(taking) as storing,
            consume.running(_rolling_up(pool, publisher)) as rolling,
        ):
            if not with_rollups:
                rolling.cancel()
            await consume.until_stored(pool, events, storing)
            took_s = time.monotonic() - started
            async with pool.connection() as connection:
                _, behind_s = await store.ROLLUPS.backlog(connection)
        if with_rollups:
            await _roll_up(pool, publisher)
        used_s = machine.cpu_s(pid) - before_s
    return Taken(events / took_s, used_s / events * 1e6, behind_s if with_rollups else 0.0)


def _at(number: int) -> datetime:
    """The last reading is half an hour old: all of them are believed, and most hours ended."""
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    return begin + timedelta(seconds=number // SERIES * EVERY_S)


async def _without_marks(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    readings = [telemetry.read_ingested(event.payload) for event in events]
    new = await store.insert_readings(tx, events, readings)
    await sink.notify_pages(tx, "telemetry_changed", events)
    return new


OFF = Sink("telemetry", bus.TELEMETRY, _without_marks)


async def _rolling_up(pool: db.Pool, publisher: amqp.Publisher) -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        await _roll_up(pool, publisher)


async def _roll_up(pool: db.Pool, publisher: amqp.Publisher) -> None:
    await rollups.recompute_all(pool)
    await rollups.publish_all(pool, publisher, settle_s=60, timeout_s=30)
