"""The monitor: figures for Prometheus, alerts for people, heartbeats to the cloud."""

import asyncio
import contextlib
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from prometheus_client import Counter, Gauge

from farmiq import __version__
from farmiq.config import EdgeSettings
from farmiq.edge import alert_events, alerts, disk
from farmiq.edge.alerts import Alert
from farmiq.edge.sync import handlers, rules
from farmiq.edge.sync.cloud import Cloud
from farmiq.edge.sync.handlers import TenantStatus
from farmiq.edge.sync.rules import CloudResponse, Sample, Unavailable
from farmiq.messages.contract import CONTRACT
from farmiq.messages.text import storable
from farmiq.messages.wording import worded
from farmiq.plumbing import db

DEAD_LETTERS = "sync.dlq"
ACCESS_DENIED = "sync.not_let_in"
KEY_REPLACED = "sync.key_replaced"
STALLED = "sync.backlog_not_falling"

BACKLOG = Gauge("farmiq_sync_backlog", "Events not delivered yet")
OLDEST = Gauge("farmiq_sync_oldest_seconds", "Age of the oldest of them")
DLQ = Gauge("farmiq_sync_dlq", "Dead letters of the outbox")
RATE = Gauge(
    "farmiq_sync_rate", "Events that this forwarder delivers per second, over the last minutes"
)
ETA = Gauge(
    "farmiq_sync_eta_seconds", "Until the backlog is gone at its present fall; +Inf: it rises"
)

HEARTBEATS = Counter(
    "farmiq_sync_heartbeats_total", "Heartbeats of this edge to the cloud", ["outcome"]
)
RECEIVED = 204
KEY_WAS_REPLACED = 200
DENIED = (401, 403)

CHECK_S = 5.0
# More farms than any edge has; the cloud accepts no more.
MAX_FARMS = 200
# Counting a long backlog costs: at most this share of the time goes into it.
_SHARE = 0.05


class Monitor:
    """Counts the outbox every few seconds; `delivered` is what this forwarder has delivered."""

    def __init__(
        self, settings: EdgeSettings, pool: db.Pool, *, delivered: Callable[[], int]
    ) -> None:
        self._settings, self._pool, self._delivered = settings, pool, delivered
        self._samples: dict[str, list[Sample]] = {}
        self._total: list[Sample] = []
        self._stalled: set[str] = set()
        self.seen: list[TenantStatus] | None = None

    @property
    def rate(self) -> float:
        return rules.rate(self._total)

    @property
    def eta_s(self) -> float | None:
        return rules.eta_s(self._total)

    async def run(self) -> None:
        while True:
            began = time.monotonic()
            # The forwarding loop logs it when the database is away.
            with contextlib.suppress(*db.UNAVAILABLE):
                await self.check(at_s=began)
            await asyncio.sleep(max(CHECK_S, (time.monotonic() - began) / _SHARE))

    async def check(self, *, at_s: float) -> list[TenantStatus]:
        """Count once: set the figures, raise and close alerts; returns each tenant's status."""
        async with db.transaction(self._pool) as tx:
            tenants = await handlers.status(tx)
            self._record(tenants, at_s)
            for tenant in tenants:
                await self._raise_alerts(tx, tenant)
        self.seen = tenants
        BACKLOG.set(sum(tenant.waiting for tenant in tenants))
        OLDEST.set(max((tenant.oldest_s for tenant in tenants), default=0.0))
        DLQ.set(sum(tenant.dlq for tenant in tenants))
        RATE.set(self.rate)
        ETA.set(float("inf") if self.eta_s is None else self.eta_s)
        return tenants

    def _record(self, tenants: list[TenantStatus], at_s: float) -> None:
        over_s = self._settings.sync_stall_s
        for tenant in tenants:
            samples = self._samples.setdefault(tenant.tenant_id, [])
            samples.append(Sample(at_s, tenant.waiting, tenant.oldest_s))
            self._samples[tenant.tenant_id] = rules.recent(samples, over_s=over_s)
        waiting = sum(tenant.waiting for tenant in tenants)
        self._total.append(Sample(at_s, waiting, delivered=self._delivered()))
        self._total = rules.recent(self._total, over_s=min(over_s, 120.0))

    async def _raise_alerts(self, tx: db.Connection, tenant: TenantStatus) -> None:
        over_s = self._settings.sync_stall_s
        stalled = rules.stalled(self._samples[tenant.tenant_id], over_s=over_s)
        known = tenant.tenant_id in self._stalled
        if stalled and not known:
            await alerts.raise_(tx, stalled_alert(tenant, over_s=over_s))
            self._stalled.add(tenant.tenant_id)
        elif not stalled and (known or not tenant.waiting):
            await alerts.close(tx, kind=STALLED, subject=tenant.tenant_id)
            self._stalled.discard(tenant.tenant_id)
        if not tenant.dlq:
            await alerts.close(tx, kind=DEAD_LETTERS, subject=tenant.tenant_id)


def dead_letter_alert(tenant_id: str, reason: str) -> Alert:
    return Alert(
        DEAD_LETTERS,
        tenant_id,
        "warning",
        worded(
            "events could not be delivered and were set aside (%(why)s): look with "
            "`farmiq outbox ls --status dlq`, then `farmiq outbox redrive` or "
            "`discard`",
            why=reason,
        ),
    )


def access_denied_alert(tenant_id: str, outage: Unavailable) -> Alert:
    return Alert(
        ACCESS_DENIED,
        tenant_id,
        "critical",
        worded(
            "the cloud does not let this edge in (%(code)s: %(why)s): check the edge's key, its "
            "clock, the tenant and FARMIQ_CLOUD_URL; nothing is lost meanwhile",
            code=outage.code,
            why=outage.message or worded("no reason given"),
        ),
    )


def key_replaced_alert(edge_cluster_id: str, by: str) -> Alert:
    return Alert(
        KEY_REPLACED,
        edge_cluster_id,
        "security",
        worded(
            "this edge's key was replaced by %(by)s, which is not the one in "
            "FARMIQ_EDGE_KEY_FILE: if you rotated it on another machine, copy the "
            "new file here; if nobody did, the key was stolen: `farmiq edge revoke "
            "%(edge)s` in the cloud, then enrol this edge anew",
            by=by,
            edge=edge_cluster_id,
        ),
        whole_edge=True,
    )


def stalled_alert(tenant: TenantStatus, *, over_s: float) -> Alert:
    why = (
        worded(
            "%(number)s times in a row %(why)s",
            number=tenant.consecutive_failures,
            why=rules.describe_error(tenant.last_error_code, tenant.last_error_message),
        )
        if tenant.consecutive_failures
        else worded("the cloud is reached, but more comes than goes: look at `farmiq outbox stats`")
    )
    return Alert(
        STALLED,
        tenant.tenant_id,
        "warning",
        worded(
            "%(number)s events wait for the cloud, the oldest for %(number2)s s, "
            "and they have not become fewer in %(number3)s s: %(why)s",
            number=tenant.waiting,
            number2=f"{tenant.oldest_s:.0f}",
            number3=f"{over_s:.0f}",
            why=why,
        ),
    )


async def send_heartbeats(
    pool: db.Pool, cloud: Cloud, settings: EdgeSettings, *, seen: Sequence[TenantStatus] | None
) -> dict[str, object]:
    """Send one heartbeat per tenant; one that fails is not repeated, the next one says it.

    Tenants are those of the outbox as last `seen`, and those of the devices. Afterwards open
    alerts that a tenant's cloud does not know of are reported.
    """
    async with db.transaction(pool) as tx:
        if seen is None:
            seen = await handlers.status(tx)
        totals = await tenant_totals(tx)
        postgresql = tx.info.parameter_status("server_version") or ""
    versions = {
        "farmiq": __version__,
        "contract": str(CONTRACT),
        "python": platform.python_version(),
        "postgresql": postgresql[:64],
    }
    percent = await asyncio.to_thread(_fullest, settings.disk_paths)
    known = {status.tenant_id: status for status in seen}
    for tenant_id in sorted(totals.keys() | known.keys()):
        heartbeat = {
            **_heartbeat(tenant_id, known.get(tenant_id), versions, percent),
            **asdict(totals.get(tenant_id, NOTHING)),
        }
        response = await cloud.send_heartbeat(tenant_id, heartbeat)
        by = _replaced_by(response)
        stolen = by if by is not None and not cloud.has_key(by) else None
        await _settle(pool, tenant_id, response, edge=settings.edge_cluster_id, stolen=stolen)
    async with db.transaction(pool) as tx:
        reported = await alert_events.report_pending(tx)
    return {"reported": reported} if reported else {}


@dataclass(frozen=True, slots=True)
class Totals:
    """What an edge holds of one tenant now, for the cloud to compare with what arrived (C-110)."""

    open_alerts: int = 0
    quarantine: int = 0
    losses: int = 0
    farms: tuple[str, ...] = ()


NOTHING = Totals()


async def tenant_totals(tx: db.Connection) -> dict[str, Totals]:
    """By tenant with a device here. A message counts for the tenant that its topic names."""
    open_alerts = await alert_events.open_counts(tx)
    rows = await db.fetch_all(
        tx,
        """
        select d.tenant_id, coalesce(q.count, 0), coalesce(l.count, 0), d.farms
        from (
          select tenant_id, coalesce((array_agg(distinct farm_id order by farm_id)
            filter (where revoked_at is null))[:%s], '{}') as farms
          from devices group by tenant_id
        ) d
        left join (
          select split_part(topic, '/', 3) as tenant_id, count(*) from quarantine group by 1
        ) q using (tenant_id)
        left join (
          select tenant_id, sum(count)::bigint as count from loss_ledger group by 1
        ) l using (tenant_id)
        """,
        MAX_FARMS,
    )
    return {
        tenant_id: Totals(open_alerts.get(tenant_id, 0), quarantine, losses, tuple(farms))
        for tenant_id, quarantine, losses, farms in rows
    }


async def _settle(
    pool: db.Pool, tenant_id: str, response: CloudResponse, *, edge: str, stolen: str | None
) -> None:
    """Raise or close alerts: an edge with nothing to send learns here that it has no access."""
    received = response.status in (RECEIVED, KEY_WAS_REPLACED)
    HEARTBEATS.labels(outcome="told" if received else "not told").inc()
    if received:
        async with db.transaction(pool) as tx:
            await alert_events.accept(tx, tenant_id, edge_cluster_id=edge)
            await alerts.close(tx, kind=ACCESS_DENIED, subject=tenant_id)
            if stolen is None:
                await alerts.close(tx, kind=KEY_REPLACED, subject=edge)
            else:
                await alerts.raise_(tx, key_replaced_alert(edge, stolen))
    elif response.status in DENIED:
        result = rules.classify_response(response, count=0)
        async with db.transaction(pool) as tx:
            if isinstance(result, rules.Unavailable):
                await alerts.raise_(tx, access_denied_alert(tenant_id, result))


def _replaced_by(response: CloudResponse) -> str | None:
    """The key that replaced ours, if the cloud says so."""
    body = response.body if response.status == KEY_WAS_REPLACED else None
    by = body.get("replaced_by") if isinstance(body, dict) else None
    return storable(by) if isinstance(by, str) else None


def _heartbeat(
    tenant_id: str, status: TenantStatus | None, versions: dict[str, str], disk_percent: float
) -> dict[str, Any]:
    return {
        "tenant_id": tenant_id,
        "sent_at": datetime.now(UTC),
        "versions": versions,
        "waiting": status.waiting if status else 0,
        "oldest_s": max(0.0, status.oldest_s) if status else 0.0,
        "dlq": status.dlq if status else 0,
        "disk_percent": disk_percent,
    }


def _fullest(setting: str) -> float:
    """A disk that cannot be measured counts as full: the cloud's people should look."""
    try:
        return max(disk.read_usage(path).percent for path in disk.paths(setting))
    except OSError:
        return 100.0
