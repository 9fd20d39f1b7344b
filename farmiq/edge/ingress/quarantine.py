"""Quarantine: messages that were rejected, stored with every reason until somebody acts.

Its SQL, the alerts that go with a row in the same transaction, and what redrive and discard do
(plumbing/deadletters.py). rules.py decides the kind of a rejection.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import prometheus_client

from farmiq.edge import alerts, audit, losses
from farmiq.edge.alerts import Alert
from farmiq.edge.ingress import rules
from farmiq.edge.ingress.store import Outcome, Rejected
from farmiq.messages.text import storable
from farmiq.messages.wording import worded
from farmiq.plumbing import db, deadletters, ids, log
from farmiq.plumbing.deadletters import DeadLetter

MAX_RAW_BYTES = 256 * 1024
# Open alerts of one kind that name a device; further devices are counted under OTHERS.
MAX_SUBJECTS = 200
OTHERS = "other devices"
# A NUL cannot stand in a PostgreSQL text; the topic is shown with it spelled out.
_MAX_TOPIC = 1024
# The outbox has the id, but its content is not known any more: the message must not vanish.
_TAKEN = "EVENT_ID_CONFLICT: this event_id was taken long ago, perhaps with another content"

ALERTS = prometheus_client.Counter(
    "farmiq_ingress_alerts_total", "Messages that raised or repeated an alert", ["kind"]
)


TABLE = deadletters.quarantine_table(
    "quarantine",
    columns="quarantine_id, topic, kind, gist",
    filters={
        "topic": "starts_with(topic, %(topic)s)",
        # The broker lets a device publish under its own tenant only.
        "tenant_id": "split_part(topic, '/', 3) = %(tenant_id)s",
    },
    newest_first="quarantine_id desc",
    groups=("kind", "gist"),
)


async def insert(tx: db.Connection, rejected: Sequence[Rejected]) -> None:
    """Store the messages and raise their alerts; the same bytes again only raise a count."""
    if not rejected:
        return
    # Always in the same order: two transactions must not wait for each other's rows.
    rows = sorted(map(_columns, rejected), key=lambda row: row["sha256"])
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
    await _raise_alerts(tx, rejected)


# Who must look (C-02, C-05), by how a reason begins: kind, severity and text of the alert. The
# registry has an alert of its own for a device that is not registered.
_ALERTS: tuple[tuple[re.Pattern[str], str, alerts.Severity, str], ...] = (
    (
        rules.OTHER_SENDER, "ingress.impostor", "security",
        worded(
            "messages on this device's topic speak for somebody else; they wait in quarantine. "
            "Look at the device and at who has its login: `farmiq quarantine ls --kind security`"
        ),
    ),
    (
        rules.OTHER_SESSION, "ingress.foreign_session", "security",
        worded(
            "this station spoke of a weigh session that another device began; nothing was bound, "
            "the messages wait in quarantine. Two devices share a memory or a login, or somebody "
            "guesses ids: `farmiq quarantine ls --kind security`"
        ),
    ),
    (
        rules.CONFLICT, "ingress.event_id_conflict", "warning",
        worded(
            "an event_id came again with another content; the first is kept, the others wait in "
            "quarantine. The device's firmware makes ids twice, or its memory was copied: "
            "`farmiq quarantine ls --kind conflict`"
        ),
    ),
)  # fmt: skip


def alert(topic: str, reasons: Sequence[str]) -> Alert | None:
    """The alert of a rejection, about the device that the topic names, or None."""
    for sign, kind, severity, text in _ALERTS:
        if any(sign.match(reason) for reason in reasons):
            place = rules.place(topic)
            nobody = place == rules.NOBODY
            return Alert(kind, rules.subject(place), severity, text, whole_edge=nobody)
    return None


async def _raise_alerts(tx: db.Connection, rejected: Sequence[Rejected]) -> None:
    """Raise what a person should see: one open alert per kind and device, with a count."""
    counted: Counter[Alert] = Counter()
    examples: dict[Alert, Rejected] = {}
    for message in rejected:
        raised = alert(message.topic, message.reasons)
        if raised is not None:
            counted[raised] += 1
            examples.setdefault(raised, message)
    if not counted:
        return
    await alerts.raise_all(tx, await limit_subjects(tx, counted))
    for raised, message in examples.items():
        ALERTS.labels(kind=raised.kind).inc(counted[raised])
        named = msgspec.structs.asdict(rules.named(message.raw))
        log.get("edge-ingress-gateway").warning(raised.kind, **named, count=counted[raised])


async def limit_subjects(tx: db.Connection, counted: Counter[Alert]) -> Counter[Alert]:
    """Count new devices under OTHERS where too many alerts are open already."""
    rows = await db.fetch_all(
        tx,
        """
        select kind, count(*), array_agg(subject) filter (where subject = any(%s))
        from alerts where kind = any(%s) and closed_at is null group by kind
        """,
        sorted({alert.subject for alert in counted}),
        sorted({alert.kind for alert in counted}),
    )
    room = {kind: MAX_SUBJECTS - count for kind, count, _ in rows}
    known = {(kind, subject) for kind, _, subjects in rows for subject in subjects or ()}
    limited: Counter[Alert] = Counter()
    for raised, count in counted.items():
        if (raised.kind, raised.subject) not in known:
            left = room.get(raised.kind, MAX_SUBJECTS)
            room[raised.kind] = left - 1
            if left <= 0:
                raised = replace(raised, subject=OTHERS, whole_edge=True)  # noqa: PLW2901
        limited[raised] += count
    return limited


# handlers.handle: messages, and when each was first received.
Handle = Callable[
    [db.Connection, Sequence[tuple[str, bytes]], Sequence[datetime]], Awaitable[Outcome]
]


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Redrives with handlers.handle, discards into the loss ledger; both are audited.

    `reason` is for the ledger.
    """

    handle: Handle
    actor: str
    reason: str = "discarded by hand"
    table: deadletters.Table = TABLE
    batch: int = deadletters.BATCH
    # Their id is taken by another content, and would be in the cloud too.
    conflict: str = "kind = 'conflict'"

    async def apply(
        self, tx: db.Connection, letters: Sequence[DeadLetter]
    ) -> dict[UUID, dict[str, Any]]:
        messages = [(letter.topic, letter.payload) for letter in letters]
        outcome = await self.handle(tx, messages, [letter.received_at for letter in letters])
        reasons = {
            **{(message.topic, message.raw): [_TAKEN] for message in outcome.absorbed},
            **{(message.topic, message.raw): message.reasons for message in outcome.rejected},
        }
        return {
            letter.id: self.rejection(reasons[message])
            for letter, message in zip(letters, messages, strict=True)
            if message in reasons
        }

    def rejection(self, reasons: Sequence[str]) -> dict[str, Any]:
        return _described(reasons)

    async def audit(
        self, tx: db.Connection, *, accepted: Sequence[UUID], rejected: Sequence[UUID]
    ) -> None:
        await audit.note(
            tx,
            actor=self.actor,
            action="quarantine.redrive",
            subject=f"{len(accepted) + len(rejected)} messages",
            accepted=accepted,
            refused=rejected,
        )

    async def discard(self, tx: db.Connection, ids: Sequence[UUID]) -> int:
        topics = await deadletters.delete(tx, self.table, ids)
        await losses.of_quarantine(tx, map(rules.place, topics), reason=self.reason)
        await audit.note(
            tx,
            actor=self.actor,
            action="quarantine.discard",
            subject=f"{len(topics)} messages",
            ids=ids,
            reason=self.reason,
        )
        return len(topics)


# The size of a row: its bytes and its reasons, of which a message may have many.
_BYTES = "octet_length(raw) + pg_column_size(reasons)"


async def size(connection: db.Connection) -> tuple[int, int]:
    """(rows, bytes)."""
    rows = await db.fetch_all(
        connection,
        f"select count(*), coalesce(sum({_BYTES}), 0)::bigint from quarantine",  # noqa: S608
    )
    return rows[0][0], rows[0][1]


async def expired(connection: db.Connection, *, days: float, max_rows: int) -> list[UUID]:
    """Rows that were not received again for so many days, oldest first."""
    rows = await db.fetch_all(
        connection,
        """
        select quarantine_id from quarantine
        where last_received_at < (select fn_now()) - %s * interval '1 day'
        order by last_received_at, quarantine_id limit %s
        """,
        days,
        max_rows,
    )
    return [row[0] for row in rows]


async def beyond(connection: db.Connection, *, max_bytes: int, max_rows: int) -> list[UUID]:
    """Rows beyond so many bytes: invalid messages first, the oldest of them first.

    Valid messages that wait for a later version or for the database stay longest, so that a flood
    of invalid ones cannot push them out.
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
        max_bytes,
        max_rows,
    )
    return [row[0] for row in rows]


def _columns(message: Rejected) -> dict[str, Any]:
    sent = f"{message.topic}\0".encode(errors="replace") + message.raw
    return {
        "id": ids.new(),
        "topic": storable(message.topic, max_length=_MAX_TOPIC),
        "raw": message.raw[:MAX_RAW_BYTES],
        "sha256": hashlib.sha256(sent).digest(),
        "size": len(message.raw),
        **_described(message.reasons),
    }


def _described(reasons: Sequence[str]) -> dict[str, Any]:
    return {
        "reasons": [storable(reason, max_length=None) for reason in reasons],
        "kind": rules.kind(reasons),
        "gist": storable(rules.gist(reasons), max_length=None),
    }
