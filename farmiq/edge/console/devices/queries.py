"""SQL of devices for the pages; the registry's own statement has their states."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from farmiq.edge.devices import store
from farmiq.plumbing import db

MAX_DEVICES = 500
MAX_COMMANDS = 20
MAX_LOSSES = 20
# Of losses and of the quarantine so many are looked at, newest first.
MAX_COUNTED = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What the device dropped on purpose, by the loss ledger (C-83)."""

    loss_id: Any
    count: int
    reason: str
    occurred_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What came of a device since a time, and what of it waits in quarantine."""

    weighings: int
    rejected: int


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


async def device(
    connection: db.Connection, tenant_id: str, device_id: str
) -> dict[str, Any] | None:
    return await store.show(connection, (tenant_id, device_id))


async def commands(
    connection: db.Connection, tenant_id: str, device_id: str
) -> list[dict[str, Any]]:
    """The newest that were sent to it, and what became of them."""
    return await store.commands_of(connection, (tenant_id, device_id), limit=MAX_COMMANDS)


async def losses(connection: db.Connection, tenant_id: str, device_id: str) -> list[Loss]:
    return await db.fetch_as(
        connection,
        Loss,
        """
        select loss_id, count, reason, occurred_at
        from (select * from loss_ledger order by recorded_at desc limit %s) newest
        where tenant_id = %s and device_id = %s order by recorded_at desc limit %s
        """,
        (MAX_COUNTED, tenant_id, device_id, MAX_LOSSES),
    )


async def counts(
    connection: db.Connection, tenant_id: str, device_id: str, *, since: datetime
) -> Counts:
    (counted,) = await db.fetch_as(
        connection,
        Counts,
        """
        select (select count(*) from weight_sessions where tenant_id = %(tenant)s
            and device_id = %(device)s and start_at >= %(since)s)::int as weighings,
          (select count(*) from (select topic from quarantine
              where split_part(topic, '/', 3) = %(tenant)s
              order by quarantine_id desc limit %(max)s) newest
            where split_part(topic, '/', 6) = %(device)s)::int as rejected
        """,
        {"tenant": tenant_id, "device": device_id, "since": since, "max": MAX_COUNTED},
    )
    return counted
