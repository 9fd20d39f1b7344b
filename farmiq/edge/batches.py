"""Which batch was in a barn at a moment, by the cloud's master data as this edge last got it."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

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
