"""Two gateways, and one device that floods: P14 and P15, as a farm runs it.

P14: the gateway that reads is killed; the longest time that no commit came. P15: 100 healthy
devices beside one that sends all it has, by the log and by an MQTT session.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from itertools import pairwise
from typing import Any

import psycopg

from bench import ingest, load, results, travel
from bench.ingest import Running
from bench.results import Result
from farmiq import config
from farmiq.edge.telemetry import jobs
from farmiq.lab import stack
from farmiq.lab.simulate import farm
from farmiq.lab.stack import Stack, mosquitto
from farmiq.messages.topics import Place
from farmiq.plumbing import db, migrations
from farmiq.services import SQL

RATE = 500
HEALTHY = 100
HEALTHY_RATE = 100
ALONE_S = 8.0
FLOOD = 30_000
# What clients allow themselves to have unacknowledged.
WINDOW = 20
SETTLE_S = 2.0

Say = Callable[[str], None]


async def measure(rounds: int, say: Say) -> list[Result]:
    worst = [await _takeover(say) for _ in range(rounds)]
    pairs = [await _flood(say) for _ in range(rounds)]
    return [
        results.of_runs(
            "P14",
            f"take-over at {RATE}/s: longest time without a commit, s",
            worst,
            target="<= 2",
            detail={"the gateway that reads is killed": "SIGKILL", "lease, s": 1.2},
        ),
        results.of_runs(
            "P15",
            f"p99 to commit of {HEALTHY} healthy devices beside a flood / alone",
            [log["flood"] / log["alone"] for log, _ in pairs],
            target="<= 10",
            detail={"by the log, p99 ms": [log for log, _ in pairs]},
        ),
        results.of_runs(
            "P15 new/old",
            "the same beside a flood, by the log / by an MQTT session",
            [log["flood"] / session["flood"] for log, session in pairs],
            target="<= 0.25",
            detail={"by an MQTT session, p99 ms": [session for _, session in pairs]},
        ),
    ]


def sensors(count: int) -> list[farm.Device]:
    """So many climate sensors, each in a barn of its own."""
    like = load.devices()[0]
    return [
        replace(like, place=Place(load.TENANT_ID, "f-1", f"b-{number}", f"s-{number}"))
        for number in range(count)
    ]


@contextlib.asynccontextmanager
async def _site(devices: list[farm.Device]) -> AsyncIterator[Stack]:
    root = config.state_dir() / "stacks" / "bench-gateways"
    stack.remove(root)  # what an interrupted run has left
    with stack.start(root, engines=("postgres-edge", "mqtt-edge"), say=lambda _: None) as engines:
        admin_url = engines.environment["FARMIQ_EDGE_DB_ADMIN_URL"]
        with psycopg.connect(admin_url, autocommit=True) as connection:
            connection.execute("alter system set track_commit_timestamp = on")
        engines.restart("postgres-edge")
        migrations.apply(admin_url, SQL["edge"])
        await load.register(admin_url, devices)
        async with db.pool(engines.environment["FARMIQ_EDGE_DB_URL"], name="bench") as pool:
            await jobs.create_partitions(pool, retention_days=90)
        yield engines
    stack.remove(root)


async def _takeover(say: Say) -> float:
    devices = sensors(8)
    async with (
        _site(devices) as engines,
        ingest.gateway(engines, {}) as first,
    ):
        await first.said(b'"FARMIQ_UP"')
        async with ingest.gateway(engines, {}):
            sending = asyncio.create_task(travel.publish(engines, devices, rate=RATE, seconds=12))
            await asyncio.sleep(5)
            first.process.kill()
            await sending
            await asyncio.sleep(SETTLE_S)
        worst = _longest_pause_s(engines)
    say(f"take-over       {worst:.2f} s without a commit")
    return worst


def _longest_pause_s(engines: Stack) -> float:
    with psycopg.connect(engines.environment["FARMIQ_EDGE_DB_ADMIN_URL"]) as connection:
        rows = connection.execute(
            "select distinct pg_xact_commit_timestamp(xmin) from telemetry_raw order by 1"
        ).fetchall()
    times = [at for (at,) in rows]
    pauses = [(after - before).total_seconds() for before, after in pairwise(times)]
    return float(max(pauses))


async def _flood(say: Say) -> tuple[dict[str, float], dict[str, float]]:
    """p99 in ms, alone and beside the flood: by the log, and by a session."""
    log = await _flooded({}, b'"FARMIQ_UP"')
    session = await _flooded({"FARMIQ_EDGE_INGRESS_URL": ""}, b'"mqtt.connected"')
    say(f"flood           log {log}, session {session} (p99 ms)")
    return log, session


async def _flooded(options: dict[str, str], up: bytes) -> dict[str, float]:
    programs = mosquitto.find(config.state_dir() / "engines", say=lambda _: None)
    flooding, *healthy = sensors(HEALTHY + 1)
    async with (
        _site([flooding, *healthy]) as engines,
        ingest.gateway(engines, options) as running,
    ):
        await running.said(up)
        alone = await _p99(engines, healthy, running, asyncio.sleep(ALONE_S))
        sending = load.prepare(engines, [load.message(flooding, n) for n in range(FLOOD)])
        beside = load.publish(engines, programs, sending, window=WINDOW)
        return {"alone": alone, "flood": await _p99(engines, healthy, running, beside)}


async def _p99(
    engines: Stack, healthy: list[farm.Device], running: Running, other: Coroutine[Any, Any, Any]
) -> float:
    found = await travel.latencies_beside(engines, healthy, running, other, rate=HEALTHY_RATE)
    return travel.percentile(found, 99)
