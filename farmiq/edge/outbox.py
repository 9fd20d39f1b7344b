"""The outbox: what the cloud is owed, appended in the transaction of the effect itself."""

from collections.abc import Sequence
from uuid import UUID

from psycopg import sql

from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db


async def append(tx: db.Connection, events: Sequence[BusEvent]) -> set[tuple[str, UUID]]:
    """Write the events down; returns (tenant, id) of those that were new.

    An id that is there already is left alone, whoever it belongs to (C-18).
    """
    levels = await priorities(tx)
    rows = await db.fetch_all(
        tx,
        sql.SQL("""
            insert into sync_outbox (id, tenant_id, farm_id, barn_id, device_id, session_id,
              event_type, occurred_at, trace_id, payload_json, payload_size_bytes,
              priority, next_attempt_at, created_at, updated_at)
            select e.id, e.tenant_id, e.farm_id, e.barn_id, e.device_id, e.session_id,
              e.event_type, e.occurred_at, e.trace_id, e.payload::jsonb, octet_length(e.payload),
              e.priority, clock.now, clock.now, clock.now
            from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::uuid[],
              %s::text[], %s::timestamptz[], %s::text[], %s::text[], %s::int[])
              as e(id, tenant_id, farm_id, barn_id, device_id, session_id,
                event_type, occurred_at, trace_id, payload, priority),
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
        [levels.get(event.tenant_id, 0) for event in events],
    )
    return {(tenant_id, event_id) for tenant_id, event_id in rows}


async def priorities(tx: db.Connection) -> dict[str, int]:
    """Which priority new events of a tenant get: above its backlog while that drains (C-92).

    The forwarder keeps the table, one row per tenant that drains: nearly always it is empty.
    """
    rows = await db.fetch_all(tx, "select tenant_id, level from sync_drain")
    return {tenant_id: level for tenant_id, level in rows}  # noqa: C416 - rows are wider
