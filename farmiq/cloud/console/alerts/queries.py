"""SQL of alerts for their pages, with the person's rights (row level security)."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from farmiq.cloud.console.alerts.view import DAYS, Episode
from farmiq.farm.alerts.defaults import DEFAULTS
from farmiq.plumbing import db

_SHIPPED = {rule.rule_id: rule.baseline for rule in DEFAULTS}
# What somebody was told about an episode, by contact: name, when, and what became of it.
_NOTIFIED = """
  coalesce((
    select jsonb_agg(jsonb_build_object('name', coalesce(c.name, m.contact_id), 'state', m.state,
      'at', coalesce(m.ended_at, m.created_at)) order by m.message_id)
    from alert_messages m left join alert_contacts c using (tenant_id, contact_id)
    where m.tenant_id = e.tenant_id and m.episode_id = e.episode_id
      and m.step in ('opened', 'worsened', 'escalated')), '[]') as notified
"""
_COLUMNS = f"""
  e.episode_id, e.source, e.rule_id, e.severity, e.signal, e.is_absence, e.subject, e.message,
  e.state, e.farm_id, f.name as farm, e.barn_id, b.name as barn, e.device_id, e.edge_cluster_id,
  e.batch_id, f.timezone, e.opened_at, e.last_at, e.resolved_at, e.raised_at, e.paged_at,
  e.first_value, e.worst_value, e.last_value, e.held_by, e.acknowledged_at, e.acknowledged_by,
  e.note, e.ended_reason, e.ended_by, e.ended_note,
  (select w.reason from alert_windows w where w.tenant_id = e.tenant_id
    and 'window:' || w.window_id = e.held_by) as window_reason,
  (select jsonb_build_object('baseline', r.rule -> 'baseline') from alert_rules r
    where r.tenant_id = e.tenant_id and r.rule_id = e.rule_id) as own_rule,
  d.device_name, {_NOTIFIED}
"""  # noqa: S608 - our own words
# Of a camera people know the name.
_JOINS = """
  left join farms f on f.tenant_id = e.tenant_id and f.farm_id = e.farm_id
  left join barns b on b.tenant_id = e.tenant_id and b.farm_id = e.farm_id
    and b.barn_id = e.barn_id
  left join devices d on d.device_id = case when e.source in ('camera', 'rule')
    and starts_with(e.subject, 'camera:') then substr(e.subject, 8)::uuid end
"""
_SEVERITIES = "array['security', 'critical', 'warning', 'info']"


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of the episodes in a state, and how many there are in each."""

    counts: dict[str, int]
    episodes: list[Episode]


async def listed(connection: db.Connection, state: str, *, limit: int, offset: int) -> Listed:
    """Worst and newest first; what is over, newest first. Counts are of the same rows."""
    rows = await db.fetch_dicts(
        connection,
        f"""
        with wanted as materialized (
          select e.* from alert_episodes e
          where e.state in ('active', 'acknowledged')
            or e.state = 'resolved' and e.resolved_at > fn_now() - make_interval(days => %(days)s)
        ), counts as (
          select count(*) filter (where state = 'active') as active,
            count(*) filter (where state = 'acknowledged') as acknowledged,
            count(*) filter (where state = 'resolved') as resolved
          from wanted
        ), chosen as (
          select e.* from wanted e where e.state = %(state)s
          order by case when %(state)s <> 'resolved'
              then array_position({_SEVERITIES}, e.severity) end,
            coalesce(e.resolved_at, e.opened_at) desc, e.episode_id
          limit %(limit)s offset %(offset)s
        )
        select n.active, n.acknowledged, n.resolved, r.*
        from counts n left join (
          select row_number() over (order by case when %(state)s <> 'resolved'
              then array_position({_SEVERITIES}, e.severity) end,
            coalesce(e.resolved_at, e.opened_at) desc, e.episode_id) as place, {_COLUMNS}
          from chosen e {_JOINS}) r on true
        order by r.place
        """,  # noqa: S608 - our own words
        {"state": state, "limit": limit, "offset": offset, "days": DAYS},
    )
    counts = {name: rows[0][name] for name in ("active", "acknowledged", "resolved")}
    return Listed(counts, [_episode(row) for row in rows if row["episode_id"] is not None])


def _episode(row: dict[str, Any]) -> Episode:
    own = row["own_rule"]
    baseline = _SHIPPED.get(row["rule_id"]) if own is None else own["baseline"]
    known = {name: value for name, value in row.items() if name in Episode.__dataclass_fields__}
    return Episode(**known, baseline=baseline)


async def find(connection: db.Connection, episode_id: UUID) -> Episode | None:
    rows = await db.fetch_dicts(
        connection,
        f"select {_COLUMNS} from alert_episodes e {_JOINS} where e.episode_id = %s",  # noqa: S608
        (episode_id,),
    )
    return _episode(rows[0]) if rows else None


async def held_by(connection: db.Connection, episode_id: UUID, *, limit: int) -> list[Episode]:
    """The episodes that this one holds back."""
    rows = await db.fetch_dicts(
        connection,
        f"""
        select {_COLUMNS} from alert_episodes e {_JOINS}
        where e.held_by = %s and e.state in ('active', 'acknowledged')
        order by e.opened_at desc, e.episode_id limit %s
        """,  # noqa: S608 - our own words
        (f"episode:{episode_id}", limit),
    )
    return [_episode(row) for row in rows]


async def steps(connection: db.Connection, episode_id: UUID) -> list[dict[str, Any]]:
    return await db.fetch_dicts(
        connection,
        """
        select step, created_at from alert_steps where episode_id = %s order by created_at, step
        """,
        (episode_id,),
    )


async def messages(
    connection: db.Connection, episode_id: UUID, *, limit: int
) -> list[dict[str, Any]]:
    """What was sent about an episode, with the names of contacts and channels."""
    return await db.fetch_dicts(
        connection,
        """
        select m.message_id, m.step, m.state, m.created_at, m.send_after, m.ended_at, m.attempts,
          m.error, coalesce(c.name, m.contact_id) as contact,
          coalesce(h.name, m.channel_id) as channel, h.kind
        from alert_messages m
          left join alert_contacts c using (tenant_id, contact_id)
          left join alert_channels h using (tenant_id, channel_id)
        where m.episode_id = %s order by m.created_at, m.message_id limit %s
        """,
        (episode_id, limit),
    )


async def times_before(connection: db.Connection, episode_id: UUID) -> int:
    """How many other episodes its cause had in the last days."""
    count: int = await db.fetch_value(
        connection,
        """
        select count(*) from alert_episodes e join alert_episodes o using (tenant_id, cause)
        where e.episode_id = %s and o.episode_id <> e.episode_id and o.state <> 'withdrawn'
          and o.opened_at > fn_now() - make_interval(days => %s)
        """,
        episode_id,
        DAYS,
    )
    return count


# --- what rules and windows can be about


@dataclass(frozen=True, slots=True)
class Places:
    """(farm_id, name), (farm_id, barn_id, name), edges, and metrics that devices report."""

    farms: list[tuple[str, str]]
    barns: list[tuple[str, str, str]]
    edges: list[str]
    metrics: list[str]


async def places(connection: db.Connection, *, limit: int) -> Places:
    farms = await db.fetch_all(
        connection, "select farm_id, name from farms order by name, farm_id limit %s", limit
    )
    barns = await db.fetch_all(
        connection,
        """
        select b.farm_id, b.barn_id, b.name || ', ' || f.name from barns b
          join farms f using (tenant_id, farm_id)
        order by f.name, b.name, b.barn_id limit %s
        """,
        limit,
    )
    edges = await db.fetch_all(
        connection,
        "select distinct edge_cluster_id from edge_heartbeats order by 1 limit %s",
        limit,
    )
    metrics = await db.fetch_all(
        connection, "select distinct metric_type from telemetry_latest order by 1 limit %s", limit
    )
    return Places(
        [(row[0], row[1]) for row in farms],
        [(row[0], row[1], row[2]) for row in barns],
        [row[0] for row in edges],
        [row[0] for row in metrics],
    )


async def windows(connection: db.Connection, *, limit: int) -> list[dict[str, Any]]:
    """Maintenance windows that are open, to come or were over within the last days."""
    return await db.fetch_dicts(
        connection,
        """
        select w.window_id, w.begin_at, w.end_at, w.reason, w.farm_id, f.name as farm, w.barn_id,
          b.name as barn, w.device_id, w.edge_cluster_id, w.rule_id, w.made_by,
          (select count(*) from alert_episodes e where e.held_by = 'window:' || w.window_id
            and e.state = 'active') as held
        from alert_windows w
          left join farms f on f.tenant_id = w.tenant_id and f.farm_id = w.farm_id
          left join barns b on b.tenant_id = w.tenant_id and b.farm_id = w.farm_id
            and b.barn_id = w.barn_id
        where w.end_at > fn_now() - make_interval(days => %s)
        order by w.end_at desc, w.window_id limit %s
        """,
        (DAYS, limit),
    )
