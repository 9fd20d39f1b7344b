"""SQL of the rollups: minutes from readings, hours from minutes, local days from hours.

What recomputes is not prepared: a plan made while a month is empty is wrong when it is full.
One transaction at a time recomputes: a bucket that was read early must not be written late.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from farmiq.edge.telemetry import rules
from farmiq.edge.telemetry.rules import DirtyRange, LocalDay, Series, Window
from farmiq.plumbing import db

Bucket = tuple[Series, datetime, str]  # where it starts, and its farm


async def try_lock(tx: db.Connection) -> bool:
    """Be the one who recomputes until this transaction ends; False if somebody is already."""
    locked: bool = await db.fetch_value(
        tx, "select pg_try_advisory_xact_lock(hashtextextended('edge-telemetry-timeseries', 0))"
    )
    return locked


async def lock(tx: db.Connection) -> None:
    """As `try_lock`, but wait; raises psycopg.OperationalError after ten seconds."""
    await tx.execute("set local lock_timeout = '10s'")
    await tx.execute(
        "select pg_advisory_xact_lock(hashtextextended('edge-telemetry-timeseries', 0))"
    )


_INSERT = """
insert into telemetry_agg as a (id, tenant_id, farm_id, barn_id, device_id, "window",
  bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
  sum_value, count, owed, last_at)
"""
_ON_CONFLICT = """
on conflict on constraint telemetry_agg_bucket_key do update set
  farm_id = excluded.farm_id, barn_id = excluded.barn_id, unit = excluded.unit,
  bucket_end_at = excluded.bucket_end_at,
  avg_value = excluded.avg_value, min_value = excluded.min_value,
  max_value = excluded.max_value, sum_value = excluded.sum_value,
  count = excluded.count, owed = a.owed or excluded.owed, last_at = excluded.last_at
where (a.count, a.sum_value, a.min_value, a.max_value, a.farm_id, a.barn_id, a.unit,
      a.bucket_end_at, a.last_at)
    is distinct from (excluded.count, excluded.sum_value, excluded.min_value,
      excluded.max_value, excluded.farm_id, excluded.barn_id, excluded.unit,
      excluded.bucket_end_at, excluded.last_at)
  or (excluded.owed and not a.owed and a.told_count <> excluded.count)
returning tenant_id, device_id, metric_type, bucket_start_at, farm_id
"""
# Of the parts `p` of a longer bucket. The newest part says where the device is.
_SUM = """
(array_agg(array[p.farm_id, p.barn_id, p.unit] order by p.bucket_start_at desc))[1:1] as newest,
min(p.min_value) as min_value, max(p.max_value) as max_value,
sum(p.sum_value) as sum_value, sum(p.count)::bigint as count
"""

_MINUTES = f"""
{_INSERT}
select fn_uuid_v7(), k.tenant_id, m.newest[1][1], m.newest[1][2], k.device_id, '1m',
  m.starts_at, m.starts_at + interval '1 minute', k.metric_type, m.newest[1][3],
  fn_mean(n.sum_value, n.count), least(m.min_value, b.min_value),
  greatest(m.max_value, b.max_value), n.sum_value, n.count,
  k.owed and coalesce(s.agg_window, '1m') = '1m', m.last_at
from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s::bool[])
    as k(tenant_id, device_id, metric_type, first_at, last_at, owed)
  left join metric_settings s on s.metric_type = k.metric_type
  cross join lateral (
    select date_bin('1 minute', k.first_at, 'epoch') as first_minute) f
  cross join lateral (
    select coalesce(bool_and(h.last_at < k.first_at), false) as only_later,
      greatest(k.last_at, max(h.last_at)) as last_at
    from (
      -- Buckets of an earlier version contain all of their minute.
      select coalesce(a.last_at, a.bucket_end_at - interval '1 microsecond') as last_at
      from telemetry_agg a
      where a.tenant_id = k.tenant_id and a.device_id = k.device_id
        and a.metric_type = k.metric_type and a."window" = '1m'
        and a.bucket_start_at >= f.first_minute and a.bucket_start_at <= k.last_at) h) counted
  cross join lateral (
    select date_bin('1 minute', r.occurred_at, 'epoch') as starts_at,
      (array_agg(array[r.farm_id, r.barn_id, r.unit]
        order by r.occurred_at desc, r.id desc))[1:1] as newest,
      max(r.occurred_at) as last_at,
      min(r.metric_value) as min_value, max(r.metric_value) as max_value,
      -- Through text: a direct cast would keep 15 digits only.
      sum(r.metric_value::text::numeric) as sum_value, count(*) as count
    from telemetry_raw r
    where r.tenant_id = k.tenant_id and r.device_id = k.device_id
      and r.metric_type = k.metric_type
      and r.occurred_at >= case when counted.only_later then k.first_at else f.first_minute end
      and r.occurred_at <= counted.last_at
      and r.occurred_at <= r.ingested_at + interval '24 hours'
    group by 1) m
  left join telemetry_agg b on counted.only_later and b.tenant_id = k.tenant_id
    and b.device_id = k.device_id and b.metric_type = k.metric_type
    and b."window" = '1m' and b.bucket_start_at = m.starts_at
  cross join lateral (
    select m.sum_value + coalesce(b.sum_value, 0) as sum_value,
      m.count + coalesce(b.count, 0) as count) n
{_ON_CONFLICT}
"""  # noqa: S608 - constants of this file, as below


async def recompute_minutes(tx: db.Connection, ranges: Sequence[DirtyRange]) -> int:
    """Recompute minutes from their readings; returns how many have changed.

    If all new readings are later than `last_at`, the newest that a minute has counted, they are
    added to the minute. Otherwise all readings of the minute are counted again. Readings later than
    the marks are left for their own mark: they stay later than `last_at` until it is handled.
    A reading from the future (more than a day ahead of its arrival) is in no bucket.
    """
    cursor = await tx.execute(
        _MINUTES.encode(),
        (
            *rules.series_columns(ranges),
            [dirty.first_at for dirty in ranges],
            [dirty.last_at for dirty in ranges],
            [dirty.pending for dirty in ranges],
        ),
        prepare=False,
    )
    return cursor.rowcount


async def farms_of_hours(
    tx: db.Connection, ranges: Sequence[DirtyRange]
) -> dict[tuple[Series, datetime], str]:
    """The farm of each of these hours as it is stored."""
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
        *rules.series_columns(ranges),
        [dirty.hour_at for dirty in ranges],
    )
    return {((row[0], row[1], row[2]), row[3]): row[4] for row in rows}


_HOURS = f"""
{_INSERT}
select fn_uuid_v7(), k.tenant_id, h.newest[1][1], h.newest[1][2], k.device_id, '1h',
  k.starts_at, k.starts_at + interval '1 hour', k.metric_type, h.newest[1][3],
  fn_mean(h.sum_value, h.count), h.min_value, h.max_value, h.sum_value, h.count,
  k.owed and coalesce(s.agg_window = '1h', false), null
from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::bool[])
    as k(tenant_id, device_id, metric_type, starts_at, owed)
  left join metric_settings s on s.metric_type = k.metric_type
  cross join lateral (
    select {_SUM}
    from telemetry_agg p
    where p.tenant_id = k.tenant_id and p.device_id = k.device_id
      and p.metric_type = k.metric_type and p."window" = '1m'
      and p.bucket_start_at >= k.starts_at
      and p.bucket_start_at < k.starts_at + interval '1 hour'
    having count(*) > 0) h
{_ON_CONFLICT}
"""  # noqa: S608


async def recompute_hours(tx: db.Connection, ranges: Sequence[DirtyRange]) -> list[Bucket]:
    """Recompute hours from their minutes; returns those that have changed."""
    cursor = await tx.execute(
        _HOURS.encode(),
        (
            *rules.series_columns(ranges),
            [dirty.hour_at for dirty in ranges],
            [dirty.pending for dirty in ranges],
        ),
        prepare=False,
    )
    return [((row[0], row[1], row[2]), row[3], row[4]) for row in await cursor.fetchall()]


_DAYS = f"""
{_INSERT}
select fn_uuid_v7(), k.tenant_id, d.newest[1][1], d.newest[1][2], k.device_id, '1d',
  k.starts_at, k.ends_at, k.metric_type, d.newest[1][3],
  fn_mean(d.sum_value, d.count), d.min_value, d.max_value, d.sum_value, d.count,
  k.owed and coalesce(s.agg_window = '1d', false), null
from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[],
      %s::timestamptz[], %s::timestamptz[], %s::text[], %s::bool[])
    as k(tenant_id, device_id, metric_type, starts_at, ends_at, hours_from, hours_to, zones, owed)
  left join metric_settings s on s.metric_type = k.metric_type
  cross join lateral (
    select {_SUM}
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
{_ON_CONFLICT}
"""  # noqa: S608


async def recompute_days(
    tx: db.Connection, days: Sequence[LocalDay], *, pending: set[Series], default_zone: str
) -> int:
    """Recompute local days from the hours of farms in their zone; returns how many changed.

    Where a day does not start on a full UTC hour, the minutes of that hour are taken.
    """
    inner = [rules.whole_hours(day) for day in days]
    cursor = await tx.execute(
        _DAYS.encode(),
        (
            *rules.series_columns(days),
            [day.starts_at for day in days],
            [day.ends_at for day in days],
            [first for first, _ in inner],
            [last for _, last in inner],
            [",".join(day.zones) for day in days],
            [(day.tenant_id, day.device_id, day.metric_type) in pending for day in days],
            default_zone,
        ),
        prepare=False,
    )
    return cursor.rowcount


async def update_latest(tx: db.Connection, ranges: Sequence[DirtyRange]) -> int:
    """Follow the newest reading of each series; returns for how many it has changed."""
    cursor = await tx.execute(
        """
        update telemetry_latest l set farm_id = n.farm_id, barn_id = n.barn_id, event_id = n.id,
          metric_value = n.metric_value, unit = n.unit, occurred_at = n.occurred_at,
          ingested_at = n.ingested_at, clock_suspect = n.clock_suspect
        from (
          select distinct on (r.tenant_id, r.device_id, r.metric_type) r.*
          from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[])
              as k(tenant_id, device_id, metric_type, first_at, last_at)
            join telemetry_latest known on known.tenant_id = k.tenant_id
              and known.device_id = k.device_id and known.metric_type = k.metric_type
              and (known.clock_suspect or k.last_at >= known.newest_at)
            cross join lateral (
              select r.*,
                case when r.clock_suspect then r.ingested_at
                  else least(r.occurred_at, r.ingested_at) end as newest_at
              from telemetry_raw r
              where r.tenant_id = k.tenant_id and r.device_id = k.device_id
                and r.metric_type = k.metric_type
                and r.occurred_at >= k.first_at and r.occurred_at <= k.last_at
              order by r.clock_suspect, newest_at desc, r.id desc limit 1) r
          order by r.tenant_id, r.device_id, r.metric_type, r.clock_suspect, r.newest_at desc,
            r.id desc) n
        where l.tenant_id = n.tenant_id and l.device_id = n.device_id
          and l.metric_type = n.metric_type
          and (not n.clock_suspect, n.newest_at, n.id)
            > (not l.clock_suspect, l.newest_at, l.event_id)
        """,
        (
            *rules.series_columns(ranges),
            [dirty.first_at for dirty in ranges],
            [dirty.last_at for dirty in ranges],
        ),
        prepare=False,
    )
    return cursor.rowcount


# Buckets that the cloud waits for, of metrics that are synced as aggregates


@dataclass(frozen=True, slots=True)
class PendingBucket:
    """A bucket that the cloud waits for. `is_closed`: nothing is expected to change it."""

    id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    window: Window
    bucket_start_at: datetime
    bucket_end_at: datetime
    metric_type: str
    unit: str
    avg_value: float
    min_value: float
    max_value: float
    count: int
    is_closed: bool


async def pending_buckets(tx: db.Connection, *, settle_s: float, limit: int) -> list[PendingBucket]:
    """Buckets that ended `settle_s` ago and are not sent yet, oldest first.

    The first bucket of a series, or the first after a gap, is also sent once while it is open:
    until its end the cloud would think that the sensor is silent.
    """
    async with tx.cursor(row_factory=class_row(PendingBucket)) as cursor:
        await cursor.execute(
            """
            select id, tenant_id, farm_id, barn_id, device_id, "window", bucket_start_at,
              bucket_end_at, metric_type, unit, avg_value, min_value, max_value, count, is_closed
            from telemetry_agg a
              cross join lateral (select a.bucket_end_at
                <= (select fn_now()) - make_interval(secs => %s) as is_closed) c
            where owed and (is_closed or told_count = 0 and not exists (
                select from telemetry_agg b
                where b.tenant_id = a.tenant_id and b.device_id = a.device_id
                  and b.metric_type = a.metric_type and b."window" = a."window"
                  and b.bucket_start_at < a.bucket_start_at
                  and b.bucket_start_at >= a.bucket_start_at - interval '25 hours'
                  and b.bucket_end_at >= a.bucket_start_at
                  and (b.owed or b.told_count > 0)))
            order by bucket_end_at limit %s
            """,
            (settle_s, limit),
        )
        return await cursor.fetchall()


async def note_sent(tx: db.Connection, buckets: Sequence[PendingBucket]) -> None:
    """A bucket that was sent while it is open is still pending."""
    await tx.execute(
        """
        update telemetry_agg a set owed = not k.is_closed, told_count = count
        from unnest(%s::uuid[], %s::boolean[]) as k(id, is_closed) where a.id = k.id
        """,
        ([bucket.id for bucket in buckets], [bucket.is_closed for bucket in buckets]),
    )


PendingDay = tuple[Series, datetime, datetime]


async def delete_days(tx: db.Connection, days: Sequence[LocalDay]) -> list[PendingDay]:
    """Before they are recomputed without what has left them for another zone.

    Returns those that the cloud waits for.
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
        (*rules.series_columns(days), [day.starts_at for day in days]),
    )
    return _pending_days(await cursor.fetchall())


async def delete_all_days(tx: db.Connection, series: Series) -> list[PendingDay]:
    """Returns those that the cloud waits for."""
    cursor = await tx.execute(
        "delete from telemetry_agg where tenant_id = %s and device_id = %s and metric_type = %s "
        "and \"window\" = '1d' returning tenant_id, device_id, metric_type, bucket_start_at, "
        "bucket_end_at, owed",
        series,
    )
    return _pending_days(await cursor.fetchall())


def _pending_days(rows: Iterable[tuple[Any, ...]]) -> list[PendingDay]:
    return [((row[0], row[1], row[2]), row[3], row[4]) for row in rows if row[5]]


async def set_pending(tx: db.Connection, deleted: Sequence[PendingDay]) -> None:
    """Days that now contain what the cloud waited for in deleted ones are pending instead."""
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
            [series[0] for series, _, _ in deleted],
            [series[1] for series, _, _ in deleted],
            [series[2] for series, _, _ in deleted],
            [starts_at for _, starts_at, _ in deleted],
            [ends_at for _, _, ends_at in deleted],
        ),
    )


# Time zones of farms, and series whose days have to be recomputed in another one


async def farm_zones(tx: db.Connection) -> dict[tuple[str, str], str]:
    rows = await db.fetch_all(tx, "select tenant_id, farm_id, timezone from farms")
    return {(tenant_id, farm_id): timezone for tenant_id, farm_id, timezone in rows}


async def default_zone(tx: db.Connection) -> str | None:
    """The zone in which the days of farms without one were computed so far."""
    zone: str | None = await db.fetch_value(tx, "select fallback_timezone from telemetry_state")
    return zone


async def change_default_zone(tx: db.Connection, zone: str) -> None:
    """The days of every series have to be recomputed."""
    await tx.execute("update telemetry_state set fallback_timezone = %s", (zone,))
    await tx.execute(
        "insert into telemetry_rezoned select tenant_id, device_id, metric_type "
        "from telemetry_latest on conflict do nothing"
    )


async def next_rezoned(tx: db.Connection) -> Series | None:
    rows = await db.fetch_all(
        tx, "select tenant_id, device_id, metric_type from telemetry_rezoned limit 1"
    )
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


async def delete_rezoned(tx: db.Connection, series: Series) -> None:
    await tx.execute(
        "delete from telemetry_rezoned "
        "where tenant_id = %s and device_id = %s and metric_type = %s",
        series,
    )


async def hours_of(tx: db.Connection, series: Series) -> list[tuple[datetime, str]]:
    """(hour, farm) of all stored hours of a series."""
    rows = await db.fetch_all(
        tx,
        "select bucket_start_at, farm_id from telemetry_agg where tenant_id = %s "
        "and device_id = %s and metric_type = %s and \"window\" = '1h'",
        *series,
    )
    return [(at, farm_id) for at, farm_id in rows]
