"""The SQL of an edge's context: the master data that concerns it (C-114)."""

from collections.abc import Collection
from typing import Any

import msgspec

from farmiq.farm.alerts.defaults import with_defaults
from farmiq.farm.alerts.rules import is_for_edges
from farmiq.farm.alerts.rules import read as read_rule
from farmiq.messages import context
from farmiq.messages.alerts import MAX_RULES
from farmiq.messages.context import (
    ContextBarn,
    ContextBatch,
    ContextFarm,
    ContextSilence,
    ContextStandard,
    ContextWindow,
    EdgeContext,
    TenantContext,
)
from farmiq.plumbing import db

# Of what happened longer ago than devices keep their events, the cloud finds the batch itself.
CLOSED_DAYS = 180
# Nothing is open for longer whose device still sends.
ENDED_DAYS = 30


async def read(
    connection: db.Connection, tenants: Collection[str], farms: Collection[str]
) -> EdgeContext:
    """The context of these tenants; of these farms only, or of all if none is named."""
    return EdgeContext(
        tenants=[await _of_tenant(connection, name, farms) for name in sorted(tenants)]
    )


async def _of_tenant(
    connection: db.Connection, tenant_id: str, farms: Collection[str]
) -> TenantContext:
    wanted = {"tenant": tenant_id, "farms": sorted(farms) or None}
    return TenantContext(
        tenant_id=tenant_id,
        farms=await db.fetch_as(
            connection,
            ContextFarm,
            """
            select farm_id, name, timezone from farms
            where tenant_id = %(tenant)s and (%(farms)s::text[] is null or farm_id = any(%(farms)s))
            order by farm_id limit %(limit)s
            """,
            {**wanted, "limit": context.MAX_FARMS},
        ),
        barns=await db.fetch_as(
            connection,
            ContextBarn,
            """
            select farm_id, barn_id, name, capacity, area_m2 from barns
            where tenant_id = %(tenant)s and (%(farms)s::text[] is null or farm_id = any(%(farms)s))
            order by farm_id, barn_id limit %(limit)s
            """,
            {**wanted, "limit": context.MAX_BARNS},
        ),
        batches=await db.fetch_as(
            connection,
            ContextBatch,
            """
            select batch_id, farm_id, barn_id, species, breed, sex, placed_count, placed_on,
              age_at_placing_days, target_weight_kg, target_on, closed_on
            from batches
            where tenant_id = %(tenant)s and (%(farms)s::text[] is null or farm_id = any(%(farms)s))
              and (closed_on is null or closed_on > fn_now()::date - %(days)s::int)
            order by placed_on desc, batch_id limit %(limit)s
            """,
            {**wanted, "days": CLOSED_DAYS, "limit": context.MAX_BATCHES},
        ),
        breed_standards=await db.fetch_as(
            connection,
            ContextStandard,
            """
            select s.species, s.breed, s.sex, s.age_days, s.weight_kg, s.daily_gain_g,
              s.feed_conversion, s.mortality_pct
            from breed_standards s
            where s.tenant_id = %(tenant)s and exists (
              select from batches b
              where b.tenant_id = s.tenant_id and lower(b.species) = lower(s.species)
                and lower(b.breed) = lower(s.breed) and s.sex in (b.sex, 'mixed')
                and (%(farms)s::text[] is null or b.farm_id = any(%(farms)s))
                and (b.closed_on is null or b.closed_on > fn_now()::date - %(days)s::int))
            order by s.species, s.breed, s.sex, s.age_days limit %(limit)s
            """,
            {**wanted, "days": CLOSED_DAYS, "limit": context.MAX_STANDARDS},
        ),
        alert_rules=await _alert_rules(connection, tenant_id, farms),
        alert_windows=await db.fetch_as(
            connection,
            ContextWindow,
            """
            select begin_at, end_at, farm_id, barn_id, device_id, rule_id from alert_windows
            where tenant_id = %(tenant)s and end_at > fn_now() and edge_cluster_id is null
              and (farm_id is null or %(farms)s::text[] is null or farm_id = any(%(farms)s))
            order by end_at, window_id limit %(limit)s
            """,
            {**wanted, "limit": context.MAX_WINDOWS},
        ),
        alert_silences=await db.fetch_as(
            connection,
            ContextSilence,
            """
            select e.rule_id, e.farm_id, e.barn_id, e.device_id, e.acknowledged_at as at
            from alert_episodes e
            where e.tenant_id = %(tenant)s and e.state = 'acknowledged'
              and e.signal like 'telemetry.%%' and e.device_id is not null
              and (%(farms)s::text[] is null or e.farm_id = any(%(farms)s))
            union all
            select e.rule_id, e.farm_id, e.barn_id, e.device_id, e.resolved_at
            from alert_episodes e
              join alert_states s on s.tenant_id = e.tenant_id and s.signal = e.signal
                and s.subject = e.subject
                and s.states -> e.rule_id -> 'state' ->> 'opened_at' is not null
            where e.tenant_id = %(tenant)s and e.ended_reason = 'person'
              and e.resolved_at > fn_now() - %(days)s * interval '1 day'
              and e.signal like 'telemetry.%%' and e.device_id is not null
              and (%(farms)s::text[] is null or e.farm_id = any(%(farms)s))
            order by at desc, rule_id, farm_id, barn_id, device_id limit %(limit)s
            """,
            {**wanted, "days": ENDED_DAYS, "limit": context.MAX_SILENCES},
        ),
    )


async def _alert_rules(
    connection: db.Connection, tenant_id: str, farms: Collection[str]
) -> list[dict[str, Any]]:
    """The rules of these farms that an edge evaluates, those that ship included, by rule_id."""
    rows = await db.fetch_all(
        connection,
        "select rule from alert_rules where tenant_id = %s order by rule_id limit %s",
        tenant_id,
        MAX_RULES,
    )
    own = [rule for (stored,) in rows if (rule := read_rule(stored)) is not None]
    effective = with_defaults(own)
    return [
        msgspec.to_builtins(rule)
        for _, rule in sorted(effective.items())
        if is_for_edges(rule) and (rule.farm_id is None or not farms or rule.farm_id in farms)
    ][:MAX_RULES]
