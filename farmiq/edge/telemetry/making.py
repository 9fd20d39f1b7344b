"""The SQL that makes buckets: minutes from readings, hours from minutes, local days from hours.

Nothing here is prepared: a plan made while a month is empty is wrong when it is full.
"""

from collections.abc import Sequence
from datetime import datetime

from farmiq.edge.telemetry import buckets
from farmiq.edge.telemetry.buckets import Day, Series, Span
from farmiq.plumbing import db


async def remake_minutes(tx: db.Connection, touched: Sequence[Span]) -> int:
    """Make the minutes from the readings; returns how many have changed.

    Where all new readings are later than `last_at`, the newest that the minutes hold, they are
    added to what is there. Otherwise the minutes are made from all their readings. Neither looks
    beyond what was marked: what has come since has a mark of its own, and stays later than
    `last_at`. A reading from the future (more than a day ahead of its arrival) is in no bucket.
    """
    cursor = await tx.execute(
        """
        insert into telemetry_agg as a (id, tenant_id, farm_id, barn_id, device_id, "window",
          bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
          sum_value, count, owed, last_at)
        select fn_uuid_v7(), k.tenant_id, m.newest[1][1], m.newest[1][2], k.device_id, '1m',
          m.starts_at, m.starts_at + interval '1 minute', k.metric_type, m.newest[1][3],
          fn_mean(n.sum_value, n.count), least(m.min_value, b.min_value),
          greatest(m.max_value, b.max_value), n.sum_value, n.count,
          k.owed and coalesce(s.agg_window, '1m') = '1m', m.last_at
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[],
              %s::bool[])
            as k(tenant_id, device_id, metric_type, first_at, last_at, owed)
          left join metric_settings s on s.metric_type = k.metric_type
          cross join lateral (
            select date_bin('1 minute', k.first_at, 'epoch') as first_minute) f
          cross join lateral (
            select coalesce(bool_and(h.last_at < k.first_at), false) as only_later,
              greatest(k.last_at, max(h.last_at)) as last_at
            from (
              -- Buckets that an earlier version made hold all of their minute.
              select coalesce(a.last_at, a.bucket_end_at - interval '1 microsecond') as last_at
              from telemetry_agg a
              where a.tenant_id = k.tenant_id and a.device_id = k.device_id
                and a.metric_type = k.metric_type and a."window" = '1m'
                and a.bucket_start_at >= f.first_minute and a.bucket_start_at <= k.last_at) h) held
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
              and r.occurred_at >= case when held.only_later then k.first_at
                else f.first_minute end
              and r.occurred_at <= held.last_at
              and r.occurred_at <= r.ingested_at + interval '24 hours'
            group by 1) m
          left join telemetry_agg b on held.only_later and b.tenant_id = k.tenant_id
            and b.device_id = k.device_id and b.metric_type = k.metric_type
            and b."window" = '1m' and b.bucket_start_at = m.starts_at
          cross join lateral (
            select m.sum_value + coalesce(b.sum_value, 0) as sum_value,
              m.count + coalesce(b.count, 0) as count) n
        on conflict on constraint telemetry_agg_bucket_key do update set
          farm_id = excluded.farm_id, barn_id = excluded.barn_id, unit = excluded.unit,
          avg_value = excluded.avg_value, min_value = excluded.min_value,
          max_value = excluded.max_value, sum_value = excluded.sum_value,
          count = excluded.count, owed = a.owed or excluded.owed, last_at = excluded.last_at
        where (a.count, a.sum_value, a.min_value, a.max_value, a.farm_id, a.barn_id, a.unit)
            is distinct from (excluded.count, excluded.sum_value, excluded.min_value,
              excluded.max_value, excluded.farm_id, excluded.barn_id, excluded.unit)
          or a.last_at is distinct from excluded.last_at
          or (excluded.owed and not a.owed and a.told_count <> excluded.count)
        """,
        (
            *buckets.columns(touched),
            [span.first_at for span in touched],
            [span.last_at for span in touched],
            [span.owed for span in touched],
        ),
        prepare=False,
    )
    return cursor.rowcount


async def farms_of_hours(
    tx: db.Connection, touched: Sequence[Span]
) -> dict[tuple[Series, datetime], str]:
    """The farm in which each of these hours stands now."""
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
        *buckets.columns(touched),
        [span.hour_at for span in touched],
    )
    return {((row[0], row[1], row[2]), row[3]): row[4] for row in rows}


async def remake_hours(
    tx: db.Connection, touched: Sequence[Span]
) -> list[tuple[Series, datetime, str]]:
    """Make the hours from their minutes; returns (series, hour, farm) of those that changed."""
    cursor = await tx.execute(
        """
        insert into telemetry_agg as a (id, tenant_id, farm_id, barn_id, device_id, "window",
          bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
          sum_value, count, owed)
        select fn_uuid_v7(), k.tenant_id, h.farm_id, h.barn_id, k.device_id, '1h',
          k.starts_at, k.starts_at + interval '1 hour', k.metric_type, h.unit,
          fn_mean(h.sum_value, h.count), h.min_value, h.max_value, h.sum_value, h.count,
          k.owed and coalesce(s.agg_window = '1h', false)
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::bool[])
            as k(tenant_id, device_id, metric_type, starts_at, owed)
          left join metric_settings s on s.metric_type = k.metric_type
          cross join lateral (
            select (array_agg(m.farm_id order by m.bucket_start_at desc))[1] as farm_id,
              (array_agg(m.barn_id order by m.bucket_start_at desc))[1] as barn_id,
              (array_agg(m.unit order by m.bucket_start_at desc))[1] as unit,
              min(m.min_value) as min_value, max(m.max_value) as max_value,
              sum(m.sum_value) as sum_value, sum(m.count)::bigint as count
            from telemetry_agg m
            where m.tenant_id = k.tenant_id and m.device_id = k.device_id
              and m.metric_type = k.metric_type and m."window" = '1m'
              and m.bucket_start_at >= k.starts_at
              and m.bucket_start_at < k.starts_at + interval '1 hour'
            having count(*) > 0) h
        on conflict on constraint telemetry_agg_bucket_key do update set
          farm_id = excluded.farm_id, barn_id = excluded.barn_id, unit = excluded.unit,
          avg_value = excluded.avg_value, min_value = excluded.min_value,
          max_value = excluded.max_value, sum_value = excluded.sum_value,
          count = excluded.count, owed = a.owed or excluded.owed
        where (a.count, a.sum_value, a.min_value, a.max_value, a.farm_id, a.barn_id, a.unit)
            is distinct from (excluded.count, excluded.sum_value, excluded.min_value,
              excluded.max_value, excluded.farm_id, excluded.barn_id, excluded.unit)
          or (excluded.owed and not a.owed and a.told_count <> excluded.count)
        returning tenant_id, device_id, metric_type, bucket_start_at, farm_id
        """,
        (
            *buckets.columns(touched),
            [span.hour_at for span in touched],
            [span.owed for span in touched],
        ),
        prepare=False,
    )
    return [((row[0], row[1], row[2]), row[3], row[4]) for row in await cursor.fetchall()]


async def remake_days(
    tx: db.Connection, days: Sequence[Day], *, owed: set[Series], fallback: str
) -> int:
    """Make local days from the hours of farms in their zone; returns how many have changed.

    Where a day does not begin on a full UTC hour, that hour's minutes are taken.
    """
    inner = [buckets.whole_hours(day) for day in days]
    cursor = await tx.execute(
        """
        insert into telemetry_agg as a (id, tenant_id, farm_id, barn_id, device_id, "window",
          bucket_start_at, bucket_end_at, metric_type, unit, avg_value, min_value, max_value,
          sum_value, count, owed)
        select fn_uuid_v7(), k.tenant_id, d.farm_id, d.barn_id, k.device_id, '1d',
          k.starts_at, k.ends_at, k.metric_type, d.unit,
          fn_mean(d.sum_value, d.count), d.min_value, d.max_value, d.sum_value, d.count,
          k.owed and coalesce(s.agg_window = '1d', false)
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[], %s::timestamptz[],
              %s::timestamptz[], %s::timestamptz[], %s::text[], %s::bool[])
            as k(tenant_id, device_id, metric_type, starts_at, ends_at, hours_from, hours_to,
              zones, owed)
          left join metric_settings s on s.metric_type = k.metric_type
          cross join lateral (
            select (array_agg(p.farm_id order by p.bucket_start_at desc))[1] as farm_id,
              (array_agg(p.barn_id order by p.bucket_start_at desc))[1] as barn_id,
              (array_agg(p.unit order by p.bucket_start_at desc))[1] as unit,
              min(p.min_value) as min_value, max(p.max_value) as max_value,
              sum(p.sum_value) as sum_value, sum(p.count)::bigint as count
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
        on conflict on constraint telemetry_agg_bucket_key do update set
          farm_id = excluded.farm_id, barn_id = excluded.barn_id, unit = excluded.unit,
          bucket_end_at = excluded.bucket_end_at,
          avg_value = excluded.avg_value, min_value = excluded.min_value,
          max_value = excluded.max_value, sum_value = excluded.sum_value,
          count = excluded.count, owed = a.owed or excluded.owed
        where (a.count, a.sum_value, a.min_value, a.max_value, a.farm_id, a.barn_id, a.unit,
              a.bucket_end_at)
            is distinct from (excluded.count, excluded.sum_value, excluded.min_value,
              excluded.max_value, excluded.farm_id, excluded.barn_id, excluded.unit,
              excluded.bucket_end_at)
          or (excluded.owed and not a.owed and a.told_count <> excluded.count)
        """,
        (
            *buckets.columns(days),
            [day.starts_at for day in days],
            [day.ends_at for day in days],
            [first for first, _ in inner],
            [last for _, last in inner],
            [",".join(day.zones) for day in days],
            [(day.tenant_id, day.device_id, day.metric_type) in owed for day in days],
            fallback,
        ),
        prepare=False,
    )
    return cursor.rowcount


async def renew_latest(tx: db.Connection, touched: Sequence[Span]) -> int:
    """Take over what is newer than the newest known; returns for how many series."""
    cursor = await tx.execute(
        """
        update telemetry_latest l set farm_id = n.farm_id, barn_id = n.barn_id, event_id = n.id,
          metric_value = n.metric_value, unit = n.unit, occurred_at = n.occurred_at,
          ingested_at = n.ingested_at, clock_suspect = n.clock_suspect
        from (
          select distinct on (r.tenant_id, r.device_id, r.metric_type) r.*
          from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[],
                %s::timestamptz[])
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
            *buckets.columns(touched),
            [span.first_at for span in touched],
            [span.last_at for span in touched],
        ),
        prepare=False,
    )
    return cursor.rowcount
