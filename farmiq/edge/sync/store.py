"""The SQL of the outbox: claim, settle, tenants, leases, retention. Writes are fenced (C-51)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from farmiq.edge.sync.rules import OUTAGE_CODES, Claimed, Failure, Sending, State, Tenant
from farmiq.plumbing import db

_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Archive:
    """A file that is on the disk for good."""

    archive_id: UUID
    file: Path
    sha256: bytes
    row_count: int


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
  limit %(limit)s
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
  limit %(limit)s
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
    limit: int,
    lease_s: float,
    few: int | None = None,
) -> list[Claimed]:
    """Lease at most `limit` rows, of them at most `few` that were tried before, in their order."""
    cursor = await tx.execute(
        CLAIM,
        {
            "tenant_id": tenant_id,
            "claimed_by": claimed_by,
            "limit": limit,
            "few": limit if few is None else min(few, limit),
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
    statement = f"select {_CONTENT} from sync_outbox where id = any(%s)"  # noqa: S608
    sending = await db.fetch_as(tx, Sending, statement, ([row.id for row in rows],))
    return _in_order(sending, rows)


async def start_sending(
    tx: db.Connection, rows: Sequence[Claimed], *, claimed_by: str, lease_s: float
) -> list[Sending]:
    """Mark the rows as `sending` with a new lease; returns those that are still ours."""
    sending = await db.fetch_as(
        tx,
        Sending,
        f"""
        update sync_outbox set status = 'sending', updated_at = (select fn_now()),
          lease_expires_at = (select fn_now()) + (%s || ' seconds')::interval
        where id = any(%s) and claimed_by = %s and claimed_at = %s and status = 'claimed'
        returning {_CONTENT}
        """,  # noqa: S608 - our own list of columns
        (str(lease_s), *_fence(rows, claimed_by)),
    )
    return _in_order(sending, rows)


def _in_order(sending: list[Sending], rows: Sequence[Claimed]) -> list[Sending]:
    by_id = {row.id: row for row in sending}
    return [by_id[row.id] for row in rows if row.id in by_id]


async def renew(
    tx: db.Connection, rows: Sequence[Claimed], *, claimed_by: str, lease_s: float
) -> int:
    """Renew the lease of what is still ours and not settled; returns how many."""
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
    """Mark the rows as delivered; returns how many were still ours."""
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


async def settle_failed(
    tx: db.Connection, failures: Mapping[Held, Failure], *, claimed_by: str
) -> list[tuple[str, State]]:
    """Make each row pending again after its delay, or move it to the dlq.

    Returns (tenant, state) of those that were still ours.
    """
    cursor = await tx.execute(
        """
        update sync_outbox o set
          status = case when f.dlq_reason is null then 'pending' else 'dlq' end,
          attempt_count = f.attempts, last_attempt_at = (select fn_now()),
          next_attempt_at = case when f.dlq_reason is null
            then (select fn_now()) + f.delay_s * interval '1 second' else o.next_attempt_at end,
          failed_at = case when f.dlq_reason is null then o.failed_at else (select fn_now()) end,
          dlq_reason = coalesce(f.dlq_reason, o.dlq_reason),
          last_error_code = f.code, last_error_message = f.message, updated_at = (select fn_now()),
          claimed_by = null, claimed_at = null, lease_expires_at = null
        from unnest(%s::uuid[], %s::timestamptz[], %s::int[], %s::text[], %s::text[],
          %s::float8[], %s::text[])
          as f(id, claimed_at, attempts, code, message, delay_s, dlq_reason)
        where o.id = f.id and o.claimed_by = %s and o.claimed_at = f.claimed_at
          and o.status in ('claimed', 'sending')
        returning o.tenant_id, o.status
        """,
        (
            *db.columns(failures, "id", "claimed_at"),
            *db.columns(failures.values(), "attempts", "code", "message", "delay_s", "dlq_reason"),
            claimed_by,
        ),
    )
    return [(tenant_id, status) for tenant_id, status in await cursor.fetchall()]


async def release(tx: db.Connection, rows: Sequence[Claimed], *, claimed_by: str) -> None:
    """Give a claim back that was not sent."""
    await tx.execute(
        """
        update sync_outbox set status = 'pending', updated_at = (select fn_now()),
          claimed_by = null, claimed_at = null, lease_expires_at = null
        where id = any(%s) and claimed_by = %s and claimed_at = %s and status = 'claimed'
        """,
        (*_fence(rows, claimed_by),),
    )


def _fence(rows: Sequence[Held], claimed_by: str) -> tuple[list[UUID], str, datetime]:
    return [row.id for row in rows], claimed_by, rows[0].claimed_at


# From tenant to tenant by the two indexes of the claim: what waits is not counted.
PENDING_TENANTS = """
with recursive tenants as (
  select '' as tenant_id
  union all
  select least(
    (select min(o.tenant_id) from sync_outbox o where o.status in ('pending', 'claimed')
       and o.attempt_count = 0 and o.tenant_id > t.tenant_id),
    (select min(o.tenant_id) from sync_outbox o where o.status in ('pending', 'claimed')
       and o.attempt_count > 0 and o.tenant_id > t.tenant_id))
  from tenants t where t.tenant_id is not null
)
select t.tenant_id, coalesce(s.consecutive_failures, 0) as failures,
  coalesce(d.level, 0) as level
from tenants t
left join sync_state s on s.tenant_id = t.tenant_id
left join sync_drain d on d.tenant_id = t.tenant_id
where t.tenant_id <> '' and (s.paused_until is null or s.paused_until <= (select fn_now()))
"""


async def pending_tenants(tx: db.Connection) -> list[Tenant]:
    """The tenants with unsent rows that are not paused; costs by tenants, not by rows (C-21)."""
    return await db.fetch_as(tx, Tenant, PENDING_TENANTS)


async def record_success(
    tx: db.Connection,
    tenant_id: str,
    *,
    last: Held,
    batch_id: str,
) -> int:
    """End an outage: what waited because of it is due now, with no attempts counted.

    Returns how many failures in a row this ends.
    """
    before = await failures(tx, tenant_id)
    await tx.execute(
        """
        insert into sync_state as s (tenant_id, last_acked_event_id, last_acked_at,
          last_sent_batch_id)
        values (%s, %s, fn_now(), %s)
        on conflict on constraint sync_state_pkey do update set
          last_acked_event_id = excluded.last_acked_event_id,
          last_acked_at = excluded.last_acked_at,
          last_sent_batch_id = excluded.last_sent_batch_id,
          consecutive_failures = 0, paused_until = null, last_error_code = null,
          last_error_message = null
        """,
        (tenant_id, last.id, batch_id),
    )
    if before:
        # Rows that another forwarder is settling are skipped: waiting could end in a deadlock.
        await tx.execute(
            """
            update sync_outbox set attempt_count = 0, next_attempt_at = (select fn_now()),
              updated_at = (select fn_now())
            where id in (select id from sync_outbox
              where tenant_id = %s and status = 'pending' and attempt_count > 0
                and last_error_code = any(%s)
              for update skip locked)
            """,
            (tenant_id, list(OUTAGE_CODES)),
        )
    return before


async def acked_since(tx: db.Connection, tenant_id: str, at: datetime | None) -> bool:
    """Whether an event of the tenant was delivered after that moment."""
    value = await db.fetch_value(
        tx, "select last_acked_at > %s from sync_state where tenant_id = %s", at, tenant_id
    )
    return bool(value)


async def failures(tx: db.Connection, tenant_id: str) -> int:
    value = await db.fetch_value(
        tx, "select consecutive_failures from sync_state where tenant_id = %s", tenant_id
    )
    return int(value or 0)


async def record_outage(
    tx: db.Connection, tenant_id: str, *, pause_s: float, code: str, message: str
) -> None:
    await tx.execute(
        """
        insert into sync_state as s (tenant_id, consecutive_failures, paused_until,
          last_error_code, last_error_message)
        values (%s, 1, fn_now() + %s * interval '1 second', %s, %s)
        on conflict on constraint sync_state_pkey do update set
          consecutive_failures = s.consecutive_failures + 1,
          paused_until = excluded.paused_until,
          last_error_code = excluded.last_error_code,
          last_error_message = excluded.last_error_message
        """,
        (tenant_id, pause_s, code, message),
    )


# In the order of the claim's index: without it everything that was ever delivered is read.
WAITING_AT = """
select count(*) from (
  select from sync_outbox
  where status in ('pending', 'claimed') and attempt_count = 0
    and tenant_id = %s and priority::bigint >= %s
  order by priority::bigint desc limit %s) waiting
"""


async def waiting_at(tx: db.Connection, tenant_id: str, *, level: int, limit: int) -> int:
    """How many rows wait at this priority or above, counted up to `limit`."""
    return int(await db.fetch_value(tx, WAITING_AT, tenant_id, level, limit))


async def set_level(tx: db.Connection, tenant_id: str, *, before: int, level: int) -> bool:
    """Give new events this priority (C-92); False if it was changed in between."""
    if level == 0:
        statement = "delete from sync_drain where tenant_id = %s and level = %s"
        return bool((await tx.execute(statement, (tenant_id, before))).rowcount)
    cursor = await tx.execute(
        """
        insert into sync_drain as d (tenant_id, level, since) values (%s, %s, fn_now())
        on conflict on constraint sync_drain_pkey do update set level = excluded.level
        where d.level = %s
        """,
        (tenant_id, level, before),
    )
    return bool(cursor.rowcount)


# Equal priority: by the claim's index, not by the one that holds everything that was delivered.
RAISE_RECENT = """
update sync_outbox set priority = %s, updated_at = (select fn_now())
where id = any(array(
  select id from sync_outbox
  where tenant_id = %s and status = 'pending' and attempt_count = 0 and priority::bigint = 0
    and occurred_at <= (select fn_now())
    and occurred_at > (
      select since - make_interval(secs => %s) from sync_drain where tenant_id = %s)
  order by occurred_at desc limit %s
  for update skip locked))
"""


async def raise_recent(
    tx: db.Connection, tenant_id: str, *, level: int, before_s: float, limit: int
) -> None:
    """Give events since shortly before the drain began this priority too, newest first.

    They got none when they were written: nobody knew yet that a backlog would drain.
    """
    await tx.execute(RAISE_RECENT, (level, tenant_id, before_s, tenant_id, limit))


async def expired(tx: db.Connection, *, limit: int) -> dict[str, list[Claimed]]:
    """Rows whose lease ended, by who claimed them; locked until the transaction ends (C-15)."""
    rows = await db.fetch_all(
        tx,
        """
        select claimed_by, id, tenant_id, coalesce(payload_size_bytes, 0), attempt_count,
          last_error_code, claimed_at, true
        from sync_outbox
        where claimed_by is not null and status in ('claimed', 'sending')
          and lease_expires_at < (select fn_now())
        limit %s for update skip locked
        """,
        limit,
    )
    claims: defaultdict[str, list[Claimed]] = defaultdict(list)
    for claimed_by, *row in rows:
        claims[claimed_by].append(Claimed(*row))
    return claims


async def reset_clock(
    tx: db.Connection, *, wait_s: float, pause_s: float, lease_s: float
) -> tuple[int, int, int]:
    """Reset rows, pauses and leases that end too late; the clock was set back since.

    Returns how many of each there were.
    """
    put_off = await tx.execute(
        """
        update sync_outbox set next_attempt_at = (select fn_now()), updated_at = (select fn_now())
        where status = 'pending'
          and next_attempt_at > (select fn_now()) + %s * interval '1 second'
        """,
        (wait_s,),
    )
    paused = await tx.execute(
        """
        update sync_state set paused_until = null
        where paused_until > (select fn_now()) + %s * interval '1 second'
        """,
        (pause_s,),
    )
    held = await tx.execute(
        """
        update sync_outbox set lease_expires_at = (select fn_now()), updated_at = (select fn_now())
        where claimed_by is not null and status in ('claimed', 'sending')
          and lease_expires_at > (select fn_now()) + %s * interval '1 second'
        """,
        (lease_s,),
    )
    return put_off.rowcount, paused.rowcount, held.rowcount


async def dead_letter_exhausted(tx: db.Connection, *, max_attempts: int, limit: int) -> list[str]:
    """Move pending rows that failed too often to the dlq (C-14); returns the tenant of each."""
    cursor = await tx.execute(
        """
        update sync_outbox set status = 'dlq', failed_at = (select fn_now()),
          dlq_reason = 'max_attempts_exceeded', updated_at = (select fn_now())
        where id in (select id from sync_outbox
          where status = 'pending' and attempt_count > 0 and attempt_count >= %s
            and (last_error_code is null or last_error_code <> all(%s))
          limit %s for update skip locked)
        returning tenant_id
        """,
        (max_attempts, list(OUTAGE_CODES), limit),
    )
    return [row[0] for row in await cursor.fetchall()]


_STEP = timedelta(microseconds=1)


async def purge_acked(
    tx: db.Connection, *, days: float, after: datetime | None, limit: int
) -> tuple[int, datetime | None]:
    """Delete some acked rows beyond their days; returns (how many, where to go on or None).

    A row is due before it is acked, so the documented index of due times finds them in order; rows
    that were due long ago and acked lately are stepped over once and not looked at again.
    """
    cursor = await tx.execute(
        """
        with looked as (
          select id, next_attempt_at, updated_at from sync_outbox
          where status = 'acked'
            and next_attempt_at < (select fn_now()) - %(days)s * interval '1 day'
            and next_attempt_at >= coalesce(%(after)s::timestamptz, '-infinity')
          order by next_attempt_at limit %(limit)s
        ), gone as (
          delete from sync_outbox o using looked l
          where o.id = l.id and o.status = 'acked'
            and o.updated_at < (select fn_now()) - %(days)s * interval '1 day'
          returning o.id
        )
        select (select count(*) from gone), count(*), max(next_attempt_at) from looked
        """,
        {"days": days, "after": after, "limit": limit},
    )
    row = await cursor.fetchone()
    deleted, looked, last = row or (0, 0, None)
    if looked < limit:
        return deleted, None
    # An instant with more young rows than one look holds: step over it, else we never get further.
    return deleted, last + _STEP if last == after and not deleted else last


async def undelivered(tx: db.Connection, *, days: float, limit: int) -> list[dict[str, Any]]:
    """Rows in dlq or failed beyond their days, whole."""
    return await db.fetch_dicts(
        tx,
        """
        select * from sync_outbox
        where status in ('dlq', 'failed')
          and updated_at < (select fn_now()) - %s * interval '1 day'
        order by updated_at, id limit %s
        """,
        (days, limit),
    )


async def purge_archived(
    tx: db.Connection, rows: Sequence[dict[str, Any]], archive: Archive
) -> int:
    """Record the file, then delete the rows in it that have not changed since."""
    await tx.execute(
        "insert into sync_archives (archive_id, file_name, sha256, row_count, made_at) "
        "values (%s, %s, %s, %s, fn_now())",
        (archive.archive_id, archive.file.name, archive.sha256, archive.row_count),
    )
    await tx.execute(
        "insert into sync_archived (tenant_id, event_id, archive_id) "
        "select *, %s::uuid from unnest(%s::text[], %s::uuid[])",
        (archive.archive_id, [row["tenant_id"] for row in rows], [row["id"] for row in rows]),
    )
    cursor = await tx.execute(
        """
        delete from sync_outbox o
        using unnest(%s::uuid[], %s::timestamptz[]) as r(id, updated_at)
        where o.id = r.id and o.updated_at = r.updated_at and o.status in ('dlq', 'failed')
        """,
        ([row["id"] for row in rows], [row["updated_at"] for row in rows]),
    )
    return cursor.rowcount
