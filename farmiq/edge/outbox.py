"""The outbox: events for the cloud, appended in the transaction that causes them."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from psycopg import sql

from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, pg_binary

# A copy takes a few round trips more than an insert, and less work for every row.
WORTH_A_COPY = 50


async def append(tx: db.Connection, events: Sequence[BusEvent]) -> set[tuple[str, UUID]]:
    """Write the events down; returns (tenant, id) of those that were new.

    An id that is there already stays as it is, whatever its tenant (C-18).
    """
    rows = await db.fetch_all(
        tx,
        sql.SQL("""
            insert into sync_outbox (id, tenant_id, farm_id, barn_id, device_id, session_id,
              event_type, occurred_at, trace_id, payload_json, payload_size_bytes, clock_suspect,
              priority, next_attempt_at, created_at, updated_at)
            select e.id, e.tenant_id, e.farm_id, e.barn_id, e.device_id, e.session_id,
              e.event_type, e.occurred_at, e.trace_id, e.payload::jsonb, octet_length(e.payload),
              e.clock_suspect, coalesce(d.level, 0), clock.now, clock.now, clock.now
            from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::uuid[],
              %s::text[], %s::timestamptz[], %s::text[], %s::text[], %s::bool[])
              as e(id, tenant_id, farm_id, barn_id, device_id, session_id,
                event_type, occurred_at, trace_id, payload, clock_suspect)
              left join sync_drain d on d.tenant_id = e.tenant_id,
              (select fn_now() as now) clock
            on conflict do nothing
            returning tenant_id, id
        """),
        [event.event_id for event in events],
        [event.tenant_id for event in events],
        [event.farm_id for event in events],
        [event.barn_id for event in events],
        [event.device_id or None for event in events],
        [event.session_id or None for event in events],
        [event.event_type for event in events],
        [event.occurred_at for event in events],
        [event.trace_id for event in events],
        [bytes(event.payload).decode() for event in events],
        [event.clock_suspect for event in events],
    )
    return {(tenant_id, event_id) for tenant_id, event_id in rows}


async def append_new(tx: db.Connection, events: Sequence[BusEvent]) -> None:
    """Write down events that are not there yet, quickly.

    Raises psycopg.errors.UniqueViolation if one is: then nothing of this transaction can stay, and
    the caller starts again with `append`.
    """
    now, levels = await _now_and_levels(tx)
    at = pg_binary.timestamptz(now)
    moments = at + at + at
    # In the order of their ids: two writers then wait for each other one way only.
    rows = [
        _row(event, moments, levels.get(event.tenant_id, 0))
        for event in sorted(events, key=lambda event: event.event_id.int)
    ]
    await db.copy(
        tx,
        """
        copy sync_outbox (next_attempt_at, created_at, updated_at,
          id, tenant_id, farm_id, barn_id, device_id, event_type,
          session_id, occurred_at, trace_id, payload_json, payload_size_bytes, clock_suspect,
          priority)
        from stdin (format binary)
        """,
        pg_binary.copied(rows, columns=16),
    )


async def _now_and_levels(tx: db.Connection) -> tuple[datetime, dict[str, int]]:
    """The time, and the priority of new events by tenant: above a backlog that drains (C-92).

    The forwarder keeps that table; nearly always it is empty.
    """
    ((now, levels),) = await db.fetch_all(
        tx, "select fn_now(), (select jsonb_object_agg(tenant_id, level) from sync_drain)"
    )
    return now, levels or {}


def _row(event: BusEvent, moments: bytes, priority: int) -> tuple[bytes, ...]:
    payload = bytes(event.payload)
    return (
        moments,
        pg_binary.uuid(event.event_id),
        pg_binary.names(
            event.tenant_id, event.farm_id, event.barn_id, event.device_id, event.event_type
        ),
        pg_binary.uuid(event.session_id) if event.session_id else pg_binary.NULL,
        pg_binary.timestamptz(event.occurred_at),
        pg_binary.text(event.trace_id),
        pg_binary.jsonb(payload),
        pg_binary.int4(len(payload)),
        pg_binary.boolean(event.clock_suspect),
        pg_binary.int4(priority),
    )
