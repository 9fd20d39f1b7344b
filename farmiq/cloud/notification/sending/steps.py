"""SQL of the steps of episodes that people are to be told of."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from farmiq.cloud.episodes import WINDOWS_OF_EPISODE
from farmiq.cloud.notification import rules
from farmiq.cloud.notification.rules import Earlier
from farmiq.cloud.notification.words import Facts
from farmiq.farm.alerts import rules as alert_rules
from farmiq.farm.alerts.defaults import DEFAULTS
from farmiq.plumbing import db

ESCALATE_AFTER_MIN = 15
_SHIPPED = {rule.rule_id: rule for rule in DEFAULTS}


async def escalate(tx: db.Connection, *, limit: int) -> int:
    """Add the step `escalated` of episodes that nobody has acknowledged for too long.

    Since the first message was to be sent: quiet hours of the first person wake nobody else. Not
    during maintenance.
    """
    cursor = await tx.execute(
        f"""
        with clock as materialized (select fn_now() as now)
        insert into alert_steps (tenant_id, episode_id, step, created_at)
        select e.tenant_id, e.episode_id, 'escalated', clock.now
        from clock cross join alert_episodes e
          left join alert_settings s on s.tenant_id = e.tenant_id
          cross join lateral (select clock.now
            - case when s.tenant_id is null then %s else s.escalate_after_min end
              * interval '1 minute' as at) latest
        where e.state = 'active' and e.held_by is null
          -- Who was called while the clock was ahead has had time by now.
          and (e.paged_at > clock.now + interval '1 hour' or e.paged_at <= latest.at)
          and not exists (
            select from alert_steps k where k.tenant_id = e.tenant_id
              and k.episode_id = e.episode_id and k.step = 'escalated')
          and coalesce((select min(m.send_after) from alert_messages m
            where m.tenant_id = e.tenant_id and m.episode_id = e.episode_id
              and m.step in ('opened', 'worsened')
              and m.send_after < clock.now + interval '2 days'), latest.at) <= latest.at
          and not exists (select from {WINDOWS_OF_EPISODE})
        order by e.paged_at limit %s
        on conflict on constraint alert_steps_pkey do nothing
        """,  # noqa: S608 - a constant
        (ESCALATE_AFTER_MIN, limit),
    )
    return cursor.rowcount


@dataclass(frozen=True, slots=True)
class PendingStep:
    """A step that nobody was told of yet, and what a message about it needs."""

    step: rules.Step
    facts: Facts


async def take_steps(tx: db.Connection, *, limit: int) -> list[PendingStep]:
    """Lock steps that are to be routed, at most one of an episode, in their order.

    A step waits for the one before it, also if another instance has that one at this moment.
    """
    rows = await db.fetch_dicts(
        tx,
        f"""
        with clock as materialized (select fn_now() as now)
        select s.tenant_id, s.episode_id, s.step, s.created_at, e.source, e.severity, e.message,
          e.state, e.signal, e.rule_id, r.rule, e.farm_id, f.name as farm,
          e.barn_id, b.name as barn, e.device_id, e.edge_cluster_id, e.batch_id,
          coalesce(f.timezone, c.timezone) as timezone, e.opened_at, e.resolved_at, e.first_value,
          e.worst_value, e.last_value, e.acknowledged_by, e.note, e.ended_reason,
          case when a.tenant_id is null then %(default_min)s else a.escalate_after_min end
            as minutes_unanswered,
          case when s.step = 'worsened' then (select max(w.end_at) from {WINDOWS_OF_EPISODE})
            end as held_until
        from clock cross join alert_steps s
        join alert_episodes e using (tenant_id, episode_id)
        join companies c using (tenant_id)
        left join alert_settings a using (tenant_id)
        left join farms f on f.tenant_id = e.tenant_id and f.farm_id = e.farm_id
        left join barns b on b.tenant_id = e.tenant_id and b.farm_id = e.farm_id
          and b.barn_id = e.barn_id
        left join alert_rules r on r.tenant_id = e.tenant_id and r.rule_id = e.rule_id
        where s.routed_at is null and (s.route_after is null or s.route_after <= fn_now())
          and not exists (
          select from alert_steps o where o.tenant_id = s.tenant_id
            and o.episode_id = s.episode_id and o.routed_at is null
            and (o.created_at, array_position(%(order)s::text[], o.step))
              < (s.created_at, array_position(%(order)s::text[], s.step)))
        order by s.created_at limit %(limit)s
        for update of s skip locked
        """,  # noqa: S608 - a constant
        {
            "default_min": ESCALATE_AFTER_MIN,
            "order": ["opened", "worsened", "escalated", "acknowledged", "resolved"],
            "limit": limit,
        },
    )
    return [_pending_step(row) for row in rows]


def _pending_step(row: dict[str, Any]) -> PendingStep:
    created_at, held_until, rule_id, own = (
        row.pop(name) for name in ("created_at", "held_until", "rule_id", "rule")
    )
    rule = _SHIPPED.get(rule_id) if own is None else alert_rules.read(own)
    step = rules.Step(
        step=row["step"],
        created_at=created_at,
        severity=row["severity"],
        farm_id=row["farm_id"],
        state=row["state"],
        acknowledged_by=row["acknowledged_by"],
        held_until=held_until,
    )
    return PendingStep(step, Facts(**row, rule=rule))


async def routed(tx: db.Connection, tenant_id: str, episode_id: UUID, step: str) -> None:
    await tx.execute(
        """
        update alert_steps set routed_at = fn_now()
        where tenant_id = %s and episode_id = %s and step = %s
        """,
        (tenant_id, episode_id, step),
    )


async def put_off_step(tx: db.Connection, facts: Facts, *, delay_s: float) -> None:
    await tx.execute(
        """
        update alert_steps set route_after = fn_now() + %s * interval '1 second'
        where tenant_id = %s and episode_id = %s and step = %s
        """,
        (delay_s, facts.tenant_id, facts.episode_id, facts.step),
    )


async def earlier_messages(tx: db.Connection, tenant_id: str, episode_id: UUID) -> list[Earlier]:
    """The messages of an episode so far. Locks them: none is sent while a plan is made."""
    rows = await db.fetch_dicts(
        tx,
        """
        select message_id, contact_id, channel_id, step, severity, state, send_after
        from alert_messages
        where tenant_id = %s and episode_id = %s order by message_id for update
        """,
        (tenant_id, episode_id),
    )
    return [Earlier(**row) for row in rows]
