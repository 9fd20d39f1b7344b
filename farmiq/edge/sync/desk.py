"""What a person may ask of the outbox and do to it: look, redrive, unclaim, discard.

Whatever is done is noted in the audit log in the same transaction.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.rows import class_row, dict_row

from farmiq.edge import audit
from farmiq.edge.sync.states import State
from farmiq.plumbing import db

MOST = 10_000


@dataclass(frozen=True, slots=True)
class TenantStatus:
    """How delivery of one tenant goes. `live_priority` is above 0 while a backlog drains."""

    tenant_id: str
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

    @property
    def waiting(self) -> int:
        return self.pending + self.claimed + self.sending


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows: all those that fit everything that is given."""

    ids: tuple[UUID, ...] | None = None
    tenant_id: str | None = None
    event_type: str | None = None
    dlq_reason: str | None = None
    last_error_code: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def asks_for_something(self) -> bool:
        return any(value is not None for value in asdict(self).values())

    def values(self) -> dict[str, Any]:
        found = asdict(self)
        return {**found, "ids": None if self.ids is None else list(self.ids)}


_CHOSEN = """
  and (%(ids)s::uuid[] is null or id = any(%(ids)s::uuid[]))
  and (%(tenant_id)s::text is null or tenant_id = %(tenant_id)s)
  and (%(event_type)s::text is null or event_type = %(event_type)s)
  and (%(dlq_reason)s::text is null or dlq_reason = %(dlq_reason)s)
  and (%(last_error_code)s::text is null or last_error_code = %(last_error_code)s)
  and (%(created_after)s::timestamptz is null or created_at >= %(created_after)s)
  and (%(created_before)s::timestamptz is null or created_at < %(created_before)s)
"""
# A row that is gone has nothing behind it.
_LISTED = f"""
  status = any(%(statuses)s)
  and (%(after)s::uuid is null
    or (created_at, id) < (select a.created_at, a.id from sync_outbox a where a.id = %(after)s))
  {_CHOSEN}
"""  # noqa: S608 - the texts are those of this file
_SHOWN = """
  id, tenant_id, farm_id, barn_id, device_id, session_id, event_type, occurred_at, trace_id,
  payload_size_bytes, status, priority, attempt_count, last_attempt_at, next_attempt_at, claimed_by,
  claimed_at, lease_expires_at, last_error_code, last_error_message, failed_at, dlq_reason,
  created_at, updated_at
"""


async def status(tx: db.Connection) -> list[TenantStatus]:
    """Every tenant that is owed something, has something set aside, or was ever delivered to."""
    async with tx.cursor(row_factory=class_row(TenantStatus)) as cursor:
        await cursor.execute(
            """
            with counted as (
              select tenant_id,
                count(*) filter (where status = 'pending') as pending,
                count(*) filter (where status = 'claimed') as claimed,
                count(*) filter (where status = 'sending') as sending,
                count(*) filter (where status = 'dlq') as dlq,
                count(*) filter (where status = 'failed') as failed,
                min(created_at) filter (where status in ('pending', 'claimed', 'sending')) as oldest
              from sync_outbox
              where status in ('pending', 'claimed', 'sending', 'dlq', 'failed')
              group by tenant_id
            )
            select tenant_id, coalesce(c.pending, 0) as pending, coalesce(c.claimed, 0) as claimed,
              coalesce(c.sending, 0) as sending, coalesce(c.dlq, 0) as dlq,
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
            """
        )
        return await cursor.fetchall()


async def delivered(tx: db.Connection) -> int:
    """How many delivered rows are still kept; it counts them all."""
    found: int = await db.fetch_value(tx, "select count(*) from sync_outbox where status = 'acked'")
    return found


async def ls(
    tx: db.Connection,
    choice: Choice,
    *,
    statuses: Sequence[State],
    limit: int,
    after: UUID | None = None,
) -> list[dict[str, Any]]:
    """Rows without their payloads, newest first, from behind `after` on.

    Newest is what was written down last: ids are the devices' own and say nothing of time.
    """
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            f"""
            select {_SHOWN} from sync_outbox where {_LISTED}
            order by created_at desc, id desc limit %(limit)s
            """.encode(),  # noqa: S608 - the texts are those of this file
            {**choice.values(), "statuses": list(statuses), "after": after, "limit": limit},
        )
        return await cursor.fetchall()


async def count(
    tx: db.Connection, choice: Choice, *, statuses: Sequence[State], after: UUID | None = None
) -> int:
    """How many rows `ls` would list without a limit."""
    cursor = await tx.execute(
        f"select count(*) from sync_outbox where {_LISTED}".encode(),  # noqa: S608 - the same
        {**choice.values(), "statuses": list(statuses), "after": after},
    )
    row = await cursor.fetchone()
    return row[0] if row else 0


async def show(tx: db.Connection, event_id: UUID) -> dict[str, Any] | None:
    """One row with everything, its payload too."""
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            f"select {_SHOWN}, payload_json from sync_outbox where id = %s".encode(),  # noqa: S608 - the same
            (event_id,),
        )
        return await cursor.fetchone()


async def redrive(
    tx: db.Connection, choice: Choice, *, limit: int, actor: str, dry_run: bool = False
) -> list[UUID]:
    """From the dlq back to pending, with nothing held against them (C-17); oldest first."""
    chosen = await _choose(tx, choice, "status = 'dlq'", limit=limit)
    if not chosen or dry_run:
        return chosen
    await _by_hand(tx, "redrive")
    await tx.execute(
        """
        update sync_outbox set status = 'pending', attempt_count = 0,
          next_attempt_at = (select fn_now()), failed_at = null, dlq_reason = null,
          last_error_code = null, last_error_message = null, updated_at = (select fn_now()),
          claimed_by = null, claimed_at = null, lease_expires_at = null
        where id = any(%s)
        """,
        (chosen,),
    )
    await _note(tx, "outbox.redrive", choice, chosen, actor=actor)
    return chosen


async def unclaim(
    tx: db.Connection, choice: Choice, *, limit: int, actor: str, dry_run: bool = False
) -> list[UUID]:
    """Free rows that are held beyond their lease, at once and without counting an attempt."""
    stuck = "status in ('claimed', 'sending') and lease_expires_at < (select fn_now())"
    chosen = await _choose(tx, choice, f"claimed_by is not null and {stuck}", limit=limit)
    if not chosen or dry_run:
        return chosen
    await tx.execute(
        """
        update sync_outbox set status = 'pending', next_attempt_at = (select fn_now()),
          updated_at = (select fn_now()),
          claimed_by = null, claimed_at = null, lease_expires_at = null
        where id = any(%s)
        """,
        (chosen,),
    )
    await _note(tx, "outbox.unclaim", choice, chosen, actor=actor)
    return chosen


async def discard(
    tx: db.Connection, choice: Choice, *, limit: int, actor: str, dry_run: bool = False
) -> list[UUID]:
    """Give rows of the dlq up: `failed`, kept until they are archived (C-16)."""
    chosen = await _choose(tx, choice, "status = 'dlq'", limit=limit)
    if not chosen or dry_run:
        return chosen
    await _by_hand(tx, "discard")
    await tx.execute(
        "update sync_outbox set status = 'failed', updated_at = (select fn_now()) "
        "where id = any(%s)",
        (chosen,),
    )
    await _note(tx, "outbox.discard", choice, chosen, actor=actor)
    return chosen


async def _choose(tx: db.Connection, choice: Choice, state: str, *, limit: int) -> list[UUID]:
    """Lock what fits; what somebody else is just moving is theirs."""
    cursor = await tx.execute(
        f"""
        select id from sync_outbox where {state} {_CHOSEN}
        order by created_at, id limit %(limit)s for update skip locked
        """.encode(),  # noqa: S608 - the texts are those of this file
        {**choice.values(), "limit": limit},
    )
    return [row[0] for row in await cursor.fetchall()]


async def _by_hand(tx: db.Connection, what: str) -> None:
    """What the trigger asks for; it ends with the transaction."""
    await tx.execute("select set_config('farmiq.outbox_by_hand', %s, true)", (what,))


async def _note(
    tx: db.Connection, action: str, choice: Choice, chosen: Sequence[UUID], *, actor: str
) -> None:
    given = {name: value for name, value in choice.values().items() if value is not None}
    await audit.note(
        tx,
        actor=actor,
        action=action,
        subject="sync_outbox",
        count=len(chosen),
        asked=given,
        ids=[str(event_id) for event_id in chosen],
    )
