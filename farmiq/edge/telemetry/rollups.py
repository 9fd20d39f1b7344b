"""Recompute dirty buckets, and send the cloud those it waits for, in bounded batches.

Each batch is one transaction. It reads the marks first and the readings after them, so it sees
every reading that a mark stands for; a mark that is added meanwhile stays for the next batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec
import prometheus_client

from farmiq.edge import outbox
from farmiq.edge.telemetry import rollup_store, rules, store
from farmiq.edge.telemetry.rules import DirtyRange, Series
from farmiq.messages import ids, telemetry
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db

MAX_HOURS = 1000
MAX_RANGES = 50_000  # of all marks of a batch, the same hours again and again included
MAX_SENT = 500
_NEVER_S = 1e9  # nothing is sent to the cloud

RECOMPUTED = prometheus_client.Counter(
    "farmiq_telemetry_buckets_made_total", "Buckets made, or made again", ["window"]
)
TOO_LATE = prometheus_client.Counter(
    "farmiq_telemetry_hours_too_late_total",
    "Hours of a series that readings came for after their bucket was closed",
)
SENT = prometheus_client.Counter(
    "farmiq_telemetry_buckets_told_total", "Buckets owed to the cloud and written to the outbox"
)


@dataclass(frozen=True, slots=True)
class Recomputed:
    """What one batch did."""

    marks: int = 0
    minutes: int = 0
    hours: int = 0
    days: int = 0
    too_late: int = 0
    sent: int = 0

    @property
    def is_nothing(self) -> bool:
        return self == Recomputed()


@dataclass(frozen=True, slots=True)
class Zones:
    """The time zones of farms; `default` is that of farms without one of their own."""

    of_farms: dict[tuple[str, str], str]
    default: str

    def of(self, tenant_id: str, farm_id: str) -> str:
        return self.of_farms.get((tenant_id, farm_id), self.default)

    def in_use(self) -> dict[str, list[str]]:
        zones: dict[str, list[str]] = {}
        for (tenant_id, _), zone in self.of_farms.items():
            zones.setdefault(tenant_id, [self.default]).append(zone)
        return zones


async def initialize(pool: db.Pool, *, timezone: str, retention_days: int) -> None:
    """Before the first batch: from when on buckets are recomputed, and in which default zone."""
    async with db.transaction(pool) as tx:
        if await rollup_store.default_zone(tx) == timezone:
            return
        await store.initialize_raw_from(tx, retention_days=retention_days)
        await rollup_store.change_default_zone(tx, timezone)


async def recompute_batch(
    pool: db.Pool,
    *,
    timezone: str,
    settle_s: float = 0.0,
    max_hours: int = MAX_HOURS,
    up_to: int | None = None,
) -> Recomputed:
    """Recompute buckets, follow the newest readings, send pending buckets: one transaction.

    It does nothing while somebody else recomputes. Marks after `up_to` are left for later.
    """
    async with db.transaction(pool) as tx:
        if not await rollup_store.try_lock(tx):
            return Recomputed()
        marks, ranges = await _next_ranges(tx, max_hours=max_hours, up_to=up_to)
        done = await _recompute(tx, marks, ranges, timezone) if marks else Recomputed()
        sent = await _send_pending(tx, settle_s=settle_s)
    for window, count in (("1m", done.minutes), ("1h", done.hours), ("1d", done.days)):
        RECOMPUTED.labels(window=window).inc(count)
    TOO_LATE.inc(done.too_late)
    SENT.inc(sent)
    return replace(done, sent=sent)


async def recompute_all(pool: db.Pool, *, timezone: str) -> None:
    """Recompute what is marked now, in batches; nothing is sent. It ends if somebody else does."""
    async with pool.connection() as connection:
        up_to = await store.newest_mark(connection)
    while (
        await recompute_batch(pool, timezone=timezone, settle_s=_NEVER_S, up_to=up_to)
    ).marks > 0:
        pass


async def _next_ranges(
    tx: db.Connection, *, max_hours: int, up_to: int | None
) -> tuple[list[int], list[DirtyRange]]:
    """As many marks as name about `max_hours` different hours of series, but at least one.

    Many marks of the same hours, as a busy minute leaves them, are one batch.
    """
    marks = await store.oldest_marks(tx, max_ranges=MAX_RANGES, up_to=up_to)
    while True:
        ranges = await store.marked_ranges(tx, marks)
        if len(ranges) <= max_hours or len(marks) == 1:
            return marks, ranges
        marks = marks[: len(marks) // 2]


async def _recompute(
    tx: db.Connection, marks: Sequence[int], ranges: Sequence[DirtyRange], timezone: str
) -> Recomputed:
    raw_from = await store.raw_from(tx)
    open_ = [dirty for dirty in ranges if dirty.hour_at >= raw_from]
    zones = Zones(await rollup_store.farm_zones(tx), timezone)
    minutes = await rollup_store.recompute_minutes(tx, open_)
    farms_before = await rollup_store.farms_of_hours(tx, open_)
    hours = await rollup_store.recompute_hours(tx, open_)
    pending = {dirty.series for dirty in open_ if dirty.pending}
    days = await _recompute_days(tx, hours, farms_before, zones=zones, pending=pending)
    await rollup_store.update_latest(tx, ranges)
    await store.delete_marks(tx, marks)
    return Recomputed(len(marks), minutes, len(hours), days, len(ranges) - len(open_))


async def _recompute_days(
    tx: db.Connection,
    hours: Sequence[rollup_store.Bucket],
    farms_before: dict[tuple[Series, datetime], str],
    *,
    zones: Zones,
    pending: set[Series],
) -> int:
    """The days of hours that changed; if an hour changed its zone, also those that it left."""
    here = [(series, at, zones.of(series[0], farm_id)) for series, at, farm_id in hours]
    left = [
        (series, at, zones.of(series[0], farms_before[series, at]))
        for series, at, zone in here
        if (series, at) in farms_before and zones.of(series[0], farms_before[series, at]) != zone
    ]
    in_use = zones.in_use()
    deleted = await rollup_store.delete_days(tx, rules.local_days(left, in_use)) if left else []
    days = rules.local_days([*here, *left], in_use)
    count = await rollup_store.recompute_days(tx, days, pending=pending, default_zone=zones.default)
    if deleted:
        await rollup_store.set_pending(tx, deleted)
    return count


async def recompute_next_rezoned(pool: db.Pool, *, timezone: str) -> bool:
    """Recompute all days of one series whose farm has another zone now; False if none waits."""
    async with db.transaction(pool) as tx:
        await rollup_store.lock(tx)
        series = await rollup_store.next_rezoned(tx)
        if series is None:
            return False
        zones = Zones(await rollup_store.farm_zones(tx), timezone)
        hours = [
            (series, at, zones.of(series[0], farm_id))
            for at, farm_id in await rollup_store.hours_of(tx, series)
        ]
        deleted = await rollup_store.delete_all_days(tx, series)
        days = rules.local_days(hours, zones.in_use())
        await rollup_store.recompute_days(tx, days, pending=set(), default_zone=timezone)
        await rollup_store.set_pending(tx, deleted)
        await rollup_store.delete_rezoned(tx, series)
    return True


async def _send_pending(tx: db.Connection, *, settle_s: float) -> int:
    buckets = await rollup_store.pending_buckets(tx, settle_s=settle_s, limit=MAX_SENT)
    if buckets:
        await outbox.append(tx, [event(bucket) for bucket in buckets])
        await rollup_store.note_sent(tx, buckets)
    return len(buckets)


def event(bucket: rollup_store.PendingBucket) -> BusEvent:
    """The same bucket with the same readings has the same id; with more readings, another."""
    payload = telemetry.TelemetryAggregated(
        metric_type=bucket.metric_type,
        aggregation_window=bucket.window,
        avg_value=bucket.avg_value,
        min_value=bucket.min_value,
        max_value=bucket.max_value,
        unit=bucket.unit,
        count=bucket.count,
        bucket_start_at=bucket.bucket_start_at,
        bucket_end_at=bucket.bucket_end_at,
    )
    event_id = ids.derived(
        bucket.bucket_start_at,
        telemetry.AGGREGATED,
        bucket.tenant_id,
        bucket.device_id,
        bucket.metric_type,
        bucket.window,
        bucket.bucket_start_at.isoformat(),
        str(bucket.count),
    )
    return BusEvent(
        event_id=event_id,
        event_type=telemetry.AGGREGATED,
        tenant_id=bucket.tenant_id,
        farm_id=bucket.farm_id,
        barn_id=bucket.barn_id,
        device_id=bucket.device_id,
        session_id=None,
        occurred_at=bucket.bucket_start_at,
        trace_id=f"telemetry-agg-{bucket.id}",
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )
