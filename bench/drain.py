"""The whole chain after an outage: P19, and how old live readings become meanwhile.

The cloud is away while publishers fill the edge; that is edge ingest. Then the cloud comes back,
and the backlog drains beside live sensors until all of it is stored in the cloud. Both come from
as many sensors as a farm has, each with a series of its own. The backlog's readings were captured
evenly over an outage of an hour, so that only its last minute counts as live (D-290). CPU time by
process says what bounds it.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import psycopg

from bench import ingest, load, machine, results, travel
from bench.ingest import Running, Storing
from bench.results import Result
from farmiq import config
from farmiq.lab import stack
from farmiq.lab.demo import provision
from farmiq.lab.stack import Stack, mosquitto

ENGINES = travel.ENGINES
FILLING = 100
LIVE = 100
OUTAGE = timedelta(hours=1)
LIVE_RATE = 200  # of all live sensors together
LOOK_S = 3.0

Say = Callable[[str], None]


async def measure(events: int, say: Say) -> Result:
    root = config.state_dir() / "stacks" / "bench-drain"
    stack.remove(root)  # what an interrupted run has left
    programs = mosquitto.find(config.state_dir() / "engines", say=say)
    with stack.start(root, engines=ENGINES, say=say) as engines:
        travel.keep_commit_times(engines)
        site = await provision.provision(root, engines.environment, barns=FILLING + LIVE)
        sensors = load.devices(provision.TENANT_ID, barns=FILLING + LIVE)
        filling, live = sensors[:FILLING], sensors[FILLING:]
        live_ids = [sensor.place.device_id for sensor in live]
        say(f"drain           {events:,} of {FILLING} sensors, then {LIVE_RATE}/s of {LIVE} others")
        away_since = datetime.now(UTC) - OUTAGE
        sending = load.prepare(
            engines,
            [
                load.message(
                    filling[n % FILLING], n // FILLING, at=away_since + OUTAGE * n / events
                )
                for n in range(events)
            ],
        )
        async with ingest.service(root, "edge", site.environment) as edge:
            await ingest.until_ready(edge, site.edge_url)
            began = time.time()
            await load.publish(engines, programs, sending)
            storing = Storing("edge", edge, engines.environment["FARMIQ_EDGE_DB_ADMIN_URL"],
                              "telemetry_raw")  # fmt: skip
            ingested_per_s = events / (await storing.all_taken(events) - began)
            say(f"edge ingest     {ingested_per_s:>9,.0f}/s with the cloud away")
            async with ingest.service(root, "cloud", site.environment) as cloud:
                await ingest.until_ready(cloud, site.console_url)
                pids = {"edge": edge.pid, "cloud": cloud.pid}
                pids |= {name: engines.pid(name) for name in ENGINES}
                before = {name: machine.cpu_s(pid) for name, pid in pids.items()}
                since, began = datetime.now(UTC), time.time()
                already = _stored(engines)
                draining = asyncio.create_task(_until_drained(engines, cloud, events, live_ids))
                sent = await travel.publish(
                    engines, live, rate=LIVE_RATE, go_on=lambda: not draining.done()
                )
                drained_per_s = (events - already) / (await draining - began)
                used = {name: machine.cpu_s(pid) - before[name] for name, pid in pids.items()}
                lag_ms = travel.latencies(
                    engines, "CLOUD", "telemetry_readings",
                    devices=live_ids, since=since,
                )  # fmt: skip
    stack.remove(root)
    cpu_us = {name: round(seconds / (events + sent) * 1e6, 1) for name, seconds in used.items()}
    say(
        f"drained         {drained_per_s:>9,.0f}/s beside {LIVE_RATE}/s live; "
        f"CPU µs/event: {cpu_us}"
    )
    return results.of_runs(
        "P19",
        "backlog of an outage until stored in the cloud, events/s / edge ingest",
        [drained_per_s / ingested_per_s],
        target=">= 0.5",
        detail={
            "edge ingest, events/s": round(ingested_per_s),
            "drained, events/s": round(drained_per_s),
            "events": events,
            "captured over, s": OUTAGE.total_seconds(),
            "sensors that filled it": FILLING,
            "live readings beside it, per second": LIVE_RATE,
            "sensors that sent them": LIVE,
            "live readings in all": sent,
            "age of live readings when stored in the cloud, ms": {
                "p50": travel.percentile(lag_ms, 50),
                "p99": travel.percentile(lag_ms, 99),
                "max": round(max(lag_ms), 1),
            },
            "CPU µs per event, live ones included": cpu_us,
        },
    )


def _stored(engines: Stack) -> int:
    with psycopg.connect(engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]) as connection:
        row = connection.execute("select count(*) from telemetry_readings").fetchone()
    return int(row[0]) if row else 0


async def _until_drained(
    engines: Stack, running: Running, events: int, live: Sequence[str]
) -> float:
    """When all that the outage left was committed; readings of the `live` devices do not count.

    The commit itself says when, so a look that costs the cloud's database little is enough.
    """
    deadline = time.monotonic() + 10 * ingest.PATIENCE_S
    url = engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as link:
        while time.monotonic() < deadline:
            found = await link.execute(
                "select count(*), extract(epoch from max(pg_xact_commit_timestamp(xmin))) "
                "from telemetry_readings where device_id <> all(%s)",
                (list(live),),
            )
            row = await found.fetchone()
            if row is not None and row[0] >= events:
                return float(row[1])
            running.check()
            await asyncio.sleep(LOOK_S)
    raise RuntimeError(f"{events} events did not come to the cloud")
