"""Evaluate rules on readings that are committed: a job beside ingress, which it never delays.

The readings of a series, the states of its rules, alerts, their events to the cloud and mails are
one transaction: after a crash the next round does the same again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from prometheus_client import Counter, Gauge

from farmiq import crash
from farmiq.edge import alerts
from farmiq.edge.alert import mails, rules, store
from farmiq.edge.alert.rules import OpenedAlert, Reading, Series, TenantRules
from farmiq.edge.alert.store import Tracked
from farmiq.edge.alerts import Alert
from farmiq.plumbing import db, log

# Of one round: of all series together, of one series, and of each at least.
MAX_READINGS, MAX_OF_SERIES, MIN_OF_SERIES = 100_000, 1_000, 20
# What is older is history, which the cloud writes: alerts are of now.
LOOK_BACK = timedelta(hours=2)

CHANGES = Counter(
    "farmiq_local_alerts_total", "Local alerts that opened or resolved", ["change", "severity"]
)
UNREADABLE = Gauge(
    "farmiq_local_alert_rules_unreadable", "Rules of the cloud that this edge cannot use"
)
SERIES = Gauge("farmiq_local_alert_series", "Series that local rules look at")


@dataclass
class Evaluation:
    """Rounds over all series; rules are read again when the cloud's copy changes."""

    pool: db.Pool
    zone: ZoneInfo
    post: mails.Post
    _tags: dict[str, str | None] = field(default_factory=dict)
    _tenants: dict[str, TenantRules] = field(default_factory=dict)
    _first_look_at: datetime | None = None

    async def look(self) -> dict[str, object]:
        """One round; returns how many alerts opened and resolved."""
        opened = resolved = 0
        is_behind = True
        while is_behind:
            async with db.transaction(self.pool) as tx:
                now = await store.begin(tx)
                if now is None:
                    return {}
                self._first_look_at = min(self._first_look_at or now, now)
                await self._read_rules(tx)
                is_behind, new_opened, new_resolved = await self._round(tx, now)
                crash.here("alert.before_commit")
            crash.here("alert.after_commit")
            opened, resolved = opened + new_opened, resolved + new_resolved
        return {"opened": opened, "resolved": resolved} if opened or resolved else {}

    async def _read_rules(self, tx: db.Connection) -> None:
        tags = await store.context_tags(tx)
        for tenant_id, tag in tags.items():
            if tenant_id not in self._tenants or self._tags.get(tenant_id) != tag:
                content = None if tag is None else await store.context(tx, tenant_id)
                self._tenants[tenant_id] = rules.of_context(content)
        self._tenants = {tenant_id: self._tenants[tenant_id] for tenant_id in tags}
        self._tags = tags
        UNREADABLE.set(sum(tenant.unreadable for tenant in self._tenants.values()))

    async def _round(self, tx: db.Connection, now: datetime) -> tuple[bool, int, int]:
        """Whether there is more to read, how many alerts opened, how many resolved."""
        metrics = {metric for tenant in self._tenants.values() for metric in tenant.by_metric}
        resolved = [
            (rule_id, series)
            for series in await store.remove_gone(tx, metrics)
            for rule_id, known in series.states.items()
            if known.is_raised
        ]
        tracked = await store.tracked(tx, metrics, read_from=now - LOOK_BACK)
        limit = min(MAX_OF_SERIES, max(MIN_OF_SERIES, MAX_READINGS // max(1, len(tracked))))
        new = await store.readings(tx, tracked, limit=limit)
        SERIES.set(len(tracked))
        opened: list[OpenedAlert] = []
        changed: list[Tracked] = []
        for item in tracked:
            series = item.series
            tenant = self._tenants.get(series.tenant_id)
            if tenant is None:  # registered since we looked
                continue
            readings = new.get((series.tenant_id, series.device_id, series.metric_type), ())
            outcome = rules.evaluate(
                series, readings, tenant, now=now, zone=self.zone, heard_at=item.heard_at,
                listening_since=self._first_look_at or now,
            )  # fmt: skip
            opened += outcome.opened
            resolved += outcome.resolved
            if readings or item.is_new or outcome.series != series:
                is_all = len(readings) < limit
                changed.append(_read_on(item, outcome.series, readings, now, is_all=is_all))
        await self._report(tx, opened, resolved)
        await self._heed(tx, now)
        await self.post.call(tx)
        if changed:
            await store.save(tx, changed)
        is_behind = any(len(readings) == limit for readings in new.values())
        return is_behind, len(opened), len(resolved)

    async def _heed(self, tx: db.Connection, now: datetime) -> None:
        """Take to what is open what people did in the cloud: rules, maintenance, looking after."""
        for alert in await store.local_alerts(tx):
            if (tenant := self._tenants.get(alert.tenant_id)) is None:
                continue
            wanted = rules.heeded(alert, tenant, now)
            if wanted != alert:
                await store.change_local_alert(tx, wanted)
            if wanted.severity != alert.severity:
                changed = Alert(alert.kind, alert.subject, wanted.severity, alert.message)
                await alerts.restate(tx, changed)

    async def _report(
        self,
        tx: db.Connection,
        opened: Sequence[OpenedAlert],
        resolved: Sequence[tuple[str, Series]],
    ) -> None:
        for rule_id, series in sorted(
            resolved, key=lambda end: (end[0], rules.alert_subject(end[1]))
        ):
            kind, subject = rules.kind(rule_id), rules.alert_subject(series)
            await alerts.close(tx, kind=kind, subject=subject)
            if message := await store.remove_local_alert(tx, kind=kind, subject=subject):
                await self.post.resolved(tx, kind=kind, subject=subject, message=message)
            CHANGES.labels(change="resolved", severity="").inc()
            # Logs name no device; the alert does.
            log.get("alert").info("alert.resolved", name=kind, tenant_id=series.tenant_id)
        for alert in sorted(
            opened, key=lambda alert: (alert.rule.rule_id, alert.series.subject.text)
        ):
            kind, subject = rules.kind(alert.rule.rule_id), rules.alert_subject(alert.series)
            severity = alert.rule.severity
            await alerts.raise_(tx, Alert(kind, subject, severity, alert.message))
            await store.add_local_alert(
                tx, alert.series, kind=kind, subject=subject, severity=severity,
                message=alert.message, opened_at=alert.opened_at,
            )  # fmt: skip
            CHANGES.labels(change="opened", severity=severity).inc()
            log.get("alert").warning(
                "alert.opened", name=kind, status=severity, tenant_id=alert.series.tenant_id
            )


def _read_on(
    item: Tracked, series: Series, readings: Sequence[Reading], now: datetime, *, is_all: bool
) -> Tracked:
    """How far it is read now.

    Never beyond the present: a clock that was ahead and is set right must not hide what follows.
    What came from the future is distinguished by its arrival.
    """
    item = replace(item, series=series)
    if not readings:
        return item
    last_at = readings[-1].occurred_at
    item = replace(item, read_to=max(item.read_to, min(last_at, now)))
    if is_all or last_at > now:
        arrived_at = max(reading.ingested_at for reading in readings)
        item = replace(item, ingested_to=max(item.ingested_to, arrived_at))
    return item
