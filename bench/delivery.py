"""From the outbox to the cloud's tables in one run: P5, P6, P7, P8, P10 and P19."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bench import consume, drain, ingestion, load, machine, outbox, results
from bench.results import Result
from farmiq import config
from farmiq.lab import stack
from farmiq.lab.demo import provision

ENGINES = ("postgres-edge", "postgres-cloud", "mqtt-edge", "rabbitmq")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    rounds: int = 3
    events: int = 40_000
    few: int = 2_000
    backlog: int = 122_000


async def measure(plan: Plan, say: Say) -> list[Result]:
    """Every result of delivery; each is saved to bench/results.json and docs/develop/bench.md."""
    here = machine.description()
    root = config.state_dir() / "stacks" / "bench-delivery"
    stack.remove(root)  # what an interrupted run has left
    found: list[Result] = []
    with stack.start(root, engines=ENGINES, say=say) as engines:
        site = await provision.provision(root, engines.environment, barns=load.DEVICES)
        found.append(await _ingestion(engines, site, plan, say))
        found.append(await _consumers(engines, plan, say))
        results.save(found, machine=here)
        found.append(await outbox.settling(engines, rounds=plan.rounds, say=say))
        found.append(await outbox.claiming(engines, rounds=plan.rounds, say=say))
        found.append(await outbox.starting(engines, rounds=plan.rounds, say=say))
        results.save(found, machine=here)
    stack.remove(root)
    found.append(await drain.measure(plan.backlog, say))
    results.save(found, machine=here)
    return sorted(found, key=lambda one: int(one.id[1:]))


async def _ingestion(engines: stack.Stack, site: provision.Site, plan: Plan, say: Say) -> Result:
    ours: list[float] = []
    alone: list[float] = []
    for _ in range(plan.rounds):
        alone.append(await ingestion.gathered(engines, plan.events))
        ours.append(await ingestion.endpoint(engines, site, plan.events))
        await ingestion.empty(engines)
        say(f"ingestion       {ours[-1]:>9,.0f}/s   publishing alone {alone[-1]:,.0f}/s")
    return results.of_runs(
        "P7",
        "ingestion endpoint ev/s / aio-pika gathered publish alone",
        [us / them for us, them in zip(ours, alone, strict=True)],
        target=">= 0.9",
        detail={
            "ours, events/s": round(statistics.median(ours)),
            "aio-pika, 500 gathered, events/s": round(statistics.median(alone)),
            "ours": "token, checks, dedupe, confirmed publish; batches of 500, two on the way",
        },
    )


async def _consumers(engines: stack.Stack, plan: Plan, say: Say) -> Result:
    rounds = []
    for _ in range(plan.rounds):
        one = await consume.measure(engines, events=plan.events, few=plan.few)
        rounds.append(one)
        say(f"consumer        {one.ours:>9,.0f}/s   one by one {one.one_by_one:,.0f}/s")
    return results.of_runs(
        "P8",
        "consumer ev/s / one-by-one aio-pika",
        [one.ratio for one in rounds],
        target=">= 4",
        detail={
            "ours, events/s": round(statistics.median(one.ours for one in rounds)),
            "one by one, events/s": round(statistics.median(one.one_by_one for one in rounds)),
        },
    )
