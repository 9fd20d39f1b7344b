"""Ingress' SQL: dedupe and sequence numbers. Quarantine has its own, in quarantine.py."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg import sql

from farmiq.edge.arrival import Arrival
from farmiq.edge.ingress.gaps import MAX_GAPS, Seen
from farmiq.plumbing import db, pg_binary


@dataclass(frozen=True, slots=True)
class Refused:
    """A message for quarantine."""

    topic: str
    raw: bytes
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class Boot:
    """What was seen of a boot; `forgotten` numbers are missing below the gaps that are kept."""

    seen: Seen
    forgotten: int
    missing_since: datetime | None


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


async def note_seqs(tx: db.Connection, seen: Sequence[Seen]) -> None:
    """Add what a batch brought to what was seen before (C-84).

    Bounded is the sum alone: what one batch leaves out may be there already.
    """
    if not seen:
        return
    await tx.execute(
        """
        insert into device_seq as d
          (tenant_id, device_id, boot_id, seen, first_at, updated_at, missing_since)
        select s.tenant_id, s.device_id, s.boot_id, s.seen, s.first_at, clock.now,
          case when s.seen <> range_merge(s.seen)::int8multirange then clock.now end
        from unnest(%(tenants)s::text[], %(devices)s::text[], %(boots)s::text[],
            %(seen)s::text[]::int8multirange[], %(first)s::timestamptz[])
          as s(tenant_id, device_id, boot_id, seen, first_at),
          (select fn_now() as now) clock
        on conflict on constraint device_seq_pkey do update set
          (seen, forgotten, missing_since) = (
            select b.bounded, d.forgotten + b.forgotten,
              case when b.bounded <> range_merge(b.bounded)::int8multirange
                then coalesce(d.missing_since, excluded.updated_at) end
            from fn_seq_bounded(d.seen + excluded.seen, %(most)s) b),
          first_at = least(d.first_at, excluded.first_at),
          updated_at = excluded.updated_at
        """,
        {
            "tenants": [each.tenant_id for each in seen],
            "devices": [each.device_id for each in seen],
            "boots": [each.boot_id for each in seen],
            "seen": [_multirange(each.spans) for each in seen],
            "first": [each.first_at for each in seen],
            "most": MAX_GAPS,
        },
    )


async def boots(connection: db.Connection) -> list[Boot]:
    """All that was seen of every device, device by device."""
    rows = await db.fetch_all(
        connection,
        """
        select d.tenant_id, d.device_id, d.boot_id,
          array(select array[lower(r), upper(r) - 1] from unnest(d.seen) r order by r),
          d.first_at, d.forgotten, d.missing_since
        from device_seq d order by 1, 2, 3
        """,
    )
    return [
        Boot(
            Seen(tenant_id, device_id, boot_id, tuple((low, high) for low, high in spans), first),
            forgotten,
            since,
        )
        for tenant_id, device_id, boot_id, spans, first, forgotten, since in rows
    ]


async def forget_boots(tx: db.Connection, *, days: float, most_boots: int) -> int:
    """Boots that have been silent for so long, or that are not among a device's newest."""
    cursor = await tx.execute(
        """
        delete from device_seq d using (
          select tenant_id, device_id, boot_id, updated_at, row_number() over (
            partition by tenant_id, device_id order by updated_at desc, boot_id) as place
          from device_seq) old
        where d.tenant_id = old.tenant_id and d.device_id = old.device_id
          and d.boot_id = old.boot_id and d.updated_at = old.updated_at
          and (old.place > %s or old.updated_at < (select fn_now()) - %s * interval '1 day')
        """,
        (most_boots, days),
    )
    return cursor.rowcount


async def forget_seen(tx: db.Connection, *, days: float, most: int) -> int:
    """Delete ids first seen longer ago than that, oldest first, at most so many (DD-06)."""
    cursor = await tx.execute(
        """
        delete from ingress_dedupe where ctid = any(array(
          select ctid from ingress_dedupe
          where first_seen_at < (select fn_now()) - %s * interval '1 day'
          order by first_seen_at limit %s))
        """,
        (days, most),
    )
    return cursor.rowcount


def _multirange(spans: Sequence[tuple[int, int]]) -> str:
    return "{" + ",".join(f"[{low},{high}]" for low, high in spans) + "}"


def _packed(arrivals: Sequence[Arrival]) -> tuple[db.Texts, db.Uuids, db.Byteas]:
    return (
        db.Texts(pg_binary.name(each.event.tenant_id) for each in arrivals),
        db.Uuids(pg_binary.uuid(each.event.event_id) for each in arrivals),
        db.Byteas(pg_binary.bytea(each.content_hash) for each in arrivals),
    )
