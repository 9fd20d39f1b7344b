"""SQL of barn records at the edge."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from farmiq.edge.arrival import Arrival
from farmiq.messages.barn import BarnRecordCreated
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db


async def record(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Store what devices sent; return the events of the new records, as they came."""
    new = await add(tx, [(arrival.event, arrival.payload) for arrival in arrivals])
    return [arrival.event for arrival in arrivals if arrival.key in new]


async def add(
    tx: db.Connection, records: Sequence[tuple[BusEvent, BarnRecordCreated]]
) -> set[tuple[str, UUID]]:
    """Insert the records; returns (tenant, id) of those that were new."""
    rows = await db.fetch_all(
        tx,
        """
        insert into barn_records (event_id, tenant_id, farm_id, barn_id, device_id, occurred_at,
          clock_suspect, record_id, record_type, value_number, value_text, unit, recorded_by_ref,
          recorded_at, product, dose, dose_unit, withdrawal_days, batch_id, replaces, stored_at)
        select r.*, clock.now
        from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[],
          %s::bool[], %s::text[], %s::text[], %s::float8[], %s::text[], %s::text[], %s::text[],
          %s::timestamptz[], %s::text[], %s::float8[], %s::text[], %s::int[], %s::text[],
          %s::text[]) as r,
          (select fn_now() as now) clock
        on conflict do nothing
        returning tenant_id, event_id
        """,
        *map(list, zip(*(_values(event, payload) for event, payload in records), strict=True)),
    )
    return {(tenant_id, event_id) for tenant_id, event_id in rows}


def _values(event: BusEvent, payload: BarnRecordCreated) -> tuple[Any, ...]:
    number, text = (
        (None, payload.value) if isinstance(payload.value, str) else (payload.value, None)
    )
    values = (
        event.event_id, event.tenant_id, event.farm_id, event.barn_id, event.device_id,
        event.occurred_at, event.clock_suspect, payload.record_id, payload.record_type, number,
        text, payload.unit, payload.recorded_by_ref, payload.recorded_at, payload.product,
        payload.dose, payload.dose_unit, payload.withdrawal_days, payload.batch_id,
        payload.replaces,
    )  # fmt: skip
    return tuple(None if value is msgspec.UNSET else value for value in values)
