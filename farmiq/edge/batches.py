"""Batches by the cloud's master data as this edge last got it: who was in a barn, and how many."""

from collections.abc import Sequence
from datetime import date, datetime
from typing import NamedTuple

from farmiq.farm import heads
from farmiq.farm.heads import Noted
from farmiq.farm.postings import Stay
from farmiq.plumbing import db


class Placed(NamedTuple):
    """A barn at a moment."""

    tenant_id: str
    farm_id: str | None
    barn_id: str | None
    at: datetime


async def at(tx: db.Connection, places: Sequence[Placed]) -> list[str | None]:
    """For each barn its batch on the farm's local day, first and last day included; or None.

    Batches of a barn never overlap: only the one that was placed last before can have been there.
    """
    if not places:
        return []
    rows = await db.fetch_all(
        tx,
        """
        select b.batch_id
        from unnest(%s::text[], %s::text[], %s::text[], %s::timestamptz[]) with ordinality
            as p(tenant_id, farm_id, barn_id, at, number)
          left join farm_zones z on z.tenant_id = p.tenant_id and z.farm_id = p.farm_id
          left join lateral (select (p.at at time zone z.timezone)::date as day) local on true
          left join lateral (
            select c.batch_id, c.closed_on from cloud_batches c
            where c.tenant_id = p.tenant_id and c.farm_id = p.farm_id and c.barn_id = p.barn_id
              and c.placed_on <= local.day
            order by c.placed_on desc limit 1) b
            on b.closed_on is null or b.closed_on >= local.day
        order by p.number
        """,
        *db.columns(places, "tenant_id", "farm_id", "barn_id", "at"),
    )
    return [batch_id for (batch_id,) in rows]


async def has_any(tx: db.Connection, tenant_id: str) -> bool:
    """Whether this edge has batches of the tenant: without any it cannot say which there are."""
    known: bool = await db.fetch_value(
        tx, "select exists (select from cloud_batches where tenant_id = %s)", tenant_id
    )
    return known


async def stay(tx: db.Connection, tenant_id: str, batch_id: str, at: datetime) -> Stay | None:
    """When a batch is in which barn, and the local day of a moment; None if it is not known."""
    stays = await db.fetch_as(
        tx,
        Stay,
        """
        select c.farm_id, c.barn_id, c.placed_on, c.closed_on,
          (%s at time zone z.timezone)::date as on_date
        from cloud_batches c
          left join farm_zones z on z.tenant_id = c.tenant_id and z.farm_id = c.farm_id
        where c.tenant_id = %s and c.batch_id = %s
        """,
        (at, tenant_id, batch_id),
    )
    return stays[0] if stays else None


class Herd(NamedTuple):
    """The animals of a batch as this edge knows them, and the local day that is asked for."""

    placed_count: int
    on_date: date
    records: list[Noted]


async def herd(
    tx: db.Connection, tenant_id: str, batch_id: str, at: datetime, replaces: str | None
) -> Herd | None:
    """Without the record that is to be replaced; None if the batch or the zone is not known.

    Others who write down dead animals of the batch wait until the commit.
    """
    await tx.execute(
        "select pg_advisory_xact_lock(hashtextextended(%s || chr(31) || %s, 7502))",
        (tenant_id, batch_id),
    )
    rows = await db.fetch_all(
        tx,
        """
        select c.placed_count, (%s at time zone z.timezone)::date,
          (r.occurred_at at time zone z.timezone)::date, r.record_type, r.value_number
        from cloud_batches c
          join farm_zones z on z.tenant_id = c.tenant_id and z.farm_id = c.farm_id
          left join barn_records r on r.tenant_id = c.tenant_id and r.barn_id = c.barn_id
            and r.batch_id = c.batch_id and r.record_type = any(%s) and not r.clock_suspect
            and r.record_id is distinct from %s and not exists (
              select from barn_records o
              where o.tenant_id = r.tenant_id and o.replaces = r.record_id
                and (o.farm_id = r.farm_id or r.device_id is null))
        where c.tenant_id = %s and c.batch_id = %s and c.placed_count is not null
        order by r.occurred_at, r.record_id
        """,
        at,
        list(heads.TYPES),
        replaces,
        tenant_id,
        batch_id,
    )
    if not rows:
        return None
    placed_count, on_date = rows[0][:2]
    return Herd(placed_count, on_date, [Noted(*row[2:]) for row in rows if row[2] is not None])
