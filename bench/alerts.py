"""P18: readings into the cloud's tables with 10,000 alert rules evaluated beside it, and without.

off   readings are stored; nothing is noted for rules, and nobody evaluates anything
on    each transaction notes what it stored (alert_readings); cloud-alerts-service evaluates that,
      as a process of its own

500 devices of one company, each with a rule for each of 20 metrics. Readings of one metric come
from all of them, as fast as they are taken; one device in a hundred is too warm all the time.
Then, at a farm's pace, every device sends one value that is too high: until its episode is there.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import msgspec
import psycopg

from bench import consume, ingest, machine, results, travel
from bench.ingest import Running
from bench.results import Result
from farmiq import config
from farmiq.cloud import bus
from farmiq.cloud.identity.accounts import add_company
from farmiq.cloud.telemetry import jobs, service
from farmiq.lab import stack
from farmiq.lab.stack import Stack
from farmiq.messages.alerts import AlertRule
from farmiq.plumbing import db, migrations
from farmiq.plumbing.bus import amqp
from farmiq.services import SQL

ENGINES = ("postgres-cloud", "rabbitmq")
DEVICES, METRICS = 500, 20
WARM_EVERY = 100
EVERY_S = 10.0
BEHIND_S = 60.0
THRESHOLD, TOO_HIGH = 32.0, 40.0
SPARE = "metric-1"
PACE_PER_S = 50
PATIENCE_S = 60.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rounds: int = 3
    events: int = 100_000


@dataclass(frozen=True, slots=True)
class Evaluation:
    """cloud-alerts-service at work; it is done when every device's state is at `last_at`."""

    alerts: Running
    last_at: datetime


@dataclass(frozen=True, slots=True)
class Taken:
    """Readings per second; of the evaluation its CPU for each, and how long it was behind."""

    per_s: float
    database_us: float
    service_us: float = 0.0
    behind_s: float = 0.0


async def measure(plan: Plan, say: Say) -> list[Result]:
    """P18; saved to bench/results.json and docs/develop/bench.md."""
    here = machine.description()
    root = config.state_dir() / "stacks" / "bench-alerts"
    stack.remove(root)  # what an interrupted run has left
    off: list[Taken] = []
    on: list[Taken] = []
    with stack.start(root, engines=ENGINES, say=say) as engines:
        admin_url = engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
        migrations.apply(admin_url, SQL["cloud"])
        _company_with_rules(admin_url)
        for _ in range(plan.rounds):
            off.append(await _without(engines, plan.events))
            on.append(await _with(engines, plan.events))
            say(
                f"rules on    {on[-1].per_s:>7,.0f}/s  off {off[-1].per_s:,.0f}/s   "
                f"{on[-1].service_us:.0f} µs CPU a reading; {on[-1].behind_s:.1f} s behind"
            )
        latencies_ms = await _latencies(engines)
    stack.remove(root)
    tails = {f"p{percent}": travel.percentile(latencies_ms, percent) for percent in (50, 99)}
    say(f"a reading to its episode   p50 {tails['p50']:.0f} ms   p99 {tails['p99']:.0f} ms")
    found = results.of_runs(
        "P18",
        "readings/s into the cloud with 10,000 alert rules / without",
        [one.per_s / other.per_s for one, other in zip(on, off, strict=True)],
        target=">= 0.9",
        detail={
            "with, readings/s": [round(one.per_s) for one in on],
            "without, readings/s": [round(one.per_s) for one in off],
            "CPU µs a reading of cloud-alerts-service": [round(one.service_us, 1) for one in on],
            "with, database CPU µs a reading": [round(one.database_us) for one in on],
            "without, database CPU µs a reading": [round(one.database_us) for one in off],
            "behind when the last reading was stored, s": [round(one.behind_s, 1) for one in on],
            "ms from a reading to its episode": tails,
        },
    )
    found = replace(found, sound=all(one.behind_s <= BEHIND_S for one in on))
    results.save([found], machine=here)
    return [found]


def _company_with_rules(admin_url: str) -> None:
    with psycopg.connect(admin_url) as connection:
        add_company(connection, consume.TENANT, name="Bench")
        rules = [
            AlertRule(
                rule_id=f"d-{device}-{metric}",
                signal=f"telemetry.{metric}",
                condition="above",
                threshold=THRESHOLD,
                clear=THRESHOLD - 1,
                device_id=f"d-{device}",
            )
            for device in range(DEVICES)
            for metric in ("temperature", *(f"metric-{number}" for number in range(1, METRICS)))
        ]
        connection.cursor().executemany(
            """
            insert into alert_rules (tenant_id, rule_id, rule, changed_by)
            values (%s, %s, %s::jsonb, 'bench')
            """,
            [(consume.TENANT, rule.rule_id, msgspec.json.encode(rule).decode()) for rule in rules],
        )


async def _without(engines: Stack, events: int) -> Taken:
    await _empty(engines, noting=False)
    await _fill(engines, events)
    return await _take(engines, events)


async def _with(engines: Stack, events: int) -> Taken:
    await _empty(engines)
    async with _evaluating(engines) as alerts:
        return await _take(engines, events, Evaluation(alerts, await _fill(engines, events)))


@asynccontextmanager
async def _evaluating(engines: Stack) -> AsyncIterator[Running]:
    """cloud-alerts-service, ready to take readings."""
    port = ingest.free_port()
    environment = {**engines.environment, "FARMIQ_CLOUD_HTTP_PORT": str(port)}
    async with ingest.service(engines.root, bus.ALERTS.service, environment) as running:
        await ingest.until_ready(running, f"http://127.0.0.1:{port}")
        yield running


async def _empty(engines: Stack, *, noting: bool = True) -> None:
    """No reading and no episode; and whether what is stored is noted for rules."""
    with psycopg.connect(engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]) as connection:
        connection.execute(
            "truncate telemetry_readings, telemetry_latest, telemetry_dirty, alert_states, "
            "alert_readings, alert_rechecks, alert_episodes cascade"
        )
        connection.execute(
            f"alter table telemetry_readings {'enable' if noting else 'disable'} trigger "
            "telemetry_readings_for_alerts"
        )


async def _fill(engines: Stack, events: int) -> datetime:
    """Readings into the queues; returns the moment up to which every device has one."""
    begin = datetime.now(UTC) - timedelta(seconds=events // DEVICES * EVERY_S)
    await consume.fill(
        engines.environment["FARMIQ_AMQP_URL"],
        events,
        at=lambda number: begin + timedelta(seconds=number // DEVICES * EVERY_S),
        device=lambda number: f"d-{number % DEVICES}",
        value=lambda number: (
            TOO_HIGH if number % DEVICES % WARM_EVERY == 0 else 20 + number * 7 % 100 / 10
        ),
    )
    return begin + timedelta(seconds=(events // DEVICES - 1) * EVERY_S)


async def _take(engines: Stack, events: int, evaluation: Evaluation | None = None) -> Taken:
    environment = engines.environment
    url, database = environment["FARMIQ_AMQP_URL"], engines.pid("postgres-cloud")
    async with db.pool(environment["FARMIQ_CLOUD_DB_URL"], name="bench") as pool:
        await jobs.create_partitions(pool)
        before_s = machine.cpu_s(database)
        service_s = machine.cpu_s(evaluation.alerts.pid) if evaluation else 0.0
        started = time.monotonic()
        async with consume.running(consume.drain(url, pool, service.READINGS)) as storing:
            await consume.until_stored(pool, events, storing)
        took_s = time.monotonic() - started
        if evaluation is not None:
            await _until_evaluated(pool, evaluation)
        behind_s = time.monotonic() - started - took_s
        database_us = (machine.cpu_s(database) - before_s) / events * 1e6
    if evaluation is None:
        return Taken(events / took_s, database_us)
    service_us = (machine.cpu_s(evaluation.alerts.pid) - service_s) / events * 1e6
    return Taken(events / took_s, database_us, service_us, behind_s)


async def _until_evaluated(pool: db.Pool, evaluation: Evaluation) -> None:
    """Every device's last reading is in its state, and those that are too warm have an episode."""
    async with pool.connection() as connection:
        while True:
            done = await db.fetch_value(
                connection,
                """
                select (select count(*) from alert_states where last_at >= %s) = %s
                  and (select count(*) from alert_episodes where rule_id like 'd-%%') = %s
                """,
                evaluation.last_at,
                DEVICES,
                len(range(0, DEVICES, WARM_EVERY)),
            )
            await connection.commit()
            if done:
                return
            evaluation.alerts.check()
            await asyncio.sleep(0.05)


async def _latencies(engines: Stack) -> list[float]:
    """Milliseconds from a value that is too high, one of each device, until its episode is seen."""
    await _empty(engines)
    sent_at: dict[str, float] = {}
    seen_at: dict[str, float] = {}
    url = engines.environment["FARMIQ_AMQP_URL"]
    async with (
        _evaluating(engines),
        db.pool(engines.environment["FARMIQ_CLOUD_DB_URL"], name="bench") as pool,
        consume.running(consume.drain(url, pool, service.READINGS)),
    ):
        watching = asyncio.create_task(_watch(engines, seen_at))
        async with amqp.connection(url, name="bench") as opened:
            channel = await opened.channel(publisher_confirms=True)
            exchange = await channel.get_exchange("farmiq.telemetry.exchange", ensure=False)
            for number in range(DEVICES):
                device_id = f"d-{number}"
                message = consume.message(
                    number, datetime.now(UTC), device_id, metric=SPARE, value=TOO_HIGH
                )
                sent_at[device_id] = time.monotonic()
                await exchange.publish(message, "telemetry.ingested")
                await asyncio.sleep(1 / PACE_PER_S)
        async with asyncio.timeout(PATIENCE_S):
            await watching
    return [(seen_at[device_id] - at) * 1000 for device_id, at in sent_at.items()]


async def _watch(engines: Stack, seen_at: dict[str, float]) -> None:
    """When the episode of each device is committed, within a hundredth of a second."""
    url = engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        while len(seen_at) < DEVICES:
            rows = await connection.execute(
                "select device_id from alert_episodes where device_id <> all(%s)", ([*seen_at],)
            )
            async for (device_id,) in rows:
                seen_at[device_id] = time.monotonic()
            await asyncio.sleep(0.01)
