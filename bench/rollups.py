"""P18: readings into the cloud's tables with what is made of them beside it, and without.

off        readings are stored, nothing is marked or computed
rollups    as cloud-telemetry-service does it: marks in the same transaction, and every ten seconds
           minutes, hours and days are computed and published
analytics  rollups, and cloud-analytics-service as a process of its own: it computes the figures of
           the batch that is in the barn from the hours that changed

500 series, a reading every ten seconds each, as fast as they are taken. The CPU of the database
counts all of the computing, also what is left when the last reading is stored.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

import psycopg

from bench import consume, ingest, machine, results
from bench.results import Result
from farmiq import config
from farmiq.cloud import bus, sink
from farmiq.cloud.analytics import marks
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
Beside = Literal["off", "rollups", "analytics"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rounds: int = 3
    events: int = 300_000  # longer than a round of the rollups


@dataclass(frozen=True, slots=True)
class Taken:
    """Readings per second, CPU of the database for each, and how far what is beside was behind."""

    per_s: float
    database_us: float
    behind_s: float = 0.0


async def measure(plan: Plan, say: Say) -> list[Result]:
    """P18; saved to bench/results.json and docs/develop/bench.md."""
    here = machine.description()
    root = config.state_dir() / "stacks" / "bench-rollups"
    stack.remove(root)  # what an interrupted run has left
    taken: dict[Beside, list[Taken]] = {"off": [], "rollups": [], "analytics": []}
    with stack.start(root, engines=ENGINES, say=say) as engines:
        _company(engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"])
        for _ in range(plan.rounds):
            for beside, rounds in taken.items():
                rounds.append(await _take(engines, plan.events, beside))
                say(
                    f"{beside:<10}{rounds[-1].per_s:>7,.0f}/s   database CPU "
                    f"{rounds[-1].database_us:.0f} µs a reading; {rounds[-1].behind_s:.1f} s behind"
                )
    stack.remove(root)
    found = [_result(beside, taken[beside], taken["off"]) for beside in ("rollups", "analytics")]
    results.save(found, machine=here)
    return found


def _result(beside: str, on: Sequence[Taken], off: Sequence[Taken]) -> Result:
    found = results.of_runs(
        f"P18 {beside}",
        f"readings/s into the cloud with {beside} / without",
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
    return replace(found, sound=all(one.behind_s <= BEHIND_S for one in on))


def _company(admin_url: str) -> None:
    """The company with a batch in the barn of the readings, so that they have figures."""
    migrations.apply(admin_url, SQL["cloud"])
    with psycopg.connect(admin_url) as connection:
        add_company(connection, consume.TENANT, name="Bench")
        connection.execute(
            """
            with farm as (insert into farms (tenant_id, farm_id, name, timezone)
              values (%(tenant)s, 'f-1', 'Farm', 'Asia/Bangkok')),
            barn as (insert into barns (tenant_id, farm_id, barn_id, name)
              values (%(tenant)s, 'f-1', 'b-1', 'Barn'))
            insert into batches (tenant_id, batch_id, farm_id, barn_id, species, placed_count,
              placed_on)
            values (%(tenant)s, 'x', 'f-1', 'b-1', 'broiler', 20000, current_date - 20)
            """,
            {"tenant": consume.TENANT},
        )


async def _take(engines: stack.Stack, events: int, beside: Beside) -> Taken:
    environment = engines.environment
    url = environment["FARMIQ_AMQP_URL"]
    with psycopg.connect(environment["FARMIQ_CLOUD_DB_ADMIN_URL"]) as connection:
        connection.execute(
            "truncate telemetry_readings, telemetry_latest, telemetry_agg, telemetry_dirty, "
            "alert_readings, analytics_dirty_days, analytics_pending, batch_days, kpi_daily"
        )
    async with (
        _analytics(engines, events, beside),
        db.pool(environment["FARMIQ_CLOUD_DB_URL"], name="bench") as pool,
        amqp.publisher(url, name="bench", topology=bus.TOPOLOGY) as publisher,
    ):
        await jobs.create_partitions(pool)
        await rollups.recompute_all(pool)  # remembers that it has begun
        pid = engines.pid("postgres-cloud")
        before_s, started = machine.cpu_s(pid), time.monotonic()
        taking = consume.drain(url, pool, OFF if beside == "off" else service.READINGS)
        async with (
            consume.running(taking) as storing,
            consume.running(_rolling_up(pool, publisher)) as rolling,
        ):
            if beside == "off":
                rolling.cancel()
            await consume.until_stored(pool, events, storing)
            took_s = time.monotonic() - started
            behind_s = await _behind_s(pool, url, beside)
        if beside != "off":
            await _roll_up(pool, publisher)
        used_s = machine.cpu_s(pid) - before_s
    return Taken(events / took_s, used_s / events * 1e6, behind_s)


@contextlib.asynccontextmanager
async def _analytics(engines: stack.Stack, events: int, beside: Beside) -> AsyncIterator[None]:
    """Fill the queue; with analytics its service runs beside."""
    url = engines.environment["FARMIQ_AMQP_URL"]
    await consume.fill(url, events, at=_at, device=_device)
    if beside != "analytics":
        yield
        return
    port = ingest.free_port()
    environment = {**engines.environment, "FARMIQ_CLOUD_HTTP_PORT": str(port)}
    async with ingest.service(engines.root, bus.DAYS.service, environment) as running:
        await ingest.until_ready(running, f"http://127.0.0.1:{port}")
        yield
        running.check()


async def _behind_s(pool: db.Pool, url: str, beside: Beside) -> float:
    """How long the oldest work waits; events that analytics has not looked at wait from now."""
    if beside == "off":
        return 0.0
    async with pool.connection() as connection:
        _, behind_s = await store.ROLLUPS.backlog(connection)
    if beside == "rollups":
        return behind_s
    began = time.monotonic()
    while (await amqp.depths(url, [bus.DAYS.queue]))[bus.DAYS.queue]:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    async with pool.connection() as connection:
        waiting_s = await marks.behind_s(connection)
    return max(behind_s, time.monotonic() - began + waiting_s)


def _device(number: int) -> str:
    return f"d-{number % SERIES}"


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
