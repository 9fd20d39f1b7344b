"""The SQL of feed in the cloud, as the person who asks."""

from collections.abc import Mapping
from typing import Any

from farmiq.messages import feed
from farmiq.plumbing import db

LOT = (
    "event_id", "farm_id", "barn_id", "device_id", "feed_lot_id", "feed_product_id",
    "quantity_kg", "occurred_at", "replaces", "replaced_by", "clock_suspect",
)  # fmt: skip
INTAKE = (
    "event_id", "farm_id", "barn_id", "device_id", "batch_id", "source", "feed_lot_id",
    "quantity_kg", "occurred_at", "replaces", "replaced_by", "clock_suspect",
)  # fmt: skip
STOCK = (
    "farm_id", "barn_id", "silo_id", "feed_lot_id", "feed_product_id", "received_kg", "taken_kg",
    "stock_kg", "daily_kg", "days_left", "received_at", "taken_at",
)  # fmt: skip

# Without a batch of its own an intake is of the batch that was in the barn on that day.
_PAGE = """
    select * from (
      select e.event_id, e.farm_id, e.barn_id, e.device_id, e.occurred_at, e.clock_suspect,
        e.source, e.quantity_kg, e.feed_lot_id, fn_replaced_event(e.payload) as replaces,
        e.payload ->> 'feed_product_id' as feed_product_id,
        fn_batch_of(e.tenant_id, e.farm_id, e.barn_id, e.payload ->> 'batch_id',
          coalesce(e.payload -> 'batch_derived' = 'true', false), e.occurred_at) as batch_id,
        (select r.event_id from feed_events r
          where r.tenant_id = e.tenant_id and fn_replaced_event(r.payload) = e.event_id
            and r.event_id <> e.event_id order by r.event_id limit 1) as replaced_by
      from feed_events e
      where e.tenant_id = %(tenant)s and e.event_type = %(event_type)s
        and (%(farm)s::text is null or e.farm_id = %(farm)s)
        and (%(barn)s::text is null or e.barn_id = %(barn)s)
        and (%(device)s::text is null or e.device_id = %(device)s)
        and (%(lot)s::text is null or e.feed_lot_id = %(lot)s)
        and (%(begin)s::timestamptz is null or e.occurred_at >= %(begin)s)
        and (%(end)s::timestamptz is null or e.occurred_at < %(end)s)
        and (%(after_at)s::timestamptz is null
          or (e.occurred_at, e.event_id) < (%(after_at)s, %(after_id)s))
    ) events
    where (%(batch)s::text is null or batch_id = %(batch)s)
      and (not %(counted)s or replaced_by is null)
    order by occurred_at desc, event_id desc
    limit %(limit)s
"""


async def lots(
    connection: db.Connection, tenant_id: str, wanted: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """A page of lots received, newest first."""
    return await _page(connection, tenant_id, {**wanted, "batch": None}, feed.LOT_RECEIVED, LOT)


async def intakes(
    connection: db.Connection, tenant_id: str, wanted: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """A page of intakes, newest first."""
    return await _page(connection, tenant_id, wanted, feed.INTAKE_RECORDED, INTAKE)


async def _page(
    connection: db.Connection,
    tenant_id: str,
    wanted: Mapping[str, Any],
    event_type: str,
    columns: tuple[str, ...],
) -> list[dict[str, Any]]:
    parameters = {**wanted, "tenant": tenant_id, "event_type": event_type}
    rows = await db.fetch_dicts(connection, _PAGE, parameters)
    return [{name: row[name] for name in columns} for row in rows]


async def stock(
    connection: db.Connection,
    tenant_id: str,
    *,
    by: str,
    farm: str | None = None,
    barn: str | None = None,
) -> list[dict[str, Any]]:
    """What is left of each lot, silo or barn."""
    return await db.fetch_dicts(
        connection,
        f"""
        select {", ".join(STOCK)} from fn_feed_stock(%(tenant)s, %(by)s)
        where (%(farm)s::text is null or farm_id = %(farm)s)
          and (%(barn)s::text is null or barn_id = %(barn)s)
        order by farm_id, barn_id, silo_id nulls first, feed_lot_id nulls first
        """,  # noqa: S608 - our own words
        {"tenant": tenant_id, "by": by, "farm": farm, "barn": barn},
    )
