"""SQL of telemetry, with the person's rights (row level security)."""

from collections.abc import Sequence
from datetime import datetime

from farmiq.cloud.console.telemetry.sensor import Sensor, SensorAlert
from farmiq.cloud.console.telemetry.view import Reading
from farmiq.plumbing import db
from farmiq.ui.metrics import CatalogueEntry
from farmiq.ui.sparkline import Point

HISTORY = 30
MAX_ALERTS = 10
# A page offers at most so many sensors to choose from.
MAX_CHOICES = 1000


async def latest(
    connection: db.Connection, *, history: int = HISTORY, only: Sequence[Sensor] | None = None
) -> list[Reading]:
    """The newest reading of every sensor with the last few before it, in one query.

    Where the edge sends aggregates it is a bucket, with the time of its end, or of its arrival if
    it is still open. Of readings the last few weeks are looked at: they lie in months.
    """
    # Binary: for 200 devices these are tens of thousands of numbers.
    cursor = await connection.cursor(binary=True).execute(
        """
        select l.event_id, l.farm_id, l.barn_id, l.device_id, l.metric_type, l.metric_value, l.unit,
          l.occurred_at, l.stored_at, coalesce(h.reading_count, l.reading_count), l.clock_suspect,
          l.aggregation_window,
          -- What came and was captured after the revocation was sent through another edge.
          coalesce(d.revoked and not (l.occurred_at > d.occurred_at and l.stored_at > d.stored_at),
            false), h.instants, h.amounts
        from telemetry_latest l
        cross join lateral (
          select
            coalesce(array_agg(r.occurred_at order by r.occurred_at), '{}') as instants,
            coalesce(array_agg(r.metric_value order by r.occurred_at), '{}') as amounts,
            (array_agg(r.reading_count order by r.occurred_at desc))[1] as reading_count
          from (
            (select occurred_at, metric_value, null::bigint as reading_count
            from telemetry_readings
            where l.aggregation_window is null and tenant_id = l.tenant_id
              and device_id = l.device_id and metric_type = l.metric_type
              and occurred_at <= l.occurred_at
              and occurred_at > l.occurred_at - interval '35 days'
            order by occurred_at desc
            limit %(history)s)
            union all
            (select bucket_start_at, avg_value, count
            from telemetry_agg
            where l.aggregation_window = "window" and tenant_id = l.tenant_id
              and device_id = l.device_id and metric_type = l.metric_type
            order by bucket_start_at desc
            limit %(history)s)
          ) r
        ) h
        left join lateral (
          select occurred_at, stored_at, (payload -> 'revoked')::boolean as revoked
          from device_events
          where tenant_id = l.tenant_id and device_id = l.device_id and payload ? 'revoked'
          order by occurred_at desc
          limit 1
        ) d on true
        where %(devices)s::text[] is null or (l.device_id, l.metric_type) in (
          select * from unnest(%(devices)s::text[], %(metrics)s::text[]))
        """,
        {
            "history": history,
            "devices": None if only is None else [sensor.device_id for sensor in only],
            "metrics": None if only is None else [sensor.metric_type for sensor in only],
        },
    )
    return [
        Reading(
            event_id=event_id,
            farm_id=farm_id,
            barn_id=barn_id,
            device_id=device_id,
            metric_type=metric_type,
            value=value,
            unit=unit,
            captured_at=captured_at,
            arrived_at=arrived_at,
            count=count,
            clock_suspect=clock_suspect,
            window=window,
            revoked=revoked,
            history=tuple(map(Point, instants, amounts)),
        )
        for (
            event_id, farm_id, barn_id, device_id, metric_type, value, unit,
            captured_at, arrived_at, count, clock_suspect, window, revoked, instants, amounts,
        ) in await cursor.fetchall()
    ]  # fmt: skip


async def catalogue(connection: db.Connection) -> list[CatalogueEntry]:
    return await db.fetch_as(
        connection,
        CatalogueEntry,
        "select metric_type, label, decimals, unit, min_plausible, max_plausible from metrics",
    )


async def barn_names(connection: db.Connection) -> dict[tuple[str, str], tuple[str, str]]:
    """Of registered barns, by farm_id and barn_id: the barn's name and the farm's."""
    rows = await db.fetch_all(
        connection,
        """
        select b.farm_id, b.barn_id, b.name, f.name from barns b
          join farms f on f.tenant_id = b.tenant_id and f.farm_id = b.farm_id
        """,
    )
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


async def alerts(
    connection: db.Connection, sensor: Sensor, *, begin: datetime, end: datetime
) -> list[SensorAlert]:
    """Alerts of a sensor's readings that were open in this time: those still open, the newest."""
    return await db.fetch_as(
        connection,
        SensorAlert,
        """
        select episode_id, severity, state, message, opened_at, resolved_at
        from alert_episodes
        where tenant_id = (select get_active_tenant_id()) and device_id = %(device)s
          and signal = 'telemetry.' || %(metric)s and state <> 'withdrawn'
          and opened_at < %(end)s and coalesce(resolved_at, 'infinity') > %(begin)s
        order by state in ('active', 'acknowledged') desc, opened_at desc limit %(limit)s
        """,
        {
            "device": sensor.device_id, "metric": sensor.metric_type, "begin": begin, "end": end,
            "limit": MAX_ALERTS,
        },
    )  # fmt: skip


async def sensors(connection: db.Connection) -> list[tuple[str, str, str, str]]:
    """All sensors as (farm, barn, device, metric), to choose from."""
    rows = await db.fetch_all(
        connection,
        """
        select farm_id, barn_id, device_id, metric_type from telemetry_latest
        order by farm_id, barn_id, device_id, metric_type limit %s
        """,
        MAX_CHOICES,
    )
    return [(row[0], row[1], row[2], row[3]) for row in rows]
