"""SQL of feed for its page, with the person's rights (row level security)."""

from datetime import date
from typing import Any

from farmiq.cloud.console.feed.view import DayIntake, Stock
from farmiq.cloud.feed import store
from farmiq.messages import feed
from farmiq.plumbing import db

DAYS = 14
MAX_LOTS = 100


async def stock(connection: db.Connection, tenant_id: str, *, by: str) -> list[Stock]:
    """What is left of each lot or silo, with the names of farm and barn."""
    names = {
        (farm_id, barn_id): (farm, barn)
        for farm_id, barn_id, farm, barn in await db.fetch_all(
            connection,
            """
            select h.farm_id, h.barn_id, f.name, h.name from barns h
              join farms f on f.tenant_id = h.tenant_id and f.farm_id = h.farm_id
            """,
        )
    }
    rows = await store.stock(connection, tenant_id, by=by)
    return [
        Stock(
            **row,
            farm_name=names.get((row["farm_id"], row["barn_id"]), (row["farm_id"], ""))[0],
            barn_name=names.get((row["farm_id"], row["barn_id"]), ("", row["barn_id"]))[1],
        )
        for row in rows
    ]


async def intakes(connection: db.Connection, tenant_id: str) -> list[DayIntake]:
    """Feed taken in by barn and local day, of the last days; only what counts."""
    return await db.fetch_as(
        connection,
        DayIntake,
        """
        select c.farm_id, c.barn_id, coalesce(h.name, c.barn_id) as barn_name, d.on,
          sum(c.quantity_kg) as quantity_kg, count(*) as entries
        from counted_feed c
          join farms f on f.tenant_id = c.tenant_id and f.farm_id = c.farm_id
          left join barns h on h.tenant_id = c.tenant_id and h.farm_id = c.farm_id
            and h.barn_id = c.barn_id
          cross join lateral (
            select fn_local_date(f.timezone, c.occurred_at) as on,
              fn_local_date(f.timezone, fn_now()) as today) d
        where c.tenant_id = %s and c.event_type = %s and not c.clock_suspect
          and c.quantity_kg is not null
          and c.occurred_at >= fn_now() - %s * interval '1 day' and d.on > d.today - %s
        group by c.farm_id, c.barn_id, h.name, d.on order by d.on, c.farm_id, c.barn_id
        """,
        (tenant_id, feed.INTAKE_RECORDED, DAYS + 2, DAYS),
    )


async def lots(connection: db.Connection, tenant_id: str) -> list[dict[str, Any]]:
    """The newest deliveries that count."""
    wanted = dict.fromkeys(
        ("farm", "barn", "device", "lot", "begin", "end", "after_at", "after_id")
    )
    return await store.lots(connection, tenant_id, {**wanted, "counted": True, "limit": MAX_LOTS})


async def today(connection: db.Connection, timezone: str) -> date:
    day: date = await db.fetch_value(connection, "select fn_local_date(%s, fn_now())", timezone)
    return day
