"""Chores on the outbox: free what a dead forwarder held, set aside, archive, forget."""

from collections import Counter
from datetime import datetime

from farmiq import crash
from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.sync import archive, overdue, verdict, watch
from farmiq.edge.sync import retention as store
from farmiq.edge.sync.forwarder import RECLAIMED
from farmiq.edge.sync.states import State
from farmiq.edge.sync.verdict import MAX_ATTEMPTS
from farmiq.plumbing import db, retry

# Rows in one transaction: short enough that nobody waits for it.
AT_ONCE = 2000


async def reap(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """What is held beyond its lease is free again, and has one attempt more (C-15)."""
    count: Counter[State] = Counter()
    while True:
        async with db.transaction(pool) as tx:
            freed = await overdue.reap(
                tx,
                most_attempts=settings.sync_max_attempts,
                policy=retry.documented(base_s=settings.sync_base_s, cap_s=settings.sync_cap_s),
                outage_codes=verdict.OUTAGE_CODES,
                most=AT_ONCE,
            )
            await _tell(tx, [tenant_id for tenant_id, status in freed if status == "dlq"])
            if freed:
                crash.here("sync.before_reap_commit")
        RECLAIMED.inc(len(freed))
        count.update(status for _, status in freed)
        if len(freed) < AT_ONCE:
            return {"freed": count["pending"], "set_aside": count["dlq"]}


async def set_right(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """A clock that was ahead and is right again must not silence anybody for the difference."""
    async with db.transaction(pool) as tx:
        put_off, paused, held = await overdue.set_right(
            tx,
            # The documented formula ends at the cap, jitter and all; a little more is nobody's.
            wait_s=settings.sync_cap_s + 10,
            pause_s=max(settings.sync_cap_s, settings.sync_breaker_s) + 10,
            lease_s=settings.sync_lease_s * 2,
        )
    return {"count": put_off + paused + held}


async def sweep(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """Pending rows beyond the limit of attempts belong into the dlq (C-14)."""
    async with db.transaction(pool) as tx:
        aside = await overdue.sweep(
            tx,
            most_attempts=settings.sync_max_attempts,
            outage_codes=verdict.OUTAGE_CODES,
            most=AT_ONCE,
        )
        await _tell(tx, aside)
    return {"set_aside": len(aside)}


async def _tell(tx: db.Connection, set_aside: list[str]) -> None:
    """One alert per tenant of rows that went to the dlq."""
    counted = Counter(watch.set_aside(tenant_id, MAX_ATTEMPTS) for tenant_id in set_aside)
    await alerts.raise_all(tx, counted)


async def forget(pool: db.Pool, settings: EdgeSettings) -> dict[str, object]:
    """Delete what is beyond its retention; what was never delivered is archived first (C-16)."""
    deleted = await _forget_acked(pool, settings.outbox_retention_days)
    archived = 0
    while True:
        async with db.transaction(pool) as tx:
            rows = await store.undelivered(tx, days=settings.outbox_retention_days, most=AT_ONCE)
        if not rows:
            return {"deleted": deleted, "archived": archived}
        written = await archive.write(settings.outbox_archive(), rows)
        crash.here("sync.after_archive")
        async with db.transaction(pool) as tx:
            archived += await store.forget_archived(tx, rows, written)
            await alerts.raise_(tx, _archived(settings), count=len(rows))


async def _forget_acked(pool: db.Pool, days: float) -> int:
    deleted = 0
    after: datetime | None = None
    while True:
        async with db.transaction(pool) as tx:
            count, after = await store.forget_acked(tx, days=days, after=after, most=AT_ONCE)
        deleted += count
        if after is None:
            return deleted


def _archived(settings: EdgeSettings) -> Alert:
    return Alert(
        "sync.archived_undelivered",
        settings.edge_cluster_id,
        "warning",
        "events that were never delivered reached their retention and were moved out of the "
        f"outbox into files in {settings.outbox_archive()}",
    )
