"""The heartbeat of an edge, every minute; the last one is stored."""

import json
from typing import Annotated

import msgspec
from msgspec import Meta

from farmiq.cloud.edges.registry import NotAllowedError
from farmiq.messages.ids import Id, Instant
from farmiq.messages.kinds import Count
from farmiq.plumbing import db

_Word = Annotated[str, Meta(max_length=64)]


class EdgeHeartbeat(msgspec.Struct, kw_only=True):
    """How one tenant's delivery and the edge's machine are.

    Outside of the outbox: if it does not get through, nobody sends it again.
    """

    tenant_id: Id
    sent_at: Instant
    versions: Annotated[dict[_Word, _Word], Meta(max_length=16)]
    waiting: Count
    oldest_s: Annotated[float, Meta(ge=0, le=1e12)]
    dlq: Count
    disk_percent: Annotated[float, Meta(ge=0, le=100)]


async def store(tx: db.Connection, edge_cluster_id: str, heartbeat: EdgeHeartbeat) -> None:
    """Raises NotAllowedError for a tenant that is no company here (C-104)."""
    cursor = await tx.execute(
        """
        insert into edge_heartbeats as h (tenant_id, edge_cluster_id, received_at, sent_at,
          clock_offset_s, versions, waiting, oldest_s, dlq, disk_percent)
        select tenant_id, %(edge)s, fn_now(), %(sent_at)s,
          extract(epoch from %(sent_at)s - fn_now()), %(versions)s, %(waiting)s, %(oldest_s)s,
          %(dlq)s, %(disk)s
        from companies where tenant_id = %(tenant)s
        on conflict on constraint edge_heartbeats_pkey do update set
          received_at = excluded.received_at, sent_at = excluded.sent_at,
          clock_offset_s = excluded.clock_offset_s, versions = excluded.versions,
          waiting = excluded.waiting, oldest_s = excluded.oldest_s, dlq = excluded.dlq,
          disk_percent = excluded.disk_percent
        """,
        {
            "tenant": heartbeat.tenant_id,
            "edge": edge_cluster_id,
            "sent_at": heartbeat.sent_at,
            "versions": json.dumps(heartbeat.versions),
            "waiting": heartbeat.waiting,
            "oldest_s": heartbeat.oldest_s,
            "dlq": heartbeat.dlq,
            "disk": heartbeat.disk_percent,
        },
    )
    if not cursor.rowcount:
        raise NotAllowedError(f"tenant {heartbeat.tenant_id!r} is not registered here")
