"""Who is to be called: what is open, fresh and not held, once each."""

from farmiq.cloud.episodes import WINDOWS_OF_EPISODE
from farmiq.plumbing import db

# What edges raise themselves, by the code of their alert, and the total that says the same.
SAME_FACT = {
    "edge.disk": "edge.disk_percent",
    "sync.dlq": "edge.dead_letters",
    "sync.backlog_not_falling": "edge.oldest_s",
    "device.not_registered": "edge.quarantine",
    "ingress.impostor": "edge.quarantine",
    "ingress.foreign_session": "edge.quarantine",
    "ingress.event_id_conflict": "edge.quarantine",
    "weighvision.session_incomplete": "weighing.incomplete",
}


async def page(tx: db.Connection, *, limit: int) -> int:
    """Call people about what is open, fresh and not held, once each; returns how many episodes.

    While the newest values are on the clear side nobody is called: they are fresh, the trouble
    is not.
    An open edge.heard episode holds the rules about that edge's totals and about what no longer
    comes from its farms; so does an edge that is about to get one, or that is back and has not sent
    everything yet. One without a key holds nothing, nor one whose farm another edge speaks for. A
    maintenance window holds all in its scope. Of an edge's own alert and a rule on the total that
    says the same (SAME_FACT) the one that came first holds the other, unless that is more severe.
    What holds an episode is in held_by; when that is over and the episode is not, people are
    called.
    """
    cursor = await tx.execute(
        f"""
        with clock as materialized (select fn_now() as now),
        fact as materialized (
          select f.code, f.signal
          from unnest(%(codes)s::text[], %(signals)s::text[]) as f(code, signal)
        ), severity as materialized (
          select s.name, s.rank::int
          from unnest(array['info', 'warning', 'critical', 'security'])
            with ordinality as s(name, rank)
        ), edge as not materialized (
          select h.tenant_id, h.edge_cluster_id, h.farms,
            h.received_at < clock.now - interval '2 minutes' or h.oldest_s > 120
            or exists (select from alert_episodes p where p.tenant_id = h.tenant_id
              and p.cause like 'rule:%%|edge:' || h.edge_cluster_id and p.signal = 'edge.heard'
              and (p.state in ('active', 'acknowledged') or p.state = 'resolved'
                and p.resolved_at > clock.now - interval '2 minutes')) as is_behind
          from edge_heartbeats h cross join clock
          where exists (select from edge_keys k where k.tenant_id = h.tenant_id
            and k.edge_cluster_id = h.edge_cluster_id and k.revoked_at is null)
        ), candidate as materialized (
          select e.tenant_id, e.episode_id, coalesce(
            (select 'window:' || w.window_id from {WINDOWS_OF_EPISODE}
             order by w.end_at desc limit 1),
            (select 'episode:' || p.episode_id from alert_episodes p
             where p.tenant_id = e.tenant_id and p.signal = 'edge.heard'
               and p.state in ('active', 'acknowledged') and e.signal <> 'edge.heard'
               and (e.signal like 'edge.%%' and e.edge_cluster_id = p.edge_cluster_id
                 or e.is_absence and not o.is_covered and exists (
                   select from edge h where h.tenant_id = p.tenant_id
                     and h.edge_cluster_id = p.edge_cluster_id and e.farm_id = any (h.farms)))
             order by p.opened_at limit 1),
            (select 'episode:' || p.episode_id
             from fact f
               join alert_episodes p on p.tenant_id = e.tenant_id
                 and case when f.signal like 'edge.%%' then p.edge_cluster_id = e.edge_cluster_id
                   else (p.farm_id, p.barn_id, p.device_id)
                     = (e.farm_id, e.barn_id, e.device_id) end
                 and p.source <> e.source and p.held_by is null
                 and p.state in ('active', 'acknowledged')
                 and (p.raised_at, p.episode_id) < (e.raised_at, e.episode_id)
                 and (p.source = 'edge' and split_part(p.cause, '|', 2) = f.code
                   or p.source = 'rule' and p.signal = f.signal)
               join severity ps on ps.name = p.severity
               join severity es on es.name = e.severity and es.rank <= ps.rank
             where (e.source = 'edge' and split_part(e.cause, '|', 2) = f.code
                 or e.source = 'rule' and e.signal = f.signal)
             order by p.raised_at, p.episode_id limit 1),
            (select 'edge:' || h.edge_cluster_id from edge h
             where h.tenant_id = e.tenant_id and e.is_absence and not o.is_covered
               and e.farm_id = any (h.farms) and h.is_behind
               and exists (select from alert_states s where s.tenant_id = h.tenant_id
                 and s.signal = 'edge.heard' and s.subject = 'edge:' || h.edge_cluster_id)
             limit 1)) as held_by
          from alert_episodes e cross join clock
            cross join lateral (select e.is_absence and exists (
              select from edge h where h.tenant_id = e.tenant_id and e.farm_id = any (h.farms)
                and not h.is_behind) as is_covered) o
          where e.state = 'active' and e.paged_at is null
            and not exists (select from alert_states s where s.tenant_id = e.tenant_id
              and s.signal = e.signal and s.subject = e.subject
              and s.states -> e.rule_id -> 'state' ->> 'clear_since' is not null)
            and e.last_at >= clock.now - case
              when e.signal like 'kpi.%%' or e.signal like 'camera.%%' or e.source = 'camera'
              then interval '24 hours' else interval '15 minutes' end
          order by e.last_at desc limit %(limit)s
          for update of e skip locked
        ), paged as (
          update alert_episodes e set held_by = c.held_by,
            paged_at = case when c.held_by is null then clock.now end
          from candidate c cross join clock
          where e.tenant_id = c.tenant_id and e.episode_id = c.episode_id
            and (c.held_by is null or c.held_by is distinct from e.held_by)
          returning e.tenant_id, e.episode_id, e.paged_at
        ), steps as (
          insert into alert_steps (tenant_id, episode_id, step, created_at)
          select tenant_id, episode_id, 'opened', paged_at from paged where paged_at is not null
          on conflict on constraint alert_steps_pkey do nothing
        )
        select count(*) from paged where paged_at is not null
        """,  # noqa: S608 - a constant
        {"limit": limit, "codes": [*SAME_FACT], "signals": [*SAME_FACT.values()]},
    )
    row = await cursor.fetchone()
    return row[0] if row else 0
