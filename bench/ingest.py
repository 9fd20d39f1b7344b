"""Edge ingest: what publishers send until it is stored and acknowledged.

ceiling      mosquitto_sub: libmosquitto, in C, acknowledging on receipt, output thrown away
ours         `farmiq run edge-ingress-gateway` at the broker's log: dedupe, telemetry_raw,
             sync_outbox and the cursor in one transaction per batch
by session   the same as an MQTT subscriber, PUBACK after the commit
one by one   ours with one transaction per message
node-red     one insert per message, PUBACK on receipt

Each takes what C publishers send as fast as the broker lets them, from the first publish to the
last event taken: publishers, broker and taker share the machine, as they do behind the targets.
Drained is the other way to look: log or session is filled beforehand, so that publishers cost
nothing and the broker only hands out. A broker whose log is read has no sessions for what devices
send: subscribers have a second broker with the same settings.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx2
import psycopg

from bench import load, machine
from farmiq import config
from farmiq.lab.stack import Stack, processes
from farmiq.lab.stack.mosquitto import Installation
from farmiq.messages import topics
from farmiq.plumbing import ids

PATIENCE_S = 180.0
LOOK_S = 0.1
READY_S = 60.0


@dataclass(frozen=True, slots=True)
class Taken:
    """How fast events were taken, and CPU µs per event of whom it kept busy."""

    per_s: float
    cpu_us: dict[str, float]


@dataclass(frozen=True, slots=True)
class Bench:
    """What every way needs."""

    engines: Stack
    programs: Installation
    # A broker for whoever subscribes.
    sessions: Stack

    @property
    def url(self) -> str:
        return self.sessions.environment["FARMIQ_EDGE_MQTT_URL"]

    @property
    def admin_url(self) -> str:
        return self.engines.environment["FARMIQ_EDGE_DB_ADMIN_URL"]

    def cpu_s(self, broker: Stack, **others: int) -> dict[str, float]:
        pids = {
            "broker": broker.pid("mqtt-edge"),
            "postgres": self.engines.pid("postgres-edge"),
        }
        return {name: machine.cpu_s(pid) for name, pid in {**others, **pids}.items()}

    def clear(self, *tables: str) -> None:
        with psycopg.connect(self.admin_url) as connection:
            connection.execute(f"truncate {', '.join(tables)}".encode())


class Taker(Protocol):
    """Somebody who is connected to a session and empties it."""

    @property
    def pids(self) -> dict[str, int]:
        """Whose CPU time is of interest."""

    async def all_taken(self, events: int) -> float:
        """When (seconds since 1970) that many were taken."""


Start = Callable[[str], AbstractAsyncContextManager[Taker]]


async def take(bench: Bench, events: int, start: Start, *, drained: bool = False) -> Taken:
    """Let `start` take what is published, or (drained) what was published beforehand."""
    client_id = f"bench-{ids.new().hex}"
    await load.make_session(bench.url, client_id, topics.UP)
    try:
        return await measure(bench, bench.sessions, events, lambda: start(client_id), drained)
    finally:
        await load.end_session(bench.url, client_id)


async def measure(
    bench: Bench,
    broker: Stack,
    events: int,
    start: Callable[[], AbstractAsyncContextManager[Taker]],
    drained: bool,  # noqa: FBT001 - as in take
) -> Taken:
    sending = load.prepare(broker, load.messages(events))
    if drained:
        await load.publish(broker, bench.programs, sending)
    async with start() as taker:
        before, began = bench.cpu_s(broker, **taker.pids), time.time()
        if not drained:
            await load.publish(broker, bench.programs, sending)
        ended = await taker.all_taken(events)
        used = per_event(before, bench.cpu_s(broker, **taker.pids), events)
    return Taken(events / (ended - began), used)


async def ceiling(bench: Bench, events: int, *, drained: bool = False) -> Taken:
    @contextlib.asynccontextmanager
    async def start(client_id: str) -> AsyncIterator[Subscriber]:
        command = load.subscriber(bench.programs, bench.url, client_id, topics.UP)
        client = await asyncio.create_subprocess_exec(
            *command, "-C", str(events),
            stdout=subprocess.DEVNULL, env=bench.programs.environment(bench.engines.root),
        )  # fmt: skip
        yield Subscriber(client)

    return await take(bench, events, start, drained=drained)


async def ours(
    bench: Bench, events: int, *, batch: int | None = None, drained: bool = False
) -> Taken:
    """`batch`: most messages in a transaction; one means one after the other."""
    options: dict[str, str] = {}
    if batch is not None:
        options |= {"INGRESS_BATCH_EVENTS": str(batch), "INGRESS_LINGER_MS": "0"}
        options |= {"INGRESS_WRITERS": "1"} if batch == 1 else {}
    bench.clear("telemetry_raw", "sync_outbox", "ingress_dedupe", "quarantine")

    @contextlib.asynccontextmanager
    async def start() -> AsyncIterator[Storing]:
        async with gateway(bench.engines, options) as running:
            await running.said(b'"FARMIQ_UP"')
            yield Storing("gateway", running, bench.admin_url, "telemetry_raw")

    return await measure(bench, bench.engines, events, start, drained)


async def by_session(bench: Bench, events: int, *, drained: bool = False) -> Taken:
    bench.clear("telemetry_raw", "sync_outbox", "ingress_dedupe", "quarantine")

    @contextlib.asynccontextmanager
    async def start(client_id: str) -> AsyncIterator[Storing]:
        addresses = {
            name: value for name, value in bench.sessions.environment.items() if "EDGE" in name
        }
        options = {
            **addresses,
            "FARMIQ_EDGE_INGRESS_URL": bench.url,
            "FARMIQ_EDGE_MQTT_CLIENT_ID": client_id,
        }
        async with gateway(bench.engines, options) as running:
            await running.said(b'"mqtt.connected"')
            yield Storing("gateway", running, bench.admin_url, "telemetry_raw")

    return await take(bench, events, start, drained=drained)


def per_event(before: dict[str, float], after: dict[str, float], events: int) -> dict[str, float]:
    return {name: round((after[name] - before[name]) / events * 1e6, 1) for name in before}


@dataclass(frozen=True, slots=True)
class Running:
    """A process under measurement."""

    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def check(self) -> None:
        if self.process.poll() is not None:
            raise RuntimeError(f"a measured process ended by itself; see {self.log}")

    async def said(self, words: bytes) -> None:
        """Wait until its log has these words."""
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.log.read_bytes():
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"{words.decode()} is not in {self.log}")
            await asyncio.sleep(0.01)


@dataclass(frozen=True, slots=True)
class Subscriber:
    """It ends by itself when it has had its share."""

    process: asyncio.subprocess.Process

    @property
    def pids(self) -> dict[str, int]:
        return {}  # it is gone when one would ask

    async def all_taken(self, events: int) -> float:
        del events
        if await asyncio.wait_for(self.process.wait(), PATIENCE_S):
            raise RuntimeError("mosquitto_sub failed")
        return time.time()


@dataclass(frozen=True, slots=True)
class Storing:
    """A process that has taken what can be seen in its table."""

    name: str
    running: Running
    admin_url: str
    table: str

    @property
    def pids(self) -> dict[str, int]:
        return {self.name: self.running.pid}

    async def all_taken(self, events: int) -> float:
        """Looking seldom costs us at most a tenth of a second, and costs others nothing."""
        query = f"select count(*) from {self.table}".encode()  # noqa: S608 - our own tables
        deadline = time.monotonic() + PATIENCE_S
        async with await psycopg.AsyncConnection.connect(self.admin_url, autocommit=True) as link:
            while time.monotonic() < deadline:
                row = await (await link.execute(query)).fetchone()
                if row is not None and row[0] >= events:
                    return time.time()
                self.running.check()
                await asyncio.sleep(LOOK_S)
        raise RuntimeError(f"{events} events did not come to {self.table} in {PATIENCE_S:.0f} s")


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


async def until_ready(running: Running, url: str) -> None:
    deadline = time.monotonic() + READY_S
    async with httpx2.AsyncClient(timeout=5) as client:
        while time.monotonic() < deadline:
            running.check()
            try:
                if (await client.get(f"{url}/readyz")).status_code == 200:
                    return
            except httpx2.HTTPError:
                pass
            await asyncio.sleep(0.1)
    raise RuntimeError(f"{url} is not ready; see {running.log}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
