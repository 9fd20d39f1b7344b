"""The database stage alone, beside a plain COPY of the same readings into telemetry_raw."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TypeVar

from bench import load
from bench.ingest import Bench
from farmiq.edge.arrival import Arrival
from farmiq.edge.ingress import handlers
from farmiq.edge.telemetry import store as telemetry
from farmiq.plumbing import db

BATCH = 1000
WRITERS = 2

T = TypeVar("T")


async def stage(bench: Bench, events: int) -> float:
    """Rows per second through dedupe, telemetry_raw and sync_outbox, messages read beforehand."""
    bench.clear("telemetry_raw", "sync_outbox", "ingress_dedupe")
    arrivals, refused = handlers.parse(_sent(events))
    assert not refused  # noqa: S101

    async def keep(pool: db.Pool, part: list[Arrival]) -> None:
        async with db.transaction(pool) as tx:
            await handlers.apply_events(tx, part, check_outbox=False)

    return await _rate(bench, _parts(arrivals), keep)


async def plain(bench: Bench, events: int) -> float:
    """Rows per second of COPY alone: the same rows, encoded beforehand, the same batches."""
    bench.clear("telemetry_raw")
    arrivals, _ = handlers.parse(_sent(events))
    now = datetime.now(UTC)
    encoded = [telemetry.encode_readings(part, ingested_at=now) for part in _parts(arrivals)]

    async def copy(pool: db.Pool, rows: bytes) -> None:
        async with db.transaction(pool) as tx:
            await db.copy(tx, telemetry.COPY, rows)

    return await _rate(bench, encoded, copy)


def _sent(events: int) -> list[tuple[str, bytes]]:
    return [(one.topic, one.raw) for one in load.messages(events)]


def _parts(arrivals: list[T]) -> list[list[T]]:
    return [arrivals[at : at + BATCH] for at in range(0, len(arrivals), BATCH)]


async def _rate(
    bench: Bench, parts: list[T], write: Callable[[db.Pool, T], Awaitable[None]]
) -> float:
    url = bench.engines.environment["FARMIQ_EDGE_DB_URL"]
    left = list(reversed(parts))

    async def writer(pool: db.Pool) -> None:
        while left:
            await write(pool, left.pop())

    async with db.pool(url, name="bench", max_size=WRITERS) as pool:
        began = time.monotonic()
        await asyncio.gather(*(writer(pool) for _ in range(WRITERS)))
        return len(parts) * BATCH / (time.monotonic() - began)
