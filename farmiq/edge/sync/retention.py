"""Retention's SQL: what may be forgotten, and what has to be archived first (C-16)."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import dict_row

from farmiq.edge.sync.archive import Archive
from farmiq.plumbing import db

_STEP = timedelta(microseconds=1)


async def forget_acked(
    tx: db.Connection, *, days: float, after: datetime | None, most: int
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
          order by next_attempt_at limit %(most)s
        ), gone as (
          delete from sync_outbox o using looked l
          where o.id = l.id and o.status = 'acked'
            and o.updated_at < (select fn_now()) - %(days)s * interval '1 day'
          returning o.id
        )
        select (select count(*) from gone), count(*), max(next_attempt_at) from looked
        """,
        {"days": days, "after": after, "most": most},
    )
    row = await cursor.fetchone()
    deleted, looked, last = row or (0, 0, None)
    if looked < most:
        return deleted, None
    # An instant with more young rows than one look holds: step over it, else we never get further.
    return deleted, last + _STEP if last == after and not deleted else last


async def undelivered(tx: db.Connection, *, days: float, most: int) -> list[dict[str, Any]]:
    """Rows in dlq or failed beyond their days, whole."""
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            """
            select * from sync_outbox
            where status in ('dlq', 'failed')
              and updated_at < (select fn_now()) - %s * interval '1 day'
            order by updated_at, id limit %s
            """,
            (days, most),
        )
        return await cursor.fetchall()


async def forget_archived(
    tx: db.Connection, rows: Sequence[dict[str, Any]], archive: Archive
) -> int:
    """Note the file, then delete the rows in it that are as they were when it was written."""
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
