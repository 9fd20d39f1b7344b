"""Telemetry's SQL at the edge: readings, series, dirty marks, partitions, retention."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from farmiq.edge.arrival import Arrival
from farmiq.farm import rollups
from farmiq.farm.buckets import DirtyRange, Series
from farmiq.plumbing import db, pg_binary

ROLLUPS = rollups.Rollups(
    rollups.Tables(
        readings="telemetry_raw",
        buckets="telemetry_agg",
        marks="telemetry_dirty",
        series="telemetry_latest",
        state="telemetry_state",
        zones="farm_zones",
        rezoned="telemetry_rezoned",
        pending_mark="e.metric_type = any(d.owed_metrics)",
        pending_bucket="owed",
    ),
    lock="edge-telemetry-timeseries",
    raw_from_lock="telemetry raw_from",
)
_AGGREGATED = """
select coalesce(array_agg(metric_type), '{}') from metric_settings where sync = 'agg'
"""

# Readings

COPY = """
copy telemetry_raw (id, tenant_id, farm_id, barn_id, device_id, metric_type, unit,
  occurred_at, metric_value, ingested_at, clock_suspect)
from stdin (format binary)
"""


async def copy_readings(tx: db.Connection, arrivals: Sequence[Arrival]) -> None:
    """Raises UniqueViolation if one of them is stored already."""
    now = await db.fetch_value(tx, "select fn_now()")
    await db.copy(tx, COPY, encode_readings(arrivals, ingested_at=now))


def encode_readings(arrivals: Sequence[Arrival], *, ingested_at: datetime) -> bytes:
    """What COPY reads, in the order of ids: two writers then wait for each other one way only."""
    at = pg_binary.timestamptz(ingested_at)
    in_order = sorted(arrivals, key=lambda arrival: arrival.event.event_id.int)
    return pg_binary.copied([_encode(arrival, at) for arrival in in_order], columns=11)


def _encode(arrival: Arrival, ingested_at: bytes) -> tuple[bytes, ...]:
    place, reading = arrival.place, arrival.payload
    return (
        pg_binary.uuid(arrival.event.event_id),
        pg_binary.names(
            place.tenant_id,
            place.farm_id,
            place.barn_id,
            place.device_id,
            reading.metric_type,
            reading.unit,
        ),
        pg_binary.timestamptz(arrival.event.occurred_at),
        pg_binary.float8(reading.metric_value),
        ingested_at,
        pg_binary.boolean(arrival.clock_suspect),
    )


async def insert_readings(tx: db.Connection, arrivals: Sequence[Arrival]) -> None:
    """A reading that is stored already stays as it is."""
    await tx.execute(
        """
        insert into telemetry_raw (tenant_id, farm_id, barn_id, device_id, metric_type, id,
          metric_value, unit, occurred_at, clock_suspect, ingested_at)
        select r.*, (select fn_now())
        from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::uuid[],
          %s::float8[], %s::text[], %s::timestamptz[], %s::bool[]) r
        on conflict do nothing
        """,
        _columns(arrivals),
    )


def _columns(arrivals: Sequence[Arrival]) -> tuple[list[Any], ...]:
    return (
        [arrival.place.tenant_id for arrival in arrivals],
        [arrival.place.farm_id for arrival in arrivals],
        [arrival.place.barn_id for arrival in arrivals],
        [arrival.place.device_id for arrival in arrivals],
        [arrival.payload.metric_type for arrival in arrivals],
        [arrival.event.event_id for arrival in arrivals],
        [arrival.payload.metric_value for arrival in arrivals],
        [arrival.payload.unit for arrival in arrivals],
        [arrival.event.occurred_at for arrival in arrivals],
        [arrival.clock_suspect for arrival in arrivals],
    )


# Series


async def count_series(
    tx: db.Connection, devices: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], int]:
    """How many series each (tenant, device) has."""
    rows = await db.fetch_all(
        tx,
        """
        select l.tenant_id, l.device_id, count(*) from telemetry_latest l
          join unnest(%s::text[], %s::text[]) as d(tenant_id, device_id)
            on l.tenant_id = d.tenant_id and l.device_id = d.device_id
        group by 1, 2
        """,
        [tenant_id for tenant_id, _ in devices],
        [device_id for _, device_id in devices],
    )
    return {(tenant_id, device_id): count for tenant_id, device_id, count in rows}


async def insert_series(tx: db.Connection, arrivals: Sequence[Arrival]) -> None:
    """Add the series of these readings, with each as the newest so far."""
    await tx.execute(
        """
        insert into telemetry_latest (tenant_id, farm_id, barn_id, device_id, metric_type,
          event_id, metric_value, unit, occurred_at, clock_suspect, ingested_at)
        select r.*, fn_now()
        from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::uuid[],
          %s::float8[], %s::text[], %s::timestamptz[], %s::bool[]) r
        on conflict on constraint telemetry_latest_pkey do nothing
        """,
        _columns(arrivals),
    )


async def series_after(tx: db.Connection, after: Series, *, limit: int) -> list[Series]:
    """The series there are, in order, a page at a time."""
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, device_id, metric_type from telemetry_latest
        where (tenant_id, device_id, metric_type) > (%s, %s, %s)
        order by tenant_id, device_id, metric_type limit %s
        """,
        *after,
        limit,
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def delete_empty_series(tx: db.Connection, *, before: datetime) -> int:
    """Delete series that have had nothing new since, and have no reading and no bucket left.

    The limits make each look use one index: a join would read every reading there is.
    """
    cursor = await tx.execute(
        """
        delete from telemetry_latest l using (
          select s.tenant_id, s.device_id, s.metric_type
          from telemetry_latest s
            left join lateral (
              select true as left_over from telemetry_agg a
              where a.tenant_id = s.tenant_id and a.device_id = s.device_id
                and a.metric_type = s.metric_type limit 1) a on true
            left join lateral (
              select true as left_over from telemetry_raw r
              where a.left_over is null and r.tenant_id = s.tenant_id
                and r.device_id = s.device_id and r.metric_type = s.metric_type limit 1) r on true
          where s.ingested_at < %(before)s and s.newest_at < %(before)s
            and a.left_over is null and r.left_over is null) empty
        where l.tenant_id = empty.tenant_id and l.device_id = empty.device_id
          and l.metric_type = empty.metric_type
          and l.ingested_at < %(before)s and l.newest_at < %(before)s
        """,
        {"before": before},
    )
    return cursor.rowcount


# Dirty marks

_MARK = f"""
with marked as (
  {ROLLUPS.insert_marks_sql(", owed_metrics", f", ({_AGGREGATED})")}
)
select m.id, m.owed_metrics, n.*
from marked m left join lateral (
  select e.* from unnest(m.tenants, m.devices, m.metrics) as e(tenant_id, device_id, metric_type)
  where not exists (
    select from telemetry_latest l where {rollups.same("l", "e")})) n on true
"""  # noqa: S608 - constants


async def insert_mark(
    tx: db.Connection, ranges: Sequence[DirtyRange]
) -> tuple[int, set[str], set[Series]]:
    """Mark buckets dirty.

    Returns (the mark, metrics that are synced as aggregates, series that are new).
    """
    rows = await db.fetch_all(tx, _MARK, *rollups.mark_values(ranges))
    mark_id, aggregated = rows[0][:2]
    return mark_id, set(aggregated), {row[2:] for row in rows if row[2] is not None}


# Partitions of telemetry_raw, one for each month


async def move_to_partition(tx: db.Connection, month: date, *, limit: int) -> int:
    """Move some of a month's rows out of the default partition; 0 if few are left."""
    moved: int = await db.fetch_value(tx, "select fn_move_telemetry_month(%s, %s)", month, limit)
    return moved


async def unfinished_partitions(tx: db.Connection) -> list[date]:
    """Months whose rows are being moved: some cannot be seen until the partition is attached."""
    rows = await db.fetch_all(
        tx,
        """
        select to_date(right(relname, 7), 'YYYY_MM') from pg_class
        where relname ~ '^telemetry_raw_[0-9]{4}_[0-9]{2}$' and relkind = 'r'
          and not relispartition and relnamespace = 'public'::regnamespace
        order by 1
        """,
    )
    return [month for (month,) in rows]


async def count_readings(tx: db.Connection, starts_at: datetime, ends_at: datetime) -> int:
    count: int = await db.fetch_value(
        tx,
        "select count(*) from telemetry_raw where occurred_at >= %s and occurred_at < %s",
        starts_at,
        ends_at,
    )
    return count


# Retention: what has expired, in batches, except what must stay (C-42)


async def tenants(tx: db.Connection) -> list[str]:
    """Tenants that have readings: by steps through the index, not through the readings."""
    rows = await db.fetch_all(
        tx,
        """
        with recursive t(tenant_id) as (
          select min(tenant_id) from telemetry_raw
          union all
          select (select min(r.tenant_id) from telemetry_raw r where r.tenant_id > t.tenant_id)
          from t where t.tenant_id is not null
        )
        select tenant_id from t where tenant_id is not null order by 1
        """,
    )
    return [tenant_id for (tenant_id,) in rows]


DeviceMetric = tuple[str, str]


async def awaiting_buckets(tx: db.Connection, day: datetime) -> dict[str, list[DeviceMetric]]:
    """By tenant: series whose readings of this UTC day the cloud gets by a bucket, but not yet.

    It stays true for days before raw_from: no new bucket is sent for them.
    """
    rows = await db.fetch_all(
        tx,
        "select tenant_id, device_id, metric_type from fn_telemetry_held(%s, %s)",
        day,
        day + timedelta(days=1),
    )
    series: dict[str, list[DeviceMetric]] = defaultdict(list)
    for tenant_id, device_id, metric_type in rows:
        series[tenant_id].append((device_id, metric_type))
    return series


@dataclass(frozen=True, slots=True)
class PurgedBatch:
    """How many expired readings were seen, how many of them deleted, and where to go on."""

    seen: int
    deleted: int
    last_at: datetime | None
    last_id: UUID | None


async def delete_readings(
    tx: db.Connection,
    tenant_id: str,
    *,
    starts_at: datetime,
    before: datetime,
    awaiting: Sequence[DeviceMetric],
    after: tuple[datetime, UUID],
    limit: int,
) -> PurgedBatch:
    """Delete the next readings of this time that the cloud has (C-42).

    Readings of `awaiting` series stay.
    """
    cursor = await tx.execute(
        """
        with batch as (
          select r.id, r.occurred_at, not exists (select from sync_outbox o where o.id = r.id
            and o.status in ('pending', 'claimed', 'sending', 'dlq'))
            and (r.device_id, r.metric_type) not in (
              select * from unnest(%(devices)s::text[], %(metrics)s::text[])) as synced
          from telemetry_raw r
          where r.tenant_id = %(tenant_id)s and r.occurred_at >= %(starts_at)s
            and r.occurred_at < %(before)s
            and r.occurred_at >= %(after_at)s
            and (r.occurred_at, r.id) > (%(after_at)s, %(after_id)s)
          order by r.occurred_at, r.id limit %(limit)s
        ), gone as (
          delete from telemetry_raw r using batch
          where batch.synced and r.id = batch.id and r.occurred_at = batch.occurred_at
            and r.occurred_at >= %(starts_at)s and r.occurred_at < %(before)s
          returning 1
        )
        select (select count(*) from batch), (select count(*) from gone), last.occurred_at,
          last.id
        from (select 1) one left join (
          select occurred_at, id from batch
          order by occurred_at desc, id desc limit 1) last on true
        """,
        {
            "tenant_id": tenant_id,
            "starts_at": starts_at,
            "before": before,
            "devices": [device_id for device_id, _ in awaiting],
            "metrics": [metric_type for _, metric_type in awaiting],
            "after_at": after[0],
            "after_id": after[1],
            "limit": limit,
        },
    )
    return PurgedBatch(*(await cursor.fetchall())[0])


async def delete_suspect_readings(
    tx: db.Connection, *, before: datetime, after: tuple[datetime, UUID], limit: int
) -> PurgedBatch:
    """As `delete_readings`, for suspect times: they expire by their arrival (C-19)."""
    cursor = await tx.execute(
        """
        with batch as (
          select r.id, r.occurred_at, r.ingested_at, r.tenant_id, r.device_id, r.metric_type,
            date_trunc('day', r.occurred_at, 'UTC') as day
          from telemetry_raw_default r
          where r.ingested_at < %(before)s
            and r.ingested_at >= %(after_at)s
            and (r.ingested_at, r.id) > (%(after_at)s, %(after_id)s)
          order by r.ingested_at, r.id limit %(limit)s
        ), held as materialized (
          select h.* from (select distinct day from batch) d
            cross join lateral fn_telemetry_held(d.day, d.day + interval '1 day') h
        ), gone as (
          delete from telemetry_raw_default r using batch
          where r.id = batch.id and r.occurred_at = batch.occurred_at
            and not exists (select from sync_outbox o where o.id = batch.id
              and o.status in ('pending', 'claimed', 'sending', 'dlq'))
            and not exists (select from held h where h.tenant_id = batch.tenant_id
              and h.device_id = batch.device_id and h.metric_type = batch.metric_type
              and h.day = batch.day)
          returning 1
        )
        select (select count(*) from batch), (select count(*) from gone), last.ingested_at,
          last.id
        from (select 1) one left join (
          select ingested_at, id from batch
          order by ingested_at desc, id desc limit 1) last on true
        """,
        {"before": before, "after_at": after[0], "after_id": after[1], "limit": limit},
    )
    return PurgedBatch(*(await cursor.fetchall())[0])


async def delete_buckets(tx: db.Connection, series: Series, *, before: datetime, limit: int) -> int:
    """Delete buckets that the cloud does not wait for."""
    cursor = await tx.execute(
        """
        delete from telemetry_agg where id in (
          select id from telemetry_agg
          where tenant_id = %s and device_id = %s and metric_type = %s
            and "window" = any('{1m,1h,1d}') and bucket_start_at < %s and not owed limit %s)
        """,
        (*series, before, limit),
    )
    return cursor.rowcount
