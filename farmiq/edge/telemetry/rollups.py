"""Recompute dirty buckets, and send the cloud those it waits for, in bounded batches.

Each batch is one transaction. How buckets are recomputed is in `farm/rollups.py`; here is what the
edge adds: the newest reading of each series, and buckets for the cloud.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import prometheus_client
from psycopg.rows import class_row

from farmiq.edge import outbox
from farmiq.edge.telemetry.store import ROLLUPS
from farmiq.farm.buckets import Bucket, DirtyRange
from farmiq.farm.rollups import KEY, MAX_HOURS
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db

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


async def initialize(pool: db.Pool, *, timezone: str, retention_days: int) -> None:
    """Before the first batch: from when on buckets are recomputed, and in which default zone."""
    async with db.transaction(pool) as tx:
        await ROLLUPS.initialize(tx, timezone=timezone, retention_days=retention_days)


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
        if not await ROLLUPS.try_lock(tx):
            return Recomputed()
        done = await ROLLUPS.recompute_batch(
            tx, timezone=timezone, max_hours=max_hours, up_to=up_to
        )
        await _set_pending(tx, [dirty for dirty in done.open_ranges if dirty.pending])
        await update_latest(tx, done.ranges)
        sent = await _send_pending(tx, settle_s=settle_s)
    for window, count in (("1m", done.minutes), ("1h", done.hours), ("1d", done.days)):
        RECOMPUTED.labels(window=window).inc(count)
    too_late = len(done.ranges) - len(done.open_ranges)
    TOO_LATE.inc(too_late)
    SENT.inc(sent)
    return Recomputed(done.marks, done.minutes, done.hours, done.days, too_late, sent)


async def recompute_all(pool: db.Pool, *, timezone: str) -> None:
    """Recompute what is marked now, in batches; nothing is sent. It ends if somebody else does."""
    async with pool.connection() as connection:
        up_to = await ROLLUPS.newest_mark(connection)
    while (
        await recompute_batch(pool, timezone=timezone, settle_s=_NEVER_S, up_to=up_to)
    ).marks > 0:
        pass


async def recompute_next_rezoned(pool: db.Pool, *, timezone: str) -> bool:
    """Recompute all days of one series whose farm has another zone now; False if none waits."""
    async with db.transaction(pool) as tx:
        await ROLLUPS.lock(tx)
        return await ROLLUPS.recompute_next_rezoned(tx, timezone=timezone)


async def update_latest(tx: db.Connection, ranges: Sequence[DirtyRange]) -> int:
    """Follow the newest reading of each series; returns for how many it has changed."""
    if not ranges:
        return 0
    cursor = await tx.execute(
        """
        update telemetry_latest l set farm_id = n.farm_id, barn_id = n.barn_id, event_id = n.id,
          metric_value = n.metric_value, unit = n.unit, occurred_at = n.occurred_at,
          ingested_at = n.ingested_at, clock_suspect = n.clock_suspect
        from (
          select distinct on (r.tenant_id, r.device_id, r.metric_type) r.*
          from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[])
              as k(tenant_id, device_id, metric_type, first_at, last_at)
            join telemetry_latest known on known.tenant_id = k.tenant_id
              and known.device_id = k.device_id and known.metric_type = k.metric_type
              and (known.clock_suspect or k.last_at >= known.newest_at)
            cross join lateral (
              select r.*,
                case when r.clock_suspect then r.ingested_at
                  else least(r.occurred_at, r.ingested_at) end as newest_at
              from telemetry_raw r
              where r.tenant_id = k.tenant_id and r.device_id = k.device_id
                and r.metric_type = k.metric_type
                and r.occurred_at >= k.first_at and r.occurred_at <= k.last_at
              order by r.clock_suspect, newest_at desc, r.id desc limit 1) r
          order by r.tenant_id, r.device_id, r.metric_type, r.clock_suspect, r.newest_at desc,
            r.id desc) n
        where l.tenant_id = n.tenant_id and l.device_id = n.device_id
          and l.metric_type = n.metric_type
          and (not n.clock_suspect, n.newest_at, n.id)
            > (not l.clock_suspect, l.newest_at, l.event_id)
        """,
        db.columns(ranges, *KEY, "first_at", "last_at"),
        prepare=False,
    )
    return cursor.rowcount


# Buckets that the cloud waits for, of metrics that are synced as aggregates


@dataclass(frozen=True, slots=True)
class PendingBucket(Bucket):
    """A bucket that the cloud waits for. `is_closed`: nothing is expected to change it."""

    id: UUID
    is_closed: bool


async def _set_pending(tx: db.Connection, ranges: Sequence[DirtyRange]) -> None:
    """The cloud waits for the buckets with these readings, in the window that is set."""
    if not ranges:
        return
    await tx.execute(
        """
        update telemetry_agg a set owed = true
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[])
            as k(tenant_id, device_id, metric_type, first_at, last_at)
          left join metric_settings s on s.metric_type = k.metric_type
        where a.tenant_id = k.tenant_id and a.device_id = k.device_id
          and a.metric_type = k.metric_type and a."window" = coalesce(s.agg_window, '1m')
          and a.bucket_start_at > k.first_at - interval '2 days'
          and a.bucket_start_at <= k.last_at and a.bucket_end_at > k.first_at
          and not a.owed and a.told_count <> a.count
        """,
        db.columns(ranges, *KEY, "first_at", "last_at"),
        prepare=False,
    )


async def _send_pending(tx: db.Connection, *, settle_s: float) -> int:
    buckets = await pending_buckets(tx, settle_s=settle_s, limit=MAX_SENT)
    if buckets:
        await outbox.append(tx, [event(bucket) for bucket in buckets])
        await note_sent(tx, buckets)
    return len(buckets)


async def pending_buckets(tx: db.Connection, *, settle_s: float, limit: int) -> list[PendingBucket]:
    """Buckets that ended `settle_s` ago and are not sent yet, oldest first.

    The first bucket of a series, or the first after a gap, is also sent once while it is open:
    until its end the cloud would think that the sensor is silent.
    """
    async with tx.cursor(row_factory=class_row(PendingBucket)) as cursor:
        await cursor.execute(
            """
            select id, tenant_id, farm_id, barn_id, device_id, "window", bucket_start_at,
              bucket_end_at, metric_type, unit, avg_value, min_value, max_value, count, is_closed
            from telemetry_agg a
              cross join lateral (select a.bucket_end_at
                <= (select fn_now()) - make_interval(secs => %s) as is_closed) c
            where owed and (is_closed or told_count = 0 and not exists (
                select from telemetry_agg b
                where b.tenant_id = a.tenant_id and b.device_id = a.device_id
                  and b.metric_type = a.metric_type and b."window" = a."window"
                  and b.bucket_start_at < a.bucket_start_at
                  and b.bucket_start_at >= a.bucket_start_at - interval '25 hours'
                  and b.bucket_end_at >= a.bucket_start_at
                  and (b.owed or b.told_count > 0)))
            order by bucket_end_at limit %s
            """,
            (settle_s, limit),
        )
        return await cursor.fetchall()


async def note_sent(tx: db.Connection, buckets: Sequence[PendingBucket]) -> None:
    """A bucket that was sent while it is open is still pending."""
    await tx.execute(
        """
        update telemetry_agg a set owed = not k.is_closed, told_count = count
        from unnest(%s::uuid[], %s::boolean[]) as k(id, is_closed) where a.id = k.id
        """,
        ([bucket.id for bucket in buckets], [bucket.is_closed for bucket in buckets]),
    )


def event(bucket: PendingBucket) -> BusEvent:
    """The same bucket with the same readings has the same id; with more readings, another."""
    return bucket.event(version=bucket.count, trace_id=f"telemetry-agg-{bucket.id}")
