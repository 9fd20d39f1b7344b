"""Buckets that the cloud is owed, for metrics that are synced as aggregates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from farmiq.edge.telemetry import buckets
from farmiq.edge.telemetry.buckets import Day, Series
from farmiq.plumbing import db


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
    is_over: bool


async def owed(tx: db.Connection, *, settle_s: float, most: int) -> list[Owed]:
    """Buckets that are over since `settle_s` and not told yet, oldest first.

    The first bucket of a series, or the first after a pause, is told once while it is still open
    as well: until its end the cloud could only think that the sensor is silent.
    """
    async with tx.cursor(row_factory=class_row(Owed)) as cursor:
        await cursor.execute(
            """
            select id, tenant_id, farm_id, barn_id, device_id, "window", bucket_start_at,
              bucket_end_at, metric_type, unit, avg_value, min_value, max_value, count, is_over
            from telemetry_agg a
              cross join lateral (select a.bucket_end_at
                <= (select fn_now()) - make_interval(secs => %s) as is_over) o
            where owed and (is_over or told_count = 0 and not exists (
                select from telemetry_agg b
                where b.tenant_id = a.tenant_id and b.device_id = a.device_id
                  and b.metric_type = a.metric_type and b."window" = a."window"
                  and b.bucket_start_at < a.bucket_start_at
                  and b.bucket_start_at >= a.bucket_start_at - interval '25 hours'
                  and b.bucket_end_at >= a.bucket_start_at
                  and (b.owed or b.told_count > 0)))
            order by bucket_end_at limit %s
            """,
            (settle_s, most),
        )
        return await cursor.fetchall()


async def note_told(tx: db.Connection, told: Sequence[Owed]) -> None:
    """A bucket that was told while it is open is still owed."""
    await tx.execute(
        """
        update telemetry_agg a set owed = not k.is_over, told_count = count
        from unnest(%s::uuid[], %s::boolean[]) as k(id, is_over) where a.id = k.id
        """,
        ([bucket.id for bucket in told], [bucket.is_over for bucket in told]),
    )


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
        (*buckets.columns(days), [day.starts_at for day in days]),
    )
    return _owed_days(await cursor.fetchall())


async def forget_all_days(tx: db.Connection, series: Series) -> list[OwedDay]:
    """Returns those of them that the cloud is owed."""
    cursor = await tx.execute(
        "delete from telemetry_agg where tenant_id = %s and device_id = %s and metric_type = %s "
        "and \"window\" = '1d' returning tenant_id, device_id, metric_type, bucket_start_at, "
        "bucket_end_at, owed",
        series,
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
