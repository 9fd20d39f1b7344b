"""Barn records' SQL at the edge."""

from collections.abc import Sequence

from psycopg import sql

from farmiq.edge.arrival import Arrival
from farmiq.messages.barn import BarnRecordCreated
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db


async def record(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Keep the records; returns the events of those that were new. The bus says it as MQTT did."""
    said: list[BarnRecordCreated] = [each.payload for each in arrivals]
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
        [each.event.event_id for each in arrivals],
        [each.place.tenant_id for each in arrivals],
        [each.place.farm_id for each in arrivals],
        [each.place.barn_id for each in arrivals],
        [each.place.device_id for each in arrivals],
        [one.record_id for one in said],
        [one.record_type for one in said],
        [None if isinstance(one.value, str) else one.value for one in said],
        [one.value if isinstance(one.value, str) else None for one in said],
        [one.unit for one in said],
        [one.recorded_by_ref for one in said],
        [one.recorded_at for one in said],
        [each.event.occurred_at for each in arrivals],
        [each.clock_suspect for each in arrivals],
    )
    new = {(tenant_id, event_id) for tenant_id, event_id in rows}
    return [each.event for each in arrivals if each.key in new]


async def forget(tx: db.Connection, *, days: float, most: int) -> int:
    """Delete records that came so many days ago and that the cloud has."""
    cursor = await tx.execute(
        """
        delete from barn_records where ctid = any(array(
          select ctid from barn_records
          where stored_at < (select fn_now()) - %s * interval '1 day'
            and not fn_unsynced(event_id) limit %s))
        """,
        (days, most),
    )
    return cursor.rowcount
