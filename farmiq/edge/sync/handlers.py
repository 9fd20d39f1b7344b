"""What a person may see of the outbox and do to it: list, redrive, release, discard.

Each change is in the audit log, in the same transaction; `how` is limit, actor and dry_run.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from farmiq.edge import audit
from farmiq.plumbing import db, deadletters
from farmiq.plumbing.deadletters import Filter, Table

MAX_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class TenantStatus:
    """How delivery of one tenant goes. `live_priority` is above 0 while a backlog drains."""

    tenant_id: str
    state: Literal["idle", "delivering", "draining", "paused"]
    waiting: int
    pending: int
    claimed: int
    sending: int
    dlq: int
    failed: int
    oldest_s: float
    consecutive_failures: int
    paused_until: datetime | None
    last_error_code: str | None
    last_error_message: str | None
    last_acked_at: datetime | None
    last_acked_event_id: UUID | None
    last_sent_batch_id: str | None
    live_priority: int


TABLE = Table(
    name="sync_outbox",
    id="id",
    columns="""
      id, tenant_id, farm_id, barn_id, device_id, session_id, event_type, occurred_at, trace_id,
      payload_size_bytes, status, priority, attempt_count, last_attempt_at, next_attempt_at,
      claimed_by, claimed_at, lease_expires_at, last_error_code, last_error_message, failed_at,
      dlq_reason, created_at, updated_at
    """,
    conditions={
        "statuses": "status = any(%(statuses)s)",
        "ids": "id = any(%(ids)s::uuid[])",
        "tenant_id": "tenant_id = %(tenant_id)s",
        "event_type": "event_type = %(event_type)s",
        "dlq_reason": "dlq_reason = %(dlq_reason)s",
        "last_error_code": "last_error_code = %(last_error_code)s",
        "created_after": "created_at >= %(created_after)s",
        "created_before": "created_at < %(created_before)s",
        # A row that is gone has nothing behind it.
        "after": "(created_at, id) < "
        "(select a.created_at, a.id from sync_outbox a where a.id = %(after)s)",
        "stuck": "claimed_by is not null and status in ('claimed', 'sending') "
        "and lease_expires_at < (select fn_now())",
    },
    # Newest is what was written last: ids are the devices' own and say nothing of time.
    newest_first="created_at desc, id desc",
    oldest_first="created_at, id",
)
DLQ: Filter = {"statuses": ["dlq"]}
_PENDING = """
  status = 'pending', next_attempt_at = (select fn_now()),
  claimed_by = null, claimed_at = null, lease_expires_at = null
"""


async def status(tx: db.Connection) -> list[TenantStatus]:
    """Every tenant with pending events or dead letters, or to whom something was delivered."""
    return await db.fetch_as(
        tx,
        TenantStatus,
        """
        with counted as (
          select tenant_id,
            count(*) filter (where status = 'pending') as pending,
            count(*) filter (where status = 'claimed') as claimed,
            count(*) filter (where status = 'sending') as sending,
            count(*) filter (where status = 'dlq') as dlq,
            count(*) filter (where status = 'failed') as failed,
            count(*) filter (where status in ('pending', 'claimed', 'sending')) as waiting,
            min(created_at) filter (where status in ('pending', 'claimed', 'sending')) as oldest
          from sync_outbox
          where status in ('pending', 'claimed', 'sending', 'dlq', 'failed')
          group by tenant_id
        )
        select tenant_id,
          case
            when coalesce(c.waiting, 0) = 0 then 'idle'
            when s.consecutive_failures > 0 then 'paused'
            when d.level > 0 then 'draining'
            else 'delivering'
          end as state,
          coalesce(c.waiting, 0) as waiting, coalesce(c.pending, 0) as pending,
          coalesce(c.claimed, 0) as claimed, coalesce(c.sending, 0) as sending,
          coalesce(c.dlq, 0) as dlq,
          coalesce(c.failed, 0) as failed,
          coalesce(extract(epoch from fn_now() - c.oldest), 0)::float8 as oldest_s,
          coalesce(s.consecutive_failures, 0) as consecutive_failures, s.paused_until,
          s.last_error_code, s.last_error_message, s.last_acked_at, s.last_acked_event_id,
          s.last_sent_batch_id,
          coalesce(d.level, 0) as live_priority
        from counted c
        full join sync_state s using (tenant_id)
        left join sync_drain d using (tenant_id)
        order by tenant_id
        """,
    )


async def delivered(tx: db.Connection) -> int:
    """How many delivered rows are still stored; it counts them all."""
    count: int = await db.fetch_value(tx, "select count(*) from sync_outbox where status = 'acked'")
    return count


async def redrive(tx: db.Connection, chosen: Filter, **how: Any) -> list[UUID]:
    """From the dlq back to pending, with attempts and errors cleared (C-17); oldest first."""
    changes = "attempt_count = 0, failed_at = null, dlq_reason = null, "
    changes += f"last_error_code = null, last_error_message = null, {_PENDING}"
    return await _move(tx, chosen, DLQ, changes, action="redrive", **how)


async def release(tx: db.Connection, chosen: Filter, **how: Any) -> list[UUID]:
    """Release rows that are held beyond their lease, at once and without counting an attempt."""
    return await _move(tx, chosen, {"stuck": True}, _PENDING, action="unclaim", **how)


async def discard(tx: db.Connection, chosen: Filter, **how: Any) -> list[UUID]:
    """Discard rows of the dlq: `failed`, stored until they are archived (C-16)."""
    return await _move(tx, chosen, DLQ, "status = 'failed'", action="discard", **how)


async def _move(
    tx: db.Connection,
    chosen: Filter,
    movable: Filter,
    changes: str,
    *,
    action: str,
    limit: int,
    actor: str,
    dry_run: bool = False,
) -> list[UUID]:
    """Change the chosen rows, with an entry in the audit log; returns their ids."""
    ids = await deadletters.choose(tx, TABLE, {**chosen, **movable}, limit=limit, lock=True)
    if not ids or dry_run:
        return ids
    # Only a transaction that says so moves a row out of the dlq (fn_sync_outbox_guard).
    await tx.execute("select set_config('farmiq.outbox_by_hand', %s, true)", (action,))
    await tx.execute(
        f"update sync_outbox set {changes}, updated_at = (select fn_now()) "  # noqa: S608 - our own
        "where id = any(%s)".encode(),
        (ids,),
    )
    await audit.note(
        tx,
        actor=actor,
        action=f"outbox.{action}",
        subject="sync_outbox",
        count=len(ids),
        asked={name: value for name, value in chosen.items() if value is not None},
        ids=[str(event_id) for event_id in ids],
    )
    return ids
