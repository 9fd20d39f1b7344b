"""Rows of the outbox that nobody settles: freed, set right after a clock's jump, set aside."""

from collections.abc import Sequence

from farmiq.edge.sync.states import State
from farmiq.plumbing import backoff, db
from farmiq.plumbing.retry import RetryPolicy


async def reap(
    tx: db.Connection,
    *,
    most_attempts: int,
    policy: RetryPolicy,
    outage_codes: Sequence[str],
    most: int,
) -> list[tuple[str, State]]:
    """Free what was held beyond its lease (C-15); returns (tenant, pending or dlq) of each.

    It counts as an attempt: an event that kills whoever sends it must not do so for ever. What was
    counted for outages before does not add to that (C-12).
    """
    expired = await db.fetch_all(
        tx,
        """
        select id, case when last_error_code = any(%s) then 1 else attempt_count + 1 end
        from sync_outbox
        where claimed_by is not null and status in ('claimed', 'sending')
          and lease_expires_at < (select fn_now())
        limit %s for update skip locked
        """,
        list(outage_codes),
        most,
    )
    cursor = await tx.execute(
        """
        update sync_outbox o set
          status = case when r.is_last then 'dlq' else 'pending' end,
          attempt_count = r.attempts,
          last_attempt_at = (select fn_now()),
          next_attempt_at = case when r.is_last then o.next_attempt_at
            else (select fn_now()) + r.delay_s * interval '1 second' end,
          last_error_code = 'LEASE_EXPIRED',
          last_error_message = 'held by ' || o.claimed_by || ', which did not settle it',
          failed_at = case when r.is_last then (select fn_now()) end,
          dlq_reason = case when r.is_last then 'max_attempts_exceeded' end,
          claimed_by = null, claimed_at = null, lease_expires_at = null,
          updated_at = (select fn_now())
        from (select id, attempts, delay_s, attempts >= %s as is_last
          from unnest(%s::uuid[], %s::int[], %s::float8[]) as e(id, attempts, delay_s)) r
        where o.id = r.id
        returning o.tenant_id, o.status
        """,
        (
            most_attempts,
            [event_id for event_id, _ in expired],
            [attempts for _, attempts in expired],
            [policy.delay_s(attempts, chance=backoff.chance()) for _, attempts in expired],
        ),
    )
    return [(tenant_id, status) for tenant_id, status in await cursor.fetchall()]


async def set_right(
    tx: db.Connection, *, wait_s: float, pause_s: float, lease_s: float
) -> tuple[int, int, int]:
    """What waits longer than anything may was put off by a clock that has been set back since.

    Such rows, pauses and leases are due now; returns how many of each there were.
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


async def sweep(
    tx: db.Connection, *, most_attempts: int, outage_codes: Sequence[str], most: int
) -> list[str]:
    """Set aside what waits although it has failed too often (C-14); returns the tenant of each."""
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
        (most_attempts, list(outage_codes), most),
    )
    return [row[0] for row in await cursor.fetchall()]
