"""SQL of readings for the pages, from the edge's rollups: small lines and charts, all bounded."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from farmiq.edge.telemetry import queries
from farmiq.edge.telemetry.queries import TelemetryReading
from farmiq.farm.buckets import Window
from farmiq.plumbing import db
from farmiq.ui.sparkline import Point

MAX_SERIES = 1000
LINE = timedelta(hours=1)

Series = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    at: datetime
    mean: float
    low: float
    high: float
    count: int


async def latest(
    connection: db.Connection,
    tenant_id: str,
    *,
    device_id: str | None = None,
    metric_type: str | None = None,
) -> list[TelemetryReading]:
    place = {
        "tenant": tenant_id, "farm": None, "barn": None, "device": device_id,
        "metric": metric_type,
    }  # fmt: skip
    return await queries.latest(connection, place, after=None, limit=MAX_SERIES)


async def heartbeats(connection: db.Connection, tenant_id: str) -> dict[str, float]:
    """By device the longest time between two of its messages; a revoked device has none."""
    rows = await db.fetch_all(
        connection,
        "select device_id, heartbeat_s from devices where tenant_id = %s and revoked_at is null",
        tenant_id,
    )
    return {device_id: float(heartbeat_s) for device_id, heartbeat_s in rows}


async def lines(
    connection: db.Connection, tenant_id: str, *, now: datetime
) -> dict[Series, list[Point]]:
    """By series the means of the minutes of the last hour, for the small lines."""
    rows = await db.fetch_all(
        connection,
        """
        select l.device_id, l.metric_type, a.bucket_start_at, a.avg_value
        from (select device_id, metric_type from telemetry_latest where tenant_id = %s
            order by device_id, metric_type limit %s) l
          cross join lateral (
            select bucket_start_at, avg_value from telemetry_agg a
            where a.tenant_id = %s and a.device_id = l.device_id
              and a.metric_type = l.metric_type and a."window" = '1m'
              and a.bucket_start_at >= %s and a.bucket_start_at <= %s
            order by bucket_start_at) a
        """,
        tenant_id,
        MAX_SERIES,
        tenant_id,
        now - LINE,
        now,
    )
    points_by_series: dict[Series, list[Point]] = {}
    for device_id, metric_type, at, mean in rows:
        points_by_series.setdefault((device_id, metric_type), []).append(Point(at, mean))
    return points_by_series


async def chart(
    connection: db.Connection,
    tenant_id: str,
    series: Series,
    *,
    window: Window,
    step: timedelta,
    begin: datetime,
    end: datetime,
) -> Sequence[Bucket]:
    """The buckets of a range, put together to steps; where nothing came there is none."""
    values: dict[str, Any] = {
        "tenant": tenant_id, "device": series[0], "metric": series[1], "window": window,
        "step": step, "begin": begin, "end": end,
    }  # fmt: skip
    return await db.fetch_as(
        connection,
        Bucket,
        """
        select date_bin(%(step)s, bucket_start_at, 'epoch'::timestamptz) as at,
          (sum(sum_value) / sum(count))::float8 as mean, min(min_value) as low,
          max(max_value) as high, sum(count)::int as count
        from telemetry_agg
        where tenant_id = %(tenant)s and device_id = %(device)s and metric_type = %(metric)s
          and "window" = %(window)s and bucket_start_at >= %(begin)s
          and bucket_start_at < %(end)s
        group by 1 order by 1
        """,
        values,
    )
