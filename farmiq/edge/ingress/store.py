"""Ingress' SQL: dedupe and sequence numbers. Quarantine has its own, in quarantine.py."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import psycopg
from psycopg import sql

from farmiq.edge import outbox
from farmiq.edge.arrival import Arrival
from farmiq.edge.ingress.rules import MAX_GAPS, Seen
from farmiq.plumbing import db, pg_binary


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message for quarantine."""

    topic: str
    raw: bytes
    reasons: list[str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one transaction did with its messages."""

    stored: tuple[Arrival, ...] = ()
    new_count: int = 0
    rejected: tuple[Rejected, ...] = ()
    # Those of `stored` that only the outbox knew, by their id.
    absorbed: tuple[Arrival, ...] = ()

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.stored + other.stored,
            self.new_count + other.new_count,
            self.rejected + other.rejected,
            self.absorbed + other.absorbed,
        )


@dataclass(frozen=True, slots=True)
class Boot:
    """What was seen of a boot; `forgotten` counts missing numbers below the stored gaps."""

    seen: Seen
    forgotten: int
    missing_since: datetime | None


async def first_seen(tx: db.Connection, arrivals: Sequence[Arrival]) -> set[tuple[str, UUID]]:
    """Store the ids of arrivals, all of them different; return the new keys.

    In the order of their keys, so that two writers do not deadlock. Nearly always all of them are
    new, and a copy of many costs half of an insert that has to look.
    """
    in_order = sorted(
        arrivals, key=lambda arrival: (arrival.event.tenant_id, arrival.event.event_id.int)
    )
    if len(in_order) >= outbox.WORTH_A_COPY:
        with contextlib.suppress(psycopg.errors.UniqueViolation):
            async with tx.transaction():
                await _copy_ids(tx, in_order)
            return {arrival.key for arrival in in_order}
    cursor = await tx.execute(
        """
        insert into ingress_dedupe (tenant_id, event_id, content_hash, first_seen_at)
        select arrived.*, clock.now
        from unnest(%s::text[], %s::uuid[], %s::bytea[]) arrived, (select fn_now() as now) clock
        on conflict on constraint ingress_dedupe_tenant_event_key do nothing
        returning tenant_id, event_id
        """,
        _packed(in_order),
    )
    return {(tenant_id, event_id) for tenant_id, event_id in await cursor.fetchall()}


async def _copy_ids(tx: db.Connection, arrivals: Sequence[Arrival]) -> None:
    """Raises UniqueViolation if one of them is stored already."""
    first_seen_at = pg_binary.timestamptz(await db.fetch_value(tx, "select fn_now()"))
    rows = [
        (
            pg_binary.names(arrival.event.tenant_id),
            pg_binary.uuid(arrival.event.event_id),
            pg_binary.bytea(arrival.content_hash),
            first_seen_at,
        )
        for arrival in arrivals
    ]
    await db.copy(
        tx,
        "copy ingress_dedupe (tenant_id, event_id, content_hash, first_seen_at) "
        "from stdin (format binary)",
        pg_binary.copied(rows, columns=4),
    )


async def known_hashes(
    tx: db.Connection, arrivals: Sequence[Arrival]
) -> dict[tuple[str, UUID], bytes]:
    """The first content hash of each of these keys."""
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
    """The tenants of these event ids in the outbox (C-18)."""
    rows = await db.fetch_all(
        tx,
        sql.SQL("select id, tenant_id from sync_outbox where id = any(%s::uuid[])"),
        [arrival.event.event_id for arrival in arrivals],
    )
    return {event_id: tenant_id for event_id, tenant_id in rows}  # noqa: C416 - rows are wider


async def note_seqs(tx: db.Connection, seen: Sequence[Seen]) -> None:
    """Add the numbers of a batch to those seen before (C-84).

    Only the sum is limited: numbers missing in a batch may be there already.
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
            from fn_seq_bounded(d.seen + excluded.seen, %(max_gaps)s) b),
          first_at = least(d.first_at, excluded.first_at),
          updated_at = excluded.updated_at
        """,
        {
            "tenants": [boot.tenant_id for boot in seen],
            "devices": [boot.device_id for boot in seen],
            "boots": [boot.boot_id for boot in seen],
            "seen": [_multirange(boot.spans) for boot in seen],
            "first": [boot.first_at for boot in seen],
            "max_gaps": MAX_GAPS,
        },
    )


async def boots(connection: db.Connection) -> list[Boot]:
    """What was seen of every device, sorted by device."""
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


async def purge_boots(tx: db.Connection, *, days: float, max_boots: int) -> int:
    """Delete boots that are silent for so long, or not among the newest of a device."""
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
        (max_boots, days),
    )
    return cursor.rowcount


def _multirange(spans: Sequence[tuple[int, int]]) -> str:
    return "{" + ",".join(f"[{low},{high}]" for low, high in spans) + "}"


def _packed(arrivals: Sequence[Arrival]) -> tuple[db.Texts, db.Uuids, db.Byteas]:
    return (
        db.Texts(pg_binary.names(arrival.event.tenant_id) for arrival in arrivals),
        db.Uuids(pg_binary.uuid(arrival.event.event_id) for arrival in arrivals),
        db.Byteas(pg_binary.bytea(arrival.content_hash) for arrival in arrivals),
    )
