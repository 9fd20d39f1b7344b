"""Quarantine: messages that could not be taken, kept with every reason until somebody acts.

Its SQL, and the alerts that go with a row in the same transaction. Which kind a refusal is and who
must hear of it is decided in refusals.py.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import prometheus_client
from psycopg.rows import class_row

from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.ingress import refusals
from farmiq.edge.ingress.store import Refused
from farmiq.plumbing import db, ids, log

MOST_RAW_BYTES = 256 * 1024
# Open alerts of one kind that name a device; whoever comes after is counted under OTHERS.
MOST_SUBJECTS = 200
OTHERS = "other devices"
# A NUL cannot stand in a PostgreSQL text; the topic is shown with it spelled out.
_NUL = "\x00"
_MOST_TOPIC = 1024

ALERTS = prometheus_client.Counter(
    "farmiq_ingress_alerts_total", "Messages that raised or repeated an alert", ["kind"]
)


@dataclass(frozen=True, slots=True)
class Row:
    """One message, without its bytes."""

    quarantine_id: UUID
    topic: str
    kind: str
    gist: str
    reasons: list[str]
    raw_size_bytes: int
    truncated: bool
    received_count: int
    first_received_at: datetime
    last_received_at: datetime
    redriven_count: int
    last_redriven_at: datetime | None


@dataclass(frozen=True, slots=True)
class Which:
    """Which rows are meant; what is None does not choose. Times are by the database's clock."""

    ids: tuple[UUID, ...] | None = None
    kind: str | None = None
    reason: str | None = None
    topic: str | None = None
    older_than_hours: float | None = None
    newer_than_hours: float | None = None

    @property
    def everything(self) -> bool:
        return self == Which()


_CHOSEN = """
  (%(ids)s::uuid[] is null or q.quarantine_id = any(%(ids)s::uuid[]))
  and (%(kind)s::text is null or q.kind = %(kind)s)
  and (%(reason)s::text is null
    or position(lower(%(reason)s) in lower(array_to_string(q.reasons, e'\\n'))) > 0)
  and (%(topic)s::text is null or starts_with(q.topic, %(topic)s))
  and (%(older)s::float8 is null
    or q.last_received_at < (select fn_now()) - %(older)s * interval '1 hour')
  and (%(newer)s::float8 is null
    or q.last_received_at >= (select fn_now()) - %(newer)s * interval '1 hour')
"""
_ROW = """
  q.quarantine_id, q.topic, q.kind, q.gist, q.reasons, q.raw_size_bytes,
  q.raw_size_bytes > octet_length(q.raw) as truncated, q.received_count,
  q.first_received_at, q.last_received_at, q.redriven_count, q.last_redriven_at
"""


async def put(tx: db.Connection, refused: Sequence[Refused]) -> None:
    """Keep the messages; the same bytes again only raise a count. Alerts are raised with them."""
    if not refused:
        return
    # In one order whoever calls: two transactions must not wait for each other's rows.
    rows = sorted(map(_columns, refused), key=lambda row: row["sha256"])
    async with tx.cursor() as cursor:
        await cursor.executemany(
            """
            insert into quarantine
              (quarantine_id, topic, raw, message_sha256, raw_size_bytes, reasons, kind, gist,
               first_received_at, last_received_at)
            values (%(id)s, %(topic)s, %(raw)s, %(sha256)s, %(size)s, %(reasons)s, %(kind)s,
              %(gist)s, fn_now(), fn_now())
            on conflict on constraint quarantine_message_key do update set
              received_count = quarantine.received_count + 1,
              reasons = excluded.reasons, kind = excluded.kind, gist = excluded.gist,
              last_received_at = excluded.last_received_at
            """,
            rows,
        )
    await tell(tx, refused)


async def tell(tx: db.Connection, refused: Sequence[Refused]) -> None:
    """Raise what a person should look at: one open alert per kind and device, counted."""
    counted: Counter[Alert] = Counter()
    shown: dict[Alert, Refused] = {}
    for one in refused:
        concern = refusals.concern(one.topic, one.reasons)
        if concern is not None:
            alert = Alert(concern.kind, concern.subject, concern.severity, concern.message)
            counted[alert] += 1
            shown.setdefault(alert, one)
    if not counted:
        return
    await alerts.raise_all(tx, await _bounded(tx, counted))
    for alert, one in shown.items():
        ALERTS.labels(kind=alert.kind).inc(counted[alert])
        named = refusals.named(one.raw)
        log.get("edge-ingress-gateway").warning(
            alert.kind,
            event_id=named.event_id,
            event_type=named.event_type,
            trace_id=named.trace_id,
            count=counted[alert],
        )


async def _bounded(tx: db.Connection, counted: Counter[Alert]) -> Counter[Alert]:
    """With the names of new devices left out where too many are open already."""
    rows = await db.fetch_all(
        tx,
        """
        select kind, count(*), array_agg(subject) filter (where subject = any(%s))
        from alerts where kind = any(%s) and closed_at is null group by kind
        """,
        sorted({alert.subject for alert in counted}),
        sorted({alert.kind for alert in counted}),
    )
    room = {kind: MOST_SUBJECTS - count for kind, count, _ in rows}
    known = {(kind, subject) for kind, _, subjects in rows for subject in subjects or ()}
    bounded: Counter[Alert] = Counter()
    for alert, count in counted.items():
        kept = alert
        if (alert.kind, alert.subject) not in known:
            left = room.get(alert.kind, MOST_SUBJECTS)
            room[alert.kind] = left - 1
            if left <= 0:
                kept = Alert(alert.kind, OTHERS, alert.severity, alert.message)
        bounded[kept] += count
    return bounded


async def page(
    connection: db.Connection, which: Which, *, before: UUID | None, most: int
) -> list[Row]:
    """The rows, newest first, of which the ids stand before `before`."""
    async with connection.cursor(row_factory=class_row(Row)) as cursor:
        await cursor.execute(
            f"""
            select {_ROW} from quarantine q
            where {_CHOSEN} and (%(before)s::uuid is null or q.quarantine_id < %(before)s)
            order by q.quarantine_id desc limit %(most)s
            """,  # noqa: S608 - both parts stand above
            {**_choice(which), "before": before, "most": most},
        )
        return await cursor.fetchall()


async def find(connection: db.Connection, quarantine_id: UUID) -> tuple[Row, bytes] | None:
    """One row and its bytes."""
    found = await page(connection, Which(ids=(quarantine_id,)), before=None, most=1)
    raw = await db.fetch_value(
        connection, "select raw from quarantine where quarantine_id = %s", quarantine_id
    )
    return (found[0], bytes(raw)) if found and raw is not None else None


async def counts(connection: db.Connection, which: Which) -> list[dict[str, Any]]:
    """Rows and messages by kind and gist, most rows first."""
    rows = await _fetch(
        connection,
        f"""
        select q.kind, q.gist, count(*), sum(q.received_count)::bigint
        from quarantine q where {_CHOSEN} group by 1, 2 order by 3 desc, 1, 2 limit 1000
        """,  # noqa: S608
        which,
    )
    return [
        {"kind": kind, "reason": gist, "rows": number, "messages": messages}
        for kind, gist, number, messages in rows
    ]


async def chosen(connection: db.Connection, which: Which, *, most: int) -> list[UUID]:
    """The ids of the rows, oldest first."""
    rows = await _fetch(
        connection,
        f"""
        select q.quarantine_id from quarantine q
        where {_CHOSEN} order by q.quarantine_id limit %(most)s
        """,  # noqa: S608
        which,
        most=most,
    )
    return [row[0] for row in rows]


async def fit(connection: db.Connection, ids_: Sequence[UUID]) -> tuple[list[UUID], int, int]:
    """(those that can be redriven, how many were cut short, how many are conflicts)."""
    rows = await db.fetch_all(
        connection,
        """
        select quarantine_id, raw_size_bytes > octet_length(raw), kind = 'conflict'
        from quarantine where quarantine_id = any(%s) order by quarantine_id
        """,
        list(ids_),
    )
    good = [row[0] for row in rows if not row[1] and not row[2]]
    return good, sum(row[1] for row in rows), sum(row[2] and not row[1] for row in rows)


@dataclass(frozen=True, slots=True)
class Held:
    """A row whose lock is ours until the transaction ends."""

    quarantine_id: UUID
    topic: str
    raw: bytes
    received_at: datetime


async def hold(tx: db.Connection, wanted: Sequence[UUID]) -> list[Held]:
    """Lock the rows that are still there, fit, and nobody else's just now."""
    rows = await db.fetch_all(
        tx,
        """
        select quarantine_id, topic, raw, first_received_at from quarantine
        where quarantine_id = any(%s) and raw_size_bytes = octet_length(raw) and kind <> 'conflict'
        order by quarantine_id for update skip locked
        """,
        list(wanted),
    )
    return [Held(id_, topic, bytes(raw), at) for id_, topic, raw, at in rows]


async def drop(tx: db.Connection, wanted: Sequence[UUID]) -> list[str]:
    """Delete the rows; returns the topics of those that were there."""
    rows = await db.fetch_all(
        tx,
        "delete from quarantine where quarantine_id = any(%s) returning topic",
        list(wanted),
    )
    return [row[0] for row in rows]


async def still(tx: db.Connection, quarantine_id: UUID, reasons: Sequence[str]) -> None:
    """It was tried again and refused again: it stays, with the reasons of today."""
    await tx.execute(
        """
        update quarantine set reasons = %s, kind = %s, gist = %s,
          redriven_count = redriven_count + 1, last_redriven_at = fn_now()
        where quarantine_id = %s
        """,
        (
            [_storable(reason) for reason in reasons],
            refusals.kind(reasons),
            _storable(refusals.gist(reasons)),
            quarantine_id,
        ),
    )


# What a row takes: its bytes and, since a message may be wrong in many places, its reasons.
_BYTES = "octet_length(raw) + pg_column_size(reasons)"


async def size(connection: db.Connection) -> tuple[int, int]:
    """(rows, bytes)."""
    rows = await db.fetch_all(
        connection,
        f"select count(*), coalesce(sum({_BYTES}), 0)::bigint from quarantine",  # noqa: S608
    )
    return rows[0][0], rows[0][1]


async def expired(connection: db.Connection, *, days: float, most: int) -> list[UUID]:
    """What did not come for so many days, oldest first."""
    rows = await db.fetch_all(
        connection,
        """
        select quarantine_id from quarantine
        where last_received_at < (select fn_now()) - %s * interval '1 day'
        order by last_received_at, quarantine_id limit %s
        """,
        days,
        most,
    )
    return [row[0] for row in rows]


async def beyond(connection: db.Connection, *, most_bytes: int, most: int) -> list[UUID]:
    """What is too much for so many bytes: rubbish first, the oldest of it first.

    What is right and only waits for this edge (a later version, a database that takes it) stays
    longest: nobody's flood of rubbish drives it out.
    """
    rows = await db.fetch_all(
        connection,
        f"""
        select quarantine_id from (
          select quarantine_id, last_received_at, waits, sum({_BYTES}) over (
            order by waits desc, last_received_at desc, quarantine_id desc) as with_better
          from quarantine, lateral (select kind in ('not_recorded', 'database') as waits) w) q
        where with_better > %s order by waits, last_received_at, quarantine_id limit %s
        """,  # noqa: S608
        most_bytes,
        most,
    )
    return [row[0] for row in rows]


async def _fetch(connection: db.Connection, query: str, which: Which, **more: Any) -> list[Any]:
    cursor = await connection.execute(query.encode(), {**_choice(which), **more})
    return await cursor.fetchall()


def _choice(which: Which) -> dict[str, Any]:
    return {
        "ids": list(which.ids) if which.ids is not None else None,
        "kind": which.kind,
        "reason": which.reason,
        "topic": which.topic,
        "older": which.older_than_hours,
        "newer": which.newer_than_hours,
    }


def _columns(message: Refused) -> dict[str, Any]:
    sent = f"{message.topic}\0".encode(errors="replace") + message.raw
    return {
        "id": ids.new(),
        "topic": _storable(message.topic)[:_MOST_TOPIC],
        "raw": message.raw[:MOST_RAW_BYTES],
        "sha256": hashlib.sha256(sent).digest(),
        "size": len(message.raw),
        "reasons": [_storable(reason) for reason in message.reasons],
        "kind": refusals.kind(message.reasons),
        "gist": _storable(refusals.gist(message.reasons)),
    }


def _storable(text: str) -> str:
    return text.replace(_NUL, "\\u0000").encode("utf-8", "backslashreplace").decode()
