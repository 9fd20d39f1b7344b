"""SQL of what jobs look at by the clock: silent devices, edges, feed, cameras, dead letters."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from farmiq.cloud.alerts.evaluating.ruleset import TELEMETRY, Series
from farmiq.cloud.episodes import Ending, NewEpisode
from farmiq.farm.alerts.rules import in_rule_unit
from farmiq.messages import weighvision
from farmiq.messages.alerts import EndReason
from farmiq.plumbing import db

# An absence is looked for among series that were heard within so long: others were taken away.
MAX_SILENT_DAYS = 7
# What a device has open ends when nothing of it came for so long.
MAX_OPEN_DAYS = 30
# Weigh sessions that lack a part for longer will not get it: nobody is called about them.
MAX_LACKING_DAYS = 7
# Alerts of cameras that somebody should know of, but not now.
MINOR_CAMERA_ALERTS = ("unassigned_device", "counters_differ")


SILENT_SERIES = """
    with clock as materialized (select fn_now() as now)
    select l.tenant_id, l.metric_type, l.farm_id, l.barn_id, l.device_id, l.occurred_at,
      l.metric_value, l.unit
    from unnest(%s::text[], %s::text[], %s::bigint[]) as m(tenant_id, metric_type, seconds)
      cross join clock
      join telemetry_latest l on l.tenant_id = m.tenant_id and l.metric_type = m.metric_type
        and l.occurred_at < clock.now - m.seconds * interval '1 second'
        and l.stored_at < clock.now - m.seconds * interval '1 second'
        and l.occurred_at > clock.now - make_interval(days => %s)
    where not l.clock_suspect and not exists (
      select from device_events d
      where d.tenant_id = l.tenant_id and d.device_id = l.device_id and d.payload ? 'revoked'
      having (array_agg((d.payload -> 'revoked')::boolean order by d.occurred_at desc))[1]
        and max(d.occurred_at) >= l.occurred_at)
"""
CAMERA_ALERTS_OVER = """
    select e.tenant_id, e.cause, coalesce(a.resolved_at, fn_now()),
      case when a.alert_id is not null and a.resolved_at is null then 'camera' end
    from alert_episodes e
      join companies c on c.tenant_id = e.tenant_id
      -- One that is not resolved comes first.
      left join lateral (
        select d.alert_id, d.device_id, d.resolved_at from device_alerts d
        where d.company_id = c.company_id
          and coalesce(d.device_id, d.site_id) = split_part(e.cause, '|', 2)::uuid
          and d.alert_type = substr(split_part(e.cause, '|', 1), length('camera:') + 1)
        order by d.resolved_at desc limit 1) a on true
    where e.source = 'camera' and e.state in ('active', 'acknowledged')
      and (a.alert_id is null or a.resolved_at is not null or exists (
        select from devices d where d.device_id = a.device_id and not d.is_active))
"""


async def silent_series(
    tx: db.Connection, shortest: Mapping[tuple[str, str], int], *, days: int
) -> list[tuple[Series, datetime, float]]:
    """Series of telemetry with their newest value, of which nothing came for so many seconds.

    `shortest` is by tenant and metric. Nothing came at all, not even from before: what an edge
    still sends is no silence.
    """
    rows = await db.fetch_all(
        tx,
        SILENT_SERIES,
        [tenant_id for tenant_id, _ in shortest],
        [metric for _, metric in shortest],
        [*shortest.values()],
        days,
    )
    return [
        (
            Series(row[0], TELEMETRY + row[1], f"{row[2]}/{row[3]}/{row[4]}"),
            row[5],
            in_rule_unit(row[1], row[6], row[7]),
        )
        for row in rows
    ]


async def gone_devices(tx: db.Connection, series: Collection[Series]) -> dict[Series, EndReason]:
    """Of these series of telemetry those whose device was moved, revoked or is silent for long."""
    if not series:
        return {}
    places = [key.place for key in series]
    rows = await db.fetch_all(
        tx,
        """
        select k.tenant_id, k.signal, k.subject, case
          when (l.farm_id, l.barn_id) <> (k.farm_id, k.barn_id) then 'moved'
          when d.revoked and d.occurred_at >= l.occurred_at then 'revoked'
          when l.occurred_at < fn_now() - make_interval(days => %s) then 'long' end
        from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
            as k(tenant_id, signal, subject, farm_id, barn_id, device_id)
          join telemetry_latest l on l.tenant_id = k.tenant_id and l.device_id = k.device_id
            and l.metric_type = substr(k.signal, 11)
          left join lateral (
            select e.occurred_at, (e.payload -> 'revoked')::boolean as revoked
            from device_events e
            where e.tenant_id = k.tenant_id and e.device_id = k.device_id
              and e.payload ? 'revoked'
            order by e.occurred_at desc limit 1) d on true
        """,
        MAX_OPEN_DAYS,
        *db.columns(series, "tenant_id", "signal", "subject"),
        [place[0] for place in places],
        [place[1] for place in places],
        [place[2] for place in places],
    )
    return {Series(*row[:3]): row[3] for row in rows if row[3] is not None}


async def live_cameras(tx: db.Connection) -> set[tuple[str, str]]:
    """(tenant, subject) of cameras that are switched on, and of sites that have some."""
    rows = await db.fetch_all(
        tx,
        """
        select c.tenant_id, 'camera:' || d.device_id from devices d
          join companies c on c.company_id = d.company_id where d.is_active
        union
        select c.tenant_id, 'site:' || s.site_id from sites s
          join companies c on c.company_id = s.company_id
        where s.is_active and exists (
          select from devices d where d.site_id = s.site_id and d.is_active)
        """,
    )
    return {(row[0], row[1]) for row in rows}


async def heartbeats(tx: db.Connection) -> list[dict[str, Any]]:
    """What each edge last said of itself, for each tenant."""
    return await db.fetch_dicts(
        tx,
        """
        select h.tenant_id, h.edge_cluster_id, h.received_at, h.open_alerts, h.quarantine,
          coalesce(h.dead_letters, h.dlq) as dead_letters, h.losses, h.waiting, h.oldest_s,
          h.disk_percent, h.clock_offset_s,
          fn_edge_alerts_missing(h.tenant_id, h.edge_cluster_id) as alerts_missing
        from edge_heartbeats h
        where exists (select from edge_keys k where k.tenant_id = h.tenant_id
          and k.edge_cluster_id = h.edge_cluster_id and k.revoked_at is null)
        """,
    )


async def live_edges(tx: db.Connection) -> set[tuple[str, str]]:
    """(tenant, edge) of edges that have a key that was not revoked."""
    rows = await db.fetch_all(
        tx, "select distinct tenant_id, edge_cluster_id from edge_keys where revoked_at is null"
    )
    return {(row[0], row[1]) for row in rows}


async def refresh_edge_alerts(tx: db.Connection) -> None:
    """Alerts that nobody was told of, of edges that sent all they had, are true now."""
    await tx.execute(
        """
        update alert_episodes e set last_at = h.received_at
        from edge_heartbeats h
        where e.source = 'edge' and e.state = 'active' and e.paged_at is null
          and h.tenant_id = e.tenant_id and h.edge_cluster_id = e.edge_cluster_id
          and h.received_at > e.raised_at and h.received_at > e.last_at and h.oldest_s < 60
        """
    )


async def camera_alerts(tx: db.Connection) -> tuple[list[NewEpisode], list[Ending]]:
    """Alerts of cameras (004) that have no episode or were raised again, and episodes without one.

    A camera or site has one alert of a type for each day; together they are one episode.
    """
    raised = await db.fetch_all(
        tx,
        """
        select c.tenant_id, a.alert_type, a.device_id, a.site_id, a.opened_at, a.last_at, a.message
        from (
          select company_id, alert_type, device_id,
            case when device_id is null then site_id end as site_id, min(created_at) as opened_at,
            max(created_at) as last_at,
            (array_agg(message order by created_at desc))[1] as message
          from device_alerts o where resolved_at is null and not exists (
            select from devices d where d.device_id = o.device_id and not d.is_active)
          group by 1, 2, 3, 4) a
          join companies c on c.company_id = a.company_id
          left join alert_episodes e on e.tenant_id = c.tenant_id
            and e.cause = 'camera:' || a.alert_type || '|' || coalesce(a.device_id, a.site_id)
            and e.state in ('active', 'acknowledged')
        where e.last_at is null or e.last_at < a.last_at
        """,
    )
    ended = await db.fetch_all(tx, CAMERA_ALERTS_OVER)
    return (
        [_camera_episode(*row) for row in raised],
        [Ending(row[0], row[1], row[2], reason=row[3]) for row in ended],
    )


def _camera_episode(  # noqa: PLR0917 - the columns, in their order
    tenant_id: str,
    alert_type: str,
    device_id: UUID | None,
    site_id: UUID | None,
    opened_at: datetime,
    last_at: datetime,
    message: str,
) -> NewEpisode:
    about = device_id or site_id
    return NewEpisode(
        tenant_id=tenant_id,
        cause=f"camera:{alert_type}|{about}",
        source="camera",
        severity="info" if alert_type in MINOR_CAMERA_ALERTS else "warning",
        subject=f"camera:{device_id}" if device_id else f"site:{site_id}",
        message=message,
        opened_at=opened_at,
        last_at=last_at,
        device_id=str(device_id) if device_id else None,
    )


async def camera_values(tx: db.Connection) -> list[tuple[Series, datetime, float]]:
    """Of each site the newest day that is whole, and the batteries of cameras."""
    rows = await db.fetch_all(
        tx,
        """
        select c.tenant_id, 'camera.completeness', 'site:' || s.site_id, s.locked_at,
          s.completed_wake_count * 100.0::float8 / s.expected_wake_count
        from site_device_sessions s join companies c on c.company_id = s.company_id
        where s.status = 'locked' and s.expected_wake_count > 0
          and s.session_date > fn_now()::date - 3
          and s.session_date = (select max(l.session_date) from site_device_sessions l
            where l.site_id = s.site_id and l.status = 'locked')
        union all
        select c.tenant_id, 'camera.battery_v', 'camera:' || d.device_id, d.last_seen_at,
          d.battery_voltage
        from devices d join companies c on c.company_id = d.company_id
        where d.is_active and d.battery_voltage is not null
          and d.last_seen_at > fn_now() - interval '7 days'
        """,
    )
    return [(Series(*row[:3]), row[3], row[4]) for row in rows]


async def incomplete_sessions(tx: db.Connection) -> list[tuple[Series, float]]:
    """How many weigh sessions of each station its edge calls incomplete and still lack something.

    Also 0, of stations that had some at an earlier look.
    """
    rows = await db.fetch_all(
        tx,
        """
        with clock as materialized (select fn_now() as now),
        lacking as (
          select w.tenant_id, count(distinct w.session_id)::float8 as count,
            w.farm_id || '/' || w.barn_id || '/' || coalesce(w.station_id, w.device_id, '-')
              as subject
          from clock join weighvision_events e on e.event_type = %s
              and e.occurred_at between clock.now - make_interval(days => %s) and clock.now
            join weight_sessions w on w.tenant_id = e.tenant_id and w.session_id = e.session_id
          where w.status <> 'cancelled'
            and (w.missing <> '{}' or w.image_count <> cardinality(w.media_ids))
          group by w.tenant_id, subject
        ), known as (
          select tenant_id, subject from alert_states
          where signal = 'weighing.incomplete' and states <> '{}'
          union
          select v.tenant_id, v.subject from clock join alert_values v
            on v.signal = 'weighing.incomplete' and v.value > 0
            and v.begin_at > clock.now - interval '2 days'
        )
        select tenant_id, 'weighing.incomplete', subject, coalesce(count, 0)
        from lacking full join known using (tenant_id, subject)
        """,
        weighvision.SESSION_INCOMPLETE,
        MAX_LACKING_DAYS,
    )
    return [(Series(*row[:3]), row[3]) for row in rows]


async def dead_letters(tx: db.Connection) -> list[tuple[Series, float]]:
    """How many dead letters wait in each queue, for the company whose people see them.

    As the last look of cloud-deadletter-service found them. Also 0, of queues that had some at an
    earlier look.
    """
    rows = await db.fetch_all(
        tx,
        """
        with waiting as (
          select tenant_id, queue as subject, sum(count)::float8 as count from dead_letter_groups
          group by tenant_id, queue
        ), known as (
          select tenant_id, subject from alert_states
          where signal = 'bus.dead_letters' and states <> '{}'
          union
          select tenant_id, subject from alert_values
          where signal = 'bus.dead_letters' and value > 0
            and begin_at > fn_now() - interval '2 days'
        )
        select tenant_id, 'bus.dead_letters', subject, coalesce(count, 0)
        from waiting full join known using (tenant_id, subject)
        """,
    )
    return [(Series(*row[:3]), row[3]) for row in rows]


async def tenants_with_feed(tx: db.Connection) -> list[str]:
    rows = await db.fetch_all(
        tx,
        """
        select c.tenant_id from companies c
        where exists (select from feed_events f where f.tenant_id = c.tenant_id)
        """,
    )
    return [row[0] for row in rows]


async def feed_days_left(tx: db.Connection, tenant_id: str) -> list[tuple[str, str, float]]:
    """(farm, barn, days) where that is known."""
    rows = await db.fetch_all(
        tx,
        """
        select farm_id, barn_id, days_left from fn_feed_stock(%s, 'barn')
        where days_left is not null
        """,
        tenant_id,
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def ownerless(tx: db.Connection) -> list[Ending]:
    """Episodes of rules that no state has open: the rule was removed while one was opened.

    What an edge found first, by readings, the edge ends.
    """
    rows = await db.fetch_all(
        tx,
        """
        select e.tenant_id, e.cause, e.last_at from alert_episodes e
        where e.source = 'rule' and e.signal is not null and e.state in ('active', 'acknowledged')
          and not (e.edge_cluster_id is not null and starts_with(e.signal, 'telemetry.'))
          and not exists (select from alert_states s where s.tenant_id = e.tenant_id
            and s.signal = e.signal and s.subject = e.subject
            and s.states -> e.rule_id -> 'state' ->> 'opened_at' is not null)
        """,
    )
    return [Ending(row[0], row[1], row[2], reason="rule") for row in rows]


async def alerts_of_gone_edges(tx: db.Connection) -> list[Ending]:
    """What edges found first, of edges whose keys are all revoked: nobody else ends it.

    Of a rule only what the cloud's own values do not have open too.
    """
    rows = await db.fetch_all(
        tx,
        """
        select e.tenant_id, e.cause, fn_now() from alert_episodes e
        where e.edge_cluster_id is not null and e.state in ('active', 'acknowledged')
          and (e.source = 'edge' or e.source = 'rule' and not exists (
            select from alert_states s where s.tenant_id = e.tenant_id
              and s.signal = e.signal and s.subject = e.subject
              and s.states -> e.rule_id -> 'state' ->> 'opened_at' is not null))
          and (select bool_and(k.revoked_at is not null) from edge_keys k
            where k.tenant_id = e.tenant_id and k.edge_cluster_id = e.edge_cluster_id)
        """,
    )
    return [Ending(*row, reason="edge") for row in rows]
