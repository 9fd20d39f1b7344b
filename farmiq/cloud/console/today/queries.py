"""SQL of Today, with the rights of the person (row level security), in few statements."""

from dataclasses import dataclass
from datetime import date, datetime

from farmiq.cloud.console.today.pipeline import Arrived
from farmiq.cloud.console.today.reasons import Edge, Episode
from farmiq.plumbing import db

# More open alerts are not looked at: the page shows seven.
MAX_EPISODES = 500
# Of weights: today and the week before it.
WEIGHT_DAYS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredBarn:
    """A registered barn with the batch that is in it, and the batch's figures of the last days."""

    farm_id: str
    barn_id: str
    name: str
    farm_name: str
    today: date
    batch_id: str | None
    age_days: int | None
    head_count: float | None
    weight_dates: list[date]
    weights_kg: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an installation has come."""

    has_farm: bool
    has_barn: bool
    has_edge: bool
    heard_at: datetime | None
    has_device: bool
    has_reading: bool


async def episodes(connection: db.Connection) -> list[Episode]:
    """Open alerts that people would be told of, the newest; those held by another cause are not.

    Episodes of severity `info` are on the page of alerts only.
    """
    return await db.fetch_as(
        connection,
        Episode,
        """
        select e.episode_id, e.cause, e.severity, e.signal, e.is_absence, e.message, e.farm_id,
          e.barn_id, e.device_id, e.edge_cluster_id, e.batch_id, e.opened_at, e.last_at,
          e.last_value, e.state = 'acknowledged' as is_acknowledged,
          coalesce(s.site_id, d.site_id) as site_id
        from alert_episodes e
          left join devices d on 'camera:' || d.device_id = e.subject
          left join sites s on 'site:' || s.site_id = e.subject
        where e.tenant_id = (select get_active_tenant_id())
          and e.state in ('active', 'acknowledged') and e.severity <> 'info' and e.held_by is null
        order by e.opened_at desc limit %s
        """,
        (MAX_EPISODES,),
    )


async def edges(connection: db.Connection) -> list[Edge]:
    """Edges with a key that is valid, and what each last said of itself."""
    return await db.fetch_as(
        connection,
        Edge,
        """
        select k.edge_cluster_id, h.received_at, h.waiting, h.oldest_s,
          greatest(h.dlq, h.dead_letters) as dead_letters, h.quarantine, h.farms
        from (
          select distinct tenant_id, edge_cluster_id from edge_keys
          where revoked_at is null and replaced_by is null) k
          left join edge_heartbeats h
            on h.tenant_id = k.tenant_id and h.edge_cluster_id = k.edge_cluster_id
        order by k.edge_cluster_id
        """,
    )


async def barns(connection: db.Connection) -> list[RegisteredBarn]:
    return await db.fetch_as(
        connection,
        RegisteredBarn,
        """
        select b.farm_id, b.barn_id, b.name, f.name as farm_name, t.today, c.batch_id, c.age_days,
          k.head_count, coalesce(k.weight_dates, '{}') as weight_dates,
          coalesce(k.weights_kg, '{}') as weights_kg
        from barns b
          join farms f on f.tenant_id = b.tenant_id and f.farm_id = b.farm_id
          cross join lateral (select fn_local_date(f.timezone, fn_now()) as today) t
          left join lateral (
            select c.batch_id, c.age_at_placing_days + (t.today - c.placed_on) as age_days
            from batches c
            where c.tenant_id = b.tenant_id and c.farm_id = b.farm_id and c.barn_id = b.barn_id
              and c.placed_on <= t.today and coalesce(c.closed_on, t.today) >= t.today
            order by c.placed_on desc limit 1) c on true
          left join lateral (
            select
              (array_agg(k.value order by k.kpi_date desc)
                filter (where k.kpi_type = 'head_count'))[1] as head_count,
              array_agg(k.kpi_date order by k.kpi_date)
                filter (where k.kpi_type = 'weight_mean') as weight_dates,
              array_agg(k.value order by k.kpi_date)
                filter (where k.kpi_type = 'weight_mean') as weights_kg
            from kpi_daily k
            where k.tenant_id = b.tenant_id and k.batch_id = c.batch_id
              and k.kpi_date > t.today - %s and k.kpi_date <= t.today
              and k.kpi_type in ('head_count', 'weight_mean') and k.value is not null) k on true
        order by f.name, b.name, b.farm_id, b.barn_id
        """,
        (WEIGHT_DAYS,),
    )


async def arrived(connection: db.Connection) -> Arrived:
    rows = await db.fetch_as(
        connection,
        Arrived,
        """
        select e.events, d.dead_letters, d.oldest_dead_letter_at
        from (select coalesce(sum(events), 0)::bigint as events from edge_hours
            where hour > fn_now() - interval '24 hours') e,
          (select coalesce(sum(count), 0)::bigint as dead_letters,
            min(oldest_at) as oldest_dead_letter_at from dead_letter_groups) d
        """,
    )
    return rows[0]


async def progress(connection: db.Connection) -> Progress:
    """How far the first steps were done, by what is there."""
    rows = await db.fetch_as(
        connection,
        Progress,
        """
        select exists (select from farms) as has_farm, exists (select from barns) as has_barn,
          exists (select from edge_keys where revoked_at is null) as has_edge,
          (select max(received_at) from edge_heartbeats) as heard_at,
          exists (select from device_events) or exists (select from devices) as has_device,
          exists (select from telemetry_latest) or exists (select from weighvision_events)
            or exists (select from device_images) as has_reading
        """,
    )
    return rows[0]
