"""Series of telemetry: their readings and rollups of a time, with the person's rights.

For the API and the pages; row level security decides what is seen.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from uuid import UUID

from farmiq.cloud import history
from farmiq.cloud.history import History
from farmiq.farm.buckets import Window
from farmiq.farm.points import Step
from farmiq.plumbing import db


@dataclass(frozen=True, slots=True)
class Place:
    """Which series; None is all. Farm and barn are where a device was at its newest reading."""

    farm: str | None
    barn: str | None
    device: str | None
    metric: str | None


@dataclass(frozen=True, slots=True)
class KnownSeries:
    """A series. With a window, an edge sends it as aggregates: there is nothing shorter."""

    device_id: str
    metric_type: str
    aggregation_window: Window | None


@dataclass(frozen=True, slots=True)
class CloudReading:
    """One reading of one series."""

    farm_id: str
    barn_id: str
    device_id: str
    metric_type: str
    metric_value: float
    unit: str
    occurred_at: datetime
    stored_at: datetime
    clock_suspect: bool
    event_id: UUID


@dataclass(frozen=True, slots=True)
class CloudBucket:
    """The readings of one series in one stretch of time."""

    farm_id: str
    barn_id: str
    device_id: str
    metric_type: str
    bucket_start_at: datetime
    bucket_end_at: datetime
    avg_value: float
    min_value: float
    max_value: float
    count: int
    unit: str


async def known(connection: db.Connection, place: Place, *, limit: int) -> list[KnownSeries]:
    return await db.fetch_as(
        connection,
        KnownSeries,
        """
        select device_id, metric_type, aggregation_window from telemetry_latest
        where (%s::text is null or farm_id = %s) and (%s::text is null or barn_id = %s)
          and (%s::text is null or device_id = %s) and (%s::text is null or metric_type = %s)
        order by device_id, metric_type limit %s
        """,
        (
            place.farm, place.farm, place.barn, place.barn,
            place.device, place.device, place.metric, place.metric, limit,
        ),
    )  # fmt: skip


async def readings(
    connection: db.Connection,
    some: Sequence[KnownSeries],
    *,
    begin: datetime,
    end: datetime,
    limit: int,
    archived: History,
) -> list[CloudReading]:
    """The first readings of these series, series by series, each by time, of both tiers.

    Raises HistoryUnavailableError if some are in files that cannot be read.
    """
    stored = await db.fetch_as(
        connection,
        CloudReading,
        """
        select r.farm_id, r.barn_id, r.device_id, r.metric_type, r.metric_value, r.unit,
          r.occurred_at, r.stored_at, r.clock_suspect, r.event_id
        from unnest(%s::text[], %s::text[]) with ordinality as s(device_id, metric_type, place)
          cross join lateral (
            select * from telemetry_readings r
            where r.tenant_id = (select get_active_tenant_id()) and r.device_id = s.device_id
              and r.metric_type = s.metric_type and r.occurred_at >= %s and r.occurred_at < %s
            order by r.occurred_at, r.event_id limit %s) r
        order by s.place, r.occurred_at, r.event_id limit %s
        """,
        (*db.columns(some, "device_id", "metric_type"), begin, end, limit, limit),
    )
    devices = {known.device_id for known in some}
    files = await history.files(
        connection,
        metrics={known.metric_type for known in some},
        devices=devices,
        begin=begin,
        end=end,
    )
    if not files:
        return stored
    places = {(known.device_id, known.metric_type): place for place, known in enumerate(some)}
    first = {reading.event_id: reading for reading in stored}

    def order(reading: CloudReading) -> tuple[int, datetime, UUID]:
        place = places[reading.device_id, reading.metric_type]
        return place, reading.occurred_at, reading.event_id

    names = [field.name for field in fields(CloudReading)]
    async for _, table in archived.tables(
        files, devices=devices, begin=begin, end=end, columns=names
    ):
        for row in table.select(names).to_pylist():
            reading = CloudReading(**{**row, "event_id": UUID(bytes=row["event_id"])})
            if (reading.device_id, reading.metric_type) in places:
                first[reading.event_id] = reading
        if len(first) > 2 * limit:  # the others cannot be among the first
            nearest = heapq.nsmallest(limit, first.values(), key=order)
            first = {reading.event_id: reading for reading in nearest}
    return sorted(first.values(), key=order)[:limit]


async def buckets(
    connection: db.Connection,
    some: Sequence[tuple[KnownSeries, Step]],
    *,
    begin: datetime,
    end: datetime,
) -> list[CloudBucket]:
    """Points of these series, series by series, each by time; where nothing came there is none.

    A point of several minutes or hours lies on the grid of UTC. Local days may have 23 or 25
    hours: half a day before the range, no midnight is near the border of a point.
    """
    step_s = [step.length.total_seconds() for _, step in some]
    return await db.fetch_as(
        connection,
        CloudBucket,
        """
        select p.farm_id, p.barn_id, s.device_id, s.metric_type,
          p.bucket_start_at, p.bucket_end_at, p.avg_value, p.min_value, p.max_value, p.count, p.unit
        from unnest(%(devices)s::text[], %(metrics)s::text[], %(windows)s::text[],
            %(steps)s::float8[])
            with ordinality as s(device_id, metric_type, "window", step_s, place)
          cross join lateral (
            select
              (array_agg(a.farm_id order by a.bucket_start_at desc))[1] as farm_id,
              (array_agg(a.barn_id order by a.bucket_start_at desc))[1] as barn_id,
              (array_agg(a.unit order by a.bucket_start_at desc))[1] as unit,
              case when s."window" = '1d' then min(a.bucket_start_at)
                else to_timestamp(b.number * s.step_s) end as bucket_start_at,
              case when s."window" = '1d' then max(a.bucket_end_at)
                else to_timestamp((b.number + 1) * s.step_s) end as bucket_end_at,
              case when count(*) = 1 then min(a.avg_value)
                else (sum(a.sum_value) / sum(a.count))::float8 end as avg_value,
              min(a.min_value) as min_value, max(a.max_value) as max_value,
              sum(a.count)::bigint as count
            from telemetry_agg a
              cross join lateral (select floor(extract(epoch from
                case when s."window" = '1d'
                  then a.bucket_start_at - (%(begin)s::timestamptz - interval '12 hours')
                  else a.bucket_start_at - 'epoch'::timestamptz end) / s.step_s) as number) b
            where a.tenant_id = (select get_active_tenant_id()) and a.device_id = s.device_id
              and a.metric_type = s.metric_type and a."window" = s."window"
              and a.bucket_start_at >= %(begin)s and a.bucket_start_at < %(end)s
            group by b.number) p
        order by s.place, p.bucket_start_at
        """,
        {
            "devices": [known.device_id for known, _ in some],
            "metrics": [known.metric_type for known, _ in some],
            "windows": [step.window for _, step in some],
            "steps": step_s,
            "begin": begin,
            "end": end,
        },
    )
