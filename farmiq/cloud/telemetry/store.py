"""Telemetry's SQL in the cloud: readings, buckets of edges, and the marks of what they change."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from farmiq.cloud import sink
from farmiq.farm import buckets, rollups
from farmiq.farm.buckets import LENGTHS, DirtyRange
from farmiq.messages import telemetry
from farmiq.messages.bus import BusEvent
from farmiq.messages.check import InvalidError
from farmiq.messages.telemetry import TelemetryAggregated
from farmiq.plumbing import db

ROLLUPS = rollups.Rollups(
    rollups.Tables(
        readings="telemetry_readings",
        buckets="telemetry_agg",
        marks="telemetry_dirty",
        series="telemetry_latest",
        state="telemetry_state",
        zones="farms",
        rezoned="telemetry_rezoned",
        reading_id="event_id",
        arrived_at="stored_at",
        pending_mark="d.sent",
        counted="not r.clock_suspect",
        own="not a.sent",
        may_replace="(not a.sent or excluded.count > a.count)",
        # Minutes are not published: too many, and nobody waits for them (D-362).
        noted_columns=", pending",
        noted_values=""", c."window" <> '1m'""",
        noted_changes=", pending = excluded.pending, sent = false, revision = a.revision + 1",
    ),
    lock="cloud-telemetry-service",
    raw_from_lock="telemetry raw_from",
)
_MARK = ROLLUPS.insert_marks_sql(", sent", ", %s")

MAX_DAY = timedelta(hours=26)  # of a bucket of a day: clocks may be set by more than an hour


async def store_readings(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """Store the readings and mark their buckets; returns how many were new.

    A reading with a suspect clock is in no bucket.
    """
    readings = [telemetry.read_ingested(event.payload) for event in events]
    new = await insert_readings(tx, events, readings, also=_MARK_NEW)
    await sink.notify_pages(tx, "telemetry_changed", events)
    return new


async def insert_readings(
    tx: db.Connection,
    events: Sequence[BusEvent],
    readings: Sequence[telemetry.Reading],
    *,
    also: str = "",
) -> int:
    """Store the readings and the newest of each series; returns how many were new.

    `also` is SQL that goes on with the new ones, `kept`: they need not be sent twice.

    Only new readings are counted in a series, so redelivery changes nothing. A reading with a
    suspect clock is the newest only if there is no other, as at the edge.
    """
    new: int = await db.fetch_value(
        tx,
        f"""
        with offered as (
          select distinct on (e.tenant_id, e.event_id) *
          from unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[],
            %s::timestamptz[], %s::text[], %s::bool[], %s::text[], %s::float8[], %s::text[])
            as e(tenant_id, event_id, farm_id, barn_id, device_id, occurred_at, trace_id,
              clock_suspect, metric_type, metric_value, unit)
        ), kept as (
          insert into telemetry_readings (tenant_id, event_id, farm_id, barn_id, device_id,
            occurred_at, trace_id, clock_suspect, metric_type, metric_value, unit)
          select * from offered
          on conflict on constraint telemetry_readings_pkey do nothing
          returning *
        ), newest as (
          select distinct on (tenant_id, device_id, metric_type) kept.*,
            count(*) over (partition by tenant_id, device_id, metric_type) as reading_count
          from kept
          order by tenant_id, device_id, metric_type, clock_suspect, occurred_at desc, event_id desc
        ), latest as (
          insert into telemetry_latest as l (tenant_id, device_id, metric_type, farm_id, barn_id,
            event_id, metric_value, unit, occurred_at, clock_suspect, reading_count)
          select tenant_id, device_id, metric_type, farm_id, barn_id,
            event_id, metric_value, unit, occurred_at, clock_suspect, reading_count
          from newest
          order by tenant_id, device_id, metric_type
          on conflict on constraint telemetry_latest_pkey do update set
            reading_count = l.reading_count + excluded.reading_count,
            stored_at = clock_timestamp(),
            (farm_id, barn_id, event_id, metric_value, unit, occurred_at, clock_suspect,
              aggregation_window) = (
              select n.farm_id, n.barn_id, n.event_id, n.metric_value, n.unit, n.occurred_at,
                n.clock_suspect, n.aggregation_window
              from (values
                (l.farm_id, l.barn_id, l.event_id, l.metric_value, l.unit, l.occurred_at,
                 l.clock_suspect, l.aggregation_window),
                (excluded.farm_id, excluded.barn_id, excluded.event_id, excluded.metric_value,
                 excluded.unit, excluded.occurred_at, excluded.clock_suspect, null)
              ) as n(farm_id, barn_id, event_id, metric_value, unit, occurred_at, clock_suspect,
                aggregation_window)
              order by n.clock_suspect, n.occurred_at desc, n.event_id desc limit 1)
        ){also}
        select count(*) from kept
        """,  # noqa: S608 - `also` is ours
        db.packed(db.Texts, [event.tenant_id for event in events]),
        db.packed(db.Uuids, [event.event_id for event in events]),
        db.packed(db.Texts, [event.farm_id for event in events]),
        db.packed(db.Texts, [event.barn_id for event in events]),
        db.packed(db.Texts, [event.device_id for event in events]),
        db.packed(db.Instants, [event.occurred_at for event in events]),
        db.packed(db.Texts, [event.trace_id for event in events]),
        db.packed(db.Booleans, [event.clock_suspect for event in events]),
        db.packed(db.Texts, [reading.metric_type for reading in readings]),
        db.packed(db.Floats, [reading.metric_value for reading in readings]),
        db.packed(db.Texts, [reading.unit for reading in readings]),
    )
    return new


# What `buckets.dirty_ranges` and `insert_marks_sql` do, of rows that are there already.
_MARK_NEW = """
, ranges as (
  select tenant_id, device_id, metric_type,
    min(occurred_at) as first_at, max(occurred_at) as last_at
  from kept where not clock_suspect
  group by tenant_id, device_id, metric_type, date_bin('1 hour', occurred_at, 'epoch')
), marked as (
  insert into telemetry_dirty (marked_at, first_at, tenants, devices, metrics,
    first_minutes, last_minutes, first_times, last_times)
  select fn_now(), min(first_at), array_agg(tenant_id), array_agg(device_id),
    array_agg(metric_type), array_agg(floor(extract(epoch from first_at) / 60)::bigint),
    array_agg(floor(extract(epoch from last_at) / 60)::bigint), array_agg(first_at),
    array_agg(last_at)
  from ranges having count(*) > 0
)
"""


async def mark(tx: db.Connection, ranges: Sequence[DirtyRange], *, sent: bool = False) -> None:
    """Mark the buckets that change with what this transaction stores."""
    if ranges:
        await tx.execute(_MARK.encode(), [*rollups.mark_values(ranges), sent])


def check_aggregate(event: BusEvent) -> None:
    """Raises InvalidError for a bucket that is none of a series."""
    if not isinstance(event.device_id, str):
        raise InvalidError(["a bucket without a device_id belongs to no series"])
    bucket = telemetry.read_aggregated(event.payload)
    begin, end = bounds(event, bucket)
    window, length = bucket.aggregation_window, LENGTHS[bucket.aggregation_window]
    reasons = []
    if bucket.count == 0:
        reasons.append("a bucket without readings is none: count is 0")
    if window == "1d":
        if not timedelta() < end - begin <= MAX_DAY:
            reasons.append("a bucket of 1d has at most 26 hours")
    elif (begin - buckets.EPOCH) % length or end - begin != length:
        reasons.append(f"a bucket of {window} begins on a full one of UTC and is as long")
    if reasons:
        raise InvalidError(reasons)


def bounds(event: BusEvent, bucket: TelemetryAggregated) -> tuple[datetime, datetime]:
    """When the bucket begins and ends; where it does not say so, by its event and its window."""
    begin = bucket.bucket_start_at or event.occurred_at
    return begin, bucket.bucket_end_at or begin + LENGTHS[bucket.aggregation_window]


async def store_aggregates(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """Store the buckets that edges sent, and the newest of each series; returns how many were new.

    Of two versions of a bucket the one with more readings counts, and over one that was computed
    here the edge's: it has all of them. Buckets that the cloud itself published are stored already.
    """
    sent = [
        (event, bucket)
        for event in events
        if not (bucket := telemetry.read_aggregated(event.payload)).made_by
    ]
    if not sent:
        return 0
    edges_events = [event for event, _ in sent]
    edges_buckets = [bucket for _, bucket in sent]
    rows = await db.fetch_all(
        tx,
        """
        with offered as (
          select distinct on (tenant_id, device_id, metric_type, "window", bucket_start_at) *
          from unnest(%s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[],
            %s::text[], %s::float8[], %s::float8[], %s::float8[], %s::text[], %s::bigint[],
            %s::timestamptz[], %s::timestamptz[])
            as e(tenant_id, event_id, farm_id, barn_id, device_id, metric_type, "window",
              avg_value, min_value, max_value, unit, count, bucket_start_at, bucket_end_at)
          order by tenant_id, device_id, metric_type, "window", bucket_start_at, count desc
        ), kept as (
          insert into telemetry_agg as a (id, tenant_id, farm_id, barn_id, device_id, "window",
            bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
            sum_value, count, sent)
          select event_id, tenant_id, farm_id, barn_id, device_id, "window", bucket_start_at,
            bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
            avg_value::text::numeric * count, count, true
          from offered
          on conflict on constraint telemetry_agg_pkey do update set
            id = excluded.id, farm_id = excluded.farm_id, barn_id = excluded.barn_id,
            unit = excluded.unit, bucket_end_at = excluded.bucket_end_at,
            avg_value = excluded.avg_value, min_value = excluded.min_value,
            max_value = excluded.max_value, sum_value = excluded.sum_value,
            count = excluded.count, last_at = null, sent = true, pending = false,
            stored_at = clock_timestamp()
          where excluded.count > a.count or excluded.count = a.count and not a.sent
          returning id, tenant_id, farm_id, barn_id, device_id, metric_type, "window", avg_value,
            unit, least(bucket_end_at, clock_timestamp()) as newest_at, bucket_start_at
        ), newest as (
          select distinct on (tenant_id, device_id, metric_type) * from kept
          order by tenant_id, device_id, metric_type, newest_at desc, bucket_start_at desc
        ), latest as (
          insert into telemetry_latest as l (tenant_id, device_id, metric_type, farm_id, barn_id,
            event_id, metric_value, unit, occurred_at, reading_count, aggregation_window)
          select tenant_id, device_id, metric_type, farm_id, barn_id, id, avg_value, unit,
            newest_at, 0, "window"
          from newest order by tenant_id, device_id, metric_type
          on conflict on constraint telemetry_latest_pkey do update set
            farm_id = excluded.farm_id, barn_id = excluded.barn_id, event_id = excluded.event_id,
            metric_value = excluded.metric_value, unit = excluded.unit,
            occurred_at = excluded.occurred_at, stored_at = clock_timestamp(),
            clock_suspect = false, aggregation_window = excluded.aggregation_window
          where l.clock_suspect or excluded.occurred_at >= l.occurred_at
        )
        select tenant_id, device_id, metric_type, "window", bucket_start_at from kept
        """,
        *db.columns(edges_events, "tenant_id", "event_id", "farm_id", "barn_id", "device_id"),
        *db.columns(
            edges_buckets, "metric_type", "aggregation_window", "avg_value", "min_value",
            "max_value", "unit",
        ),
        [bucket.count or 1 for bucket in edges_buckets],
        *map(list, zip(*(bounds(event, bucket) for event, bucket in sent), strict=True)),
    )  # fmt: skip
    # A day is in no longer bucket.
    parts = [(row[:3], row[4]) for row in rows if row[3] != "1d"]
    await mark(tx, buckets.dirty_ranges(parts), sent=True)
    await sink.notify_pages(tx, "telemetry_changed", edges_events)
    return len(rows)
