"""SQL of barn records at the edge."""

from collections.abc import Sequence

from psycopg import sql

from farmiq.edge.arrival import Arrival
from farmiq.messages.barn import BarnRecordCreated
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db


async def record(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Store the records; return the events of the new ones, as they came."""
    payloads: list[BarnRecordCreated] = [arrival.payload for arrival in arrivals]
    rows = await db.fetch_all(
        tx,
        sql.SQL("""
            insert into barn_records (event_id, tenant_id, farm_id, barn_id, device_id, record_id,
              record_type, value_number, value_text, unit, recorded_by_ref, recorded_at,
              occurred_at, clock_suspect, stored_at)
            select r.*, clock.now
            from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
              %s::text[], %s::float8[], %s::text[], %s::text[], %s::text[], %s::timestamptz[],
              %s::timestamptz[], %s::bool[]) as r,
              (select fn_now() as now) clock
            on conflict do nothing
            returning tenant_id, event_id
        """),
        *db.columns(
            arrivals, "event.event_id", "place.tenant_id", "place.farm_id", "place.barn_id",
            "place.device_id", "payload.record_id", "payload.record_type",
        ),
        [None if isinstance(payload.value, str) else payload.value for payload in payloads],
        [payload.value if isinstance(payload.value, str) else None for payload in payloads],
        *db.columns(
            arrivals, "payload.unit", "payload.recorded_by_ref", "payload.recorded_at",
            "event.occurred_at", "clock_suspect",
        ),
    )  # fmt: skip
    new = {(tenant_id, event_id) for tenant_id, event_id in rows}
    return [arrival.event for arrival in arrivals if arrival.key in new]
