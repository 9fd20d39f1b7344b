"""To whose cloud something is owed: who pauses, who drains, how often it failed in a row."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from farmiq.edge.sync.store import Held
from farmiq.plumbing import db


@dataclass(frozen=True, slots=True)
class Tenant:
    """Somebody to whose cloud something is owed, and who does not pause."""

    tenant_id: str
    failures: int
    level: int


OWING = """
with recursive fresh as (
  (select tenant_id from sync_outbox
   where status in ('pending', 'claimed') and attempt_count = 0
   order by tenant_id limit 1)
  union all
  select (select o.tenant_id from sync_outbox o
    where o.status in ('pending', 'claimed') and o.attempt_count = 0
      and o.tenant_id > fresh.tenant_id
    order by o.tenant_id limit 1)
  from fresh where fresh.tenant_id is not null
), again as (
  (select tenant_id from sync_outbox
   where status in ('pending', 'claimed') and attempt_count > 0
   order by tenant_id limit 1)
  union all
  select (select o.tenant_id from sync_outbox o
    where o.status in ('pending', 'claimed') and o.attempt_count > 0
      and o.tenant_id > again.tenant_id
    order by o.tenant_id limit 1)
  from again where again.tenant_id is not null
)
select t.tenant_id, coalesce(s.consecutive_failures, 0) as failures,
  coalesce(d.level, 0) as level
from (select tenant_id from fresh union select tenant_id from again) t
left join sync_state s on s.tenant_id = t.tenant_id
left join sync_drain d on d.tenant_id = t.tenant_id
where t.tenant_id is not null
  and (s.paused_until is null or s.paused_until <= (select fn_now()))
"""


async def owing(tx: db.Connection) -> list[Tenant]:
    """The tenants with unsent rows that do not pause; costs by tenants, not by rows (C-21)."""
    async with tx.cursor(row_factory=class_row(Tenant)) as cursor:
        await cursor.execute(OWING)
        return await cursor.fetchall()


async def note_success(
    tx: db.Connection,
    tenant_id: str,
    *,
    last: Held,
    batch_id: str,
    outage_codes: Sequence[str],
) -> int:
    """The way is free: what waited because of an outage is due now, and owes nothing for it.

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
        # Rows that somebody is just settling are theirs; waiting for them could end in a circle.
        await tx.execute(
            """
            update sync_outbox set attempt_count = 0, next_attempt_at = (select fn_now()),
              updated_at = (select fn_now())
            where id in (select id from sync_outbox
              where tenant_id = %s and status = 'pending' and attempt_count > 0
                and last_error_code = any(%s)
              for update skip locked)
            """,
            (tenant_id, list(outage_codes)),
        )
    return before


async def acked_since(tx: db.Connection, tenant_id: str, at: datetime | None) -> bool:
    """Whether anything of the tenant got through after that moment."""
    found = await db.fetch_value(
        tx, "select last_acked_at > %s from sync_state where tenant_id = %s", at, tenant_id
    )
    return bool(found)


async def failures(tx: db.Connection, tenant_id: str) -> int:
    found = await db.fetch_value(
        tx, "select consecutive_failures from sync_state where tenant_id = %s", tenant_id
    )
    return int(found or 0)


async def note_outage(
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


async def waiting_at(tx: db.Connection, tenant_id: str, *, level: int, most: int) -> int:
    """How many rows wait at this priority or above, counted up to `most`."""
    return int(await db.fetch_value(tx, WAITING_AT, tenant_id, level, most))


async def set_level(tx: db.Connection, tenant_id: str, *, before: int, level: int) -> None:
    """New events get this priority (C-92), unless somebody else has just changed it."""
    if level == 0:
        await tx.execute(
            "delete from sync_drain where tenant_id = %s and level = %s", (tenant_id, before)
        )
        return
    await tx.execute(
        """
        insert into sync_drain as d (tenant_id, level, since) values (%s, %s, fn_now())
        on conflict on constraint sync_drain_pkey do update set level = excluded.level
        where d.level = %s
        """,
        (tenant_id, level, before),
    )


async def raise_recent(
    tx: db.Connection, tenant_id: str, *, level: int, recent_s: float, limit: int
) -> int:
    """Give events of the last seconds this priority too, newest first; returns how many.

    They came before the first batch got through, so nobody knew that a backlog would drain.
    """
    cursor = await tx.execute(
        """
        update sync_outbox set priority = %(level)s, updated_at = (select fn_now())
        where id = any(array(
          select id from sync_outbox
          where tenant_id = %(tenant_id)s and occurred_at <= (select fn_now())
            and occurred_at > (select fn_now()) - make_interval(secs => %(recent_s)s)
            and status = 'pending' and attempt_count = 0 and priority < %(level)s
          order by occurred_at desc limit %(limit)s
          for update skip locked))
        """,
        {"tenant_id": tenant_id, "level": level, "recent_s": recent_s, "limit": limit},
    )
    return cursor.rowcount
