"""Telemetry's jobs on its own tables: create partitions ahead of time, purge what has expired.

What must not go stays and raises an alert (C-42): a reading that the cloud has not acknowledged,
itself or the bucket that contains it, and one that a bucket still has to be recomputed from.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import prometheus_client

from farmiq.edge import alerts
from farmiq.edge.telemetry import handlers, rollups, store
from farmiq.edge.telemetry.store import ROLLUPS, PurgedBatch
from farmiq.farm import months
from farmiq.farm.buckets import Series
from farmiq.messages.wording import worded
from farmiq.plumbing import db

TABLE = "telemetry_raw"
BATCH = 5000
CLOSE_TRIES = 3
BLOCKED_KIND = "telemetry.retention_refused"
# Devices report at least that often, so a clock is right again, or its device silent.
CLOCK_CALM_S = 15 * 60.0

PURGED = prometheus_client.Counter(
    "farmiq_telemetry_dropped_total", "Rows dropped because their time was over", ["table", "how"]
)
MONTHS = prometheus_client.Gauge("farmiq_telemetry_months", "Partitions of telemetry_raw by month")

_START = (datetime.min.replace(tzinfo=UTC), UUID(int=0))


@dataclass
class Purged:
    """What a run of retention dropped, and what it had to leave: subject → why."""

    months: int = 0
    rows: int = 0
    blocked: dict[str, str] = field(default_factory=dict)


async def create_partitions(pool: db.Pool, *, retention_days: int) -> list[date]:
    """Create the partitions from the oldest day that is stored to two months ahead.

    One that was left unfinished is finished, however old it is.
    """
    async with db.transaction(pool) as tx:
        wanted = set(months.partition_months(await months.today(tx), retention_days))
        wanted.update(await store.unfinished_partitions(tx))
        existing = await months.partitions(tx, TABLE)
    created = [m for m in sorted(wanted.difference(existing)) if await _create_partition(pool, m)]
    async with pool.connection() as connection:
        MONTHS.set(len(await months.partitions(connection, TABLE)))
    return created


async def _create_partition(pool: db.Pool, month: date) -> bool:
    moved = BATCH
    while moved:
        async with db.transaction(pool) as tx:
            moved = await store.move_to_partition(tx, month, limit=BATCH)
    return await months.create_partition(pool, month)


async def close_clock_alerts(pool: db.Pool) -> dict[str, object]:
    """Close the alerts about wrong clocks of barns from which no impossible time came lately."""
    async with db.transaction(pool) as tx:
        count = await alerts.close_unseen(tx, kind=handlers.WRONG_CLOCK, seconds=CLOCK_CALM_S)
    return {"closed": count} if count else {}


async def purge_expired(
    pool: db.Pool, *, raw_days: int, agg_days: int, timezone: str
) -> dict[str, object]:
    """One run of retention, exact to the day (C-98); what had to stay raises an alert."""
    await rollups.initialize(pool, timezone=timezone, retention_days=raw_days)
    async with db.transaction(pool) as tx:
        today = await months.today(tx)
    purged = await purge_readings(
        pool, before=months.days_before(today, raw_days), timezone=timezone
    )
    buckets = await purge_buckets(pool, before=months.days_before(today, agg_days))
    async with db.transaction(pool) as tx:
        max_days = max(raw_days, agg_days)
        await store.delete_empty_series(tx, before=months.days_before(today, max_days))
    await _update_alerts(pool, purged.blocked)
    return {"months": purged.months, "readings": purged.rows, "buckets": buckets,
            "refused": len(purged.blocked)}  # fmt: skip


async def purge_delivered_readings(
    pool: db.Pool, *, retention_days: int = 7, timezone: str = "UTC"
) -> int:
    """For a disk that is nearly full: drop readings that the cloud has, except the newest days.

    Returns how many rows went. Buckets from before are final afterwards.
    """
    async with db.transaction(pool) as tx:
        before = months.days_before(await months.today(tx), retention_days)
    purged = await purge_readings(pool, before=before, timezone=timezone, suspect=False)
    return purged.rows


async def purge_readings(
    pool: db.Pool, *, before: datetime, timezone: str, suspect: bool = True
) -> Purged:
    """Drop readings from before this time: whole months, then rows in batches."""
    purged = Purged()
    if not await _close_buckets(pool, before=before, timezone=timezone):
        purged.blocked["telemetry_raw"] = worded(
            "readings are stored beyond their time: buckets have to be recomputed "
            "from them first. See whether edge-telemetry-timeseries keeps up "
            "(farmiq_telemetry_dirty_marks)"
        )
        return purged
    async with pool.connection() as connection:
        existing = await months.partitions(connection, TABLE)
    for month in existing:
        starts_at, ends_at = (
            months.days_before(month),
            months.days_before(months.add_months(month, 1)),
        )
        if starts_at < before:
            dropped = ends_at <= before and await _drop_partition(pool, month, purged)
            if not dropped:
                await _purge_month(pool, month, purged, before=min(before, ends_at))
    if suspect:
        await _purge_suspect(pool, purged, before=before)
    return purged


async def _close_buckets(pool: db.Pool, *, before: datetime, timezone: str) -> bool:
    """Recompute what is dirty, then make buckets from before final; False if that fails."""
    for _ in range(CLOSE_TRIES):
        await rollups.recompute_all(pool, timezone=timezone)
        async with db.transaction(pool) as tx:
            await ROLLUPS.lock(tx)
            await ROLLUPS.lock_raw_from(tx)
            unfinished = await store.unfinished_partitions(tx)
            is_hidden = any(months.days_before(month) < before for month in unfinished)
            if not is_hidden and not await ROLLUPS.is_dirty_before(tx, before):
                await ROLLUPS.advance_raw_from(tx, before)
                return True
    return False


async def _drop_partition(pool: db.Pool, month: date, purged: Purged) -> bool:
    async with pool.connection() as connection:
        count = await store.count_readings(
            connection, months.days_before(month), months.days_before(months.add_months(month, 1))
        )
    dropped = await months.drop_partition(pool, month)
    if dropped:
        purged.months, purged.rows = purged.months + 1, purged.rows + count
        PURGED.labels(table="telemetry_raw", how="month").inc(count)
    return dropped


async def _purge_month(pool: db.Pool, month: date, purged: Purged, *, before: datetime) -> None:
    async with pool.connection() as connection:
        tenants = await store.tenants(connection)
    left, day = 0, months.days_before(month)
    while day < before:
        async with pool.connection() as connection:
            awaiting = await store.awaiting_buckets(connection, day)
        for tenant_id in tenants:
            series = awaiting.get(tenant_id, ())
            left += await _purge_day(pool, tenant_id, day, purged, awaiting=series)
        day += timedelta(days=1)
    if left:
        purged.blocked[f"telemetry_raw_{month:%Y_%m}"] = _unsynced(left)


async def _purge_day(
    pool: db.Pool,
    tenant_id: str,
    day: datetime,
    purged: Purged,
    *,
    awaiting: Sequence[store.DeviceMetric],
) -> int:
    """Return how many had to stay."""

    async def delete(tx: db.Connection, after: tuple[datetime, UUID]) -> PurgedBatch:
        return await store.delete_readings(
            tx, tenant_id, starts_at=day, before=day + timedelta(days=1), awaiting=awaiting,
            after=after, limit=BATCH,
        )  # fmt: skip

    return await _purge_in_batches(pool, purged, delete)


async def _purge_suspect(pool: db.Pool, purged: Purged, *, before: datetime) -> None:
    async def delete(tx: db.Connection, after: tuple[datetime, UUID]) -> PurgedBatch:
        return await store.delete_suspect_readings(tx, before=before, after=after, limit=BATCH)

    if left := await _purge_in_batches(pool, purged, delete):
        purged.blocked["telemetry_raw_default"] = _unsynced(left)


async def _purge_in_batches(
    pool: db.Pool,
    purged: Purged,
    delete: Callable[[db.Connection, tuple[datetime, UUID]], Awaitable[PurgedBatch]],
) -> int:
    """Return how many had to stay."""
    after, left = _START, 0
    while True:
        async with db.transaction(pool) as tx:
            batch = await delete(tx, after)
        purged.rows += batch.deleted
        PURGED.labels(table="telemetry_raw", how="rows").inc(batch.deleted)
        left += batch.seen - batch.deleted
        if batch.seen < BATCH or batch.last_at is None or batch.last_id is None:
            return left
        after = batch.last_at, batch.last_id


def _unsynced(count: int) -> str:
    return worded(
        "%(number)s readings are stored beyond their time: the cloud has not "
        "acknowledged them, or the buckets that contain them. See whether "
        "edge-sync-forwarder delivers, and what stands in the dlq",
        number=count,
    )


async def purge_buckets(pool: db.Pool, *, before: datetime) -> int:
    """Delete buckets that started before this time, series by series."""
    deleted, after = 0, ("", "", "")
    while True:
        async with pool.connection() as connection:
            page = await store.series_after(connection, after, limit=500)
        for series in page:
            deleted += await _purge_buckets_of(pool, series, before=before)
        if not page:
            break
        after = page[-1]
    PURGED.labels(table="telemetry_agg", how="rows").inc(deleted)
    return deleted


async def _purge_buckets_of(pool: db.Pool, series: Series, *, before: datetime) -> int:
    deleted = 0
    while True:
        async with db.transaction(pool) as tx:
            count = await store.delete_buckets(tx, series, before=before, limit=BATCH)
        deleted += count
        if count < BATCH:
            return deleted


async def _update_alerts(pool: db.Pool, blocked: dict[str, str]) -> None:
    """Open alerts for what had to stay, close those of what could go meanwhile."""
    async with db.transaction(pool) as tx:
        for subject in sorted(set(await alerts.open_subjects(tx, BLOCKED_KIND)) - blocked.keys()):
            await alerts.close(tx, kind=BLOCKED_KIND, subject=subject)
        for subject, why in sorted(blocked.items()):
            await alerts.raise_(
                tx, alerts.Alert(BLOCKED_KIND, subject, "warning", why, whole_edge=True)
            )
