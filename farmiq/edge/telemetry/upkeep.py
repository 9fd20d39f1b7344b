"""Telemetry's chores on its own tables: months made ahead, what is over its time dropped behind.

What must not go stays and is told (C-42): a reading that the cloud has not acknowledged, itself or
the bucket that tells it, and one that a bucket still has to be made from.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import prometheus_client
import psycopg

from farmiq import crash
from farmiq.edge import alerts
from farmiq.edge.telemetry import dropping, marking, partitions, remake
from farmiq.plumbing import db

MONTHS_AHEAD = 2  # a clock that runs early, a box that was away
BATCH = 5000
LOCK_TRIES = 20
LOCK_PAUSE_S = 0.5
CLOSE_TRIES = 3
REFUSED = "telemetry.retention_refused"

DROPPED = prometheus_client.Counter(
    "farmiq_telemetry_dropped_total", "Rows dropped because their time was over", ["table", "how"]
)
MONTHS = prometheus_client.Gauge("farmiq_telemetry_months", "Partitions of telemetry_raw by month")

# Readers, intake and retention go before a change of the partitions: that is tried again.
_IN_THE_WAY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
_FIRST = (datetime.min.replace(tzinfo=UTC), UUID(int=0))


@dataclass
class Forgotten:
    """What a round dropped, and what it had to leave: subject → why."""

    months: int = 0
    rows: int = 0
    refused: dict[str, str] = field(default_factory=dict)


async def make_months(pool: db.Pool, *, keep_days: int) -> list[date]:
    """Make the partitions from the oldest day that is kept to two months ahead.

    A month that was left half moved is finished, however long ago that was.
    """
    async with db.transaction(pool) as tx:
        wanted = set(kept_months(await partitions.today(tx), keep_days))
        wanted.update(await partitions.half_moved(tx))
        there = await partitions.months(tx)
    made = [month for month in sorted(wanted.difference(there)) if await _make(pool, month)]
    async with pool.connection() as connection:
        MONTHS.set(len(await partitions.months(connection)))
    return made


async def _make(pool: db.Pool, month: date) -> bool:
    moved = BATCH
    while moved:
        async with db.transaction(pool) as tx:
            moved = await partitions.move_month(tx, month, most=BATCH)
    for _ in range(LOCK_TRIES):
        try:
            async with db.transaction(pool) as tx:
                made = await partitions.make_month(tx, month)
                crash.here("telemetry.in_partition_upkeep")
        except _IN_THE_WAY:
            await asyncio.sleep(LOCK_PAUSE_S)
        else:
            return made
    return False  # the next round tries again; until then the default partition takes its rows


def kept_months(today: date, keep_days: int) -> list[date]:
    first = (today - timedelta(days=keep_days)).replace(day=1)
    count = (today.year - first.year) * 12 + today.month - first.month + MONTHS_AHEAD
    return [shift(first, months=number) for number in range(count + 1)]


def shift(day: date, *, months: int) -> date:
    """The first day of the month that many months away."""
    index = day.year * 12 + day.month - 1 + months
    return date(index // 12, index % 12 + 1, 1)


async def forget(
    pool: db.Pool, *, raw_days: int, agg_days: int, timezone: str
) -> dict[str, object]:
    """One round of retention, exact to the day (C-98); what had to stay is an alert."""
    await remake.begin(pool, timezone=timezone, keep_days=raw_days)
    async with db.transaction(pool) as tx:
        today = await partitions.today(tx)
    gone = await forget_raw(pool, before=_midnight(today, raw_days), timezone=timezone)
    aggregates = await forget_buckets(pool, before=_midnight(today, agg_days))
    async with db.transaction(pool) as tx:
        await dropping.delete_series(tx, before=_midnight(today, max(raw_days, agg_days)))
    await _tell_refused(pool, gone.refused)
    return {"months": gone.months, "readings": gone.rows, "buckets": aggregates,
            "refused": len(gone.refused)}  # fmt: skip


async def shed_delivered_raw(pool: db.Pool, *, keep_days: int = 7, timezone: str = "UTC") -> int:
    """For a disk that is nearly full: drop readings that the cloud has, but the newest days.

    Returns how many rows went. Buckets from before are final afterwards.
    """
    async with db.transaction(pool) as tx:
        today = await partitions.today(tx)
    gone = await forget_raw(
        pool, before=_midnight(today, keep_days), timezone=timezone, suspect=False
    )
    return gone.rows


async def forget_raw(
    pool: db.Pool, *, before: datetime, timezone: str, suspect: bool = True
) -> Forgotten:
    """Drop readings from before this moment: whole months, then rows in portions."""
    gone = Forgotten()
    if not await _close_buckets(pool, before=before, timezone=timezone):
        gone.refused["telemetry_raw"] = (
            "readings are kept beyond their time: buckets have to be made from them first. "
            "See whether edge-telemetry-timeseries keeps up (farmiq_telemetry_dirty_marks)"
        )
        return gone
    async with pool.connection() as connection:
        months = await partitions.months(connection)
    for month in months:
        starts_at, ends_at = _midnight(month), _midnight(shift(month, months=1))
        if starts_at < before:
            dropped = ends_at <= before and await _drop(pool, month, gone)
            if not dropped:
                await _delete(pool, month, gone, before=min(before, ends_at))
    if suspect:
        await _delete_suspect(pool, gone, before=before)
    return gone


async def _close_buckets(pool: db.Pool, *, before: datetime, timezone: str) -> bool:
    """Make what is marked, then say that buckets from before are final; False if some are not."""
    for _ in range(CLOSE_TRIES):
        await remake.all_marked(pool, timezone=timezone)
        async with db.transaction(pool) as tx:
            await marking.wait_to_lead(tx)
            await marking.wait_to_move_raw_from(tx)
            half_moved = any(_midnight(month) < before for month in await partitions.half_moved(tx))
            if not half_moved and not await marking.is_needed_before(tx, before):
                await marking.advance_raw_from(tx, before)
                return True
    return False


async def _drop(pool: db.Pool, month: date, gone: Forgotten) -> bool:
    async with pool.connection() as connection:
        count = await partitions.count_between(
            connection, _midnight(month), _midnight(shift(month, months=1))
        )
    for _ in range(LOCK_TRIES):
        try:
            async with db.transaction(pool) as tx:
                outcome = await partitions.drop_month(tx, month)
        except _IN_THE_WAY:
            await asyncio.sleep(LOCK_PAUSE_S)
            continue
        if outcome == "dropped":
            gone.months, gone.rows = gone.months + 1, gone.rows + count
            DROPPED.labels(table="telemetry_raw", how="month").inc(count)
        return outcome == "dropped"
    return False


async def _delete(pool: db.Pool, month: date, gone: Forgotten, *, before: datetime) -> None:
    async with pool.connection() as connection:
        tenants = await dropping.tenants(connection)
    left, day = 0, _midnight(month)
    while day < before:
        async with pool.connection() as connection:
            held = await dropping.held(connection, day)
        for tenant_id in tenants:
            left += await _delete_day(pool, tenant_id, day, gone, held=held.get(tenant_id, ()))
        day += timedelta(days=1)
    if left:
        gone.refused[f"telemetry_raw_{month:%Y_%m}"] = _unsynced(left)


async def _delete_day(
    pool: db.Pool, tenant_id: str, day: datetime, gone: Forgotten, *, held: Sequence[dropping.Held]
) -> int:
    """Returns how many had to stay."""
    after, left = _FIRST, 0
    while True:
        async with db.transaction(pool) as tx:
            portion = await dropping.delete_raw(
                tx, tenant_id, starts_at=day, before=day + timedelta(days=1), held=held,
                after=after, most=BATCH,
            )  # fmt: skip
        after = _note(portion, gone)
        left += portion.seen - portion.deleted
        if portion.seen < BATCH:
            return left


async def _delete_suspect(pool: db.Pool, gone: Forgotten, *, before: datetime) -> None:
    after, left = _FIRST, 0
    while True:
        async with db.transaction(pool) as tx:
            portion = await dropping.delete_suspect(tx, before=before, after=after, most=BATCH)
        after = _note(portion, gone)
        left += portion.seen - portion.deleted
        if portion.seen < BATCH:
            break
    if left:
        gone.refused["telemetry_raw_default"] = _unsynced(left)


def _note(portion: dropping.Portion, gone: Forgotten) -> tuple[datetime, UUID]:
    gone.rows += portion.deleted
    DROPPED.labels(table="telemetry_raw", how="rows").inc(portion.deleted)
    if portion.last_at is None or portion.last_id is None:
        return _FIRST
    return portion.last_at, portion.last_id


def _unsynced(count: int) -> str:
    return (
        f"{count} readings are kept beyond their time: the cloud has not acknowledged them, or the "
        "buckets that tell them. "
        "See whether edge-sync-forwarder delivers, and what stands in the dlq"
    )


async def forget_buckets(pool: db.Pool, *, before: datetime) -> int:
    """Drop buckets that began before this moment, series by series."""
    deleted, after = 0, ("", "", "")
    while True:
        async with pool.connection() as connection:
            some = await dropping.series_after(connection, after, most=500)
        for series in some:
            deleted += await _delete_buckets(pool, series, before=before)
        if not some:
            break
        after = some[-1]
    DROPPED.labels(table="telemetry_agg", how="rows").inc(deleted)
    return deleted


async def _delete_buckets(pool: db.Pool, series: tuple[str, str, str], *, before: datetime) -> int:
    deleted = 0
    while True:
        async with db.transaction(pool) as tx:
            count = await dropping.delete_buckets(tx, series, before=before, most=BATCH)
        deleted += count
        if count < BATCH:
            return deleted


async def _tell_refused(pool: db.Pool, refused: dict[str, str]) -> None:
    """Open alerts for what had to stay, close those of what could go meanwhile."""
    async with db.transaction(pool) as tx:
        for subject in sorted(set(await alerts.open_subjects(tx, REFUSED)) - refused.keys()):
            await alerts.close(tx, kind=REFUSED, subject=subject)
        for subject, why in sorted(refused.items()):
            await alerts.raise_(tx, alerts.Alert(REFUSED, subject, "warning", why))


def _midnight(day: date, days_ago: int = 0) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=days_ago)
