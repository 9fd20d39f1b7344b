"""SQL of devices for the page; the registry's own statement has their states."""

from typing import Any

from farmiq.edge.devices import store
from farmiq.plumbing import db

MAX_DEVICES = 500


async def devices(connection: db.Connection, tenant_id: str) -> list[dict[str, Any]]:
    """All that are not revoked, by name."""
    registered = await store.page(
        connection, after=(tenant_id, ""), limit=MAX_DEVICES, tenant_id=tenant_id
    )
    return [device for device in registered if device["state"] != "revoked"]


async def wrong_clocks(connection: db.Connection, tenant_id: str) -> set[str]:
    """Devices whose newest reading of a metric had a time that cannot be right."""
    rows = await db.fetch_all(
        connection,
        "select distinct device_id from telemetry_latest where tenant_id = %s and clock_suspect",
        tenant_id,
    )
    return {device_id for (device_id,) in rows}
