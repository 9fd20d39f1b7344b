"""Ingress' SQL: dedupe and quarantine."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg import sql

from farmiq.edge.arrival import Arrival
from farmiq.plumbing import db, ids, pg_binary

# A NUL cannot stand in a PostgreSQL text; the topic is shown with it spelled out.
_NUL = "\x00"
_MOST_RAW_BYTES = 256 * 1024
_MOST_TOPIC = 1024


@dataclass(frozen=True, slots=True)
class Refused:
    """A message for quarantine."""

    topic: str
    raw: bytes
    reasons: list[str]


async def first_seen(tx: db.Connection, arrivals: Sequence[Arrival]) -> set[tuple[str, UUID]]:
    """Note the arrivals; returns the keys never seen before.

    In the order of their keys: two writers then wait for each other one way only.
    """
    in_order = sorted(arrivals, key=lambda each: (each.event.tenant_id, each.event.event_id.int))
    cursor = await tx.execute(
        """
        insert into ingress_dedupe (tenant_id, event_id, content_hash, first_seen_at)
        select each.*, clock.now
        from unnest(%s::text[], %s::uuid[], %s::bytea[]) each, (select fn_now() as now) clock
        on conflict on constraint ingress_dedupe_tenant_event_key do nothing
        returning tenant_id, event_id
        """,
        _packed(in_order),
    )
    if cursor.rowcount == len(in_order):
        return {each.key for each in in_order}
    return {(tenant_id, event_id) for tenant_id, event_id in await cursor.fetchall()}


async def known_hashes(
    tx: db.Connection, arrivals: Sequence[Arrival]
) -> dict[tuple[str, UUID], bytes]:
    """The content first seen under each of these keys."""
    rows = await db.fetch_all(
        tx,
        sql.SQL("""
            select d.tenant_id, d.event_id, d.content_hash
            from ingress_dedupe d
            join unnest(%s::text[], %s::uuid[]) as a(tenant_id, event_id)
              on a.tenant_id = d.tenant_id and a.event_id = d.event_id
        """),
        *_packed(arrivals)[:2],
    )
    return {(tenant_id, event_id): bytes(digest) for tenant_id, event_id, digest in rows}


async def outbox_tenants(tx: db.Connection, arrivals: Sequence[Arrival]) -> dict[UUID, str]:
    """Which tenant holds each of these event ids in the outbox (C-18)."""
    rows = await db.fetch_all(
        tx,
        sql.SQL("select id, tenant_id from sync_outbox where id = any(%s::uuid[])"),
        [arrival.event.event_id for arrival in arrivals],
    )
    return {event_id: tenant_id for event_id, tenant_id in rows}  # noqa: C416 - rows are wider


async def quarantine(tx: db.Connection, refused: Sequence[Refused]) -> None:
    """Keep the messages with all their reasons; the same bytes again only raise a count."""
    for message in refused:
        await tx.execute(
            """
            insert into quarantine
              (quarantine_id, topic, raw, message_sha256, raw_size_bytes, reasons)
            values (%s, %s, %s, %s, %s, %s)
            on conflict on constraint quarantine_message_key do update set
              received_count = quarantine.received_count + 1,
              reasons = excluded.reasons,
              last_received_at = clock_timestamp()
            """,
            (
                ids.new(),
                _storable(message.topic)[:_MOST_TOPIC],
                message.raw[:_MOST_RAW_BYTES],
                hashlib.sha256(
                    f"{message.topic}\0".encode(errors="replace") + message.raw
                ).digest(),
                len(message.raw),
                [_storable(reason) for reason in message.reasons],
            ),
        )


def _packed(arrivals: Sequence[Arrival]) -> tuple[db.Texts, db.Uuids, db.Byteas]:
    return (
        db.Texts(pg_binary.name(each.event.tenant_id) for each in arrivals),
        db.Uuids(pg_binary.uuid(each.event.event_id) for each in arrivals),
        db.Byteas(pg_binary.bytea(each.content_hash) for each in arrivals),
    )


def _storable(text: str) -> str:
    return text.replace(_NUL, "\\u0000").encode("utf-8", "backslashreplace").decode()
