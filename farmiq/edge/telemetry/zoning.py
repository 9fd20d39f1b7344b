"""In which time zone a farm's days are, and series whose days have to be made again in another."""

from datetime import datetime

from farmiq.edge.telemetry.buckets import Series
from farmiq.plumbing import db


async def zones(tx: db.Connection) -> dict[tuple[str, str], str]:
    rows = await db.fetch_all(tx, "select tenant_id, farm_id, timezone from farms")
    return {(tenant_id, farm_id): timezone for tenant_id, farm_id, timezone in rows}


async def fallback(tx: db.Connection) -> str | None:
    """The zone in which the days of farms without one were made so far."""
    found: str | None = await db.fetch_value(tx, "select fallback_timezone from telemetry_state")
    return found


async def change_fallback(tx: db.Connection, timezone: str) -> None:
    await tx.execute("update telemetry_state set fallback_timezone = %s", (timezone,))


async def rezone_all(tx: db.Connection) -> None:
    """Have the days of every series made again."""
    await tx.execute(
        "insert into telemetry_rezoned select tenant_id, device_id, metric_type "
        "from telemetry_latest on conflict do nothing"
    )


async def next_rezoned(tx: db.Connection) -> Series | None:
    rows = await db.fetch_all(
        tx, "select tenant_id, device_id, metric_type from telemetry_rezoned limit 1"
    )
    return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


async def forget_rezoned(tx: db.Connection, series: Series) -> None:
    await tx.execute(
        "delete from telemetry_rezoned "
        "where tenant_id = %s and device_id = %s and metric_type = %s",
        series,
    )


async def hours_of(tx: db.Connection, series: Series) -> list[tuple[datetime, str]]:
    """(hour, farm) of everything that is kept of a series."""
    rows = await db.fetch_all(
        tx,
        "select bucket_start_at, farm_id from telemetry_agg where tenant_id = %s "
        "and device_id = %s and metric_type = %s and \"window\" = '1h'",
        *series,
    )
    return [(at, farm_id) for at, farm_id in rows]
