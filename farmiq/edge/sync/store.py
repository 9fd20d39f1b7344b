"""The outbox as the forwarder sees it: claim, settle, pause. Every write is fenced (C-51)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec
from psycopg import sql
from psycopg.rows import class_row

from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db

_LEAVE_OUT = ("feed.", "barn.")


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row that is ours until its lease ends; `claimed_at` is the fence."""

    id: UUID
    tenant_id: str
    farm_id: str | None
    barn_id: str | None
    device_id: str | None
    session_id: UUID | None
    event_type: str
    occurred_at: datetime
    trace_id: str
    payload: str
    attempt_count: int
    last_error_code: str | None
    claimed_at: datetime
    reclaimed: bool

    def event(self) -> BusEvent:
        """Feed and barn leave out what they do not have (002); all others say null (001)."""
        absent = msgspec.UNSET if self.event_type.startswith(_LEAVE_OUT) else None
        return BusEvent(
            event_id=self.id,
            event_type=self.event_type,
            tenant_id=self.tenant_id,
            farm_id=self.farm_id,
            barn_id=self.barn_id,
            device_id=self.device_id or absent,
            session_id=self.session_id or absent,
            occurred_at=self.occurred_at,
            trace_id=self.trace_id,
            payload=msgspec.Raw(self.payload.encode()),
        )


async def claim(tx: db.Connection, *, claimed_by: str, most: int, lease_s: int) -> list[Claimed]:
    """The documented claim; tenants that pause are passed over (C-21)."""
    async with tx.cursor(row_factory=class_row(Claimed)) as cursor:
        await cursor.execute(
            """
            with candidates as (
              select id, status = 'claimed' as reclaimed
              from sync_outbox
              where
                status in ('pending', 'claimed')
                and next_attempt_at <= (select fn_now())
                and (claimed_by is null or lease_expires_at < (select fn_now()))
                and not exists (select from sync_state s
                  where s.tenant_id = sync_outbox.tenant_id
                    and s.paused_until > (select fn_now()))
              order by priority desc, occurred_at asc
              limit %(most)s
              for update skip locked
            )
            update sync_outbox o
            set
              status = 'claimed',
              claimed_by = %(claimed_by)s,
              claimed_at = fn_now(),
              lease_expires_at = fn_now() + (%(lease_s)s || ' seconds')::interval
            from candidates c
            where o.id = c.id
            returning o.id, o.tenant_id, o.farm_id, o.barn_id, o.device_id, o.session_id,
              o.event_type, o.occurred_at, o.trace_id, o.payload_json::text as payload,
              o.attempt_count, o.last_error_code, o.claimed_at, c.reclaimed
            """,
            {"most": most, "claimed_by": claimed_by, "lease_s": str(lease_s)},
        )
        rows = await cursor.fetchall()
    # UPDATE … RETURNING does not keep the order of the claim (C-20).
    return sorted(rows, key=lambda row: (row.tenant_id, row.occurred_at, row.id))


async def acked(tx: db.Connection, rows: Sequence[Claimed], *, claimed_by: str) -> None:
    await tx.execute(
        """
        update sync_outbox set status = 'acked', last_attempt_at = fn_now(),
          last_error_code = null, last_error_message = null,
          claimed_by = null, claimed_at = null, lease_expires_at = null
        where id = any(%s) and claimed_by = %s and claimed_at = %s and status = 'claimed'
        """,
        (*_fence(rows, claimed_by),),
    )


async def retry(
    tx: db.Connection,
    row: Claimed,
    *,
    claimed_by: str,
    attempts: int,
    delay_ms: float,
    code: str,
    message: str,
) -> None:
    await tx.execute(
        """
        update sync_outbox set status = 'pending', attempt_count = %s,
          last_attempt_at = fn_now(),
          next_attempt_at = fn_now() + %s * interval '1 millisecond',
          last_error_code = %s, last_error_message = %s,
          claimed_by = null, claimed_at = null, lease_expires_at = null
        where id = any(%s) and claimed_by = %s and claimed_at = %s and status = 'claimed'
        """,
        (attempts, delay_ms, code, message, *_fence([row], claimed_by)),
    )


async def set_aside(
    tx: db.Connection,
    rows: Mapping[Claimed, str],
    *,
    claimed_by: str,
    reason: str,
    code: str,
) -> None:
    """To the dlq, each with its own message; only an operator's redrive brings it back."""
    for row, message in rows.items():
        await tx.execute(
            """
            update sync_outbox set status = 'dlq', attempt_count = attempt_count + 1,
              last_attempt_at = fn_now(), failed_at = fn_now(),
              dlq_reason = %s, last_error_code = %s, last_error_message = %s,
              claimed_by = null, claimed_at = null, lease_expires_at = null
            where id = any(%s) and claimed_by = %s and claimed_at = %s and status = 'claimed'
            """,
            (reason, code, message, *_fence([row], claimed_by)),
        )


async def note_success(
    tx: db.Connection, tenant_id: str, *, last: Claimed, batch_id: str, outage_codes: Sequence[str]
) -> None:
    """The way is free: what waited because of an outage is due now, and owes nothing for it."""
    before = await db.fetch_value(
        tx, "select consecutive_failures from sync_state where tenant_id = %s", tenant_id
    )
    await tx.execute(
        """
        insert into sync_state as s (tenant_id, last_acked_event_id, last_acked_at,
          last_sent_batch_id)
        values (%s, %s, fn_now(), %s)
        on conflict on constraint sync_state_pkey do update set
          last_acked_event_id = excluded.last_acked_event_id,
          last_acked_at = excluded.last_acked_at,
          last_sent_batch_id = excluded.last_sent_batch_id,
          consecutive_failures = 0, paused_until = null
        """,
        (tenant_id, last.id, batch_id),
    )
    if before:
        await tx.execute(
            """
            update sync_outbox set attempt_count = 0, next_attempt_at = fn_now()
            where tenant_id = %s and status = 'pending' and last_error_code = any(%s)
            """,
            (tenant_id, list(outage_codes)),
        )


async def failures(tx: db.Connection, tenant_id: str) -> int:
    found = await db.fetch_value(
        tx, "select consecutive_failures from sync_state where tenant_id = %s", tenant_id
    )
    return int(found or 0)


async def note_outage(tx: db.Connection, tenant_id: str, *, pause_s: float) -> None:
    await tx.execute(
        """
        insert into sync_state as s (tenant_id, consecutive_failures, paused_until)
        values (%s, 1, fn_now() + %s * interval '1 second')
        on conflict on constraint sync_state_pkey do update set
          consecutive_failures = s.consecutive_failures + 1,
          paused_until = excluded.paused_until
        """,
        (tenant_id, pause_s),
    )


async def backlog(tx: db.Connection) -> tuple[int, float]:
    """(events not delivered yet, age of the oldest in seconds)."""
    rows = await db.fetch_all(
        tx,
        sql.SQL("""
            select count(*), coalesce(extract(epoch from fn_now() - min(created_at)), 0)
            from sync_outbox where status in ('pending', 'claimed')
        """),
    )
    count, age_s = rows[0]
    return int(count), float(age_s)


def _fence(rows: Sequence[Claimed], claimed_by: str) -> tuple[list[UUID], str, datetime]:
    return [row.id for row in rows], claimed_by, rows[0].claimed_at
