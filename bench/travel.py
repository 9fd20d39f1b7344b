"""A steady farm: what the edge's services need of memory, and how long a reading travels.

The broker flushes every message to disk, as at a farm. Times are those of the commits themselves
(track_commit_timestamp), on one machine's clock.
"""

import asyncio
import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg

from bench import ingest, load
from bench.ingest import Running, Storing
from farmiq import config
from farmiq.lab import stack
from farmiq.lab.demo import provision
from farmiq.lab.simulate import farm
from farmiq.lab.stack import Stack, processes
from farmiq.lab.stack.mosquitto import Installation
from farmiq.plumbing import ids
from farmiq.plumbing.messaging import mqtt

ENGINES = ("postgres-edge", "postgres-cloud", "mqtt-edge", "rabbitmq", "s3")
SETTLE_S = 10.0
FLOOD = 20_000
BAD = 5_000
WINDOW = 20  # unacknowledged messages of a flooding device: what clients allow themselves
ALONE_S = 10.0
MAX_UNCONFIRMED = 50
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Healthy:
    """Milliseconds to edge commit of a few devices: by themselves, and beside others who flood."""

    alone_ms: list[float]
    beside_flood_ms: list[float]
    beside_bad_ms: list[float]


@dataclass(frozen=True, slots=True)
class Travel:
    """Memory of `farmiq run edge` in MB; milliseconds from capture to commit, one list per hop."""

    idle_mb: float
    busy_mb: float
    edge_ms: list[float]
    cloud_ms: list[float]
    healthy: Healthy


async def measure(
    programs: Installation,
    *,
    seconds: float,
    memory_rate: int,
    latency_rate: int,
    say: Callable[[str], None],
) -> Travel:
    root = config.state_dir() / "stacks" / "bench-travel"
    stack.remove(root)  # what an interrupted run has left
    with stack.start(root, engines=ENGINES, say=say) as engines:
        keep_commit_times(engines)
        site = await provision.provision(root, engines.environment, barns=load.DEVICES)
        sensors = load.devices(provision.TENANT_ID)
        async with ingest.service(root, "edge", site.environment) as edge:
            async with ingest.service(root, "cloud", site.environment) as cloud:
                await ingest.until_ready(cloud, site.console_url)
                await ingest.until_ready(edge, site.edge_url)
                await asyncio.sleep(SETTLE_S)
                idle_mb = _memory_mb(edge)
                say(f"travel          idle {idle_mb:.0f} MB; {latency_rate}/s for {seconds:.0f} s")
                await publish(engines, sensors, rate=latency_rate, seconds=seconds)
                await _until_travelled(engines, edge)
                edge_ms = latencies(engines, "EDGE", "telemetry_raw")
                cloud_ms = latencies(engines, "CLOUD", "telemetry_readings")
                say(f"travel          {memory_rate}/s for {seconds:.0f} s")
                busy = asyncio.create_task(_most_memory_mb(edge))
                await publish(engines, sensors, rate=memory_rate, seconds=seconds)
                busy.cancel()
                busy_mb = await busy
                await _until_travelled(engines, edge)
            # A farm's box has no cloud on its own cores.
            healthy = await _healthy(engines, programs, sensors, edge, say=say)
    stack.remove(root)
    return Travel(idle_mb, busy_mb, edge_ms, cloud_ms, healthy)


def percentile(values: Sequence[float], percent: int) -> float:
    return round(statistics.quantiles(values, n=100, method="inclusive")[percent - 1], 1)


def keep_commit_times(engines: Stack) -> None:
    for site in ("edge", "cloud"):
        url = engines.environment[f"FARMIQ_{site.upper()}_DB_ADMIN_URL"]
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("alter system set track_commit_timestamp = on")
        engines.restart(f"postgres-{site}")


async def publish(
    engines: Stack,
    sensors: Sequence[farm.Device],
    *,
    rate: int,
    seconds: float = float("inf"),
    go_on: Callable[[], bool] = lambda: True,
) -> int:
    """So many readings a second, each stamped when it is captured, spread over the sensors.

    For so many seconds, or while it may `go_on`; how many were sent.
    """
    url = engines.environment["FARMIQ_DEVICES_MQTT_URL"]
    async with asyncio.TaskGroup() as group:
        sensing = [
            group.create_task(_sense(url, sensor, rate / len(sensors), seconds, go_on))
            for sensor in sensors
        ]
    return sum(task.result() for task in sensing)


async def _sense(
    url: str, sensor: farm.Device, rate: float, seconds: float, go_on: Callable[[], bool]
) -> int:
    client_id, number = f"bench-{ids.new().hex}", 0
    async with (
        mqtt.connected(url, client_id=client_id, persistent_session=False, quiet=True) as link,
        asyncio.TaskGroup() as group,
    ):
        await link.until_up()
        leader = asyncio.Semaphore(MAX_UNCONFIRMED)
        began = time.monotonic()
        while number < rate * seconds and go_on():
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            sending = load.message(sensor, number)
            group.create_task(_deliver(link, sending, leader))
            number += 1
    return number


async def _deliver(link: mqtt.Client, sending: farm.Sending, leader: asyncio.Semaphore) -> None:
    """As a sensor does: again, until the broker has it, and not all at once."""
    async with leader:
        while True:
            await link.until_up()
            with contextlib.suppress(mqtt.DisconnectedError):
                return await link.publish(sending.topic, sending.raw)
            await asyncio.sleep(0.1)


async def _until_travelled(engines: Stack, running: Running) -> None:
    with psycopg.connect(engines.environment["FARMIQ_EDGE_DB_ADMIN_URL"]) as connection:
        row = connection.execute("select count(*) from telemetry_raw").fetchone()
    url = engines.environment["FARMIQ_CLOUD_DB_ADMIN_URL"]
    storing = Storing("edge", running, url, "telemetry_readings")
    await storing.all_taken(row[0] if row else 0)


async def _healthy(
    engines: Stack,
    programs: Installation,
    sensors: Sequence[farm.Device],
    running: Running,
    *,
    say: Callable[[str], None],
) -> Healthy:
    """What three healthy devices see while another sends all it has, right or wrong."""
    flooding, *healthy = sensors[:4]
    say(f"travel          three healthy devices, then beside one that sends {FLOOD:,}")
    alone = await latencies_beside(engines, healthy, running, asyncio.sleep(ALONE_S))
    right = load.prepare(engines, [load.message(flooding, n) for n in range(FLOOD)])
    beside_flood = await latencies_beside(
        engines, healthy, running, load.publish(engines, programs, right, window=WINDOW)
    )
    say(f"travel          and beside {BAD:,} messages that nobody can read")
    wrong = load.prepare(engines, [_broken(load.message(flooding, n)) for n in range(BAD)])
    beside_bad = await latencies_beside(
        engines, healthy, running, load.publish(engines, programs, wrong, window=WINDOW)
    )
    return Healthy(alone, beside_flood, beside_bad)


def _broken(sending: farm.Sending) -> farm.Sending:
    return sending._replace(raw=sending.raw[:-1])


async def latencies_beside(
    engines: Stack,
    healthy: Sequence[farm.Device],
    running: Running,
    other: Coroutine[Any, Any, Any],
    *,
    rate: int = 60,
) -> list[float]:
    """Milliseconds to edge commit of all that healthy devices send while `other` runs."""
    began = datetime.now(UTC)
    names = [sensor.place.device_id for sensor in healthy]
    busy = asyncio.create_task(other)
    sent = await publish(engines, healthy, rate=rate, go_on=lambda: not busy.done())
    await busy
    found: list[float] = []
    deadline = time.monotonic() + ingest.PATIENCE_S
    while len(found) < sent:
        running.check()
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(found)} of {sent} readings of healthy devices arrived")
        await asyncio.sleep(0.5)
        found = latencies(engines, "EDGE", "telemetry_raw", devices=names, since=began)
    return found


def latencies(
    engines: Stack,
    site: str,
    table: str,
    *,
    devices: Sequence[str] = (),
    since: datetime = LONG_AGO,
) -> list[float]:
    query = f"""
        select extract(epoch from pg_xact_commit_timestamp(xmin) - occurred_at) * 1000 from {table}
        where (device_id = any(%s) or cardinality(%s::text[]) = 0) and occurred_at >= %s
    """  # noqa: S608
    names = list(devices)
    with psycopg.connect(engines.environment[f"FARMIQ_{site}_DB_ADMIN_URL"]) as connection:
        rows = connection.execute(query.encode(), (names, names, since)).fetchall()
    return [float(ms) for (ms,) in rows]


async def _most_memory_mb(running: Running) -> float:
    most = 0.0
    try:
        for _ in itertools.count():
            most = max(most, _memory_mb(running))
            await asyncio.sleep(0.5)
    except asyncio.CancelledError:
        return most
    return most


def _memory_mb(running: Running) -> float:
    found = processes.look(running.pid)
    return round((processes.memory_bytes(found) if found else 0) / 2**20, 1)
