"""SQL of records for the pages: the barns to choose from, and the newest entries."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from farmiq.plumbing import db

MAX_ENTRIES = 50
MAX_CHOICES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Barn:
    """A barn that has devices or a batch; `batch_id` is the batch that is in it now."""

    farm_id: str
    barn_id: str
    farm_name: str | None
    batch_id: str | None
    timezone: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A record, feed taken in (`intake`) or feed delivered (`lot`).

    `replaced_as` is the id by which a correction names it; None of what cannot be corrected here.
    """

    id: str
    replaced_as: str | None
    kind: str
    barn_id: str
    number: float | None
    text: str | None
    unit: str | None
    detail: str | None
    occurred_at: datetime
    entered_by: str | None
    is_replaced: bool
    is_waiting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """An entry that is to be corrected: its place and time, and what the form has fields for."""

    farm_id: str
    barn_id: str
    occurred_at: datetime
    kind: str | None = None
    value: str | None = None
    unit: str | None = None
    product: str | None = None
    dose: str | None = None
    dose_unit: str | None = None
    withdrawal_days: str | None = None
    quantity_kg: str | None = None
    feed_lot_id: str | None = None
    silo: str | None = None


async def barns(connection: db.Connection, tenant_id: str, *, now: datetime) -> list[Barn]:
    return await db.fetch_as(
        connection,
        Barn,
        """
        select p.farm_id, p.barn_id, f.name as farm_name, b.batch_id, z.timezone
        from (
          select farm_id, barn_id from devices where tenant_id = %(tenant)s and revoked_at is null
          union select farm_id, barn_id from cloud_batches where tenant_id = %(tenant)s) p
          left join cloud_farms f on f.tenant_id = %(tenant)s and f.farm_id = p.farm_id
          left join farm_zones z on z.tenant_id = %(tenant)s and z.farm_id = p.farm_id
          left join lateral (
            select c.batch_id from cloud_batches c
            where c.tenant_id = %(tenant)s and c.farm_id = p.farm_id and c.barn_id = p.barn_id
              and c.placed_on <= (%(now)s at time zone coalesce(z.timezone, 'UTC'))::date
              and (c.closed_on is null
                or c.closed_on >= (%(now)s at time zone coalesce(z.timezone, 'UTC'))::date)
            order by c.placed_on desc limit 1) b on true
        order by p.farm_id, p.barn_id limit %(limit)s
        """,
        {"tenant": tenant_id, "now": now, "limit": MAX_CHOICES},
    )


async def lots(connection: db.Connection, tenant_id: str) -> list[str]:
    """The lots that were delivered last."""
    rows = await db.fetch_all(
        connection,
        """
        select feed_lot_id from (
          select feed_lot_id, max(occurred_at) as last_at from feed_lots where tenant_id = %s
          group by feed_lot_id) l
        order by last_at desc limit 50
        """,
        tenant_id,
    )
    return [feed_lot_id for (feed_lot_id,) in rows]


async def silos(connection: db.Connection, tenant_id: str) -> list[str]:
    rows = await db.fetch_all(
        connection,
        "select device_id from devices where tenant_id = %s and kind = 'silo' "
        "and revoked_at is null order by device_id limit %s",
        tenant_id,
        MAX_CHOICES,
    )
    return [device_id for (device_id,) in rows]


async def entries(
    connection: db.Connection, tenant_id: str, *, barn: bool, feed: bool, devices: bool
) -> list[Entry]:
    """The newest of all kinds that the key may read: of people, or with those of devices."""
    values: dict[str, Any] = {
        "tenant": tenant_id, "barn": barn, "feed": feed, "devices": devices,
        "limit": MAX_ENTRIES,
    }  # fmt: skip
    return await db.fetch_as(
        connection,
        Entry,
        """
        with entered as (
          (select event_id, event_id::text as id, record_id as replaced_as,
              record_type as kind, barn_id,
              value_number as number, value_text as text, unit, product as detail, occurred_at,
              recorded_by_ref as entered_by,
              exists (select from barn_records n
                where n.tenant_id = r.tenant_id and n.replaces = r.record_id
                  and (n.farm_id = r.farm_id or r.device_id is null)) as is_replaced
            from barn_records r where %(barn)s and tenant_id = %(tenant)s
              and (%(devices)s or device_id is null)
            order by occurred_at desc limit %(limit)s)
          union all
          (select intake_id, intake_id::text, intake_id::text, 'intake', barn_id, quantity_kg,
              null, 'kg', feed_lot_id, occurred_at, coalesce(recorded_by, device_id),
              exists (select from posted_events p where p.tenant_id = i.tenant_id
                and p.event_type = 'feed.intake.recorded' and p.replaces = i.intake_id::text)
            from feed_intakes i where %(feed)s and tenant_id = %(tenant)s
              and (%(devices)s or recorded_by is not null)
            order by occurred_at desc limit %(limit)s)
          union all
          (select event_id, event_id::text, null, 'lot', barn_id, quantity_kg, null, 'kg',
              feed_lot_id, occurred_at, recorded_by, false
            from feed_lots where %(feed)s and tenant_id = %(tenant)s
              and (%(devices)s or recorded_by is not null)
            order by occurred_at desc limit %(limit)s))
        select e.id, e.replaced_as, e.kind, e.barn_id, e.number, e.text, e.unit, e.detail,
          e.occurred_at, e.entered_by, e.is_replaced,
          coalesce(o.status not in ('acked', 'failed'), false) as is_waiting
        from entered e left join sync_outbox o on o.id = e.event_id
        order by e.occurred_at desc, e.id limit %(limit)s
        """,
        values,
    )


async def record(connection: db.Connection, tenant_id: str, record_id: str) -> Corrected | None:
    """A record that is stored here, as the form shows it."""
    stored = await db.fetch_as(
        connection,
        Corrected,
        """
        select farm_id, barn_id, occurred_at, record_type as kind,
          coalesce(value_text, value_number::text) as value, unit, product, dose::text,
          dose_unit, withdrawal_days::text
        from barn_records where tenant_id = %s and record_id = %s limit 1
        """,
        (tenant_id, record_id),
    )
    return stored[0] if stored else None


async def intake(connection: db.Connection, tenant_id: str, intake_id: str) -> Corrected | None:
    """Feed taken in that is stored here, as the form shows it."""
    stored = await db.fetch_as(
        connection,
        Corrected,
        """
        select farm_id, barn_id, occurred_at, quantity_kg::text, feed_lot_id, device_id as silo
        from feed_intakes where tenant_id = %s and intake_id::text = %s
        """,
        (tenant_id, intake_id),
    )
    return stored[0] if stored else None
