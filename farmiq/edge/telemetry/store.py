"""Telemetry's SQL at the edge."""

from collections.abc import Sequence
from datetime import date, datetime

import psycopg
from psycopg import sql

from farmiq.edge import outbox
from farmiq.edge.arrival import Arrival
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, pg_binary


async def record(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Keep the readings. An id stored before is left as it is."""
    if len(arrivals) < outbox.WORTH_A_COPY:
        await _insert(tx, arrivals)
    else:
        await _copy_or_insert(tx, arrivals)
    return [each.event for each in arrivals]


async def _copy_or_insert(tx: db.Connection, arrivals: Sequence[Arrival]) -> None:
    try:
        async with tx.transaction():
            await _copy(tx, arrivals)
    except psycopg.errors.UniqueViolation:
        await _insert(tx, arrivals)


COPY = """
copy telemetry_raw (id, tenant_id, farm_id, barn_id, device_id, occurred_at,
  metric_type, metric_value, unit, ingested_at, clock_suspect)
from stdin (format binary)
"""


async def _copy(tx: db.Connection, arrivals: Sequence[Arrival]) -> None:
    """Raises UniqueViolation if one of them is stored already."""
    now = await db.fetch_value(tx, "select fn_now()")
    await db.copy(tx, COPY, copied(arrivals, ingested_at=now))


def copied(arrivals: Sequence[Arrival], *, ingested_at: datetime) -> bytes:
    """What COPY reads. In the order of ids: two writers then wait for each other one way only."""
    at = pg_binary.timestamptz(ingested_at)
    in_order = sorted(arrivals, key=lambda each: each.event.event_id.int)
    return pg_binary.copied([_row(each, at) for each in in_order], columns=11)


def _row(each: Arrival, ingested_at: bytes) -> tuple[bytes, ...]:
    place, reading = each.place, each.payload
    return (
        pg_binary.uuid(each.event.event_id),
        pg_binary.name(place.tenant_id),
        pg_binary.name(place.farm_id),
        pg_binary.name(place.barn_id),
        pg_binary.name(place.device_id),
        pg_binary.timestamptz(each.event.occurred_at),
        pg_binary.name(reading.metric_type),
        pg_binary.float8(reading.metric_value),
        pg_binary.name(reading.unit),
        ingested_at,
        pg_binary.boolean(each.clock_suspect),
    )


async def _insert(tx: db.Connection, arrivals: Sequence[Arrival]) -> None:
    await tx.execute(
        sql.SQL("""
            insert into telemetry_raw (id, tenant_id, farm_id, barn_id, device_id, occurred_at,
              metric_type, metric_value, unit, clock_suspect, ingested_at)
            select each.*, (select fn_now())
            from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[],
              %s::timestamptz[], %s::text[], %s::float8[], %s::text[], %s::bool[]) each
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


async def make_month(tx: db.Connection, month: date) -> bool:
    """Make the partition of a month; False if it was there."""
    made: bool = await db.fetch_value(tx, "select fn_make_telemetry_month(%s)", month)
    return made
