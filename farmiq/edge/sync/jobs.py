"""Periodic jobs on the outbox: release expired leases, dead-letter, archive, purge."""

import asyncio
import gzip
import hashlib
import json
import os
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.sync import monitor, rules, store
from farmiq.edge.sync.forwarder import RECLAIMED, backoff_of
from farmiq.edge.sync.rules import State
from farmiq.edge.sync.store import Archive
from farmiq.messages import instants
from farmiq.messages.wording import worded
from farmiq.plumbing import db, ids
from farmiq.plumbing.backoff import chance

# Rows in one transaction: short enough that nobody waits for it.
BATCH = 2000


async def reap(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """Release rows whose lease ended; each has one attempt more (C-15)."""
    backoff, count = backoff_of(settings), Counter[State]()
    while True:
        freed: list[tuple[str, State]] = []
        async with db.transaction(pool) as tx:
            for claimed_by, rows in (await store.expired(tx, limit=BATCH)).items():
                message = f"held by {claimed_by}, which did not settle it"
                failures = {
                    row: backoff.after_failure(row, rules.LEASE_EXPIRED, message, chance=chance())
                    for row in rows
                }
                freed += await store.settle_failed(tx, failures, claimed_by=claimed_by)
            await _raise_alerts(tx, [tenant_id for tenant_id, status in freed if status == "dlq"])
            if freed:
                crash.here("sync.before_reap_commit")
        RECLAIMED.inc(len(freed))
        count.update(status for _, status in freed)
        if len(freed) < BATCH:
            return {"freed": count["pending"], "set_aside": count["dlq"]}


async def reset_clock(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """Make due what a clock that was ahead has postponed too far."""
    async with db.transaction(pool) as tx:
        postponed, paused, held = await store.reset_clock(
            tx,
            # No row waits longer than the cap, jitter included; later than that is a wrong clock.
            wait_s=settings.sync_cap_s + 10,
            pause_s=max(settings.sync_cap_s, settings.sync_breaker_s) + 10,
            lease_s=settings.sync_lease_s * 2,
        )
    return {"count": postponed + paused + held}


async def sweep(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """Move pending rows beyond the limit of attempts to the dlq (C-14)."""
    async with db.transaction(pool) as tx:
        dead = await store.dead_letter_exhausted(
            tx,
            max_attempts=settings.sync_max_attempts,
            limit=BATCH,
        )
        await _raise_alerts(tx, dead)
    return {"set_aside": len(dead)}


async def _raise_alerts(tx: db.Connection, tenant_ids: list[str]) -> None:
    """One alert per tenant of rows that went to the dlq."""
    counted = Counter(
        monitor.dead_letter_alert(tenant_id, rules.MAX_ATTEMPTS) for tenant_id in tenant_ids
    )
    await alerts.raise_all(tx, counted)


async def purge(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """Delete what is beyond its retention; what was never delivered is archived first (C-16)."""
    deleted = await _purge_acked(pool, settings.outbox_retention_days)
    archived = 0
    while True:
        async with db.transaction(pool) as tx:
            rows = await store.undelivered(tx, days=settings.outbox_retention_days, limit=BATCH)
        if not rows:
            return {"deleted": deleted, "archived": archived}
        written = await write_archive(settings.outbox_archive(), rows)
        crash.here("sync.after_archive")
        async with db.transaction(pool) as tx:
            archived += await store.purge_archived(tx, rows, written)
            await alerts.raise_(tx, _archived(settings), count=len(rows))


async def _purge_acked(pool: db.Pool, days: float) -> int:
    deleted = 0
    after: datetime | None = None
    while True:
        async with db.transaction(pool) as tx:
            count, after = await store.purge_acked(tx, days=days, after=after, limit=BATCH)
        deleted += count
        if after is None:
            return deleted


def _archived(settings: EdgeSettings) -> Alert:
    return Alert(
        "sync.archived_undelivered",
        settings.edge_cluster_id,
        "warning",
        worded(
            "events that were never delivered reached their retention and were "
            "moved out of the outbox into files in %(folder)s",
            folder=settings.outbox_archive(),
        ),
        whole_edge=True,
    )


async def write_archive(folder: Path, rows: Sequence[dict[str, Any]]) -> Archive:
    """One line per row with every column; returns when file and folder are flushed."""
    return await asyncio.to_thread(_write, folder, rows)


def _write(folder: Path, rows: Sequence[dict[str, Any]]) -> Archive:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    archive_id = ids.new()
    file = folder / f"outbox-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{archive_id}.jsonl.gz"
    lines = "".join(json.dumps(row, default=_text, ensure_ascii=False) + "\n" for row in rows)
    packed = gzip.compress(lines.encode(), mtime=0)
    digest = hashlib.sha256(packed)
    _store_file(file, packed)
    # As sha256sum writes it, so that `sha256sum -c` reads it.
    _store_file(
        file.with_name(f"{file.name}.sha256"), f"{digest.hexdigest()}  {file.name}\n".encode()
    )
    _flush(folder)
    return Archive(archive_id, file, digest.digest(), len(rows))


def _store_file(file: Path, content: bytes) -> None:
    """Write the whole file or nothing, also if the process is killed."""
    unfinished = file.with_name(f".{file.name}.part")
    with unfinished.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    unfinished.rename(file)


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _text(value: object) -> str:
    return instants.rfc3339(value) if isinstance(value, datetime) else str(value)
