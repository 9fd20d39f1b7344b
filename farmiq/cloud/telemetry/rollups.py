"""Recompute dirty buckets in bounded batches, and publish those that have ended.

How buckets are recomputed is in `farm/rollups.py`. Hours that changed mark their days for
cloud-analytics-service in the same transaction, so that it need not read every reading (D-470). A
bucket that changes is pending until its event is on the bus: it is published after its commit,
inside the transaction that says so. A crash between the two publishes it again under the same id
(C-10).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import prometheus_client

from farmiq import crash
from farmiq.cloud import marked_days, publishing
from farmiq.cloud.history import History
from farmiq.cloud.marked_days import Place
from farmiq.cloud.telemetry import late
from farmiq.cloud.telemetry.store import ROLLUPS
from farmiq.farm.buckets import Bucket
from farmiq.farm.rollups import MAX_HOURS, Recomputed
from farmiq.farm.rollups import Bucket as ChangedHour
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db
from farmiq.plumbing.bus import amqp

MAX_PUBLISHED = 500
DEFAULT_ZONE = "UTC"  # of farms that nobody registered
RETENTION_DAYS = 365 * 100  # before the first batch: readings of any age are counted

RECOMPUTED = prometheus_client.Counter(
    "farmiq_cloud_telemetry_buckets_made_total", "Buckets made, or made again", ["window"]
)
PUBLISHED = prometheus_client.Counter(
    "farmiq_cloud_telemetry_buckets_published_total", "Buckets whose event the bus has confirmed"
)


@dataclass(frozen=True, slots=True)
class PendingBucket(Bucket):
    """A bucket whose event has to be published; `revision` grows with every change of it."""

    revision: int


async def recompute_all(
    pool: db.Pool, archived: History | None = None, *, max_hours: int = MAX_HOURS
) -> None:
    """Recompute what is marked now, in batches; marks that come meanwhile can wait.

    It ends if somebody else recomputes.
    """
    async with db.transaction(pool) as tx:
        await ROLLUPS.initialize(tx, timezone=DEFAULT_ZONE, retention_days=RETENTION_DAYS)
        up_to = await ROLLUPS.newest_mark(tx)
    while await _recompute_next_rezoned(pool):
        pass
    files = archived or History(None)
    while (await recompute_batch(pool, files, max_hours=max_hours, up_to=up_to)).marks:
        pass


async def recompute_batch(
    pool: db.Pool, archived: History, *, max_hours: int, up_to: int | None
) -> Recomputed:
    """Recompute the buckets of the oldest marks; nothing while somebody else does."""
    async with db.transaction(pool) as tx:
        if not await ROLLUPS.try_lock(tx):
            return Recomputed()
        done = await ROLLUPS.recompute_batch(
            tx,
            timezone=DEFAULT_ZONE,
            max_hours=max_hours,
            up_to=up_to,
            recompute_minutes=partial(late.recompute_minutes, archived=archived),
        )
        if done.marks:
            await _mark_days(tx, done.changed_hours)
            crash.here("buckets.before_commit")
    if done.marks:
        crash.here("buckets.after_commit")
    for window, count in (("1m", done.minutes), ("1h", done.hours), ("1d", done.days)):
        RECOMPUTED.labels(window=window).inc(count)
    return done


async def _mark_days(tx: db.Connection, hours: Sequence[ChangedHour]) -> None:
    """Mark the days that hours lie in, which figures are computed from (C-112)."""
    if not hours:
        return
    rows = await db.fetch_all(
        tx,
        """
        select distinct a.tenant_id, a.farm_id, a.barn_id, a.bucket_start_at, a.bucket_end_at
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[])
            as k(tenant_id, device_id, metric_type, bucket_start_at)
          join telemetry_agg a on a.tenant_id = k.tenant_id and a.device_id = k.device_id
            and a.metric_type = k.metric_type and a."window" = '1h'
            and a.bucket_start_at = k.bucket_start_at
        """,
        [series[0] for series, _, _ in hours],
        [series[1] for series, _, _ in hours],
        [series[2] for series, _, _ in hours],
        [begin_at for _, begin_at, _ in hours],
    )
    # A zone's midnight may lie within an hour of UTC.
    places = {
        Place(tenant_id, farm_id, barn_id, None, at)
        for tenant_id, farm_id, barn_id, begin_at, end_at in rows
        for at in (begin_at, end_at - timedelta(minutes=1))
    }
    await marked_days.mark_places(tx, places, early=True)


async def _recompute_next_rezoned(pool: db.Pool) -> bool:
    async with db.transaction(pool) as tx:
        if not await ROLLUPS.try_lock(tx):
            return False
        return await ROLLUPS.recompute_next_rezoned(tx, timezone=DEFAULT_ZONE)


async def publish_all(
    pool: db.Pool, publisher: amqp.Publisher, *, settle_s: float, timeout_s: float
) -> int:
    """Publish what is pending and has ended, in batches; returns how many events.

    Raises amqp.BusDownError.
    """
    published = 0
    while count := await publish_batch(pool, publisher, settle_s=settle_s, timeout_s=timeout_s):
        published += count
    return published


async def publish_batch(
    pool: db.Pool, publisher: amqp.Publisher, *, settle_s: float, timeout_s: float
) -> int:
    """Publish some of them: a bucket that changes meanwhile has another revision and stays pending.

    Raises amqp.BusDownError.
    """
    async with db.transaction(pool) as tx:
        if not await db.fetch_value(
            tx, "select pg_try_advisory_xact_lock(hashtextextended('publish buckets', 0))"
        ):
            return 0
        buckets = await pending_aggregates(tx, settle_s=settle_s)
        if not buckets:
            return 0
        events = [event(bucket) for bucket in buckets]
        await publishing.publish(publisher, events, timeout_s=timeout_s)
        crash.here("buckets.after_publish")
        await _note_published(tx, buckets)
    PUBLISHED.inc(len(buckets))
    return len(buckets)


async def pending_aggregates(tx: db.Connection, *, settle_s: float) -> list[PendingBucket]:
    return await db.fetch_as(
        tx,
        PendingBucket,
        """
        select tenant_id, farm_id, barn_id, device_id, metric_type, "window", bucket_start_at,
          bucket_end_at, unit, avg_value, min_value, max_value, count, revision
        from telemetry_agg
        where pending and bucket_end_at <= (select fn_now()) - make_interval(secs => %s)
        order by bucket_end_at limit %s
        """,
        (settle_s, MAX_PUBLISHED),
    )


async def _note_published(tx: db.Connection, buckets: Sequence[PendingBucket]) -> None:
    await tx.execute(
        """
        update telemetry_agg a set pending = false
        from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[],
            %s::bigint[])
          as k(tenant_id, device_id, metric_type, "window", bucket_start_at, revision)
        where a.tenant_id = k.tenant_id and a.device_id = k.device_id
          and a.metric_type = k.metric_type and a."window" = k."window"
          and a.bucket_start_at = k.bucket_start_at and a.revision = k.revision
        """,
        db.columns(
            buckets, "tenant_id", "device_id", "metric_type", "window", "bucket_start_at",
            "revision",
        ),
        prepare=False,
    )  # fmt: skip


async def pending_backlog(tx: db.Connection, *, settle_s: float) -> int:
    """How many ended buckets wait for the bus, counted no further than ten thousand."""
    count: int = await db.fetch_value(
        tx,
        """
        select count(*) from (
          select from telemetry_agg
          where pending and bucket_end_at <= (select fn_now()) - make_interval(secs => %s)
          limit 10000) p
        """,
        settle_s,
    )
    return count


def event(bucket: PendingBucket) -> BusEvent:
    """The same state of a bucket always has the same id, another state another one."""
    return bucket.event(version=bucket.revision, by_cloud=True)
