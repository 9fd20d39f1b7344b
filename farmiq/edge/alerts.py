"""Alerts at the edge: what a person should look at, once per kind and subject until closed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from farmiq.plumbing import db, ids

Severity = Literal["info", "warning", "security", "critical"]


@dataclass(frozen=True, slots=True)
class Alert:
    """`kind` and `subject` name the matter; `message` says what is wrong and what to do."""

    kind: str
    subject: str
    severity: Severity
    message: str


async def raise_(tx: db.Connection, alert: Alert, *, count: int = 1) -> None:
    """Open the alert, or count it once more if it is open already."""
    await tx.execute(
        """
        insert into alerts as a (alert_id, kind, subject, severity, message, seen_count,
          raised_at, last_seen_at)
        values (%s, %s, %s, %s, %s, %s, fn_now(), fn_now())
        on conflict (kind, subject) where closed_at is null do update set
          seen_count = a.seen_count + excluded.seen_count,
          message = excluded.message, severity = excluded.severity,
          last_seen_at = excluded.last_seen_at
        """,
        (ids.new(), alert.kind, alert.subject, alert.severity, alert.message, count),
    )


async def raise_all(tx: db.Connection, counted: Mapping[Alert, int]) -> None:
    """In one order whoever calls: two transactions must not wait for each other's rows."""
    for alert in sorted(counted, key=lambda each: (each.kind, each.subject)):
        await raise_(tx, alert, count=counted[alert])


async def close(tx: db.Connection, *, kind: str, subject: str, by: str = "edge") -> bool:
    """The matter is over; False if no such alert was open."""
    cursor = await tx.execute(
        "update alerts set closed_at = fn_now(), closed_by = %s "
        "where kind = %s and subject = %s and closed_at is null",
        (by, kind, subject),
    )
    return cursor.rowcount > 0


async def close_unseen(tx: db.Connection, *, kind: str, seconds: float) -> int:
    """Matters of this kind that did not come up again for so long are over."""
    cursor = await tx.execute(
        "update alerts set closed_at = fn_now(), closed_by = 'edge' where kind = %s "
        "and closed_at is null and last_seen_at < (select fn_now()) - %s * interval '1 second'",
        (kind, seconds),
    )
    return cursor.rowcount


async def open_subjects(tx: db.Connection, kind: str) -> list[str]:
    """Subjects of the open alerts of a kind."""
    rows = await db.fetch_all(
        tx, "select subject from alerts where kind = %s and closed_at is null", kind
    )
    return [subject for (subject,) in rows]


async def latest(
    connection: db.Connection, *, closed: bool, before: UUID | None, most: int
) -> list[dict[str, Any]]:
    """The alerts, newest first, of which the ids stand before `before`; `closed` ones too."""
    names = (
        "alert_id", "kind", "subject", "severity", "message", "seen_count", "raised_at",
        "last_seen_at", "closed_at", "closed_by",
    )  # fmt: skip
    rows = await db.fetch_all(
        connection,
        """
        select alert_id, kind, subject, severity, message, seen_count, raised_at, last_seen_at,
          closed_at, closed_by
        from alerts where (%s or closed_at is null) and (%s::uuid is null or alert_id < %s::uuid)
        order by alert_id desc limit %s
        """,
        closed,
        before,
        before,
        most,
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


async def forget_closed(tx: db.Connection, *, days: float, most: int) -> int:
    """Delete alerts that were closed so many days ago; open ones stay."""
    cursor = await tx.execute(
        """
        delete from alerts where alert_id = any(array(
          select alert_id from alerts
          where closed_at < (select fn_now()) - %s * interval '1 day' limit %s))
        """,
        (days, most),
    )
    return cursor.rowcount
