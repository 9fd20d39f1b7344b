"""The SQL of barn records in the cloud, as the person who asks."""

from collections.abc import Mapping
from typing import Any

from farmiq.plumbing import db

COLUMNS = (
    "record_id", "event_id", "farm_id", "barn_id", "batch_id", "record_type", "value", "unit",
    "product", "dose", "dose_unit", "withdrawal_days", "occurred_at", "recorded_by_ref",
    "recorded_at", "replaces", "replaced_by", "device_id", "clock_suspect",
)  # fmt: skip

# Without a batch of its own a record is of the batch that is in the barn on that day.
_PAGE = """
    select * from (
      select e.event_id, e.farm_id, e.barn_id, e.device_id, e.occurred_at, e.clock_suspect,
        e.record_id, e.record_type, e.payload -> 'value' as value, e.unit, e.recorded_by_ref,
        e.payload ->> 'recorded_at' as recorded_at, e.payload ->> 'product' as product,
        e.payload -> 'dose' as dose, e.payload ->> 'dose_unit' as dose_unit,
        e.payload -> 'withdrawal_days' as withdrawal_days, e.payload ->> 'replaces' as replaces,
        fn_batch_of(e.tenant_id, e.farm_id, e.barn_id, e.payload ->> 'batch_id',
          coalesce(e.payload -> 'batch_derived' = 'true', false), e.occurred_at) as batch_id,
        (select min(r.record_id) from barn_events r
          where r.tenant_id = e.tenant_id and r.payload ->> 'replaces' = e.record_id
            and (r.farm_id = e.farm_id or e.device_id is null)
            and r.event_id <> e.event_id) as replaced_by
      from barn_events e
      where e.tenant_id = %(tenant)s
        and (%(farm)s::text is null or e.farm_id = %(farm)s)
        and (%(barn)s::text is null or e.barn_id = %(barn)s)
        and (%(type)s::text is null or e.record_type = %(type)s)
        and (%(begin)s::timestamptz is null or e.occurred_at >= %(begin)s)
        and (%(end)s::timestamptz is null or e.occurred_at < %(end)s)
        and (%(after_at)s::timestamptz is null
          or (e.occurred_at, e.event_id) < (%(after_at)s, %(after_id)s))
    ) records
    where (%(batch)s::text is null or batch_id = %(batch)s)
      and (not %(counted)s or replaced_by is null)
    order by occurred_at desc, event_id desc
    limit %(limit)s
"""


async def page(
    connection: db.Connection, tenant_id: str, wanted: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """A page of records, newest first."""
    return await db.fetch_dicts(connection, _PAGE, {**wanted, "tenant": tenant_id})
