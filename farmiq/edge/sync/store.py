"""The outbox as the forwarder sees it: claim, send, settle. Every write is fenced (C-51)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

import msgspec
from psycopg.rows import class_row

from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db

_LEAVE_OUT = ("feed.", "barn.")
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row that is ours until its lease ends; `claimed_at` is the fence."""

    id: UUID
    tenant_id: str
    size_bytes: int
    attempt_count: int
    last_error_code: str | None
    claimed_at: datetime
    reclaimed: bool


@dataclass(frozen=True, slots=True)
class Owed:
    """A row with its content."""

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
    clock_suspect: bool

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
            clock_suspect=self.clock_suspect,
        )


@dataclass(frozen=True, slots=True)
class Sending(Owed):
    """A claimed row with its content, ready to go."""

    attempt_count: int
    last_error_code: str | None
    claimed_at: datetime
    last_attempt_at: datetime | None


@dataclass(frozen=True, slots=True)
class Again:
    """How a row that failed goes back."""

    attempts: int
    delay_s: float


Held = TypeVar("Held", Claimed, Sending)


# The documented claim (003), for one tenant that does not pause (C-21), in two arms, each with its
# index: rows never tried in their order, and rows tried before, of which the few that have been due
# longest (asked for in the documented order, those would be sought among all that wait). Priority
# is read as bigint because only the first arm's index is ordered so: none else tempts the planner.
# The array makes it look rows up by their key however small the table is.
CLAIM = """
with fresh as (
  select id, priority, occurred_at, status = 'claimed' as reclaimed
  from sync_outbox
  where
    status in ('pending', 'claimed')
    and next_attempt_at <= (select fn_now())
    and (claimed_by is null or lease_expires_at < (select fn_now()))
    and attempt_count = 0 and tenant_id = %(tenant_id)s
    and not exists (select from sync_state s
      where s.tenant_id = %(tenant_id)s and s.paused_until > (select fn_now()))
  order by priority::bigint desc, occurred_at asc
  limit %(most)s
  for update skip locked
), again as (
  select id, priority, occurred_at, status = 'claimed' as reclaimed
  from sync_outbox
  where
    status in ('pending', 'claimed')
    and next_attempt_at <= (select fn_now())
    and (claimed_by is null or lease_expires_at < (select fn_now()))
    and attempt_count > 0 and tenant_id = %(tenant_id)s
    and not exists (select from sync_state s
      where s.tenant_id = %(tenant_id)s and s.paused_until > (select fn_now()))
  order by next_attempt_at asc
  limit %(few)s
  for update skip locked
), candidates as (
  select id, reclaimed from (select * from fresh union all select * from again) either
  order by priority desc, occurred_at asc
  limit %(most)s
)
update sync_outbox o
set
  status = 'claimed',
  claimed_by = %(claimed_by)s,
  claimed_at = (select fn_now()),
  lease_expires_at = (select fn_now()) + (%(lease_s)s || ' seconds')::interval,
  updated_at = (select fn_now())
where o.id = any(array(select id from candidates))
returning o.id, o.tenant_id,
  coalesce(o.payload_size_bytes, octet_length(o.payload_json::text)) as size_bytes,
  o.attempt_count, o.last_error_code, o.claimed_at,
  o.id = any(array(select id from candidates where reclaimed)) as reclaimed,
  o.priority, o.occurred_at
"""


async def claim(
    tx: db.Connection,
    tenant_id: str,
    *,
    claimed_by: str,
    most: int,
    lease_s: float,
    few: int | None = None,
) -> list[Claimed]:
    """Lease at most `most` rows, of them at most `few` that were tried before, in their order."""
    cursor = await tx.execute(
        CLAIM,
        {
            "tenant_id": tenant_id,
            "claimed_by": claimed_by,
            "most": most,
            "few": most if few is None else min(few, most),
            "lease_s": str(lease_s),
        },
    )
    rows = await cursor.fetchall()
    # UPDATE … RETURNING does not keep the order of the claim (C-20); a null comes last, as in SQL.
    rows.sort(key=lambda row: (-row[7], row[8] or _LAST, row[0]))
    return [Claimed(*row[:7]) for row in rows]


_CONTENT = """id, tenant_id, farm_id, barn_id, device_id, session_id, event_type, occurred_at,
  trace_id, payload_json::text as payload, clock_suspect, attempt_count, last_error_code,
  claimed_at, last_attempt_at"""


async def contents(tx: db.Connection, rows: Sequence[Claimed]) -> list[Sending]:
    """What was claimed in this very transaction, with its content."""
    if not rows:
        return []
    async with tx.cursor(row_factory=class_row(Sending)) as cursor:
        await cursor.execute(
            f"select {_CONTENT} from sync_outbox where id = any(%s)".encode(),  # noqa: S608
            ([row.id for row in rows],),
        )
        return _in_order(await cursor.fetchall(), rows)


async def start_sending(
    tx: db.Connection, rows: Sequence[Claimed], *, claimed_by: str, lease_s: float
) -> list[Sending]:
    """Mark the rows as on their way, with a whole lease; returns those that are still ours."""
    async with tx.cursor(row_factory=class_row(Sending)) as cursor:
        await cursor.execute(
            f"""
            update sync_outbox set status = 'sending', updated_at = (select fn_now()),
              lease_expires_at = (select fn_now()) + (%s || ' seconds')::interval
            where id = any(%s) and claimed_by = %s and claimed_at = %s and status = 'claimed'
            returning {_CONTENT}
            """.encode(),  # noqa: S608 - our own list of columns
            (str(lease_s), *_fence(rows, claimed_by)),
        )
        return _in_order(await cursor.fetchall(), rows)


def _in_order(found: list[Sending], rows: Sequence[Claimed]) -> list[Sending]:
    by_id = {row.id: row for row in found}
    return [by_id[row.id] for row in rows if row.id in by_id]


async def renew(
    tx: db.Connection, rows: Sequence[Claimed], *, claimed_by: str, lease_s: float
) -> int:
    """A whole lease again on what is still ours and not settled; returns how many that are."""
    cursor = await tx.execute(
        """
        update sync_outbox set updated_at = (select fn_now()),
          lease_expires_at = (select fn_now()) + (%s || ' seconds')::interval
        where id = any(%s) and claimed_by = %s and claimed_at = %s
          and status in ('claimed', 'sending')
        """,
        (str(lease_s), *_fence(rows, claimed_by)),
    )
    return cursor.rowcount


async def acked(tx: db.Connection, rows: Sequence[Held], *, claimed_by: str) -> int:
    """The cloud has them; returns how many were still ours to settle."""
    cursor = await tx.execute(
        """
        update sync_outbox set status = 'acked', last_attempt_at = (select fn_now()),
          last_error_code = null, last_error_message = null, updated_at = (select fn_now()),
          claimed_by = null, claimed_at = null, lease_expires_at = null
        where id = any(%s) and claimed_by = %s and claimed_at = %s
          and status in ('claimed', 'sending')
        """,
        (*_fence(rows, claimed_by),),
    )
    return cursor.rowcount


async def retry(
    tx: db.Connection,
    rows: Mapping[Held, Again],
    *,
    claimed_by: str,
    code: str,
    message: str,
) -> int:
    """Pending again, each after its own delay; returns how many were still ours to settle."""
    cursor = await tx.execute(
        """
        update sync_outbox o set status = 'pending', attempt_count = r.attempts,
          last_attempt_at = (select fn_now()),
          next_attempt_at = (select fn_now()) + r.delay_s * interval '1 second',
          last_error_code = %s, last_error_message = %s, updated_at = (select fn_now()),
          claimed_by = null, claimed_at = null, lease_expires_at = null
        from unnest(%s::int[], %s::float8[], %s::uuid[]) as r(attempts, delay_s, id)
        where o.id = r.id and o.claimed_by = %s and o.claimed_at = %s
          and o.status in ('claimed', 'sending')
        """,
        (
            code,
            message,
            [again.attempts for again in rows.values()],
            [again.delay_s for again in rows.values()],
            *_fence(list(rows), claimed_by),
        ),
    )
    return cursor.rowcount


async def hand_back(tx: db.Connection, rows: Sequence[Claimed], *, claimed_by: str) -> None:
    """Claimed and not sent: as if it had not been claimed."""
    await tx.execute(
        """
        update sync_outbox set status = 'pending', updated_at = (select fn_now()),
          claimed_by = null, claimed_at = null, lease_expires_at = null
        where id = any(%s) and claimed_by = %s and claimed_at = %s and status = 'claimed'
        """,
        (*_fence(rows, claimed_by),),
    )


async def set_aside(
    tx: db.Connection,
    rows: Mapping[Held, str],
    *,
    claimed_by: str,
    reason: str,
    code: str,
) -> int:
    """To the dlq, each with its own message; only an operator's redrive brings it back."""
    cursor = await tx.execute(
        """
        update sync_outbox o set status = 'dlq', attempt_count = attempt_count + 1,
          last_attempt_at = (select fn_now()), failed_at = (select fn_now()),
          dlq_reason = %s, last_error_code = %s, last_error_message = r.message,
          updated_at = (select fn_now()),
          claimed_by = null, claimed_at = null, lease_expires_at = null
        from unnest(%s::text[], %s::uuid[]) as r(message, id)
        where o.id = r.id and o.claimed_by = %s and o.claimed_at = %s
          and o.status in ('claimed', 'sending')
        """,
        (reason, code, list(rows.values()), *_fence(list(rows), claimed_by)),
    )
    return cursor.rowcount


def _fence(rows: Sequence[Held], claimed_by: str) -> tuple[list[UUID], str, datetime]:
    return [row.id for row in rows], claimed_by, rows[0].claimed_at
