"""SQL of delivery for the pages: what waits for the cloud, dead letters, the quarantine.

Everything is bounded: after weeks without internet the outbox has millions of rows.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from farmiq.edge.ingress import quarantine
from farmiq.edge.sync import handlers
from farmiq.plumbing import db, deadletters
from farmiq.plumbing.deadletters import Filter

# Beyond this a page says "more than".
MAX_COUNTED = 100_000
MAX_ROWS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What waits for the cloud, and when it was last heard of. Counts end at MAX_COUNTED."""

    waiting: int
    oldest_at: datetime | None
    images: int
    dead: int
    failures: int
    paused_until: datetime | None
    error_code: str | None
    error_message: str | None
    acked_at: datetime | None
    checked_at: datetime | None
    is_enrolled: bool

    @property
    def is_capped(self) -> bool:
        return self.waiting >= MAX_COUNTED

    @property
    def contact_at(self) -> datetime | None:
        """When the cloud last answered as it should."""
        return max((at for at in (self.acked_at, self.checked_at) if at), default=None)


async def backlog(connection: db.Connection, tenant_id: str) -> Backlog:
    """The three parts of `waiting` are what the outbox's partial indexes hold."""
    (counted,) = await db.fetch_as(
        connection,
        Backlog,
        """
        with waiting as materialized (
          (select created_at from sync_outbox
            where tenant_id = %(tenant)s and status in ('pending', 'claimed')
              and attempt_count = 0 limit %(max)s)
          union all
          (select created_at from sync_outbox
            where tenant_id = %(tenant)s and status in ('pending', 'claimed')
              and attempt_count > 0 limit %(max)s)
          union all
          (select created_at from sync_outbox
            where status = 'sending' and tenant_id = %(tenant)s limit %(max)s))
        select least(w.count, %(max)s)::int as waiting, w.oldest_at,
          (select count(*) from (
            select from media_objects where upload_status = 'stored' and synced_at is null
              and tenant_id = %(tenant)s limit %(max)s) m)::int as images,
          (select count(*) from (
            select from sync_outbox where status = 'dlq' and tenant_id = %(tenant)s
            limit %(max)s) d)::int as dead,
          coalesce(s.consecutive_failures, 0) as failures, s.paused_until,
          s.last_error_code as error_code, s.last_error_message as error_message,
          s.last_acked_at as acked_at, c.checked_at,
          exists (select from cloud_tenants t where t.tenant_id = %(tenant)s) as is_enrolled
        from (select count(*), min(created_at) as oldest_at from waiting) w
          left join sync_state s on s.tenant_id = %(tenant)s
          left join cloud_contexts c on c.tenant_id = %(tenant)s
        """,
        {"tenant": tenant_id, "max": MAX_COUNTED},
    )
    return counted


# --- dead letters of the outbox


async def dead_letters(connection: db.Connection, tenant_id: str) -> list[dict[str, Any]]:
    """The newest of them, without their payloads."""
    chosen = {**handlers.DLQ, "tenant_id": tenant_id}
    return await deadletters.ls(connection, handlers.TABLE, chosen, limit=MAX_ROWS)


async def dead_by_reason(connection: db.Connection, tenant_id: str) -> list[tuple[str, str, int]]:
    """(reason, event type, how many), most first."""
    rows = await db.fetch_all(
        connection,
        """
        select coalesce(dlq_reason, ''), event_type, count(*)::int
        from (select dlq_reason, event_type from sync_outbox
          where status = 'dlq' and tenant_id = %s limit %s) d
        group by 1, 2 order by 3 desc, 1, 2 limit %s
        """,
        tenant_id,
        MAX_COUNTED,
        MAX_ROWS,
    )
    return [(reason, event_type, count) for reason, event_type, count in rows]


# --- quarantine; without a tenant: of all tenants, and of topics that name none


async def rejected(
    connection: db.Connection, tenant_id: str | None, *, kind: str | None, before: UUID | None
) -> list[dict[str, Any]]:
    """One row more than a page has, if there is a next page; newest first."""
    chosen = {"tenant_id": tenant_id, "kind": kind, "before": before}
    return await deadletters.ls(connection, quarantine.TABLE, chosen, limit=MAX_ROWS + 1)


async def rejected_by_reason(
    connection: db.Connection, tenant_id: str | None
) -> list[dict[str, Any]]:
    return await deadletters.counts(connection, quarantine.TABLE, {"tenant_id": tenant_id})


async def rejected_count(connection: db.Connection, tenant_id: str | None) -> int:
    return await deadletters.count(connection, quarantine.TABLE, {"tenant_id": tenant_id})


async def rejected_message(
    connection: db.Connection, tenant_id: str | None, quarantine_id: UUID
) -> dict[str, Any] | None:
    """With its bytes; None if there is none, or it is another tenant's."""
    chosen: Filter = {"tenant_id": tenant_id, "ids": [quarantine_id]}
    if not await deadletters.count(connection, quarantine.TABLE, chosen):
        return None
    return await deadletters.show(connection, quarantine.TABLE, quarantine_id, payload="raw")
