"""Telemetry's jobs in the cloud: partitions for what comes, retention if a setting says so.

Both as at the edge, by the same `farm/months.py`; only that here readings are kept for ever by
default, and months are made for readings of any age.
"""

from datetime import date, datetime

import prometheus_client

from farmiq.cloud.history import History
from farmiq.cloud.telemetry import archive, rollups
from farmiq.cloud.telemetry.store import ROLLUPS
from farmiq.farm import months
from farmiq.plumbing import db

TABLE = "telemetry_readings"
DAYS_BACK = 92  # months that are there before the first late reading comes
OLDEST = date(2000, 1, 1)  # a reading from before it has a clock that was never set
MAX_MONTHS = 24  # made in one run
BATCH = 5000

PURGED = prometheus_client.Counter(
    "farmiq_cloud_telemetry_dropped_total", "Rows dropped because their time was over", ["table"]
)
MONTHS = prometheus_client.Gauge(
    "farmiq_cloud_telemetry_months", "Partitions of telemetry_readings by month"
)


async def create_partitions(
    pool: db.Pool, *, retention_days: int | None = None, history_months: int | None = None
) -> list[date]:
    """Create partitions from three months back to two ahead, and for older readings that came.

    Not for readings that retention is about to delete, and none ahead of readings that would be
    archived.
    """
    async with db.transaction(pool) as tx:
        today = await months.today(tx)
        oldest = OLDEST
        days_back = DAYS_BACK
        if retention_days is not None:
            days_back = min(DAYS_BACK, retention_days)
            oldest = max(OLDEST, months.days_before(today, retention_days).date())
        wanted = set(months.partition_months(today, days_back))
        if history_months is not None:
            wanted = {
                month for month in wanted if month >= months.add_months(today, -history_months)
            }
        newest = max(wanted)
        wanted.update(
            month for month in await _waiting_months(tx) if oldest.replace(day=1) <= month <= newest
        )
        existing = await months.partitions(tx, TABLE)
    missing = sorted(wanted.difference(existing), reverse=True)[:MAX_MONTHS]
    created = [month for month in missing if await months.create_partition(pool, month)]
    async with pool.connection() as connection:
        MONTHS.set(len(await months.partitions(connection, TABLE)))
    return created


async def _waiting_months(tx: db.Connection) -> list[date]:
    """The months of readings in the default partition, by steps through its index."""
    rows = await db.fetch_all(
        tx,
        """
        with recursive m(month) as (
          select date_trunc('month', min(occurred_at), 'UTC') from telemetry_readings_default
          union all
          select (select date_trunc('month', min(d.occurred_at), 'UTC')
            from telemetry_readings_default d
            where d.occurred_at >= m.month + interval '1 month')
          from m where m.month is not null
        )
        select (month at time zone 'UTC')::date from m
        where month between '1900-01-01' and '9000-01-01'
        """,
    )
    return [month for (month,) in rows]


async def purge_expired(
    pool: db.Pool, *, raw_days: int | None, minutes_days: int | None, archived: History
) -> dict[str, object]:
    """One run of retention, exact to the day (C-98); hours and days stay for ever.

    A file of archived readings goes when the last of them is over its time.
    """
    async with db.transaction(pool) as tx:
        today = await months.today(tx)
    done: dict[str, object] = {}
    if raw_days is not None:
        async with archive.alone(pool) as is_alone:
            if not is_alone:
                return {}
            before = months.days_before(today, raw_days)
            done["readings"] = await purge_readings(pool, archived, before=before)
            if archived.bucket is not None:
                done["archived"] = await archive.purge_files(pool, archived, before=before)
    if minutes_days is not None:
        done["minutes"] = await purge_minutes(pool, before=months.days_before(today, minutes_days))
    return done


async def purge_readings(pool: db.Pool, archived: History, *, before: datetime) -> int:
    """Drop readings from before this time: whole months, then rows in batches.

    Nothing while a bucket has to be computed from one of them. Afterwards buckets from before are
    final. Returns how many rows.
    """
    if not await _close_buckets(pool, archived, before=before):
        return 0
    dropped = 0
    async with pool.connection() as connection:
        existing = await months.partitions(connection, TABLE)
    for month in existing:
        if months.days_before(months.add_months(month, 1)) <= before:
            count = await _count(pool, month)
            if await months.drop_partition(pool, month):
                dropped += count
    dropped += await _purge_by_series(pool, _DELETE_READINGS, before=before)
    PURGED.labels(table=TABLE).inc(dropped)
    return dropped


async def purge_minutes(pool: db.Pool, *, before: datetime) -> int:
    """Delete minutes from before this time, but none that an hour may be computed from again."""
    async with pool.connection() as connection:
        before = min(before, await ROLLUPS.raw_from(connection))
    deleted = await _purge_by_series(pool, _DELETE_MINUTES, before=before)
    PURGED.labels(table="telemetry_agg").inc(deleted)
    return deleted


async def _close_buckets(pool: db.Pool, archived: History, *, before: datetime) -> bool:
    """Recompute what is dirty, then make buckets from before final; False if that fails."""
    await rollups.recompute_all(pool, archived)
    async with db.transaction(pool) as tx:
        await ROLLUPS.lock(tx)
        await ROLLUPS.lock_raw_from(tx)
        if await ROLLUPS.is_dirty_before(tx, before):
            return False
        await ROLLUPS.advance_raw_from(tx, before)
        return True


async def _count(pool: db.Pool, month: date) -> int:
    async with pool.connection() as connection:
        count: int = await db.fetch_value(
            connection,
            "select count(*) from telemetry_readings where occurred_at >= %s and occurred_at < %s",
            months.days_before(month),
            months.days_before(months.add_months(month, 1)),
        )
    return count


async def _purge_by_series(pool: db.Pool, statement: str, *, before: datetime) -> int:
    """Delete what is from before this time, series by series, in batches; returns how many rows."""
    deleted, after = 0, ("", "", "")
    while True:
        async with pool.connection() as connection:
            page = await db.fetch_all(
                connection,
                """
                select tenant_id, device_id, metric_type from telemetry_latest
                where (tenant_id, device_id, metric_type) > (%s, %s, %s)
                order by tenant_id, device_id, metric_type limit 500
                """,
                *after,
            )
        for series in page:
            count = BATCH
            while count == BATCH:
                async with db.transaction(pool) as tx:
                    cursor = await tx.execute(statement.encode(), (*series, before, BATCH))
                count = cursor.rowcount
                deleted += count
        if not page:
            return deleted
        after = page[-1]


_DELETE_READINGS = """
    with gone as (
      select tenant_id, event_id, occurred_at from telemetry_readings
      where tenant_id = %s and device_id = %s and metric_type = %s and occurred_at < %s limit %s)
    delete from telemetry_readings r using gone
    where r.tenant_id = gone.tenant_id and r.event_id = gone.event_id
      and r.occurred_at = gone.occurred_at
"""
_DELETE_MINUTES = """
    with gone as (
      select tenant_id, device_id, metric_type, "window", bucket_start_at from telemetry_agg
      where tenant_id = %s and device_id = %s and metric_type = %s and "window" = '1m'
        and bucket_start_at < %s limit %s)
    delete from telemetry_agg a using gone
    where a.tenant_id = gone.tenant_id and a.device_id = gone.device_id
      and a.metric_type = gone.metric_type and a."window" = gone."window"
      and a.bucket_start_at = gone.bucket_start_at
"""
