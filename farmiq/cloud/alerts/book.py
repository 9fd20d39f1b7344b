"""The rules of tenants in memory: loaded when first needed, dropped when somebody changes them."""

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

from farmiq.cloud.alerts import store
from farmiq.cloud.alerts.rules import Batch, Farm, RuleSet, Series
from farmiq.farm.alerts import defaults
from farmiq.messages.alerts import AlertRule
from farmiq.plumbing import db, listen

# Batches and farms change without a notice; rules too, while none can be heard.
FRESH_S = 60.0


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
                self._companies |= await store.companies(tx, stale)
                self._sets |= await load(tx, stale)
            # What was dropped meanwhile may have been read before it changed.
            if dropped == self._dropped:
                self._loaded_at |= dict.fromkeys(stale, loaded_at)

    def _stale(self, tenants: Collection[str]) -> list[str]:
        oldest = time.monotonic() - FRESH_S
        return [name for name in tenants if self._loaded_at.get(name, float("-inf")) < oldest]

    async def listen(self, url: str, *, name: str) -> None:
        """Drop what others change, for ever."""

        def on_notice(_channel: str, company_id: str) -> None:
            # One that is not known may be loading at this moment.
            self.drop(self._companies.get(company_id, ""))

        def on_listening(_listening: bool) -> None:  # noqa: FBT001 - a callback of listen.run
            self.drop()

        await listen.run(
            url, [store.CHANGED], name=name, on_notice=on_notice, on_listening=on_listening
        )


async def load(tx: db.Connection, tenants: Collection[str]) -> dict[str, RuleSet]:
    """The rules of tenants as they are now: their own, and those that ship where they have none."""
    rules: dict[str, list[AlertRule]] = {name: [] for name in tenants}
    changed_at: dict[str, dict[str, datetime]] = {name: {} for name in tenants}
    batches: dict[str, list[Batch]] = {name: [] for name in tenants}
    farms: dict[str, list[Farm]] = {name: [] for name in tenants}
    for tenant_id, rule, at in await store.own_rules(tx, tenants):
        rules[tenant_id].append(rule)
        changed_at[tenant_id][rule.rule_id] = at
    for tenant_id, batch in await store.batches(tx, tenants):
        batches[tenant_id].append(batch)
    for tenant_id, farm in await store.farms(tx, tenants):
        farms[tenant_id].append(farm)
    return {
        name: RuleSet(
            defaults.with_defaults(rules[name]).values(), batches[name], farms[name],
            changed_at[name],
        )
        for name in tenants
    }  # fmt: skip
