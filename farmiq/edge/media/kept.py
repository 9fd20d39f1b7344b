"""The SQL of images that lie here: whose time is over, what must stay, what the store must have."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from farmiq.edge.media.ageing import Kept
from farmiq.plumbing import db


@dataclass(frozen=True, slots=True)
class Old:
    """An image that may be over its time."""

    id: UUID
    object_key: str
    aside_key: str | None
    captured_at: datetime
    created_at: datetime
    stored: bool
    synced: bool
    session_open: bool

    @property
    def kept(self) -> Kept:
        return Kept(self.captured_at, self.created_at, self.stored, self.synced, self.session_open)


@dataclass(frozen=True, slots=True)
class Stored:
    id: UUID
    object_key: str
    size_bytes: int
    sha256: str | None


async def old(
    tx: db.Connection, *, days: float, after: UUID, most: int
) -> tuple[datetime, list[Old]]:
    """(now, images that could be over, by id); which really are is `ageing`'s to say."""
    now: datetime = await db.fetch_value(tx, "select fn_now()")
    async with tx.cursor(row_factory=class_row(Old)) as cursor:
        await cursor.execute(
            """
            select m.id, m.object_key, m.aside_key, m.captured_at, m.created_at,
              m.upload_status = 'stored' as stored, m.synced_at is not null as synced,
              exists (
                select from weight_sessions s
                where s.id = m.session_id and s.tenant_id = m.tenant_id and s.status = 'created'
              ) as session_open
            from media_objects m
            where m.id > %s
              and least(m.captured_at, m.created_at) < %s - %s * interval '1 day'
              and (m.upload_status <> 'stored' or m.synced_at is not null)
            order by m.id limit %s
            """,
            (after, now, days, most),
        )
        return now, await cursor.fetchall()


async def spare(tx: db.Connection, *, open_sessions: bool, most: int) -> list[Stored]:
    """The oldest that may go before their time: the cloud has them, and nobody is at them."""
    async with tx.cursor(row_factory=class_row(Stored)) as cursor:
        await cursor.execute(
            """
            select m.id, m.object_key, m.size_bytes, m.sha256 from media_objects m
            where m.upload_status = 'stored' and m.synced_at is not null
              and (%s or not exists (
                select from weight_sessions s
                where s.id = m.session_id and s.tenant_id = m.tenant_id and s.status = 'created'))
            order by m.created_at, m.id limit %s
            """,
            (open_sessions, most),
        )
        return await cursor.fetchall()


async def aside(tx: db.Connection, *, most: int) -> list[Stored]:
    """Rejected uploads, the oldest first, under the keys where they lie aside."""
    async with tx.cursor(row_factory=class_row(Stored)) as cursor:
        await cursor.execute(
            """
            select id, aside_key as object_key, aside_bytes as size_bytes, null as sha256
            from media_objects where aside_bytes is not null order by refused_at, id limit %s
            """,
            (most,),
        )
        return await cursor.fetchall()


async def forget_aside(tx: db.Connection, which: Sequence[UUID]) -> int:
    """Their rejected bytes are gone; why they were rejected stays."""
    cursor = await tx.execute(
        "update media_objects set aside_key = null, aside_bytes = null where id = any(%s)",
        (list(which),),
    )
    return cursor.rowcount


async def stored_bytes(tx: db.Connection) -> int:
    """All that lies in the bucket for images: stored ones, and rejected ones aside."""
    found: int = await db.fetch_value(
        tx,
        "select (coalesce(sum(size_bytes) filter (where upload_status = 'stored'), 0) "
        "+ coalesce(sum(aside_bytes), 0))::bigint from media_objects",
    )
    return found


async def forget(tx: db.Connection, which: Sequence[UUID]) -> int:
    """Rows whose objects are deleted; never one that the cloud has not got."""
    cursor = await tx.execute(
        "delete from media_objects where id = any(%s) "
        "and (upload_status <> 'stored' or synced_at is not null)",
        (list(which),),
    )
    return cursor.rowcount


async def is_held(tx: db.Connection, *, days: float) -> bool:
    """Whether something that old is still here, because it must be.

    By when it was stored: so counts the bucket's own rule.
    """
    found: bool = await db.fetch_value(
        tx,
        "select exists (select from media_objects where upload_status = 'stored' "
        "and stored_at < (select fn_now()) - %s * interval '1 day')",
        days,
    )
    return found


async def stored(connection: db.Connection, *, after: UUID, most: int) -> list[Stored]:
    async with connection.cursor(row_factory=class_row(Stored)) as cursor:
        await cursor.execute(
            "select id, object_key, size_bytes, sha256 from media_objects "
            "where id > %s and upload_status = 'stored' order by id limit %s",
            (after, most),
        )
        return await cursor.fetchall()


async def lose(tx: db.Connection, which: Sequence[UUID]) -> None:
    """Their objects are gone; they are looked for again, should somebody bring them back."""
    await tx.execute(
        "update media_objects set upload_status = 'missing', "
        "announced_at = coalesce(announced_at, stored_at), "
        "check_count = 12, check_at = fn_now() + interval '1 hour' "
        "where id = any(%s) and upload_status = 'stored'",
        (list(which),),
    )


async def known_keys(connection: db.Connection, keys: Sequence[str]) -> set[str]:
    rows = await db.fetch_all(
        connection, "select object_key from media_objects where object_key = any(%s)", list(keys)
    )
    return {key for (key,) in rows}
