"""SQL of barn records at the edge."""

from collections.abc import Mapping, Sequence
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


COLUMNS = (
    "record_id", "event_id", "tenant_id", "farm_id", "barn_id", "device_id", "batch_id",
    "record_type", "value", "unit", "product", "dose", "dose_unit", "withdrawal_days",
    "occurred_at", "recorded_by_ref", "recorded_at", "replaces", "replaced_by", "clock_suspect",
)  # fmt: skip

_PAGE = """
    select record_id, event_id, tenant_id, farm_id, barn_id, device_id, batch_id, record_type,
      coalesce(to_jsonb(value_number), to_jsonb(value_text)) as value, unit, product, dose,
      dose_unit, withdrawal_days, occurred_at, recorded_by_ref, recorded_at, replaces,
      (select min(r.record_id) from barn_records r
        where r.tenant_id = e.tenant_id and r.replaces = e.record_id
          and r.event_id <> e.event_id) as replaced_by,
      clock_suspect
    from barn_records e
    where (%(tenant)s::text is null or tenant_id = %(tenant)s)
      and (%(farm)s::text is null or farm_id = %(farm)s)
      and (%(barn)s::text is null or barn_id = %(barn)s)
      and (%(device)s::text is null or device_id = %(device)s)
      and (%(batch)s::text is null or batch_id = %(batch)s)
      and (%(type)s::text is null or record_type = %(type)s)
      and (%(begin)s::timestamptz is null or occurred_at >= %(begin)s)
      and (%(end)s::timestamptz is null or occurred_at < %(end)s)
      and (%(after_at)s::timestamptz is null
        or (occurred_at, event_id) < (%(after_at)s, %(after_id)s))
    order by occurred_at desc, event_id desc
    limit %(limit)s
"""


async def page(connection: db.Connection, wanted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A page of records, newest first."""
    return await db.fetch_dicts(connection, _PAGE, wanted)


async def is_known_batch(tx: db.Connection, tenant_id: str, batch_id: str) -> bool:
    """True also if this edge has no batches of the tenant at all."""
    known: bool = await db.fetch_value(
        tx,
        "select exists (select from cloud_batches where tenant_id = %s and batch_id = %s) "
        "or not exists (select from cloud_batches where tenant_id = %s)",
        tenant_id,
        batch_id,
        tenant_id,
    )
    return known


async def replaced(tx: db.Connection, tenant_id: str, record_id: str) -> tuple[bool, str | None]:
    """(whether the record is here, the record that replaces it)."""
    rows = await db.fetch_all(
        tx,
        "select exists (select from barn_records where tenant_id = %s and record_id = %s), "
        "(select min(record_id) from barn_records where tenant_id = %s and replaces = %s)",
        *(tenant_id, record_id) * 2,
    )
    known, by = rows[0]
    return known, by
