"""Edge ingest: messages waiting at the broker until they are stored and acknowledged.

ceiling      mosquitto_sub: libmosquitto, in C, acknowledging on receipt, output thrown away
ours         `farmiq run edge-ingress-gateway`: dedupe, telemetry_raw and sync_outbox in one
             transaction per batch, PUBACK after its commit
one by one   the same with one transaction per message
node-red     one insert per message, PUBACK on receipt

Each drains a persistent session of its own that was filled beforehand, so that publishers do not
share the cores.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psycopg

from bench import load, machine
from farmiq import config
from farmiq.messages import topics
from farmiq.plumbing import ids
from farmiq.stack import Stack, processes
from farmiq.stack.mosquitto import Installation

PATIENCE_S = 180.0
LOOK_S = 0.1


@dataclass(frozen=True, slots=True)
class Drained:
    """How fast a session was emptied, and CPU µs per event of whom it kept busy."""

    per_s: float
    cpu_us: dict[str, float]


@dataclass(frozen=True, slots=True)
class Bench:
    """What every way needs."""

    engines: Stack
    programs: Installation

    @property
    def url(self) -> str:
        return self.engines.environment["FARMIQ_EDGE_MQTT_URL"]

    @property
    def admin_url(self) -> str:
        return self.engines.environment["FARMIQ_EDGE_DB_ADMIN_URL"]

    def cpu_s(self, **others: int) -> dict[str, float]:
        pids = {
            "broker": self.engines.pid("mqtt-edge"),
            "postgres": self.engines.pid("postgres-edge"),
        }
        return {name: machine.cpu_s(pid) for name, pid in {**others, **pids}.items()}

    def clear(self, *tables: str) -> None:
        with psycopg.connect(self.admin_url) as connection:
            connection.execute(f"truncate {', '.join(tables)}".encode())


Drain = Callable[[str], Awaitable[Drained]]


async def drain(bench: Bench, events: int, way: Drain) -> Drained:
    """Fill a fresh persistent session, then let it be emptied."""
    client_id = f"bench-{ids.new().hex}"
    await load.make_session(bench.url, client_id, topics.UP)
    await load.fill(bench.engines, bench.programs, events)
    try:
        return await way(client_id)
    finally:
        await load.end_session(bench.url, client_id)


async def ceiling(bench: Bench, events: int) -> Drained:
    async def way(client_id: str) -> Drained:
        command = load.subscriber(bench.programs, bench.url, client_id, topics.UP)
        folder = bench.engines.root
        before, began = bench.cpu_s(), time.monotonic()
        client = await asyncio.create_subprocess_exec(
            *command, "-C", str(events),
            stdout=subprocess.DEVNULL, env=bench.programs.environment(folder),
        )  # fmt: skip
        if await asyncio.wait_for(client.wait(), PATIENCE_S):
            raise RuntimeError("mosquitto_sub failed")
        seconds = time.monotonic() - began
        return Drained(events / seconds, per_event(before, bench.cpu_s(), events))

    return await drain(bench, events, way)


async def ours(bench: Bench, events: int, *, batch: int | None = None) -> Drained:
    """`batch`: most messages in a transaction; one means one after the other."""
    bench.clear("telemetry_raw", "sync_outbox", "ingress_dedupe", "quarantine")

    async def way(client_id: str) -> Drained:
        options = {"FARMIQ_EDGE_MQTT_CLIENT_ID": client_id}
        if batch is not None:
            options |= {"INGRESS_BATCH_EVENTS": str(batch), "INGRESS_LINGER_MS": "0"}
            options |= {"INGRESS_WRITERS": "1"} if batch == 1 else {}
        async with gateway(bench.engines, options) as running:
            began = await running.connected_at()
            before = bench.cpu_s(gateway=running.pid)
            ended = await until_stored(bench.admin_url, "telemetry_raw", events, running.check)
            used = per_event(before, bench.cpu_s(gateway=running.pid), events)
            return Drained(events / (ended - began), used)

    return await drain(bench, events, way)


def per_event(before: dict[str, float], after: dict[str, float], events: int) -> dict[str, float]:
    return {name: round((after[name] - before[name]) / events * 1e6, 1) for name in before}


async def until_stored(admin_url: str, table: str, events: int, check: Callable[[], None]) -> float:
    """When (seconds since 1970) all were seen in the table; looking seldom costs us, not others."""
    query = f"select count(*) from {table}".encode()  # noqa: S608 - our own tables
    deadline = time.monotonic() + PATIENCE_S
    async with await psycopg.AsyncConnection.connect(admin_url, autocommit=True) as connection:
        while time.monotonic() < deadline:
            row = await (await connection.execute(query)).fetchone()
            if row is not None and row[0] >= events:
                return time.time()
            check()
            await asyncio.sleep(LOOK_S)
    raise RuntimeError(f"{events} events did not arrive in {table} within {PATIENCE_S:.0f} s")


@dataclass(frozen=True, slots=True)
class Running:
    """A process of ours under measurement."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def check(self) -> None:
        if self.process.poll() is not None:
            raise RuntimeError(f"a measured process ended by itself; see {self.log}")

    async def connected_at(self) -> float:
        """When it had its session at the broker, in seconds since 1970, as its log says."""
        while True:
            self.check()
            for line in self.log.read_bytes().splitlines():
                if b'"mqtt.connected"' in line:
                    said = msgspec.json.decode(line)["timestamp"]
                    return datetime.fromisoformat(said).astimezone(UTC).timestamp()
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def gateway(engines: Stack, options: dict[str, str]) -> AsyncIterator[Running]:
    """The gateway as in production: a process of its own."""
    environment = {
        **engines.environment,
        "FARMIQ_EDGE_HTTP_PORT": str(free_port()),
        "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
        "FARMIQ_EDGE_KEY_FILE": "none",
        **options,
    }
    async with service(engines.root, "edge-ingress-gateway", environment) as running:
        yield running


@contextlib.asynccontextmanager
async def service(root: Path, what: str, environment: dict[str, str]) -> AsyncIterator[Running]:
    """`farmiq run <what>`, until the block ends."""
    log = root / "logs" / f"{what}-{ids.new().hex}.log"
    launch = processes.Launch(
        argv=(sys.executable, "-m", "farmiq", "run", what),
        environment=config.environment(over=environment),
        folder=Path.cwd(),
        log=log,
    )
    process = await asyncio.to_thread(processes.spawn, launch, detach=False)
    try:
        yield Running(process, log)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 20)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
