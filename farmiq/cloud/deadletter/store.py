"""Dead letters' SQL: the audit log, who is an admin, who may hold the letters, what pages see."""

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from psycopg.types.json import Jsonb

from farmiq.cloud.deadletter import rules
from farmiq.cloud.deadletter.rules import BusDeadLetter, Group
from farmiq.plumbing import db, ids
from farmiq.plumbing.bus.amqp import QueueCount


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One letter and what was done with it; `with_body` stores the bytes too."""

    actor: str
    action: str
    letter: BusDeadLetter
    outcome: str
    body: bytes
    with_body: bool


async def audit(tx: db.Connection, entries: Sequence[AuditEntry]) -> None:
    await tx.execute(
        """
        insert into dead_letter_actions (action_id, actor, action, queue, tenant_id, event_id,
          event_type, reason, outcome, body_sha256, body)
        select * from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[],
          %s::text[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::bytea[])
        """,
        (
            [ids.new() for _ in entries],
            [entry.actor for entry in entries],
            [entry.action for entry in entries],
            [entry.letter.queue for entry in entries],
            [entry.letter.tenant_id for entry in entries],
            [entry.letter.event_id for entry in entries],
            [entry.letter.event_type for entry in entries],
            [entry.letter.reason for entry in entries],
            [entry.outcome for entry in entries],
            [hashlib.sha256(entry.body).digest() for entry in entries],
            [entry.body if entry.with_body else None for entry in entries],
        ),
    )


async def administered(connection: db.Connection, user_id: UUID, company_id: UUID) -> str | None:
    """The tenant of this company, if the person is an admin of it."""
    tenant_id: str | None = await db.fetch_value(
        connection,
        """
        select c.tenant_id from memberships m join companies c using (company_id)
        where m.user_id = %s and m.company_id = %s and m.role = 'admin'
        """,
        user_id,
        company_id,
    )
    return tenant_id


@asynccontextmanager
async def exclusive(pool: db.Pool, *, wait_s: float) -> AsyncIterator[None]:
    """Nobody else moves letters meanwhile: those that one reader holds are hidden from all others.

    Raises LockNotAvailable, one of db.UNAVAILABLE, if somebody else does so for longer than that.
    """
    async with db.autocommit(pool) as connection:
        await connection.execute(
            "select set_config('lock_timeout', %s, false)", (f"{max(1, round(wait_s * 1000))}ms",)
        )
        try:
            await connection.execute(f"select pg_advisory_lock({_LOCK})".encode())
        finally:
            await connection.execute("set lock_timeout to default")
        try:
            yield
        finally:
            await connection.execute(f"select pg_advisory_unlock({_LOCK})".encode())


_LOCK = "hashtextextended('dead letters of the bus', 0)"


async def tenants(connection: db.Connection) -> frozenset[str]:
    """All that are registered."""
    rows = await db.fetch_all(connection, "select tenant_id from companies")
    return frozenset(row[0] for row in rows)


async def open_episodes(connection: db.Connection, cause: str) -> frozenset[str]:
    """The tenants that have an open episode of this cause."""
    rows = await db.fetch_all(
        connection,
        """
        select tenant_id from alert_episodes
        where cause = %s and state in ('active', 'acknowledged')
        """,
        cause,
    )
    return frozenset(row[0] for row in rows)


async def replace_groups(
    tx: db.Connection, queue: str, owned: Sequence[tuple[str, Group, bool]], *, whole: bool
) -> None:
    """Write what a look at this queue found: (owner, group, is it of no company)."""
    rows = await db.fetch_all(
        tx, "delete from dead_letter_groups where queue = %s returning tenant_id", queue
    )
    async with tx.cursor() as cursor:
        await cursor.executemany(
            """
            insert into dead_letter_groups (tenant_id, queue, reason, is_of_no_company, count,
              oldest_at, newest_at, event_types, letters, is_whole, looked_at)
            values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, fn_now())
            """,
            [
                (
                    tenant_id,
                    queue,
                    group.kind,
                    of_no_company,
                    group.count,
                    rules.instant(group.oldest),
                    rules.instant(group.newest),
                    sorted(group.event_types),
                    Jsonb(group.shown),
                    whole,
                )
                for tenant_id, group, of_no_company in owned
            ],
        )
    await notify_pages(tx, {row[0] for row in rows} | {tenant_id for tenant_id, _, _ in owned})


async def notify_pages(tx: db.Connection, tenants: set[str]) -> None:
    await tx.execute(
        "select pg_notify('delivery_changed', company_id::text) from companies "
        "where tenant_id = any(%s)",
        (sorted(tenants),),
    )


async def store_counts(
    tx: db.Connection, counts: Mapping[str, QueueCount], limits: Mapping[str, int]
) -> None:
    """Write how full the queues are; those that are gone are removed."""
    await tx.execute("delete from bus_queues where queue <> all(%s)", (list(counts),))
    async with tx.cursor() as cursor:
        await cursor.executemany(
            """
            insert into bus_queues (queue, messages, consumers, max_messages, counted_at)
            values (%s, %s, %s, %s, fn_now())
            on conflict on constraint bus_queues_pkey do update set
              messages = excluded.messages, consumers = excluded.consumers,
              max_messages = excluded.max_messages, counted_at = excluded.counted_at
            """,
            [
                (queue, count.messages, count.consumers, limits[queue])
                for queue, count in sorted(counts.items())
            ],
        )
