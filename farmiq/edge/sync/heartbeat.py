"""The edge says every minute how it is; if it does not get through, the next one will tell."""

import asyncio
import platform
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import prometheus_client

from farmiq import __version__
from farmiq.config import EdgeSettings
from farmiq.edge import alerts, disk
from farmiq.edge.sync import desk, verdict, watch
from farmiq.edge.sync.cloud import Cloud
from farmiq.edge.sync.desk import TenantStatus
from farmiq.edge.sync.verdict import Answer
from farmiq.messages.text import storable
from farmiq.plumbing import db

HEARTBEATS = prometheus_client.Counter(
    "farmiq_sync_heartbeats_total", "Heartbeats of this edge to the cloud", ["outcome"]
)
TOLD = 204
TOLD_AND_REPLACED = 200
REFUSED = (401, 403)


async def beat(
    pool: db.Pool, cloud: Cloud, settings: EdgeSettings, *, seen: Sequence[TenantStatus] | None
) -> dict[str, object]:
    """Tell each tenant's cloud once. Nothing is kept of it: a backlog of heartbeats helps nobody.

    Tenants are those of the outbox as last `seen`, and of the devices.
    """
    async with pool.connection() as connection:
        if seen is None:
            seen = await desk.status(connection)
        rows = await db.fetch_all(connection, "select distinct tenant_id from devices")
        postgresql = connection.info.parameter_status("server_version") or ""
    versions = {
        "farmiq": __version__,
        "python": platform.python_version(),
        "postgresql": postgresql[:64],
    }
    percent = await asyncio.to_thread(_fullest, settings.disk_paths)
    known = {each.tenant_id: each for each in seen}
    for tenant_id in sorted({row[0] for row in rows} | known.keys()):
        said = _said(tenant_id, known.get(tenant_id), versions, percent)
        answer = await cloud.tell(tenant_id, said)
        by = _replaced_by(answer)
        stolen = by if by is not None and not cloud.has_key(by) else None
        await _settle(pool, tenant_id, answer, edge=settings.edge_cluster_id, stolen=stolen)
    return {}


async def _settle(
    pool: db.Pool, tenant_id: str, answer: Answer, *, edge: str, stolen: str | None
) -> None:
    """An edge with nothing to send hears this way that it is not let in, or soon will not be."""
    told = answer.status in (TOLD, TOLD_AND_REPLACED)
    HEARTBEATS.labels(outcome="told" if told else "not told").inc()
    if told:
        async with db.transaction(pool) as tx:
            await alerts.close(tx, kind=watch.NOT_LET_IN, subject=tenant_id)
            if stolen is None:
                await alerts.close(tx, kind=watch.KEY_REPLACED, subject=edge)
            else:
                await alerts.raise_(tx, watch.key_replaced(edge, stolen))
    elif answer.status in REFUSED:
        found = verdict.judge(answer, count=0)
        async with db.transaction(pool) as tx:
            if isinstance(found, verdict.Away):
                await alerts.raise_(tx, watch.not_let_in(tenant_id, found))


def _replaced_by(answer: Answer) -> str | None:
    """The key that took the place of ours, if the cloud says so."""
    said = answer.body if answer.status == TOLD_AND_REPLACED else None
    by = said.get("replaced_by") if isinstance(said, dict) else None
    return storable(by) if isinstance(by, str) else None


def _said(
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
        found = [shutil.disk_usage(path) for path in disk.paths(setting)]
    except OSError:
        return 100.0
    return max(disk.Usage(each.total, each.free).percent for each in found)
