"""Postings by their Idempotency-Key, in the table posted_events, which edge and cloud both have."""

import msgspec
import psycopg

from farmiq.farm.postings import Posted
from farmiq.messages.bus import BusEvent
from farmiq.messages.wording import worded
from farmiq.plumbing import db


class KeyUsedError(Exception):
    """The key was used for something else; the client needs a new one."""


class ReplacedError(Exception):
    """Another posting replaces the same record or event; that one is to be corrected."""


async def claim(tx: db.Connection, posted: Posted) -> tuple[BusEvent, bool]:
    """Remember the posting; returns the event of this key, and whether it is new.

    Of two postings with one key at a time the second waits for the first. Raises KeyUsedError or
    ReplacedError; then the transaction must be rolled back.
    """
    event = posted.event
    try:
        cursor = await tx.execute(
            """
            insert into posted_events (tenant_id, idempotency_key, content_hash, event_id,
              event_type, subject, replaces, event, posted_by, posted_at)
            values (%s, %s, %s, %s, %s, %s, %s, %s, %s, fn_now())
            on conflict on constraint posted_events_pkey do nothing
            """,
            (
                event.tenant_id,
                posted.idempotency_key,
                posted.content_hash,
                event.event_id,
                event.event_type,
                posted.subject,
                posted.replaces,
                msgspec.json.encode(event).decode(),
                posted.posted_by,
            ),
        )
    except psycopg.errors.UniqueViolation as error:
        if error.diag.constraint_name != "posted_events_replaces_key":
            raise
        raise ReplacedError(
            worded(
                "%(name)s is replaced already; correct the one that replaces it",
                name=posted.replaces,
            )
        ) from error
    if cursor.rowcount:
        return event, True
    rows = await db.fetch_all(
        tx,
        "select content_hash, event::text from posted_events "
        "where tenant_id = %s and idempotency_key = %s",
        event.tenant_id,
        posted.idempotency_key,
    )
    known_hash, known = rows[0]
    if known_hash != posted.content_hash:
        raise KeyUsedError(
            worded(
                "this Idempotency-Key was used for something else; send a new one, or the same body"
            )
        )
    return msgspec.json.decode(known, type=BusEvent), False
