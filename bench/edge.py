"""Edge ingest in one run: P1 to P4 in rounds on one broker and one database, then P9 and P11."""

import contextlib
import os
import statistics
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import copying, ingest, load, machine, nodered, results, travel
from bench.ingest import Bench, Taken
from bench.results import Result
from farmiq import config, stack
from farmiq.edge.telemetry import upkeep
from farmiq.plumbing import db, migrations
from farmiq.process import SQL
from farmiq.stack import mosquitto

Say = Callable[[str], None]

# Without a flush per message, as the targets are stated; a farm's broker flushes each.
SYNC = "2m"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rounds: int = 3
    events: int = 40_000
    few: int = 500
    some: int = 10_000
    seconds: float = 20.0
    node_red: bool = True
    travel: bool = True


@dataclass(frozen=True, slots=True)
class Round:
    """One round: every way once, one after the other."""

    ceiling: Taken
    ours: Taken
    drained: float  # ours / ceiling with the session filled beforehand
    one_by_one: Taken
    node_red: Taken | None
    stage: float
    plain: float


async def measure(plan: Plan, say: Say) -> list[Result]:
    """Every result of edge ingest; saved to bench/results.json and docs/bench.md."""
    here = machine.description()
    rounds = await _rounds(plan, say)
    flushed = await _flushed(plan, say)
    found = _ratios(plan, rounds, flushed)
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
    root = config.state_dir() / "stacks" / "bench"
    stack.remove(root)  # what an interrupted run has left
    downloads = config.state_dir() / "engines"
    programs = mosquitto.find(downloads, say=say)
    home = nodered.install(downloads, say) if plan.node_red else None
    with (
        _flushing(SYNC),
        stack.start(root, engines=("postgres-edge", "mqtt-edge"), say=say) as engines,
    ):
        bench = Bench(engines, programs)
        await _prepare(bench)
        found = [await _round(bench, plan, home, say) for _ in range(plan.rounds)]
    stack.remove(root)
    return found


async def _flushed(plan: Plan, say: Say) -> Taken:
    """Ours as a farm runs it: the broker flushes every message, and its removal, to disk."""
    root = config.state_dir() / "stacks" / "bench"
    programs = mosquitto.find(config.state_dir() / "engines", say=say)
    with stack.start(root, engines=("postgres-edge", "mqtt-edge"), say=say) as engines:
        bench = Bench(engines, programs)
        await _prepare(bench)
        taken = await ingest.ours(bench, plan.some)
    stack.remove(root)
    say(f"ours, flushed   {taken.per_s:>9,.0f}/s")
    return taken


async def _prepare(bench: Bench) -> None:
    migrations.apply(bench.admin_url, SQL["edge"])
    await load.register(bench.admin_url, load.devices())
    async with db.pool(bench.engines.environment["FARMIQ_EDGE_DB_URL"], name="bench") as pool:
        await upkeep.make_months(pool, keep_days=90)


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
    node_red = None
    if home is not None:
        node_red = await told("Node-RED", nodered.row_by_row(bench, home, plan.some))
    one_by_one = await told("one by one", ingest.ours(bench, plan.few, batch=1))
    stage = await copying.stage(bench, plan.events)
    plain = await copying.plain(bench, plan.events)
    say(f"database stage  {stage:>9,.0f}/s\nplain COPY      {plain:>9,.0f}/s")
    return Round(ceiling, ours, emptied.per_s / top.per_s, one_by_one, node_red, stage, plain)


def _ratios(plan: Plan, rounds: list[Round], flushed: Taken) -> list[Result]:
    ours = [one.ours.per_s for one in rounds]
    common = {
        "broker": f"NATS, flushed to disk every {SYNC}, PUBACK after commit",
        "ours, events/s": _median(ours),
        "CPU µs per event": _cpu([one.ours for one in rounds]),
    }

    def ratio(target_id: str, what: str, target: str, peers: list[float], **detail: Any) -> Result:
        runs = [us / peer for us, peer in zip(ours, peers, strict=True)]
        return results.of_runs(target_id, what, runs, target=target, detail={**common, **detail})

    ceilings = [one.ceiling for one in rounds]
    found = [
        ratio(
            "P1", "ingest / C subscriber on the same broker", ">= 0.3",
            [one.per_s for one in ceilings],
            **{
                "ceiling": "mosquitto_sub -q 1, acknowledges on receipt, output thrown away",
                "ceiling, events/s": _median([one.per_s for one in ceilings]),
                "ceiling, broker CPU µs per event": _cpu(ceilings)["broker"],
                "the same, of a session filled beforehand": round(
                    statistics.median(one.drained for one in rounds), 3
                ),
                "ours with a flush for every message, events/s": round(flushed.per_s),
                "events": plan.events,
            },
        ),
        ratio(
            "P3", "ingest / one transaction per message", ">= 20",
            [one.one_by_one.per_s for one in rounds],
            **{"one by one, events/s": _median([one.one_by_one.per_s for one in rounds])},
        ),
    ]  # fmt: skip
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
