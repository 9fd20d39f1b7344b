"""Edge ingest in one run: P1 to P4 in rounds on one database, P14 and P15, then P9 and P11.

The broker flushes every message, as at a farm. P1 is measured without that too, because then more
of the time is ours.
"""

import contextlib
import os
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import copying, gateways, ingest, load, machine, nodered, results, travel
from bench.ingest import Bench, Taken
from bench.results import Result
from farmiq import config
from farmiq.edge.telemetry import jobs
from farmiq.lab import stack
from farmiq.lab.stack import mosquitto
from farmiq.plumbing import db, migrations
from farmiq.services import SQL

Say = Callable[[str], None]

FLUSHED = "always"
NOT_FLUSHED = "2m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rounds: int = 3
    events: int = 40_000
    few: int = 500
    some: int = 10_000
    unflushed_rounds: int = 3
    seconds: float = 20.0
    node_red: bool = True
    travel: bool = True


@dataclass(frozen=True, slots=True)
class Round:
    """One round: every way once, one after the other."""

    ceiling: Taken
    ours: Taken
    emptied: Taken  # ours, from a log filled beforehand
    drained: float  # that / ceiling from a session filled beforehand
    new_to_old: float  # drained: ours / by session
    one_by_one: Taken
    node_red: Taken | None
    stage: float
    plain: float


async def measure(plan: Plan, say: Say) -> list[Result]:
    """Every result of edge ingest; saved to bench/results.json and docs/develop/bench.md."""
    here = machine.description()
    rounds = await _rounds(plan, say)
    unflushed = await _unflushed(plan, say)
    found = _ratios(plan, rounds, unflushed)
    results.save(found, machine=here)
    found += await gateways.measure(plan.rounds, say)
    results.save(found, machine=here)
    if plan.travel:
        found += _travelled(
            await travel.measure(
                mosquitto.find(config.state_dir() / "engines", say=say),
                seconds=plan.seconds,
                memory_rate=1000,
                latency_rate=500,
                say=say,
            )
        )
    results.save(found, machine=here)
    return found


async def _rounds(plan: Plan, say: Say) -> list[Round]:
    """As a farm runs it: the broker flushes every message to disk."""
    downloads = config.state_dir() / "engines"
    home = nodered.install(downloads, say) if plan.node_red else None
    async with _bench(FLUSHED, say) as bench:
        return [await _round(bench, plan, home, say) for _ in range(plan.rounds)]


async def _unflushed(plan: Plan, say: Say) -> list[tuple[Taken, Taken]]:
    """(ceiling, ours) on brokers that flush every two minutes."""
    found = []
    async with _bench(NOT_FLUSHED, say) as bench:
        for _ in range(plan.unflushed_rounds):
            before = await ingest.ceiling(bench, plan.events)
            ours = await ingest.ours(bench, plan.events)
            after = await ingest.ceiling(bench, plan.events)
            ceiling = Taken((before.per_s + after.per_s) / 2, after.cpu_us)
            say(f"not flushed     {ours.per_s:>9,.0f}/s, C subscriber {ceiling.per_s:,.0f}/s")
            found.append((ceiling, ours))
    return found


@contextlib.asynccontextmanager
async def _bench(sync: str, say: Say) -> AsyncIterator[Bench]:
    """Two brokers and a database; one broker for whoever subscribes."""
    stacks = config.state_dir() / "stacks"
    for name in ("bench", "bench-sessions"):
        stack.remove(stacks / name)  # what an interrupted run has left
    programs = mosquitto.find(config.state_dir() / "engines", say=say)
    with (
        _flushing(sync),
        stack.start(stacks / "bench", engines=("postgres-edge", "mqtt-edge"), say=say) as engines,
        stack.start(stacks / "bench-sessions", engines=("mqtt-edge",), say=say) as sessions,
    ):
        bench = Bench(engines, programs, sessions)
        await _prepare(bench)
        yield bench
    for name in ("bench", "bench-sessions"):
        stack.remove(stacks / name)


async def _prepare(bench: Bench) -> None:
    migrations.apply(bench.admin_url, SQL["edge"])
    await load.register(bench.admin_url, load.devices())
    async with db.pool(bench.engines.environment["FARMIQ_EDGE_DB_URL"], name="bench") as pool:
        await jobs.create_partitions(pool, retention_days=90)
    async with ingest.gateway(bench.engines, {}) as running:
        await running.said(b'"FARMIQ_UP"')  # the log is there


async def _round(bench: Bench, plan: Plan, home: Path | None, say: Say) -> Round:
    async def told(name: str, measuring: Awaitable[Taken]) -> Taken:
        one = await measuring
        used = ", ".join(f"{who} {us:.0f}" for who, us in one.cpu_us.items())
        say(f"{name:<16}{one.per_s:>9,.0f}/s   CPU µs/event: {used}")
        return one

    # The machine may be busier from one moment to the next: the ceiling stands on both sides.
    before = await told("C subscriber", ingest.ceiling(bench, plan.events))
    ours = await told("ours", ingest.ours(bench, plan.events))
    after = await told("C subscriber", ingest.ceiling(bench, plan.events))
    ceiling = Taken((before.per_s + after.per_s) / 2, after.cpu_us)
    top = await told("  drained", ingest.ceiling(bench, plan.events, drained=True))
    emptied = await told("  drained, ours", ingest.ours(bench, plan.events, drained=True))
    old = await told("  by session", ingest.by_session(bench, plan.events, drained=True))
    node_red = None
    if home is not None:
        node_red = await told("Node-RED", nodered.row_by_row(bench, home, plan.some))
    one_by_one = await told("one by one", ingest.ours(bench, plan.few, batch=1, drained=True))
    stage = await copying.stage(bench, plan.events)
    plain = await copying.plain(bench, plan.events)
    say(f"database stage  {stage:>9,.0f}/s\nplain COPY      {plain:>9,.0f}/s")
    drained, new_to_old = emptied.per_s / top.per_s, emptied.per_s / old.per_s
    return Round(ceiling, ours, emptied, drained, new_to_old, one_by_one, node_red, stage, plain)


def _ratios(plan: Plan, rounds: list[Round], unflushed: list[tuple[Taken, Taken]]) -> list[Result]:
    ours = [one.ours.per_s for one in rounds]
    common = {
        "broker": "NATS, each message flushed to disk, read as a log",
        "ours, events/s": _median(ours),
        "CPU µs per event": _cpu([one.ours for one in rounds]),
    }

    def ratio(target_id: str, what: str, target: str, peers: list[float], **detail: Any) -> Result:
        runs = [us / peer for us, peer in zip(ours, peers, strict=True)]
        return results.of_runs(target_id, what, runs, target=target, detail={**common, **detail})

    ceilings = [one.ceiling for one in rounds]
    found = [
        ratio(
            "P1", "ingest / C subscriber at the same broker, flush per message", ">= 0.9",
            [one.per_s for one in ceilings],
            **{
                "ceiling": "mosquitto_sub -q 1, acknowledges on receipt, output thrown away",
                "ceiling, events/s": _median([one.per_s for one in ceilings]),
                "ceiling, broker CPU µs per event": _cpu(ceilings)["broker"],
                "the same, of a session filled beforehand": round(
                    statistics.median(one.drained for one in rounds), 3
                ),
                "events": plan.events,
            },
        ),
    ]  # fmt: skip
    found.append(
        results.of_runs(
            "P3",
            "ingest from a full log / one transaction per message",
            [one.emptied.per_s / one.one_by_one.per_s for one in rounds],
            target=">= 28",
            detail={
                "from a full log, events/s": _median([one.emptied.per_s for one in rounds]),
                "one by one, events/s": _median([one.one_by_one.per_s for one in rounds]),
                "CPU µs per event": _cpu([one.emptied for one in rounds]),
            },
        )
    )
    found.append(
        results.of_runs(
            "P1 unflushed",
            "the same on brokers that flush every two minutes",
            [ours.per_s / ceiling.per_s for ceiling, ours in unflushed],
            target=">= 0.45",
            detail={
                "ours, events/s": _median([ours.per_s for _, ours in unflushed]),
                "ceiling, events/s": _median([ceiling.per_s for ceiling, _ in unflushed]),
                "CPU µs per event": _cpu([ours for _, ours in unflushed]),
            },
        )
    )
    found.append(
        results.of_runs(
            "P1b",
            "backlog by the log / by an MQTT session, flush per message",
            [one.new_to_old for one in rounds],
            target=">= 4",
            detail={"events": plan.events},
        )
    )
    peers = [one.node_red for one in rounds if one.node_red is not None]
    if peers:
        found.append(
            ratio(
                "P2", "ingest / Node-RED, one insert per message", ">= 5",
                [one.per_s for one in peers],
                **{
                    "Node-RED, events/s": _median([one.per_s for one in peers]),
                    "Node-RED, CPU µs per event": _cpu(peers),
                    "Node-RED does": "no dedupe, no outbox, PUBACK on receipt",
                },
            )
        )  # fmt: skip
    found.append(_stage(rounds))
    return sorted(found, key=lambda one: one.id)


def _stage(rounds: list[Round]) -> Result:
    return results.of_runs(
        "P4",
        "database stage / plain COPY into telemetry_raw",
        [one.stage / one.plain for one in rounds],
        target=">= 0.2",
        detail={
            "database stage, rows/s": _median([one.stage for one in rounds]),
            "plain COPY, rows/s": _median([one.plain for one in rounds]),
            "both": f"{copying.WRITERS} connections, {copying.BATCH} rows per transaction",
        },
    )


def _travelled(one: travel.Travel) -> list[Result]:
    edge_p99 = travel.percentile(one.edge_ms, 99)
    return [
        Result(
            id="P9",
            what="memory of the edge's services together at 1,000 msg/s, MB",
            value=one.busy_mb,
            target="< 512",
            runs=[one.busy_mb],
            detail={"idle, MB": one.idle_mb, "measured": "farmiq run edge, one process, PSS"},
        ),
        Result(
            id="P11",
            what="capture to edge commit at 500 msg/s, p99, ms",
            value=edge_p99,
            target="< 250",
            runs=[edge_p99],
            detail={
                "broker": "NATS, flushed to disk for every message",
                "edge commit, ms": _spread(one.edge_ms),
                "cloud table, ms": _spread(one.cloud_ms),
                "edge commit of three devices alone, ms": _spread(one.healthy.alone_ms),
                "beside one that floods, ms": _spread(one.healthy.beside_flood_ms),
                "beside messages that nobody can read, ms": _spread(one.healthy.beside_bad_ms),
                "events": len(one.edge_ms),
            },
        ),
    ]


def _spread(values: list[float]) -> dict[str, float]:
    return {f"p{percent}": travel.percentile(values, percent) for percent in (50, 95, 99)}


def _median(values: list[float]) -> int:
    return round(statistics.median(values))


def _cpu(taken: list[Taken]) -> dict[str, float]:
    return {
        who: round(statistics.median(one.cpu_us[who] for one in taken), 1)
        for who in taken[0].cpu_us
    }


@contextlib.contextmanager
def _flushing(interval: str) -> Iterator[None]:
    """The stack's brokers take this from the environment when they start."""
    name = "FARMIQ_STACK_MQTT_SYNC"
    before = os.environ.get(name)
    os.environ[name] = interval
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
