"""Telemetry's part of the gateway's transaction: keep readings, mark buckets, list series."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
from psycopg import sql

from farmiq.edge import alerts, outbox
from farmiq.edge.arrival import Arrival
from farmiq.edge.telemetry import buckets, marking
from farmiq.edge.telemetry.buckets import Series, Span
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
        await marking.forget_marks(tx, [mark_id])
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
                first_minutes, last_minutes, first_times, last_times, owed_metrics)
              select fn_now(), %s, named.*, %s::bigint[], %s::bigint[], %s::timestamptz[],
                %s::timestamptz[], owed.metrics
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
        *buckets.columns(touched),
        min(span.first_at for span in touched),
        [buckets.minute(span.first_at) for span in touched],
        [buckets.minute(span.last_at) for span in touched],
        [span.first_at for span in touched],
        [span.last_at for span in touched],
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


async def _in_buckets(tx: db.Connection, aggregated: Sequence[Arrival]) -> set[tuple[str, UUID]]:
    """Keys of those that come into buckets. What does not is sent as it is (D-84)."""
    if not aggregated:
        return set()
    now: datetime = await db.fetch_value(tx, "select fn_now()")
    raw_from = datetime.min.replace(tzinfo=UTC)
    surely_open = now - SURELY_OPEN
    if any(each.event.occurred_at < surely_open for each in aggregated):
        raw_from = await marking.held_raw_from(tx) or surely_open
    return {
        each.key
        for each in aggregated
        if buckets.has_bucket(each.event.occurred_at, now=now, raw_from=raw_from)
    }
