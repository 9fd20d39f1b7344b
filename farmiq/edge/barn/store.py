"""SQL of barn records at the edge."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from farmiq.edge import batches
from farmiq.edge.arrival import Arrival
from farmiq.edge.batches import Placed
from farmiq.edge.posting import Replaced
from farmiq.farm import postings
from farmiq.farm.postings import Posted
from farmiq.messages.barn import BarnRecordCreated
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db


async def record(tx: db.Connection, arrivals: Sequence[Arrival]) -> list[BusEvent]:
    """Store what devices sent; returns the events of the new records, with the barn's batch."""
    unnamed = [
        arrival
        for arrival in arrivals
        if not arrival.payload.batch_id and not arrival.clock_suspect
    ]
    places = [
        Placed(place.tenant_id, place.farm_id, place.barn_id, arrival.event.occurred_at)
        for arrival in unnamed
        for place in [arrival.place]
    ]
    batch_ids = dict(zip((a.key for a in unnamed), await batches.at(tx, places), strict=True))
    events = {
        arrival.key: postings.with_batch(arrival.event, batch_id)
        if (batch_id := batch_ids.get(arrival.key))
        else arrival.event
        for arrival in arrivals
    }
    new = await add(tx, [*events.values()])
    return [events[arrival.key] for arrival in arrivals if arrival.key in new]


async def add_posted(tx: db.Connection, posted: Posted) -> None:
    await add(tx, [posted.event])


async def add(tx: db.Connection, events: Sequence[BusEvent]) -> set[tuple[str, UUID]]:
    """Insert the records of these events; returns (tenant, id) of those that were new."""
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
        *map(list, zip(*map(_values, events), strict=True)),
    )
    return {(tenant_id, event_id) for tenant_id, event_id in rows}


def _values(event: BusEvent) -> tuple[Any, ...]:
    payload = msgspec.json.decode(event.payload, type=BarnRecordCreated)
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
          and (r.farm_id = e.farm_id or e.device_id is null)
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


async def find_replaced(tx: db.Connection, body: Any) -> Replaced | None:
    """The record that a body replaces, if it is here. One of another farm's device is another."""
    rows = await db.fetch_all(
        tx,
        """
        select farm_id, barn_id, batch_id, (
          select min(r.record_id) from barn_records r
          where r.tenant_id = e.tenant_id and r.replaces = e.record_id
            and (r.farm_id = e.farm_id or e.device_id is null))
        from barn_records e where tenant_id = %s and record_id = %s
          and (farm_id = %s or device_id is null) limit 1
        """,
        body.tenant_id,
        body.replaces,
        body.farm_id,
    )
    return Replaced(*rows[0]) if rows else None
