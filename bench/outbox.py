"""The outbox: what a claim costs at any size, and claim + settle beside other queues on PostgreSQL.

claim         500 rows leased and committed, at 100 thousand, 1 million and 5 million pending rows,
              and with 100 thousand more that wait for a retry
claim+settle  claimed, marked as being sent and acked, each in its own transaction, as the forwarder
              does it; pgqueuer and procrastinate do the same with their jobs, in the same run
start         from the start of the forwarder's process to its first batch at the cloud
"""

import statistics
import time
from pathlib import Path

import psycopg

from farmiq.edge.sync import store
from farmiq.plumbing import db

BATCH = 500
SIZES = {"100 thousand": 100_000, "1 million": 1_000_000, "5 million": 5_000_000}
WAITING = 100_000
PEERS = Path(__file__).parent / "peers.py"
PINS = ("pgqueuer==0.26.3", "procrastinate==3.5.3", "asyncpg", "psycopg[binary,pool]")
TENANT = "bench"


def fill(
    url: str, count: int, *, status: str = "pending", attempts: int = 0, due: str = "0 s"
) -> None:
    """Rows made inside the database, then the table as autovacuum leaves it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            """
            insert into sync_outbox (id, tenant_id, farm_id, barn_id, device_id, event_type,
              occurred_at, trace_id, payload_json, payload_size_bytes, status, attempt_count,
              next_attempt_at)
            select gen_random_uuid(), %s, 'farm', 'barn', 'device', 'telemetry.ingested',
              now() - interval '3 days' + n * interval '50 ms', 'trace',
              jsonb_build_object('metric_type', 'temperature', 'metric_value', n, 'unit', 'C'),
              60, %s, %s, now() + %s::interval
            from generate_series(1, %s) n
            """,
            (TENANT, status, attempts, due, count),
        )
        connection.execute("vacuum analyze sync_outbox")


def empty(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("truncate sync_outbox, sync_state, sync_drain")


async def claim_ms(url: str, *, times: int = 15) -> list[float]:
    """Milliseconds of each claim of 500, commit included."""
    found = []
    async with db.pool(url, name="bench", most=2) as pool:
        for _ in range(times):
            started = time.perf_counter()
            async with db.transaction(pool) as tx:
                rows = await store.claim(
                    tx, TENANT, claimed_by="bench", most=BATCH, few=20, lease_s=600
                )
            found.append((time.perf_counter() - started) * 1000)
            if len(rows) != BATCH:
                raise RuntimeError(f"{len(rows)} rows claimed instead of {BATCH}")
    return found


async def claims(admin: str, url: str, sizes: dict[str, int]) -> dict[str, float]:
    """Median milliseconds of a claim by size of the backlog, and with rows waiting for a retry."""
    empty(admin)
    found, there = {}, 0
    for name, size in sizes.items():
        fill(admin, size - there)
        there = size
        found[name] = round(statistics.median(await claim_ms(url)), 2)
    fill(admin, WAITING, attempts=3, due="1 h")
    found[f"{name}, {WAITING:,} waiting"] = round(statistics.median(await claim_ms(url)), 2)
    return found
