"""The rules of tenants in memory: loaded when first needed, dropped when somebody changes them."""

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from farmiq.cloud.alerts.evaluating.ruleset import Batch, Farm, RuleSet, Series
from farmiq.farm.alerts import defaults
from farmiq.farm.alerts import rules as farm_rules
from farmiq.messages.alerts import AlertRule
from farmiq.plumbing import db, listen

CHANGED = "alert_rules_changed"
# Batches and farms change without a notice; rules too, while none can be heard.
FRESH_S = 60.0
# Batches that closed longer ago are of no value that is still evaluated.
CLOSED_DAYS = 30


@dataclass
class RuleBook:
    """`means` are those of hours that rules compare with, by series and hour."""

    pool: db.Pool
    means: dict[tuple[Series, datetime], float | None] = field(default_factory=dict)
    _sets: dict[str, RuleSet] = field(default_factory=dict)
    _loaded_at: dict[str, float] = field(default_factory=dict)
    _companies: dict[str, str] = field(default_factory=dict)
    _dropped: int = 0

    def __getitem__(self, tenant_id: str) -> RuleSet:
        """Raises KeyError if `load` was not called for the tenant."""
        return self._sets[tenant_id]

    def drop(self, tenant_id: str | None = None) -> None:
        """Load the rules of a tenant, or of all, before they are used again."""
        self._dropped += 1
        if tenant_id is None:
            self._loaded_at.clear()
        else:
            self._loaded_at.pop(tenant_id, None)

    async def load(self, tenants: Collection[str]) -> None:
        """Load the rules of those tenants whose rules are not known or not fresh."""
        while stale := self._stale(tenants):
            dropped, loaded_at = self._dropped, time.monotonic()
            async with db.transaction(self.pool) as tx:
                self._companies |= await _companies(tx, stale)
                self._sets |= await load(tx, stale)
            # What was dropped meanwhile may have been read before it changed.
            if dropped == self._dropped:
                self._loaded_at |= dict.fromkeys(stale, loaded_at)

    def _stale(self, tenants: Collection[str]) -> list[str]:
        oldest = time.monotonic() - FRESH_S
        return [name for name in tenants if self._loaded_at.get(name, float("-inf")) < oldest]

    async def listen(self, url: str, *, name: str) -> None:
        """Drop what other processes change, until cancelled."""

        def on_notice(_channel: str, company_id: str) -> None:
            # One that is not known may be loading at this moment.
            self.drop(self._companies.get(company_id, ""))

        def on_listening(_listening: bool) -> None:  # noqa: FBT001 - a callback of listen.run
            self.drop()

        await listen.run(url, [CHANGED], name=name, on_notice=on_notice, on_listening=on_listening)


async def load(tx: db.Connection, tenants: Collection[str]) -> dict[str, RuleSet]:
    """The rules of tenants as they are now: their own, and those that ship where they have none."""
    rules: dict[str, list[AlertRule]] = {name: [] for name in tenants}
    changed_at: dict[str, dict[str, datetime]] = {name: {} for name in tenants}
    placed: dict[str, list[Batch]] = {name: [] for name in tenants}
    places: dict[str, list[Farm]] = {name: [] for name in tenants}
    for tenant_id, rule, at in await own_rules(tx, tenants):
        rules[tenant_id].append(rule)
        changed_at[tenant_id][rule.rule_id] = at
    for tenant_id, batch in await batches(tx, tenants):
        placed[tenant_id].append(batch)
    for tenant_id, farm in await farms(tx, tenants):
        places[tenant_id].append(farm)
    return {
        name: RuleSet(
            defaults.with_defaults(rules[name]).values(), placed[name], places[name],
            changed_at[name],
        )
        for name in tenants
    }  # fmt: skip


async def own_rules(
    tx: db.Connection, tenants: Collection[str]
) -> list[tuple[str, AlertRule, datetime]]:
    """(tenant, rule, changed_at) of the rules that companies set and this version can use."""
    rows = await db.fetch_all(
        tx,
        "select tenant_id, rule, changed_at from alert_rules where tenant_id = any(%s)",
        [*tenants],
    )
    return [(row[0], rule, row[2]) for row in rows if (rule := farm_rules.read(row[1]))]


async def batches(tx: db.Connection, tenants: Collection[str]) -> list[tuple[str, Batch]]:
    rows = await db.fetch_all(
        tx,
        """
        select tenant_id, batch_id, farm_id, barn_id, species, placed_on, closed_on,
          age_at_placing_days
        from batches where tenant_id = any(%s)
          and (closed_on is null or closed_on > fn_now()::date - %s::int)
        """,
        [*tenants],
        CLOSED_DAYS,
    )
    return [(row[0], Batch(*row[1:])) for row in rows]


async def farms(tx: db.Connection, tenants: Collection[str]) -> list[tuple[str, Farm]]:
    rows = await db.fetch_all(
        tx,
        """
        select f.tenant_id, f.farm_id, f.name, f.timezone, coalesce((
          select jsonb_object_agg(b.barn_id, b.name) from barns b
          where b.tenant_id = f.tenant_id and b.farm_id = f.farm_id), '{}')
        from farms f where f.tenant_id = any(%s)
        """,
        [*tenants],
    )
    return [(row[0], Farm(*row[1:])) for row in rows]


async def _companies(tx: db.Connection, tenants: Collection[str]) -> dict[str, str]:
    """The tenants by the random ids of their companies, which notices name."""
    rows = await db.fetch_all(
        tx,
        "select company_id::text, tenant_id from companies where tenant_id = any(%s)",
        [*tenants],
    )
    return {row[0]: row[1] for row in rows}


async def tenants(tx: db.Connection) -> list[str]:
    rows = await db.fetch_all(tx, "select tenant_id from companies order by tenant_id")
    return [row[0] for row in rows]
