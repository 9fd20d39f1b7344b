"""Telemetry's SQL for the API: short statements, so that no answer delays the jobs.

Nothing is prepared: which index is right depends on what is asked and how full a month is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from farmiq.farm.buckets import Window
from farmiq.plumbing import db

SERIES_AT_ONCE = 20

# Values of the parameters tenant, farm, barn, device and metric; None is all.
Place = Mapping[str, str | None]
# A place, and the moments `from` and `to`.
Span = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TelemetryReading:
    """One reading of one series."""

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    metric_type: str
    metric_value: float
    unit: str
    occurred_at: datetime
    ingested_at: datetime
    clock_suspect: bool
    event_id: UUID

    @property
    def at(self) -> datetime:
        return self.occurred_at

    @property
    def id(self) -> UUID:
        return self.event_id


@dataclass(frozen=True, slots=True)
class TelemetryBucket:
    """One bucket of one series."""

    tenant_id: str
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

    @property
    def at(self) -> datetime:
        return self.bucket_start_at

    @property
    def id(self) -> UUID:
        return UUID(int=0)


@dataclass(frozen=True, slots=True)
class From:
    """A series, and behind which of its rows to go on."""

    device_id: str
    metric_type: str
    at: datetime
    id: UUID


async def latest(
    connection: db.Connection, place: Place, *, after: tuple[str, str, str] | None, limit: int
) -> list[TelemetryReading]:
    """The newest reading of each series.

    What is known in telemetry_latest is a few seconds old; from there on the readings are looked
    at, by the device's index. A time more than a day ahead is suspect and not looked for.
    """
    async with connection.cursor(row_factory=class_row(TelemetryReading)) as cursor:
        await cursor.execute(
            """
            select l.tenant_id, coalesce(n.farm_id, l.farm_id) as farm_id,
              coalesce(n.barn_id, l.barn_id) as barn_id, l.device_id, l.metric_type,
              coalesce(n.metric_value, l.metric_value) as metric_value,
              coalesce(n.unit, l.unit) as unit,
              coalesce(n.occurred_at, l.occurred_at) as occurred_at,
              coalesce(n.ingested_at, l.ingested_at) as ingested_at,
              coalesce(n.clock_suspect, l.clock_suspect) as clock_suspect,
              coalesce(n.id, l.event_id) as event_id
            from (
              select * from telemetry_latest l
              where (%(tenant)s::text is null or l.tenant_id = %(tenant)s)
                and (%(farm)s::text is null or l.farm_id = %(farm)s)
                and (%(barn)s::text is null or l.barn_id = %(barn)s)
                and (%(device)s::text is null or l.device_id = %(device)s)
                and (%(metric)s::text is null or l.metric_type = %(metric)s)
                and (l.tenant_id, l.device_id, l.metric_type) > (%(a)s, %(b)s, %(c)s)
              order by l.tenant_id, l.device_id, l.metric_type limit %(limit)s) l
            left join lateral (
              select r.* from telemetry_raw r
              where r.tenant_id = l.tenant_id and r.device_id = l.device_id
                and r.metric_type = l.metric_type and not r.clock_suspect
                and r.occurred_at >= case when l.clock_suspect
                  then l.newest_at - interval '25 hours' else l.newest_at end
                and r.occurred_at < (select fn_now()) + interval '25 hours'
              order by least(r.occurred_at, r.ingested_at) desc, r.id desc limit 1) n on true
            order by l.tenant_id, l.device_id, l.metric_type
            """,
            {
                **place,
                "limit": limit,
                **dict(zip("abc", after or ("", "", ""), strict=True)),
            },
            prepare=False,
        )
        return await cursor.fetchall()


async def series(
    connection: db.Connection, place: Place, *, after: tuple[str, str], limit: int
) -> list[tuple[str, str]]:
    """(device, metric) of a tenant, in order. A device may have been elsewhere: rows say where.

    One that is named in full need not be listed: readings beyond a device's number of series.
    """
    if place["device"] is not None and place["metric"] is not None:
        named = (place["device"], place["metric"])
        return [named] if named > after else []
    cursor = await connection.execute(
        """
        select device_id, metric_type from telemetry_latest
        where tenant_id = %(tenant)s
          and (%(device)s::text is null or device_id = %(device)s)
          and (%(metric)s::text is null or metric_type = %(metric)s)
          and (device_id, metric_type) > (%(a)s, %(b)s)
        order by device_id, metric_type limit %(limit)s
        """,
        {**place, "a": after[0], "b": after[1], "limit": limit},
        prepare=False,
    )
    return [(device_id, metric_type) for device_id, metric_type in await cursor.fetchall()]


async def count_readings(connection: db.Connection, span: Span, *, limit: int) -> int:
    """How many readings there are, counted no further than `limit`."""
    cursor = await connection.execute(
        """
        select count(*) from (
          select from telemetry_raw r
          where r.tenant_id = %(tenant)s
            and r.occurred_at >= %(from)s and r.occurred_at < %(to)s
            and (%(device)s::text is null or r.device_id = %(device)s)
            and (%(metric)s::text is null or r.metric_type = %(metric)s)
            and (%(farm)s::text is null or r.farm_id = %(farm)s)
            and (%(barn)s::text is null or r.barn_id = %(barn)s)
          limit %(limit)s) counted
        """,
        {**span, "limit": limit},
        prepare=False,
    )
    row = await cursor.fetchone()
    return int(row[0]) if row else 0


async def readings(
    connection: db.Connection, span: Span, some: Sequence[From], *, limit: int
) -> list[TelemetryReading]:
    """Readings of these series, series by series, each by time."""
    async with connection.cursor(row_factory=class_row(TelemetryReading)) as cursor:
        await cursor.execute(
            """
            select r.tenant_id, r.farm_id, r.barn_id, r.device_id, r.metric_type, r.metric_value,
              r.unit, r.occurred_at, r.ingested_at, r.clock_suspect, r.id as event_id
            from unnest(%(devices)s::text[], %(metrics)s::text[], %(ats)s::timestamptz[],
                %(ids)s::uuid[]) with ordinality as s(device_id, metric_type, at, id, place)
              cross join lateral (
                select * from telemetry_raw r
                where r.tenant_id = %(tenant)s and r.device_id = s.device_id
                  and r.metric_type = s.metric_type
                  and r.occurred_at >= s.at and (r.occurred_at, r.id) > (s.at, s.id)
                  and r.occurred_at >= %(from)s and r.occurred_at < %(to)s
                  and (%(farm)s::text is null or r.farm_id = %(farm)s)
                  and (%(barn)s::text is null or r.barn_id = %(barn)s)
                order by r.occurred_at, r.id limit %(limit)s) r
            order by s.place, r.occurred_at, r.id limit %(limit)s
            """,
            _rows(span, some, limit=limit),
            prepare=False,
        )
        return await cursor.fetchall()


async def buckets(
    connection: db.Connection, span: Span, some: Sequence[From], *, window: Window, limit: int
) -> list[TelemetryBucket]:
    """Buckets that begin in the range, series by series, each by time."""
    async with connection.cursor(row_factory=class_row(TelemetryBucket)) as cursor:
        await cursor.execute(
            """
            select r.tenant_id, r.farm_id, r.barn_id, r.device_id, r.metric_type,
              r.bucket_start_at, r.bucket_end_at, r.avg_value, r.min_value, r.max_value,
              r.count, r.unit
            from unnest(%(devices)s::text[], %(metrics)s::text[], %(ats)s::timestamptz[],
                %(ids)s::uuid[]) with ordinality as s(device_id, metric_type, at, id, place)
              cross join lateral (
                select * from telemetry_agg r
                where r.tenant_id = %(tenant)s and r.device_id = s.device_id
                  and r.metric_type = s.metric_type and r."window" = %(window)s
                  and r.bucket_start_at > s.at
                  and r.bucket_start_at >= %(from)s and r.bucket_start_at < %(to)s
                  and (%(farm)s::text is null or r.farm_id = %(farm)s)
                  and (%(barn)s::text is null or r.barn_id = %(barn)s)
                order by r.bucket_start_at limit %(limit)s) r
            order by s.place, r.bucket_start_at limit %(limit)s
            """,
            {**_rows(span, some, limit=limit), "window": window},
            prepare=False,
        )
        return await cursor.fetchall()


def _rows(span: Span, some: Sequence[From], *, limit: int) -> dict[str, object]:
    return {
        **span,
        "devices": [series.device_id for series in some],
        "metrics": [series.metric_type for series in some],
        "ats": [series.at for series in some],
        "ids": [series.id for series in some],
        "limit": limit,
    }
