"""Alerts at the edge: what needs a person, one open row per kind and subject."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from farmiq.edge import alert_events, audit
from farmiq.messages import edge
from farmiq.plumbing import db, ids

Severity = edge.Severity
URGENCY = alert_events.URGENCY


@dataclass(frozen=True, slots=True)
class Alert:
    """`message` says what is wrong and what to do.

    The subject of something of a tenant begins with the tenant's id and a slash, or is the id. With
    `whole_edge` every tenant of the edge sees subject and message: they name nothing of any tenant.
    """

    kind: str
    subject: str
    severity: Severity
    message: str
    whole_edge: bool = False


@dataclass(frozen=True, slots=True)
class Filter:
    """Alerts that match all fields that are set.

    Unless `exact`, `kind` may be a prefix (`media`) and `subject` a part.
    """

    kind: str | None = None
    subject: str | None = None
    severity: str | None = None
    older_than_hours: float | None = None
    exact: bool = False

    @property
    def is_narrow(self) -> bool:
        given = (self.kind, self.subject, self.severity, self.older_than_hours)
        return any(value is not None for value in given)


async def raise_(tx: db.Connection, alert: Alert, *, count: int = 1) -> None:
    """Open the alert and report it to the cloud, or count it once more if it is open already."""
    (row,) = await db.fetch_as(
        tx,
        alert_events.Row,
        f"""
        insert into alerts as a (alert_id, kind, subject, severity, message, whole_edge,
          seen_count, raised_at, last_seen_at)
        values (%s, %s, %s, %s, %s, %s, %s, fn_now(), fn_now())
        on conflict (kind, subject) where closed_at is null do update set
          seen_count = a.seen_count + excluded.seen_count,
          message = excluded.message, severity = excluded.severity,
          last_seen_at = excluded.last_seen_at
        returning {alert_events.COLUMNS}
        """.encode(),  # noqa: S608 - the text is of this package
        (
            ids.new(),
            alert.kind,
            alert.subject,
            alert.severity,
            alert.message,
            alert.whole_edge,
            count,
        ),
    )
    if row.is_more_urgent:
        await alert_events.report_opened(tx, row)


async def raise_all(tx: db.Connection, counted: Mapping[Alert, int]) -> None:
    """Raise alerts, always in the same order: two transactions must not deadlock."""
    for alert in sorted(counted, key=lambda item: (item.kind, item.subject)):
        await raise_(tx, alert, count=counted[alert])


async def restate(tx: db.Connection, alert: Alert) -> None:
    """Change message and severity of an open alert without counting it.

    A closed one stays closed; the cloud hears of one that is more urgent now.
    """
    rows = await db.fetch_as(
        tx,
        alert_events.Row,
        f"""
        update alerts set message = %(message)s, severity = %(severity)s
        where kind = %(kind)s and subject = %(subject)s and closed_at is null
          and (message, severity) <> (%(message)s, %(severity)s)
        returning {alert_events.COLUMNS}
        """.encode(),  # noqa: S608 - the text is of this package
        asdict(alert),
    )
    for row in rows:
        if row.is_more_urgent:
            await alert_events.report_opened(tx, row)


async def close(tx: db.Connection, *, kind: str, subject: str, by: str = "edge") -> bool:
    """Close an alert; False if no such alert was open."""
    closed = await _close(
        tx,
        "kind = %(kind)s and subject = %(subject)s and closed_at is null",
        {"kind": kind, "subject": subject, "by": by},
    )
    return closed > 0


async def close_chosen(tx: db.Connection, chosen: Filter, *, by: str) -> int:
    """Close all open alerts that match, with one audit entry; return how many."""
    count = await _close(tx, _FITS, {**_values(chosen, closed=False), "by": by})
    if count:
        given = {name: value for name, value in asdict(chosen).items() if value is not None}
        await audit.note(
            tx,
            actor=by,
            action="alert.close",
            subject=" ".join(filter(None, (chosen.kind, chosen.subject))) or "alerts",
            count=count,
            asked=given,
        )
    return count


async def close_unseen(tx: db.Connection, *, kind: str, seconds: float) -> int:
    """Close the alerts of a kind that were not raised again for so long."""
    return await _close(
        tx,
        """
        kind = %(kind)s and closed_at is null
          and last_seen_at < (select fn_now()) - %(seconds)s * interval '1 second'
        """,
        {"kind": kind, "seconds": seconds, "by": "edge"},
    )


async def _close(tx: db.Connection, condition: str, values: Mapping[str, Any]) -> int:
    """Close the open alerts that match and report it to the cloud; return how many."""
    rows = await db.fetch_as(
        tx,
        alert_events.Row,
        f"update alerts set closed_at = fn_now(), closed_by = %(by)s where {condition} "  # noqa: S608 - of this file
        f"returning {alert_events.COLUMNS}".encode(),
        values,
    )
    await alert_events.report_closed(tx, rows)
    return len(rows)


async def open_subjects(tx: db.Connection, kind: str) -> list[str]:
    """Subjects of the open alerts of a kind."""
    rows = await db.fetch_all(
        tx, "select subject from alerts where kind = %s and closed_at is null", kind
    )
    return [subject for (subject,) in rows]


_COLUMNS = """
alert_id, kind, subject, severity, message, seen_count, raised_at, last_seen_at, closed_at,
closed_by
"""
_FITS = """
  (%(closed)s or closed_at is null)
  and (%(kind)s::text is null or kind = %(kind)s
    or not %(exact)s and starts_with(kind, rtrim(%(kind)s, '.') || '.'))
  and (%(subject)s::text is null or subject = %(subject)s
    or not %(exact)s and strpos(subject, %(subject)s) > 0)
  and (%(severity)s::text is null or severity = %(severity)s)
  and (%(older_than_hours)s::float8 is null
    or last_seen_at < (select fn_now()) - %(older_than_hours)s * interval '1 hour')
"""


def _values(chosen: Filter, *, closed: bool) -> dict[str, Any]:
    return {**asdict(chosen), "closed": closed}


async def by_urgency(
    tx: db.Connection, chosen: Filter, *, closed: bool, limit: int
) -> list[dict[str, Any]]:
    """Alerts that match: open before `closed`, by URGENCY, then seen last."""
    return await db.fetch_dicts(
        tx,
        f"""
        select {_COLUMNS} from alerts where {_FITS}
        order by closed_at is not null, array_position(%(urgency)s::text[], severity),
          last_seen_at desc, alert_id desc
        limit %(limit)s
        """.encode(),  # noqa: S608 - the text is of this file
        {**_values(chosen, closed=closed), "urgency": list(URGENCY), "limit": limit},
    )


async def count(tx: db.Connection, chosen: Filter, *, closed: bool) -> int:
    """How many alerts match."""
    rows = await db.fetch_dicts(
        tx,
        f"select count(*) from alerts where {_FITS}".encode(),  # noqa: S608 - of this file
        _values(chosen, closed=closed),
    )
    return int(rows[0]["count"])


async def latest(
    connection: db.Connection, *, closed: bool, before: UUID | None, limit: int
) -> list[dict[str, Any]]:
    """Alerts with ids below `before`, newest first; with `closed` also closed ones."""
    return await db.fetch_dicts(
        connection,
        f"""
        select {_COLUMNS} from alerts
        where (%s or closed_at is null) and (%s::uuid is null or alert_id < %s::uuid)
        order by alert_id desc limit %s
        """.encode(),  # noqa: S608 - the text is of this file
        (closed, before, before, limit),
    )
