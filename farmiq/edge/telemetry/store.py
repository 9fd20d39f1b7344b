"""Telemetry's SQL at the edge."""

from collections.abc import Sequence
from datetime import date

from psycopg import sql

from farmiq.edge.arrival import Arrival
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db


async def record(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Keep the readings. An id stored before is left as it is."""
    await tx.execute(
        sql.SQL("""
            insert into telemetry_raw (id, tenant_id, farm_id, barn_id, device_id,
              occurred_at, metric_type, metric_value, unit, clock_suspect)
            select * from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[],
              %s::timestamptz[], %s::text[], %s::float8[], %s::text[], %s::bool[])
            on conflict do nothing
        """),
        (
            [each.event.event_id for each in arrivals],
            [each.place.tenant_id for each in arrivals],
            [each.place.farm_id for each in arrivals],
            [each.place.barn_id for each in arrivals],
            [each.place.device_id for each in arrivals],
            [each.event.occurred_at for each in arrivals],
            [each.payload.metric_type for each in arrivals],
            [each.payload.metric_value for each in arrivals],
            [each.payload.unit for each in arrivals],
            [each.clock_suspect for each in arrivals],
        ),
    )
    return [each.event for each in arrivals]


async def make_month(tx: db.Connection, month: date) -> bool:
    """Make the partition of a month; False if it was there."""
    made: bool = await db.fetch_value(tx, "select fn_make_telemetry_month(%s)", month)
    return made
