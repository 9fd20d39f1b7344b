"""Telemetry's SQL in the cloud."""

from collections.abc import Sequence

from farmiq.cloud import sink
from farmiq.messages import telemetry
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db

_store_aggregates = sink.insert_into("telemetry_aggregates")


async def store_readings(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """Store the readings and the newest of each series; returns how many were new.

    Only new readings are counted in a series, so redelivery changes nothing. A reading with a
    suspect clock is the newest only if there is no other, as at the edge.
    """
    readings = [telemetry.read_ingested(event.payload) for event in events]
    new: int = await db.fetch_value(
        tx,
        """
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
            (farm_id, barn_id, event_id, metric_value, unit, occurred_at, clock_suspect) = (
              select n.farm_id, n.barn_id, n.event_id, n.metric_value, n.unit, n.occurred_at,
                n.clock_suspect
              from (values
                (l.farm_id, l.barn_id, l.event_id, l.metric_value, l.unit, l.occurred_at,
                 l.clock_suspect),
                (excluded.farm_id, excluded.barn_id, excluded.event_id, excluded.metric_value,
                 excluded.unit, excluded.occurred_at, excluded.clock_suspect)
              ) as n(farm_id, barn_id, event_id, metric_value, unit, occurred_at, clock_suspect)
              order by n.clock_suspect, n.occurred_at desc, n.event_id desc limit 1)
        )
        select count(*) from kept
        """,
        *db.columns(
            events, "tenant_id", "event_id", "farm_id", "barn_id", "device_id", "occurred_at",
            "trace_id", "clock_suspect",
        ),
        *db.columns(readings, "metric_type", "metric_value", "unit"),
    )  # fmt: skip
    await sink.notify_pages(tx, "telemetry_changed", events)
    return new


async def store_aggregates(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """Store the buckets and the newest of each series; returns how many were new."""
    new = await _store_aggregates(tx, events)
    of_devices = [event for event in events if event.device_id]
    buckets = [telemetry.read_aggregated(event.payload) for event in of_devices]
    await tx.execute(
        """
        with offered as (
          select distinct on (tenant_id, device_id, metric_type) *
          from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::uuid[],
            %s::timestamptz[], %s::text[], %s::text[], %s::float8[], %s::text[],
            %s::timestamptz[], %s::bigint[])
            as e(tenant_id, device_id, farm_id, barn_id, event_id, bucket_start_at, metric_type,
              aggregation_window, avg_value, unit, bucket_end_at, reading_count)
          order by tenant_id, device_id, metric_type, bucket_start_at desc, reading_count desc
        )
        insert into telemetry_latest_aggregates as l (tenant_id, device_id, farm_id, barn_id,
          event_id, bucket_start_at, metric_type, aggregation_window, avg_value, unit,
          bucket_end_at, reading_count)
        select * from offered order by tenant_id, device_id, metric_type
        on conflict on constraint telemetry_latest_aggregates_pkey do update set
          farm_id = excluded.farm_id, barn_id = excluded.barn_id, event_id = excluded.event_id,
          aggregation_window = excluded.aggregation_window, avg_value = excluded.avg_value,
          unit = excluded.unit, bucket_start_at = excluded.bucket_start_at,
          bucket_end_at = excluded.bucket_end_at, reading_count = excluded.reading_count,
          stored_at = clock_timestamp()
        where (excluded.bucket_start_at, excluded.reading_count)
          > (l.bucket_start_at, l.reading_count)
        """,
        (
            *db.columns(
                of_devices, "tenant_id", "device_id", "farm_id", "barn_id", "event_id",
                "occurred_at",
            ),
            *db.columns(buckets, "metric_type", "aggregation_window", "avg_value", "unit"),
            [
                bucket.bucket_end_at or event.occurred_at
                for event, bucket in zip(of_devices, buckets, strict=True)
            ],
            [bucket.count or 0 for bucket in buckets],
        ),
    )  # fmt: skip
    await sink.notify_pages(tx, "telemetry_changed", events)
    return new
