"""The outbox: what a claim costs at any size, and claim + settle beside other queues on PostgreSQL.

claim         500 rows leased and committed, at 100 thousand, 1 million and 5 million pending rows,
              and with 100 thousand more that wait for a retry
claim+settle  claimed and read, then acked, a transaction each, in two lanes, as a backlog drains;
              pgqueuer (as it comes, and with batches as large as ours) and procrastinate do the
              same with their jobs, in the same run
start         from the start of the forwarder's process to its first batch at the cloud
"""

import asyncio
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg

from bench.results import Result, of_runs
from farmiq import config
from farmiq.edge.sync import store
from farmiq.lab.stack import Stack
from farmiq.plumbing import db, tokens

BATCH = 500
LANES = 2
SIZES = {"100 thousand": 100_000, "1 million": 1_000_000, "5 million": 5_000_000}
WAITING = 100_000
SETTLED = 50_000
PEERS = Path(__file__).parent / "peers.py"
PINS = (
    "pgqueuer==1.6.0",
    "procrastinate==3.10.0",
    "asyncpg==0.32.0",
    "psycopg[binary,pool]==3.3.8",
)
TENANT = "bench"
Say = Callable[[str], None]


def fill(
    url: str, count: int, *, status: str = "pending", attempts: int = 0, due: str = "0 s"
) -> None:
    """Rows made inside the database, ids in order, then the table as autovacuum leaves it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """
            insert into sync_outbox (id, tenant_id, farm_id, barn_id, device_id, event_type,
              occurred_at, trace_id, payload_json, payload_size_bytes, status, attempt_count,
              next_attempt_at)
            select (lpad(to_hex((extract(epoch from now()) * 1000)::bigint), 12, '0')
                || '7000a000' || lpad(to_hex(n), 12, '0'))::uuid, %s,
              'farm', 'barn', 'device', 'telemetry.ingested',
              now() - interval '3 days' + n * interval '50 ms', 'trace',
              jsonb_build_object('metric_type', 'temperature', 'metric_value', n, 'unit', 'C'),
              60, %s, %s, now() + %s::interval
            from generate_series(1, %s) n
            """,
            (TENANT, status, attempts, due, count),
        )
        connection.execute("vacuum analyze sync_outbox")
        connection.execute("checkpoint")


def empty(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate sync_outbox, sync_state, sync_drain")


async def claim_ms(url: str, *, times: int = 15) -> list[float]:
    """Milliseconds of each claim of 500, commit included."""
    found = []
    async with db.pool(url, name="bench", max_size=2) as pool:
        for _ in range(times):
            started = time.perf_counter()
            async with db.transaction(pool) as tx:
                rows = await store.claim(
                    tx, TENANT, claimed_by="bench", limit=BATCH, few=20, lease_s=600
                )
            found.append((time.perf_counter() - started) * 1000)
            if len(rows) != BATCH:
                raise RuntimeError(f"{len(rows)} rows claimed instead of {BATCH}")
    return found


async def claims(admin: str, url: str, sizes: dict[str, int]) -> dict[str, list[float]]:
    """Milliseconds of claims by size of the backlog, and with rows waiting for a retry."""
    empty(admin)
    found: dict[str, list[float]] = {}
    there, name = 0, ""
    for name, size in sizes.items():
        fill(admin, size - there)
        there = size
        await claim_ms(url, times=2)
        found[name] = await claim_ms(url)
    fill(admin, WAITING, attempts=3, due="1 h")
    await claim_ms(url, times=2)
    found[f"{name} and {WAITING:,} waiting"] = await claim_ms(url)
    return found


async def settle_rate(admin: str, url: str, *, rows: int = SETTLED) -> float:
    """Rows per second through claim and settle as the forwarder drains: two lanes of batches."""
    empty(admin)
    fill(admin, rows)
    async with db.pool(url, name="bench", max_size=LANES) as pool:
        started = time.perf_counter()
        done = await asyncio.gather(*(_settle(pool, f"lane {n}") for n in range(LANES)))
        if sum(done) != rows:
            raise RuntimeError(f"{sum(done)} rows settled instead of {rows}")
        return rows / (time.perf_counter() - started)


async def _settle(pool: db.Pool, lane: str) -> int:
    done = 0
    while True:
        async with db.transaction(pool) as tx:
            claimed = await store.claim(
                tx, TENANT, claimed_by=lane, limit=BATCH, few=20, lease_s=600
            )
            sending = await store.contents(tx, claimed)
        if not sending:
            return done
        async with db.transaction(pool) as tx:
            done += await store.acked(tx, sending, claimed_by=lane)


def peers_python(say: Say) -> Path:
    """An environment of the peers' own in the state directory, made when it is missing."""
    home = config.state_dir() / "bench-peers"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        say(f"installing {', '.join(PINS)} for the comparison")
        shutil.rmtree(home, ignore_errors=True)
        venv.create(home, with_pip=True)
        subprocess.run(  # noqa: S603 - our own list
            [python, "-m", "pip", "install", "--quiet", *PINS],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        (home / "ready").touch()
    return python


def peer_rate(admin: str, python: Path, which: str, jobs: int) -> dict[str, Any]:
    """Jobs per second of a peer, on the same server in a database of its own."""
    with _database(admin, f"bench_{which}") as url:
        command = [str(python), str(PEERS), which, url, str(jobs), str(BATCH)]
        answer = subprocess.run(  # noqa: S603 - our own list
            command, check=True, capture_output=True, text=True
        )
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def _database(admin: str, name: str) -> Iterator[str]:
    with psycopg.connect(admin, autocommit=True) as owner:
        owner.execute(f"drop database if exists {name}".encode())
        owner.execute(f"create database {name}".encode())
        try:
            yield urlunsplit(urlsplit(admin)._replace(path=f"/{name}"))
        finally:
            owner.execute(f"drop database {name} with (force)".encode())


async def start_once(engines: Stack, folder: Path) -> tuple[float, float]:
    """(seconds from spawn to the first batch at the cloud, peak memory in MB) of a forwarder."""
    arrived = asyncio.Event()

    async def cloud(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(
            asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError
        ):
            await reader.readuntil(b"\r\n\r\n")
            arrived.set()
            # It never answers: the batch stays in the forwarder's hands.
            await asyncio.sleep(3600)
        writer.close()

    server = await asyncio.start_server(cloud, "127.0.0.1", 0)
    free = await asyncio.start_server(cloud, "127.0.0.1", 0)
    http_port = free.sockets[0].getsockname()[1]
    free.close()
    environment = config.environment(
        over={
            **engines.environment,
            "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}",
            "FARMIQ_EDGE_KEY_FILE": str(folder / "key.json"),
            "FARMIQ_EDGE_HTTP_PORT": str(http_port),
        }
    )
    started = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "farmiq", "run", "edge-sync-forwarder",
        env=environment, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(120):
            await arrived.wait()
        seconds = time.perf_counter() - started
        await asyncio.sleep(2)  # its chores and its watch have looked at the backlog once
        return seconds, _peak_mb(process.pid)
    finally:
        process.kill()
        await process.wait()
        server.close()


def _peak_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def starts(
    engines: Stack, folder: Path, *, rounds: int
) -> dict[str, list[tuple[float, float]]]:
    """Starts with one batch owed and with a million rows."""
    admin = engines.environment["FARMIQ_EDGE_DB_ADMIN_URL"]
    tokens.write_new_key(folder / "key.json", folder / "keys.json")
    found: dict[str, list[tuple[float, float]]] = {"none": [], "1 million": []}
    for name, rows in (("none", BATCH), ("1 million", 1_000_000)):
        empty(admin)
        fill(admin, rows)
        for _ in range(rounds):
            found[name].append(await start_once(engines, folder))
            # What the killed one held is due again, as if it had never been.
            with psycopg.connect(admin, autocommit=True) as owner:
                owner.execute(
                    "update sync_outbox set status = 'pending', claimed_by = null "
                    "where status in ('claimed', 'sending')"
                )
    return found


def _urls(engines: Stack) -> tuple[str, str]:
    environment = engines.environment
    return environment["FARMIQ_EDGE_DB_ADMIN_URL"], environment["FARMIQ_EDGE_DB_URL"]


async def claiming(engines: Stack, *, rounds: int, say: Say) -> Result:
    """P5; it also tells of 5 million rows."""
    admin, url = _urls(engines)
    ratios: list[float] = []
    medians: dict[str, float] = {}
    for number in range(rounds):
        # The largest once: filling it takes minutes and adds nothing to the ratio.
        sizes = SIZES if number == rounds - 1 else dict(list(SIZES.items())[:2])
        found = await claims(admin, url, sizes)
        medians = {name: statistics.median(each) for name, each in found.items()}
        ratios.append(medians["1 million"] / medians["100 thousand"])
        say("claim of 500: " + ", ".join(f"{ms:.1f} ms at {name}" for name, ms in medians.items()))
    return of_runs(
        "P5",
        "claim of 500 at 1 million pending / at 100 thousand",
        ratios,
        target="<= 2",
        detail={f"ms at {name}": round(ms, 2) for name, ms in medians.items()},
    )


async def settling(engines: Stack, *, rounds: int, say: Say) -> Result:
    """P6."""
    admin, url = _urls(engines)
    python = peers_python(say)
    ours: list[float] = []
    peers: dict[str, list[float]] = {"pgqueuer": [], "procrastinate": []}
    versions: dict[str, str] = {}
    variants: dict[str, list[float]] = {"with our batch": [], "queries alone": []}
    for _ in range(rounds):
        ours.append(await settle_rate(admin, url))
        for name, rates in peers.items():
            jobs = SETTLED if name == "pgqueuer" else 1000
            found = peer_rate(admin, python, name, jobs)
            rates.append(found["rate"])
            versions[name] = found["version"]
            for variant, measured in variants.items():
                measured.extend([found[variant]] if variant in found else [])
        say(
            f"claim + settle: ours {ours[-1]:,.0f} rows/s, pgqueuer {peers['pgqueuer'][-1]:,.0f} "
            f"jobs/s, procrastinate {peers['procrastinate'][-1]:,.0f} jobs/s"
        )
    return of_runs(
        "P6",
        "claim + settle rows/s / pgqueuer jobs/s",
        [mine / theirs for mine, theirs in zip(ours, peers["pgqueuer"], strict=True)],
        target=">= 3",
        detail={
            "ours, rows/s": round(statistics.median(ours)),
            **{f"{name}, jobs/s": round(statistics.median(each)) for name, each in peers.items()},
            "pgqueuer with batches of 500, jobs/s": round(
                statistics.median(variants["with our batch"])
            ),
            "pgqueuer's queries without its worker, jobs/s": round(
                statistics.median(variants["queries alone"])
            ),
            "pgqueuer": "its worker as it comes: batches of 10",
            "versions": versions,
            "ours": "claimed and read, then acked: two transactions per 500 rows, two lanes",
        },
    )


async def starting(engines: Stack, *, rounds: int, say: Say) -> Result:
    """P10."""
    folder = config.state_dir() / "bench-key"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        found = await starts(engines, folder, rounds=rounds)
    finally:
        shutil.rmtree(folder)
    seconds = {name: statistics.median(s for s, _ in each) for name, each in found.items()}
    memory = {name: statistics.median(mb for _, mb in each) for name, each in found.items()}
    say(f"start to first batch, s: {seconds}; peak MB: {memory}")
    pairs = zip(found["1 million"], found["none"], strict=True)
    return of_runs(
        "P10",
        "start of the forwarder with 1 million rows / with none (the worse of time and memory)",
        [max(many[0] / few[0], many[1] / few[1]) for many, few in pairs],
        target="<= 1.2",
        detail={
            "seconds to the first batch": {name: round(s, 2) for name, s in seconds.items()},
            "peak MB": {name: round(mb, 1) for name, mb in memory.items()},
        },
    )
