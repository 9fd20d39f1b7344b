"""SQL of what the forms offer and of recent entries, with the person's rights."""

from typing import Any
from uuid import UUID

from farmiq.cloud.barn import store as barn_store
from farmiq.cloud.console.entry.view import Option, PlaceOption
from farmiq.cloud.farms.store import STATUS
from farmiq.cloud.feed import store as feed_store
from farmiq.messages import barn, feed
from farmiq.plumbing import db

MAX_CHOICES = 500
PER_PAGE = 50
_NO_FILTER: dict[str, Any] = {
    "farm": None, "barn": None, "batch": None, "type": None, "device": None, "lot": None,
    "begin": None, "end": None, "counted": False, "after_at": None, "after_id": None,
}  # fmt: skip


async def places(connection: db.Connection) -> list[PlaceOption]:
    """Barns with the batch that is there now, by farm and barn."""
    return await db.fetch_as(
        connection,
        PlaceOption,
        f"""
        select h.farm_id, h.barn_id, f.name as farm_name, h.name as barn_name, f.timezone,
          b.batch_id, b.species
        from barns h join farms f on f.tenant_id = h.tenant_id and f.farm_id = h.farm_id
          left join lateral (
            select s.batch_id, s.species
            from (select *, {STATUS} as status from batches
              where tenant_id = h.tenant_id and farm_id = h.farm_id and barn_id = h.barn_id) s
            where s.status = 'active' limit 1) b on true
        order by f.name, h.name, h.barn_id limit %s
        """,  # noqa: S608 - our own words
        (MAX_CHOICES,),
    )


async def products(connection: db.Connection) -> list[str]:
    """Medicines that were given lately, for suggestions."""
    rows = await db.fetch_all(
        connection,
        """
        select distinct payload ->> 'product' from (
          select payload from barn_events where record_type = any(%s)
          order by occurred_at desc limit 200) lately
        where payload ->> 'product' is not null order by 1 limit 50
        """,
        [*barn.MEDICINES],
    )
    return [row[0] for row in rows]


async def lots(connection: db.Connection) -> list[Option]:
    """The newest lots, with the barns that received each."""
    rows = await db.fetch_all(
        connection,
        """
        select feed_lot_id, string_agg(distinct barn_id, ', ' order by barn_id) from (
          select feed_lot_id, barn_id, occurred_at from feed_events
          where event_type = %s and feed_lot_id is not null
          union all
          select subject, event ->> 'barn_id', (event ->> 'occurred_at')::timestamptz
          from posted_events where event_type = %s) lots
        group by feed_lot_id order by max(occurred_at) desc limit 50
        """,
        feed.LOT_RECEIVED,
        feed.LOT_RECEIVED,
    )
    return [Option(lot_id, f"{lot_id} ({barn_id})") for lot_id, barn_id in rows]


async def silos(connection: db.Connection) -> list[str]:
    """Silos that feed went into or came from."""
    rows = await db.fetch_all(
        connection,
        "select distinct device_id from feed_events where device_id is not null "
        "order by 1 limit %s",
        MAX_CHOICES,
    )
    return [row[0] for row in rows]


async def feed_products(connection: db.Connection) -> list[Option]:
    rows = await db.fetch_all(
        connection,
        "select feed_product_id, name from feed_products order by name limit %s",
        MAX_CHOICES,
    )
    return [Option(*row) for row in rows]


async def breeds(connection: db.Connection) -> list[tuple[str, str]]:
    """(species, breed) that have a standard."""
    rows = await db.fetch_all(
        connection,
        "select distinct species, breed from breed_standards order by 1, 2 limit %s",
        MAX_CHOICES,
    )
    return [(row[0], row[1]) for row in rows]


async def farms(connection: db.Connection) -> list[str]:
    rows = await db.fetch_all(
        connection, "select farm_id from farms order by 1 limit %s", MAX_CHOICES
    )
    return [row[0] for row in rows]


async def reporting_barns(connection: db.Connection) -> list[tuple[str, str]]:
    """(farm, barn) that sensors report from and nobody has registered."""
    rows = await db.fetch_all(
        connection,
        """
        select distinct t.farm_id, t.barn_id from telemetry_latest t
        where t.farm_id is not null and t.barn_id is not null
          and not exists (select from barns b where b.tenant_id = t.tenant_id
            and b.farm_id = t.farm_id and b.barn_id = t.barn_id)
        order by 1, 2 limit %s
        """,
        MAX_CHOICES,
    )
    return [(row[0], row[1]) for row in rows]


async def records(
    connection: db.Connection, tenant_id: str, *, batch: str | None, after: Any
) -> list[dict[str, Any]]:
    """A page of records, newest first, and one more."""
    wanted = {**_NO_FILTER, "batch": batch, **_behind(after), "limit": PER_PAGE + 1}
    return await barn_store.page(connection, tenant_id, wanted)


async def intakes(
    connection: db.Connection, tenant_id: str, *, batch: str | None, after: Any
) -> list[dict[str, Any]]:
    """A page of feed taken in, newest first, and one more."""
    wanted = {**_NO_FILTER, "batch": batch, **_behind(after), "limit": PER_PAGE + 1}
    return await feed_store.intakes(connection, tenant_id, wanted)


def _behind(after: Any) -> dict[str, Any]:
    return {"after_at": after.at, "after_id": after.id} if after else {}


async def record(connection: db.Connection, record_id: str) -> dict[str, Any] | None:
    """What a record says, also if its service has not stored it yet."""
    rows = await db.fetch_dicts(
        connection,
        """
        select farm_id, barn_id, occurred_at, payload from barn_events where record_id = %(id)s
        union all
        select event ->> 'farm_id', event ->> 'barn_id', (event ->> 'occurred_at')::timestamptz,
          event -> 'payload' from posted_events
        where event_type = %(type)s and subject = %(id)s
        limit 1
        """,
        {"id": record_id, "type": barn.RECORD_CREATED},
    )
    return rows[0] if rows else None


async def feed_event(
    connection: db.Connection, event_id: UUID, event_type: str
) -> dict[str, Any] | None:
    """What an intake or a lot says, also if its service has not stored it yet."""
    rows = await db.fetch_dicts(
        connection,
        """
        select farm_id, barn_id, device_id, occurred_at, payload from feed_events
        where event_id = %(id)s and event_type = %(type)s
        union all
        select event ->> 'farm_id', event ->> 'barn_id', event ->> 'device_id',
          (event ->> 'occurred_at')::timestamptz, event -> 'payload' from posted_events
        where event_id = %(id)s and event_type = %(type)s
        limit 1
        """,
        {"id": event_id, "type": event_type},
    )
    return rows[0] if rows else None
