"""Retention's SQL: what is over its time, in portions, but for what must stay (C-42)."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from farmiq.edge.telemetry.buckets import Series
from farmiq.plumbing import db


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


Held = tuple[str, str]  # device, metric


async def held(tx: db.Connection, day: datetime) -> dict[str, list[Held]]:
    """By tenant: the series whose readings of this UTC day wait for a bucket that tells them.

    Once known it stays true for days from before raw_from: nothing new is told of them.
    """
    rows = await db.fetch_all(
        tx,
        "select tenant_id, device_id, metric_type from fn_telemetry_held(%s, %s)",
        day,
        day + timedelta(days=1),
    )
    found: dict[str, list[Held]] = defaultdict(list)
    for tenant_id, device_id, metric_type in rows:
        found[tenant_id].append((device_id, metric_type))
    return found


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
    held: Sequence[Held],
    after: tuple[datetime, UUID],
    most: int,
) -> Portion:
    """Go through the next readings of this time and delete those the cloud has (C-42).

    Those of the `held` series stay.
    """
    cursor = await tx.execute(
        """
        with portion as (
          select r.id, r.occurred_at, not exists (select from sync_outbox o where o.id = r.id
            and o.status in ('pending', 'claimed', 'sending', 'dlq'))
            and (r.device_id, r.metric_type) not in (
              select * from unnest(%(devices)s::text[], %(metrics)s::text[])) as synced
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
            "devices": [device_id for device_id, _ in held],
            "metrics": [metric_type for _, metric_type in held],
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
          select r.id, r.occurred_at, r.ingested_at, r.tenant_id, r.device_id, r.metric_type,
            date_trunc('day', r.occurred_at, 'UTC') as day
          from telemetry_raw_default r
          where r.ingested_at < %(before)s
            and r.ingested_at >= %(after_at)s
            and (r.ingested_at, r.id) > (%(after_at)s, %(after_id)s)
          order by r.ingested_at, r.id limit %(most)s
        ), held as materialized (
          select h.* from (select distinct day from portion) d
            cross join lateral fn_telemetry_held(d.day, d.day + interval '1 day') h
        ), gone as (
          delete from telemetry_raw_default r using portion
          where r.id = portion.id and r.occurred_at = portion.occurred_at
            and not exists (select from sync_outbox o where o.id = portion.id
              and o.status in ('pending', 'claimed', 'sending', 'dlq'))
            and not exists (select from held h where h.tenant_id = portion.tenant_id
              and h.device_id = portion.device_id and h.metric_type = portion.metric_type
              and h.day = portion.day)
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
