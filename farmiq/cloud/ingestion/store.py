"""Ingestion's SQL: the ids of known events, ids that came with two contents, hours of edges."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg import sql

from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db

Key = tuple[str, UUID]


@dataclass(frozen=True, slots=True)
class Offered:
    """An event of a batch with the hash of its content."""

    event: BusEvent
    content_hash: bytes

    @property
    def key(self) -> Key:
        return self.event.tenant_id, self.event.event_id


# tenant, edge, the hour in which it came
HourKey = tuple[str, str, datetime]


@dataclass(slots=True)
class Tally:
    """What came from an edge: events, and how many of them were known already."""

    events: int = 0
    duplicates: int = 0


async def unknown_tenants(tx: db.Connection, tenant_ids: Sequence[str]) -> list[str]:
    rows = await db.fetch_all(
        tx,
        sql.SQL("""
            select t.tenant_id from unnest(%s::text[]) as t(tenant_id)
            where not exists (select from companies c where c.tenant_id = t.tenant_id)
        """),
        list(tenant_ids),
    )
    return [row[0] for row in rows]


async def insert_new(
    tx: db.Connection, offered: Sequence[Offered], *, batch_id: str
) -> dict[Key, datetime]:
    """Insert the events; returns the keys that were new, and when they were received."""
    rows = await db.fetch_all(
        tx,
        sql.SQL("""
            insert into ingestion_dedupe (tenant_id, event_id, event_type, content_hash, batch_id)
            select e.*, %s
            from unnest(%s::text[], %s::uuid[], %s::text[], %s::bytea[]) as e
            on conflict on constraint ingestion_dedupe_pkey do nothing
            returning tenant_id, event_id, received_at
        """),
        batch_id,
        db.packed(db.Texts, [offer.event.tenant_id for offer in offered]),
        db.packed(db.Uuids, [offer.event.event_id for offer in offered]),
        db.packed(db.Texts, [offer.event.event_type for offer in offered]),
        db.packed(db.Byteas, [offer.content_hash for offer in offered]),
    )
    return {(tenant_id, event_id): received_at for tenant_id, event_id, received_at in rows}


async def received_at(tx: db.Connection, offered: Sequence[Offered], *, batch_id: str) -> datetime:
    """When a batch was first received: by the rows with its id, else now."""
    at: datetime = await db.fetch_value(
        tx,
        sql.SQL("""
            select coalesce(min(d.received_at), now())
            from unnest(%s::text[], %s::uuid[]) as o(tenant_id, event_id)
            join ingestion_dedupe d on d.tenant_id = o.tenant_id and d.event_id = o.event_id
            where d.batch_id = %s
        """),
        [offer.event.tenant_id for offer in offered],
        [offer.event.event_id for offer in offered],
        batch_id,
    )
    return at


async def changed(tx: db.Connection, offered: Sequence[Offered]) -> set[Key]:
    """The keys that are known with another content."""
    rows = await db.fetch_all(
        tx,
        sql.SQL("""
            select d.tenant_id, d.event_id
            from unnest(%s::text[], %s::uuid[], %s::bytea[])
              as o(tenant_id, event_id, content_hash)
            join ingestion_dedupe d on d.tenant_id = o.tenant_id and d.event_id = o.event_id
            where d.content_hash <> o.content_hash
        """),
        [offer.event.tenant_id for offer in offered],
        [offer.event.event_id for offer in offered],
        [offer.content_hash for offer in offered],
    )
    return {(tenant_id, event_id) for tenant_id, event_id in rows}


async def insert_conflicts(tx: db.Connection, known: Sequence[Offered], *, batch_id: str) -> int:
    """Store the known events that came with another content; returns how many."""
    rows = await db.fetch_all(
        tx,
        sql.SQL("""
            insert into event_conflicts
              (tenant_id, event_id, content_hash, first_content_hash, batch_id)
            select d.tenant_id, d.event_id, o.content_hash, d.content_hash, %s
            from unnest(%s::text[], %s::uuid[], %s::bytea[])
              as o(tenant_id, event_id, content_hash)
            join ingestion_dedupe d on d.tenant_id = o.tenant_id and d.event_id = o.event_id
            where d.content_hash <> o.content_hash
            on conflict on constraint event_conflicts_pkey do nothing
            returning event_id
        """),
        batch_id,
        [offer.event.tenant_id for offer in known],
        [offer.event.event_id for offer in known],
        [offer.content_hash for offer in known],
    )
    return len(rows)


async def add_to_hours(tx: db.Connection, tallies: Mapping[HourKey, Tally]) -> None:
    """Add what came from edges to their hours."""
    keys = sorted(tallies)
    await tx.execute(
        """
        insert into edge_hours as e (tenant_id, edge_cluster_id, hour, events, duplicates)
        select * from unnest(%s::text[], %s::text[], %s::timestamptz[], %s::bigint[],
          %s::bigint[])
        on conflict on constraint edge_hours_pkey do update set
          events = e.events + excluded.events, duplicates = e.duplicates + excluded.duplicates
        """,
        (
            [key[0] for key in keys],
            [key[1] for key in keys],
            [key[2] for key in keys],
            [tallies[key].events for key in keys],
            [tallies[key].duplicates for key in keys],
        ),
    )
