"""Telemetry's SQL at the edge: what is recorded, and what is made of it."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from farmiq.edge import alerts, outbox
from farmiq.edge.arrival import Arrival
from farmiq.edge.telemetry import buckets
from farmiq.edge.telemetry.buckets import Day, Series, Span
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, pg_binary

MOST_SERIES = 500  # of a device
TOO_MANY = "telemetry.too_many_metrics"
# Readings are kept for a day at least: younger ones than this come into buckets whatever happens.
SURELY_OPEN = timedelta(hours=12)


async def record(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Keep the readings and mark their buckets. An id stored before is left as it is.

    Returns what the cloud is owed now: all readings but those that it will hear of by a bucket.
    """
    if len(arrivals) < outbox.WORTH_A_COPY:
        await _insert(tx, arrivals)
    else:
        await _copy_or_insert(tx, arrivals)
    marked = await mark(tx, arrivals)
    if not marked.aggregated:
        return [each.event for each in arrivals]
    in_buckets = await _in_buckets(tx, [each for each in arrivals if marked.is_aggregated(each)])
    return [each.event for each in arrivals if each.key not in in_buckets]


async def _in_buckets(tx: db.Connection, aggregated: Sequence[Arrival]) -> set[tuple[str, UUID]]:
    """Keys of those that come into buckets. What does not is sent as it is (D-84)."""
    if not aggregated:
        return set()
    now: datetime = await db.fetch_value(tx, "select fn_now()")
    raw_from = now - SURELY_OPEN
    if any(each.event.occurred_at < raw_from for each in aggregated):
        raw_from = await held_raw_from(tx) or raw_from
    return {
        each.key
        for each in aggregated
        if buckets.has_bucket(each.event.occurred_at, now=now, raw_from=raw_from)
    }


async def _copy_or_insert(tx: db.Connection, arrivals: Sequence[Arrival]) -> None:
    try:
        async with tx.transaction():
            await _copy(tx, arrivals)
    except psycopg.errors.UniqueViolation:
        await _insert(tx, arrivals)


COPY = """
copy telemetry_raw (id, tenant_id, farm_id, barn_id, device_id, occurred_at,
  metric_type, metric_value, unit, ingested_at, clock_suspect)
from stdin (format binary)
"""


async def _copy(tx: db.Connection, arrivals: Sequence[Arrival]) -> None:
    """Raises UniqueViolation if one of them is stored already."""
    now = await db.fetch_value(tx, "select fn_now()")
    await db.copy(tx, COPY, copied(arrivals, ingested_at=now))


def copied(arrivals: Sequence[Arrival], *, ingested_at: datetime) -> bytes:
    """What COPY reads. In the order of ids: two writers then wait for each other one way only."""
    at = pg_binary.timestamptz(ingested_at)
    in_order = sorted(arrivals, key=lambda each: each.event.event_id.int)
    return pg_binary.copied([_row(each, at) for each in in_order], columns=11)


def _row(each: Arrival, ingested_at: bytes) -> tuple[bytes, ...]:
    place, reading = each.place, each.payload
    return (
        pg_binary.uuid(each.event.event_id),
        pg_binary.name(place.tenant_id),
        pg_binary.name(place.farm_id),
        pg_binary.name(place.barn_id),
        pg_binary.name(place.device_id),
        pg_binary.timestamptz(each.event.occurred_at),
        pg_binary.name(reading.metric_type),
        pg_binary.float8(reading.metric_value),
        pg_binary.name(reading.unit),
        ingested_at,
        pg_binary.boolean(each.clock_suspect),
    )


async def _insert(tx: db.Connection, arrivals: Sequence[Arrival]) -> None:
    await tx.execute(
        sql.SQL("""
            insert into telemetry_raw (id, tenant_id, farm_id, barn_id, device_id, occurred_at,
              metric_type, metric_value, unit, clock_suspect, ingested_at)
            select each.*, (select fn_now())
            from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[],
              %s::timestamptz[], %s::text[], %s::float8[], %s::text[], %s::bool[]) each
            on conflict do nothing
        """),
        (
            [each.event.event_id for each in arrivals],
            [each.place.tenant_id for each in arrivals],
            [each.place.farm_id for each in arrivals],
            [each.place.barn_id for each in arrivals],
            [each.place.device_id for each in arrivals],
            [each.event.occurred_at for each in arrivals],
            [each.payload.metric_type for each in arrivals],
            [each.payload.metric_value for each in arrivals],
            [each.payload.unit for each in arrivals],
            [each.clock_suspect for each in arrivals],
        ),
    )


@dataclass(frozen=True, slots=True)
class Marked:
    """`aggregated`: metrics that are synced as aggregates. `beyond`: series that got no mark."""

    aggregated: set[str]
    beyond: set[Series]

    def is_aggregated(self, each: Arrival) -> bool:
        return (
            each.payload.metric_type in self.aggregated and buckets.series(each) not in self.beyond
        )


async def mark(tx: db.Connection, arrivals: Sequence[Arrival]) -> Marked:
    """Say which buckets the readings fall into, and add series that are new.

    In the transaction of the readings, in one statement however they were written, unless a series
    is new.
    """
    touched = buckets.spans(arrivals)
    mark_id, aggregated, new = await _mark(tx, touched)
    beyond = await _add_series(tx, arrivals, new) if new else set()
    if beyond:
        await forget_marks(tx, [mark_id])
        if within := [span for span in touched if span.series not in beyond]:
            await _mark(tx, within)
    return Marked(aggregated, beyond)


async def _mark(tx: db.Connection, touched: Sequence[Span]) -> tuple[int, set[str], set[Series]]:
    """(the mark, metrics that are synced as aggregates, series that are new)."""
    rows = await db.fetch_all(
        tx,
        sql.SQL("""
            with named as (
              select %s::text[] as tenants, %s::text[] as devices, %s::text[] as metrics
            ), owed as (
              select coalesce(array_agg(metric_type), '{}') as metrics
              from metric_settings where sync = 'agg'
            ), marked as (
              insert into telemetry_dirty (marked_at, first_at, tenants, devices, metrics,
                first_minutes, last_minutes, owed_metrics)
              select fn_now(), %s, named.*, %s::bigint[], %s::bigint[], owed.metrics
              from named, owed
              returning id
            )
            select id, null, null, null from marked
            union all
            select null, null, null, unnest(metrics) from owed
            union all
            select null, n.tenant_id, n.device_id, n.metric_type
            from named, unnest(named.tenants, named.devices, named.metrics)
              as n(tenant_id, device_id, metric_type)
            where not exists (select from telemetry_latest l
              where l.tenant_id = n.tenant_id and l.device_id = n.device_id
                and l.metric_type = n.metric_type)
        """),
        *_series(touched),
        buckets.at_minute(min(span.first for span in touched)),
        [span.first for span in touched],
        [span.last for span in touched],
    )
    (mark_id,) = [row[0] for row in rows if row[0] is not None]
    aggregated = {row[3] for row in rows if row[0] is None and row[1] is None}
    return mark_id, aggregated, {(row[1], row[2], row[3]) for row in rows if row[1] is not None}


async def _add_series(
    tx: db.Connection, arrivals: Sequence[Arrival], new: set[Series]
) -> set[Series]:
    """Add them, as many as a device may have; returns the rest, which is an alert."""
    devices = sorted({each[:2] for each in new})
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
    known = {(tenant_id, device_id): count for tenant_id, device_id, count in rows}
    beyond = buckets.beyond(new, known, most=MOST_SERIES)
    added = new - beyond
    await _insert_series(
        tx, [each for each in buckets.newest(arrivals) if buckets.series(each) in added]
    )
    if beyond:
        readings = [each.place for each in arrivals if buckets.series(each) in beyond]
        await alerts.raise_all(
            tx, Counter(_too_many(place.tenant_id, place.device_id) for place in readings)
        )
    return beyond


def _too_many(tenant_id: str, device_id: str) -> alerts.Alert:
    return alerts.Alert(
        TOO_MANY,
        f"{tenant_id}/{device_id}",
        "warning",
        f"sends more than {MOST_SERIES} different metrics. Readings of those beyond are kept and "
        "go to the cloud one by one, but have no latest value and no aggregates: mend the names",
    )


async def _insert_series(tx: db.Connection, firsts: Sequence[Arrival]) -> None:
    await tx.execute(
        """
        insert into telemetry_latest (tenant_id, device_id, metric_type, farm_id, barn_id,
          event_id, metric_value, unit, occurred_at, clock_suspect, ingested_at)
        select n.*, fn_now()
        from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::uuid[],
          %s::float8[], %s::text[], %s::timestamptz[], %s::bool[]) n
        on conflict on constraint telemetry_latest_pkey do nothing
        """,
        (
            [each.place.tenant_id for each in firsts],
            [each.place.device_id for each in firsts],
            [each.payload.metric_type for each in firsts],
            [each.place.farm_id for each in firsts],
            [each.place.barn_id for each in firsts],
            [each.event.event_id for each in firsts],
            [each.payload.metric_value for each in firsts],
            [each.payload.unit for each in firsts],
            [each.event.occurred_at for each in firsts],
            [each.clock_suspect for each in firsts],
        ),
    )


# Buckets are made by one at a time, whoever it is: a bucket read early must not be written late.
# Their statements are not prepared: a plan made while a month is empty is wrong when it is full.


async def lead(tx: db.Connection) -> bool:
    """Be the one who makes buckets, until this transaction ends; False if somebody is already."""
    mine: bool = await db.fetch_value(
        tx, "select pg_try_advisory_xact_lock(hashtextextended('edge-telemetry-timeseries', 0))"
    )
    return mine


async def wait_to_lead(tx: db.Connection) -> None:
    """As `lead`, but wait for the other; raises psycopg.OperationalError after ten seconds."""
    await tx.execute("set local lock_timeout = '10s'")
    await tx.execute(
        "select pg_advisory_xact_lock(hashtextextended('edge-telemetry-timeseries', 0))"
    )


async def marks(tx: db.Connection, *, most: int) -> list[int]:
    """The oldest marks that name at most about `most` hours together; at least one mark."""
    rows = await db.fetch_all(
        tx,
        """
        select id from (
          select id, sum(cardinality(tenants)) over (order by id) - cardinality(tenants) as before
          from (select id, tenants from telemetry_dirty order by id limit 1000) oldest) d
        where before < %s
        """,
        most,
    )
    return [mark for (mark,) in rows]


async def marked(tx: db.Connection, ids: Sequence[int]) -> list[Span]:
    """What these marks name, each hour of a series once."""
    rows = await db.fetch_all(
        tx,
        """
        select e.tenant_id, e.device_id, e.metric_type, min(e.first), max(e.last),
          bool_or(e.metric_type = any(d.owed_metrics))
        from telemetry_dirty d, unnest(d.tenants, d.devices, d.metrics,
          d.first_minutes, d.last_minutes) as e(tenant_id, device_id, metric_type, first, last)
        where d.id = any(%s)
        group by 1, 2, 3, floor(e.first / 60.0)
        order by 1, 2, 3, 4
        """,
        list(ids),
    )
    return [Span(*row) for row in rows]


async def forget_marks(tx: db.Connection, ids: Sequence[int]) -> None:
    await tx.execute("delete from telemetry_dirty where id = any(%s)", (list(ids),))


async def raw_from(tx: db.Connection) -> datetime:
    """Before this, readings may be gone: nothing is made of what is left there."""
    return await known_raw_from(tx) or datetime.min.replace(tzinfo=UTC)


async def known_raw_from(tx: db.Connection) -> datetime | None:
    found: datetime | None = await db.fetch_value(
        tx, "select raw_from from telemetry_state where raw_from > '-infinity'"
    )
    return found


async def held_raw_from(tx: db.Connection) -> datetime | None:
    """As `known_raw_from`, and it stays there until this transaction ends."""
    await tx.execute(
        "select pg_advisory_xact_lock_shared(hashtextextended('telemetry raw_from', 0))"
    )
    return await known_raw_from(tx)


async def wait_to_move_raw_from(tx: db.Connection) -> None:
    """Until nobody holds it. Whoever moves it looks at the marks after this."""
    await tx.execute("select pg_advisory_xact_lock(hashtextextended('telemetry raw_from', 0))")


async def zones(tx: db.Connection) -> dict[tuple[str, str], str]:
    rows = await db.fetch_all(tx, "select tenant_id, farm_id, timezone from farms")
    return {(tenant_id, farm_id): timezone for tenant_id, farm_id, timezone in rows}


async def remake_minutes(tx: db.Connection, touched: Sequence[Span]) -> int:
    """Make the minutes from the readings; returns how many have changed.

    A reading from the future (more than a day ahead of its arrival) is in no bucket.
    """
    cursor = await tx.execute(
        """
        insert into telemetry_agg as a (id, tenant_id, farm_id, barn_id, device_id, "window",
          bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
          sum_value, count, owed)
        select fn_uuid_v7(), k.tenant_id, m.farm_id, m.barn_id, k.device_id, '1m',
          m.starts_at, m.starts_at + interval '1 minute', k.metric_type, m.unit,
          fn_mean(m.sum_value, m.count), m.min_value, m.max_value, m.sum_value, m.count,
          k.owed and coalesce(s.agg_window, '1m') = '1m'
        from unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bool[])
            as k(tenant_id, device_id, metric_type, first, last, owed)
          left join metric_settings s on s.metric_type = k.metric_type
          cross join lateral (
            select date_bin('1 minute', r.occurred_at, 'epoch') as starts_at,
              (array_agg(r.farm_id order by r.occurred_at desc, r.id desc))[1] as farm_id,
              (array_agg(r.barn_id order by r.occurred_at desc, r.id desc))[1] as barn_id,
              (array_agg(r.unit order by r.occurred_at desc, r.id desc))[1] as unit,
              min(r.metric_value) as min_value, max(r.metric_value) as max_value,
              -- Through text: a direct cast would keep 15 digits only.
              sum(r.metric_value::text::numeric) as sum_value, count(*) as count
            from telemetry_raw r
            where r.tenant_id = k.tenant_id and r.device_id = k.device_id
              and r.metric_type = k.metric_type
              and r.occurred_at >= to_timestamp(k.first * 60)
              and r.occurred_at < to_timestamp((k.last + 1) * 60)
              and r.occurred_at <= r.ingested_at + interval '24 hours'
            group by 1) m
        on conflict on constraint telemetry_agg_bucket_key do update set
          farm_id = excluded.farm_id, barn_id = excluded.barn_id, unit = excluded.unit,
          avg_value = excluded.avg_value, min_value = excluded.min_value,
          max_value = excluded.max_value, sum_value = excluded.sum_value,
          count = excluded.count, owed = a.owed or excluded.owed
        where (a.count, a.sum_value, a.min_value, a.max_value, a.farm_id, a.barn_id, a.unit)
            is distinct from (excluded.count, excluded.sum_value, excluded.min_value,
              excluded.max_value, excluded.farm_id, excluded.barn_id, excluded.unit)
          or (excluded.owed and not a.owed and a.told_count <> excluded.count)
        """,
        (
            *_series(touched),
            [span.first for span in touched],
            [span.last for span in touched],
            [span.owed for span in touched],
        ),
        prepare=False,
    )
    return cursor.rowcount


async def farms_of_hours(
    tx: db.Connection, touched: Sequence[Span]
) -> dict[tuple[Series, datetime], str]:
    """The farm in which each of these hours stands now."""
    rows = await db.fetch_all(
        tx,
        """
        select a.tenant_id, a.device_id, a.metric_type, a.bucket_start_at, a.farm_id
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[])
            as k(tenant_id, device_id, metric_type, starts_at)
          join telemetry_agg a on a.tenant_id = k.tenant_id and a.device_id = k.device_id
            and a.metric_type = k.metric_type and a."window" = '1h'
            and a.bucket_start_at = k.starts_at
        """,
        *_series(touched),
        [span.hour_at for span in touched],
    )
    return {((row[0], row[1], row[2]), row[3]): row[4] for row in rows}


async def remake_hours(
    tx: db.Connection, touched: Sequence[Span]
) -> list[tuple[Series, datetime, str]]:
    """Make the hours from their minutes; returns (series, hour, farm) of those that changed."""
    cursor = await tx.execute(
        """
        insert into telemetry_agg as a (id, tenant_id, farm_id, barn_id, device_id, "window",
          bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
          sum_value, count, owed)
        select fn_uuid_v7(), k.tenant_id, h.farm_id, h.barn_id, k.device_id, '1h',
          k.starts_at, k.starts_at + interval '1 hour', k.metric_type, h.unit,
          fn_mean(h.sum_value, h.count), h.min_value, h.max_value, h.sum_value, h.count,
          k.owed and coalesce(s.agg_window = '1h', false)
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::bool[])
            as k(tenant_id, device_id, metric_type, starts_at, owed)
          left join metric_settings s on s.metric_type = k.metric_type
          cross join lateral (
            select (array_agg(m.farm_id order by m.bucket_start_at desc))[1] as farm_id,
              (array_agg(m.barn_id order by m.bucket_start_at desc))[1] as barn_id,
              (array_agg(m.unit order by m.bucket_start_at desc))[1] as unit,
              min(m.min_value) as min_value, max(m.max_value) as max_value,
              sum(m.sum_value) as sum_value, sum(m.count)::bigint as count
            from telemetry_agg m
            where m.tenant_id = k.tenant_id and m.device_id = k.device_id
              and m.metric_type = k.metric_type and m."window" = '1m'
              and m.bucket_start_at >= k.starts_at
              and m.bucket_start_at < k.starts_at + interval '1 hour'
            having count(*) > 0) h
        on conflict on constraint telemetry_agg_bucket_key do update set
          farm_id = excluded.farm_id, barn_id = excluded.barn_id, unit = excluded.unit,
          avg_value = excluded.avg_value, min_value = excluded.min_value,
          max_value = excluded.max_value, sum_value = excluded.sum_value,
          count = excluded.count, owed = a.owed or excluded.owed
        where (a.count, a.sum_value, a.min_value, a.max_value, a.farm_id, a.barn_id, a.unit)
            is distinct from (excluded.count, excluded.sum_value, excluded.min_value,
              excluded.max_value, excluded.farm_id, excluded.barn_id, excluded.unit)
          or (excluded.owed and not a.owed and a.told_count <> excluded.count)
        returning tenant_id, device_id, metric_type, bucket_start_at, farm_id
        """,
        (
            *_series(touched),
            [span.hour_at for span in touched],
            [span.owed for span in touched],
        ),
        prepare=False,
    )
    return [((row[0], row[1], row[2]), row[3], row[4]) for row in await cursor.fetchall()]


async def remake_days(
    tx: db.Connection, days: Sequence[Day], *, owed: set[Series], fallback: str
) -> int:
    """Make local days from the hours of farms in their zone; returns how many have changed.

    Where a day does not begin on a full UTC hour, that hour's minutes are taken.
    """
    inner = [buckets.whole_hours(day) for day in days]
    cursor = await tx.execute(
        """
        insert into telemetry_agg as a (id, tenant_id, farm_id, barn_id, device_id, "window",
          bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
          sum_value, count, owed)
        select fn_uuid_v7(), k.tenant_id, d.farm_id, d.barn_id, k.device_id, '1d',
          k.starts_at, k.ends_at, k.metric_type, d.unit,
          fn_mean(d.sum_value, d.count), d.min_value, d.max_value, d.sum_value, d.count,
          k.owed and coalesce(s.agg_window = '1d', false)
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[],
              %s::timestamptz[], %s::timestamptz[], %s::text[], %s::bool[])
            as k(tenant_id, device_id, metric_type, starts_at, ends_at, hours_from, hours_to,
              zones, owed)
          left join metric_settings s on s.metric_type = k.metric_type
          cross join lateral (
            select (array_agg(p.farm_id order by p.bucket_start_at desc))[1] as farm_id,
              (array_agg(p.barn_id order by p.bucket_start_at desc))[1] as barn_id,
              (array_agg(p.unit order by p.bucket_start_at desc))[1] as unit,
              min(p.min_value) as min_value, max(p.max_value) as max_value,
              sum(p.sum_value) as sum_value, sum(p.count)::bigint as count
            from (
              select h.farm_id as hour_farm_id, h.* from telemetry_agg h
              where h.tenant_id = k.tenant_id and h.device_id = k.device_id
                and h.metric_type = k.metric_type and h."window" = '1h'
                and h.bucket_start_at >= k.hours_from and h.bucket_start_at < k.hours_to
              union all
              select h.farm_id, m.* from telemetry_agg m
                join telemetry_agg h on h.tenant_id = m.tenant_id and h.device_id = m.device_id
                  and h.metric_type = m.metric_type and h."window" = '1h'
                  and h.bucket_start_at = date_bin('1 hour', m.bucket_start_at, 'epoch')
              where m.tenant_id = k.tenant_id and m.device_id = k.device_id
                and m.metric_type = k.metric_type and m."window" = '1m'
                and ((m.bucket_start_at >= k.starts_at and m.bucket_start_at < k.hours_from)
                  or (m.bucket_start_at >= k.hours_to and m.bucket_start_at < k.ends_at))) p
              left join farms f on f.tenant_id = p.tenant_id and f.farm_id = p.hour_farm_id
            where coalesce(f.timezone, %s) = any(string_to_array(k.zones, ','))
            having count(*) > 0) d
        on conflict on constraint telemetry_agg_bucket_key do update set
          farm_id = excluded.farm_id, barn_id = excluded.barn_id, unit = excluded.unit,
          bucket_end_at = excluded.bucket_end_at,
          avg_value = excluded.avg_value, min_value = excluded.min_value,
          max_value = excluded.max_value, sum_value = excluded.sum_value,
          count = excluded.count, owed = a.owed or excluded.owed
        where (a.count, a.sum_value, a.min_value, a.max_value, a.farm_id, a.barn_id, a.unit,
              a.bucket_end_at)
            is distinct from (excluded.count, excluded.sum_value, excluded.min_value,
              excluded.max_value, excluded.farm_id, excluded.barn_id, excluded.unit,
              excluded.bucket_end_at)
          or (excluded.owed and not a.owed and a.told_count <> excluded.count)
        """,
        (
            *_series(days),
            [day.starts_at for day in days],
            [day.ends_at for day in days],
            [first for first, _ in inner],
            [last for _, last in inner],
            [",".join(day.zones) for day in days],
            [(day.tenant_id, day.device_id, day.metric_type) in owed for day in days],
            fallback,
        ),
        prepare=False,
    )
    return cursor.rowcount


OwedDay = tuple[Series, datetime, datetime]


async def forget_days(tx: db.Connection, days: Sequence[Day]) -> list[OwedDay]:
    """Before they are made again without what has left them for another zone.

    Returns those of them that the cloud is owed.
    """
    cursor = await tx.execute(
        """
        delete from telemetry_agg a
        using unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[])
          as k(tenant_id, device_id, metric_type, starts_at)
        where a.tenant_id = k.tenant_id and a.device_id = k.device_id
          and a.metric_type = k.metric_type and a."window" = '1d'
          and a.bucket_start_at = k.starts_at
        returning a.tenant_id, a.device_id, a.metric_type, a.bucket_start_at, a.bucket_end_at,
          a.owed
        """,
        (*_series(days), [day.starts_at for day in days]),
    )
    return _owed_days(await cursor.fetchall())


def _owed_days(forgotten: Iterable[tuple[Any, ...]]) -> list[OwedDay]:
    return [((row[0], row[1], row[2]), row[3], row[4]) for row in forgotten if row[5]]


async def owe_days(tx: db.Connection, forgotten: Sequence[OwedDay]) -> None:
    """The days that now hold what the cloud was owed by others are owed instead."""
    await tx.execute(
        """
        update telemetry_agg a set owed = true
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[])
          as k(tenant_id, device_id, metric_type, starts_at, ends_at)
        where a.tenant_id = k.tenant_id and a.device_id = k.device_id
          and a.metric_type = k.metric_type and a."window" = '1d'
          and a.bucket_start_at > k.starts_at - interval '2 days'
          and a.bucket_start_at < k.ends_at and a.bucket_end_at > k.starts_at
        """,
        (
            [series[0] for series, _, _ in forgotten],
            [series[1] for series, _, _ in forgotten],
            [series[2] for series, _, _ in forgotten],
            [starts_at for _, starts_at, _ in forgotten],
            [ends_at for _, _, ends_at in forgotten],
        ),
    )


async def renew_latest(tx: db.Connection, touched: Sequence[Span]) -> int:
    """Take over what is newer than the newest known; returns for how many series."""
    cursor = await tx.execute(
        """
        update telemetry_latest l set farm_id = n.farm_id, barn_id = n.barn_id, event_id = n.id,
          metric_value = n.metric_value, unit = n.unit, occurred_at = n.occurred_at,
          ingested_at = n.ingested_at, clock_suspect = n.clock_suspect
        from (
          select distinct on (r.tenant_id, r.device_id, r.metric_type) r.*
          from unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[])
              as k(tenant_id, device_id, metric_type, first, last)
            join telemetry_latest known on known.tenant_id = k.tenant_id
              and known.device_id = k.device_id and known.metric_type = k.metric_type
              and (known.clock_suspect or to_timestamp((k.last + 1) * 60) > known.newest_at)
            cross join lateral (
              select r.*,
                case when r.clock_suspect then r.ingested_at
                  else least(r.occurred_at, r.ingested_at) end as newest_at
              from telemetry_raw r
              where r.tenant_id = k.tenant_id and r.device_id = k.device_id
                and r.metric_type = k.metric_type
                and r.occurred_at >= to_timestamp(k.first * 60)
                and r.occurred_at < to_timestamp((k.last + 1) * 60)
              order by r.clock_suspect, newest_at desc, r.id desc limit 1) r
          order by r.tenant_id, r.device_id, r.metric_type, r.clock_suspect, r.newest_at desc,
            r.id desc) n
        where l.tenant_id = n.tenant_id and l.device_id = n.device_id
          and l.metric_type = n.metric_type
          and (not n.clock_suspect, n.newest_at, n.id)
            > (not l.clock_suspect, l.newest_at, l.event_id)
        """,
        (
            *_series(touched),
            [span.first for span in touched],
            [span.last for span in touched],
        ),
        prepare=False,
    )
    return cursor.rowcount


@dataclass(frozen=True, slots=True)
class Owed:
    """A bucket that the cloud is owed."""

    id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    window: buckets.Window
    bucket_start_at: datetime
    bucket_end_at: datetime
    metric_type: str
    unit: str
    avg_value: float
    min_value: float
    max_value: float
    count: int


async def owed(tx: db.Connection, *, settle_s: float, most: int) -> list[Owed]:
    """Buckets that are over since `settle_s` and not told yet, oldest first."""
    async with tx.cursor(row_factory=class_row(Owed)) as cursor:
        await cursor.execute(
            """
            select id, tenant_id, farm_id, barn_id, device_id, "window", bucket_start_at,
              bucket_end_at, metric_type, unit, avg_value, min_value, max_value, count
            from telemetry_agg
            where owed and bucket_end_at <= (select fn_now()) - make_interval(secs => %s)
            order by bucket_end_at limit %s
            """,
            (settle_s, most),
        )
        return await cursor.fetchall()


async def note_told(tx: db.Connection, told: Sequence[Owed]) -> None:
    await tx.execute(
        "update telemetry_agg set owed = false, told_count = count where id = any(%s)",
        ([bucket.id for bucket in told],),
    )


async def next_rezoned(tx: db.Connection) -> Series | None:
    rows = await db.fetch_all(
        tx, "select tenant_id, device_id, metric_type from telemetry_rezoned limit 1"
    )
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


async def forget_rezoned(tx: db.Connection, series: Series) -> None:
    await tx.execute(
        "delete from telemetry_rezoned "
        "where tenant_id = %s and device_id = %s and metric_type = %s",
        series,
    )


async def forget_all_days(tx: db.Connection, series: Series) -> list[OwedDay]:
    """Returns those of them that the cloud is owed."""
    cursor = await tx.execute(
        "delete from telemetry_agg where tenant_id = %s and device_id = %s and metric_type = %s "
        "and \"window\" = '1d' returning tenant_id, device_id, metric_type, bucket_start_at, "
        "bucket_end_at, owed",
        series,
    )
    return _owed_days(await cursor.fetchall())


async def hours_of(tx: db.Connection, series: Series) -> list[tuple[datetime, str]]:
    """(hour, farm) of everything that is kept of a series."""
    rows = await db.fetch_all(
        tx,
        "select bucket_start_at, farm_id from telemetry_agg where tenant_id = %s "
        "and device_id = %s and metric_type = %s and \"window\" = '1h'",
        *series,
    )
    return [(at, farm_id) for at, farm_id in rows]


async def fallback(tx: db.Connection) -> str | None:
    """The zone in which the days of farms without one were made so far."""
    found: str | None = await db.fetch_value(tx, "select fallback_timezone from telemetry_state")
    return found


async def change_fallback(tx: db.Connection, timezone: str) -> None:
    await tx.execute("update telemetry_state set fallback_timezone = %s", (timezone,))


async def rezone_all(tx: db.Connection) -> None:
    """Have the days of every series made again."""
    await tx.execute(
        "insert into telemetry_rezoned select tenant_id, device_id, metric_type "
        "from telemetry_latest on conflict do nothing"
    )


@dataclass(frozen=True, slots=True)
class Dirt:
    """How far the buckets are behind the readings."""

    marks: int
    oldest_s: float


async def dirt(tx: db.Connection) -> Dirt:
    rows = await db.fetch_all(
        tx,
        "select count(*), coalesce(extract(epoch from fn_now() - min(marked_at)), 0)::float8 "
        "from telemetry_dirty",
    )
    return Dirt(*rows[0])


# Months and what is dropped.


async def today(tx: db.Connection) -> date:
    found: date = await db.fetch_value(tx, "select (fn_now() at time zone 'UTC')::date")
    return found


async def make_month(tx: db.Connection, month: date) -> bool:
    """Make the partition of a month; False if it was there."""
    made: bool = await db.fetch_value(tx, "select fn_make_telemetry_month(%s)", month)
    return made


async def move_month(tx: db.Connection, month: date, *, most: int) -> int:
    """Move a portion of a month's rows out of the default partition; 0 if few are left."""
    moved: int = await db.fetch_value(tx, "select fn_move_telemetry_month(%s, %s)", month, most)
    return moved


async def drop_month(tx: db.Connection, month: date) -> str:
    """Drop the partition of a month: `dropped`, or why not (the function says which)."""
    outcome: str = await db.fetch_value(tx, "select fn_drop_telemetry_month(%s)", month)
    return outcome


async def months(tx: db.Connection) -> list[date]:
    """The months that have a partition."""
    rows = await db.fetch_all(
        tx,
        """
        select to_date(right(c.relname, 7), 'YYYY_MM')
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'telemetry_raw'::regclass and c.relname ~ '_[0-9]{4}_[0-9]{2}$'
        order by 1
        """,
    )
    return [month for (month,) in rows]


async def half_moved(tx: db.Connection) -> list[date]:
    """Months whose rows are on their way: some are out of sight until the month is made."""
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


async def count_between(tx: db.Connection, starts_at: datetime, ends_at: datetime) -> int:
    found: int = await db.fetch_value(
        tx,
        "select count(*) from telemetry_raw where occurred_at >= %s and occurred_at < %s",
        starts_at,
        ends_at,
    )
    return found


async def is_needed_before(tx: db.Connection, before: datetime) -> bool:
    """Whether a bucket from before this still has to be made again."""
    cursor = await tx.execute(
        """
        select exists (
          select from telemetry_dirty d, unnest(d.first_minutes) minute
          where d.first_at < %(before)s and to_timestamp(minute * 60) < %(before)s
            and to_timestamp(minute * 60) >= coalesce(
              (select s.raw_from from telemetry_state s), '-infinity'))
        """,
        {"before": before},
    )
    return await cursor.fetchone() == (True,)


async def begin_raw_from(tx: db.Connection, *, keep_days: int) -> None:
    """On the first day: what is older than what is kept has never been here."""
    await tx.execute(
        """
        insert into telemetry_state (raw_from)
        values ((date_trunc('day', fn_now() at time zone 'UTC') - make_interval(days => %s))
          at time zone 'UTC')
        on conflict on constraint telemetry_state_pkey do nothing
        """,
        (keep_days,),
    )


async def advance_raw_from(tx: db.Connection, before: datetime) -> None:
    """From now on, buckets from before this are never made again."""
    await tx.execute(
        """
        insert into telemetry_state as s (raw_from) values (%s)
        on conflict on constraint telemetry_state_pkey do update
          set raw_from = greatest(s.raw_from, excluded.raw_from)
        """,
        (before,),
    )


async def tenants(tx: db.Connection) -> list[str]:
    """Whose readings there are: by steps through the index, not through the readings."""
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


@dataclass(frozen=True, slots=True)
class Portion:
    """A batch that retention went through: `seen` rows, of which some were kept as unsynced."""

    seen: int
    deleted: int
    last_at: datetime | None
    last_id: UUID | None


async def delete_raw(
    tx: db.Connection,
    tenant_id: str,
    *,
    starts_at: datetime,
    before: datetime,
    after: tuple[datetime, UUID],
    most: int,
) -> Portion:
    """Go through the next readings of this time and delete those the cloud has (C-42)."""
    cursor = await tx.execute(
        """
        with portion as (
          select r.id, r.occurred_at, not exists (select from sync_outbox o where o.id = r.id
            and o.status in ('pending', 'claimed', 'sending', 'dlq')) as synced
          from telemetry_raw r
          where r.tenant_id = %(tenant_id)s and r.occurred_at >= %(starts_at)s
            and r.occurred_at < %(before)s
            and r.occurred_at >= %(after_at)s
            and (r.occurred_at, r.id) > (%(after_at)s, %(after_id)s)
          order by r.occurred_at, r.id limit %(most)s
        ), gone as (
          delete from telemetry_raw r using portion
          where portion.synced and r.id = portion.id and r.occurred_at = portion.occurred_at
            and r.occurred_at >= %(starts_at)s and r.occurred_at < %(before)s
          returning 1
        )
        select (select count(*) from portion), (select count(*) from gone), last.occurred_at,
          last.id
        from (select 1) one left join (
          select occurred_at, id from portion
          order by occurred_at desc, id desc limit 1) last on true
        """,
        {
            "tenant_id": tenant_id,
            "starts_at": starts_at,
            "before": before,
            "after_at": after[0],
            "after_id": after[1],
            "most": most,
        },
    )
    return Portion(*(await cursor.fetchall())[0])


async def delete_suspect(
    tx: db.Connection, *, before: datetime, after: tuple[datetime, UUID], most: int
) -> Portion:
    """As `delete_raw`, for readings whose time is suspect: they age by their arrival (C-19)."""
    cursor = await tx.execute(
        """
        with portion as (
          select r.id, r.occurred_at, r.ingested_at, not exists (select from sync_outbox o
            where o.id = r.id and o.status in ('pending', 'claimed', 'sending', 'dlq')) as synced
          from telemetry_raw_default r
          where r.ingested_at < %(before)s
            and r.ingested_at >= %(after_at)s
            and (r.ingested_at, r.id) > (%(after_at)s, %(after_id)s)
          order by r.ingested_at, r.id limit %(most)s
        ), gone as (
          delete from telemetry_raw_default r using portion
          where portion.synced and r.id = portion.id and r.occurred_at = portion.occurred_at
          returning 1
        )
        select (select count(*) from portion), (select count(*) from gone), last.ingested_at,
          last.id
        from (select 1) one left join (
          select ingested_at, id from portion
          order by ingested_at desc, id desc limit 1) last on true
        """,
        {"before": before, "after_at": after[0], "after_id": after[1], "most": most},
    )
    return Portion(*(await cursor.fetchall())[0])


async def series_after(tx: db.Connection, after: Series, *, most: int) -> list[Series]:
    """The series there are, in order, a portion at a time."""
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, device_id, metric_type from telemetry_latest
        where (tenant_id, device_id, metric_type) > (%s, %s, %s)
        order by tenant_id, device_id, metric_type limit %s
        """,
        *after,
        most,
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def delete_buckets(tx: db.Connection, series: Series, *, before: datetime, most: int) -> int:
    cursor = await tx.execute(
        """
        delete from telemetry_agg where id in (
          select id from telemetry_agg
          where tenant_id = %s and device_id = %s and metric_type = %s
            and "window" = any('{1m,1h,1d}') and bucket_start_at < %s and not owed limit %s)
        """,
        (*series, before, most),
    )
    return cursor.rowcount


async def delete_series(tx: db.Connection, *, before: datetime) -> int:
    """Series of which nothing has come for so long, and nothing is left: no reading, no bucket.

    The limits keep each look at one index: a join would read every reading there is.
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


def _series(of: Iterable[Span | Day]) -> tuple[list[str], list[str], list[str]]:
    listed = list(of)
    return (
        [each.tenant_id for each in listed],
        [each.device_id for each in listed],
        [each.metric_type for each in listed],
    )


async def open_alerts(tx: db.Connection, kind: str) -> list[str]:
    """Subjects of the open alerts of a kind."""
    rows = await db.fetch_all(
        tx, "select subject from alerts where kind = %s and closed_at is null", kind
    )
    return [subject for (subject,) in rows]
