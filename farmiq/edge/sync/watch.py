"""The watch over the backlog: figures for Prometheus and alerts for people."""

import asyncio
import contextlib
import time
from collections.abc import Callable

import prometheus_client

from farmiq.config import EdgeSettings
from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.sync import desk, progress, verdict
from farmiq.edge.sync.desk import TenantStatus
from farmiq.edge.sync.progress import Look
from farmiq.edge.sync.verdict import Away
from farmiq.plumbing import db

SET_ASIDE = "sync.dlq"
NOT_LET_IN = "sync.not_let_in"
KEY_REPLACED = "sync.key_replaced"
STALLED = "sync.backlog_not_falling"

BACKLOG = prometheus_client.Gauge("farmiq_sync_backlog", "Events not delivered yet")
OLDEST = prometheus_client.Gauge("farmiq_sync_oldest_seconds", "Age of the oldest of them")
DLQ = prometheus_client.Gauge("farmiq_sync_dlq", "Events set aside")
RATE = prometheus_client.Gauge(
    "farmiq_sync_rate", "Events that this forwarder delivers per second, over the last minutes"
)
ETA = prometheus_client.Gauge(
    "farmiq_sync_eta_seconds", "Until the backlog is gone at its present fall; +Inf: it rises"
)

LOOK_S = 5.0
# Counting a long backlog costs: at most this share of the time goes into it.
_SHARE = 0.05


class Watch:
    """Looks at the outbox every few seconds; `delivered` is what this forwarder has delivered."""

    def __init__(
        self, settings: EdgeSettings, pool: db.Pool, *, delivered: Callable[[], int]
    ) -> None:
        self._settings, self._pool, self._delivered = settings, pool, delivered
        self._looks: dict[str, list[Look]] = {}
        self._together: list[Look] = []
        self._stalled: set[str] = set()
        self.seen: list[TenantStatus] | None = None

    @property
    def rate(self) -> float:
        return progress.rate(self._together)

    @property
    def eta_s(self) -> float | None:
        return progress.eta_s(self._together)

    async def look_for_ever(self) -> None:
        while True:
            began = time.monotonic()
            # The loop beside this one says when the database is away.
            with contextlib.suppress(*db.UNAVAILABLE):
                await self.look(at_s=began)
            await asyncio.sleep(max(LOOK_S, (time.monotonic() - began) / _SHARE))

    async def look(self, *, at_s: float) -> list[TenantStatus]:
        """Look once: set the figures, raise and close alerts; returns what was seen."""
        async with db.transaction(self._pool) as tx:
            tenants = await desk.status(tx)
            self._remember(tenants, at_s)
            for tenant in tenants:
                await self._judge(tx, tenant)
        self.seen = tenants
        BACKLOG.set(sum(tenant.waiting for tenant in tenants))
        OLDEST.set(max((tenant.oldest_s for tenant in tenants), default=0.0))
        DLQ.set(sum(tenant.dlq for tenant in tenants))
        RATE.set(self.rate)
        ETA.set(float("inf") if self.eta_s is None else self.eta_s)
        return tenants

    def _remember(self, tenants: list[TenantStatus], at_s: float) -> None:
        over_s = self._settings.sync_stall_s
        for tenant in tenants:
            looks = self._looks.setdefault(tenant.tenant_id, [])
            looks.append(Look(at_s, tenant.waiting, tenant.oldest_s))
            self._looks[tenant.tenant_id] = progress.kept(looks, over_s=over_s)
        waiting = sum(tenant.waiting for tenant in tenants)
        self._together.append(Look(at_s, waiting, delivered=self._delivered()))
        self._together = progress.kept(self._together, over_s=min(over_s, 120.0))

    async def _judge(self, tx: db.Connection, tenant: TenantStatus) -> None:
        over_s = self._settings.sync_stall_s
        stalled = progress.stalled(self._looks[tenant.tenant_id], over_s=over_s)
        known = tenant.tenant_id in self._stalled
        if stalled and not known:
            await alerts.raise_(tx, not_falling(tenant, over_s=over_s))
            self._stalled.add(tenant.tenant_id)
        elif not stalled and (known or not tenant.waiting):
            await alerts.close(tx, kind=STALLED, subject=tenant.tenant_id)
            self._stalled.discard(tenant.tenant_id)
        if not tenant.dlq:
            await alerts.close(tx, kind=SET_ASIDE, subject=tenant.tenant_id)


def set_aside(tenant_id: str, reason: str) -> Alert:
    return Alert(
        SET_ASIDE,
        tenant_id,
        "warning",
        f"events could not be delivered and were set aside ({reason}): look with `farmiq outbox "
        "ls --status dlq`, then `farmiq outbox redrive` or `discard`",
    )


def not_let_in(tenant_id: str, away: Away) -> Alert:
    return Alert(
        NOT_LET_IN,
        tenant_id,
        "critical",
        f"the cloud does not let this edge in ({away.code}: {away.message or 'no reason given'}): "
        "check the edge's key, its clock, the tenant and FARMIQ_CLOUD_URL; nothing is lost "
        "meanwhile",
    )


def key_replaced(edge_cluster_id: str, by: str) -> Alert:
    return Alert(
        KEY_REPLACED,
        edge_cluster_id,
        "security",
        f"this edge's key was replaced by {by}, which is not the one in FARMIQ_EDGE_KEY_FILE: if "
        "you rotated it on another machine, copy the new file here; if nobody did, the key was "
        f"stolen: `farmiq edge revoke {edge_cluster_id}` in the cloud, then enrol this edge anew",
    )


def not_falling(tenant: TenantStatus, *, over_s: float) -> Alert:
    why = (
        f"{tenant.consecutive_failures} times in a row "
        f"{verdict.told(tenant.last_error_code, tenant.last_error_message)}"
        if tenant.consecutive_failures
        else "the cloud is reached, but more comes than goes: look at `farmiq outbox stats`"
    )
    return Alert(
        STALLED,
        tenant.tenant_id,
        "warning",
        f"{tenant.waiting} events wait for the cloud, the oldest for {tenant.oldest_s:.0f} s, and "
        f"they have not become fewer in {over_s:.0f} s: {why}",
    )
