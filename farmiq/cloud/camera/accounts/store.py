"""SQL of registering, listing and changing. Reads run as the person, writes as the service."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from psycopg import sql
from psycopg.types.json import Jsonb

from farmiq.cloud.camera.accounts.kinds import CameraFilter, Kind
from farmiq.cloud.identity.people import Caller
from farmiq.plumbing import db, ids

Row = dict[str, Any]


async def page(
    connection: db.Connection,
    kind: Kind,
    query: CameraFilter,
    more: Mapping[str, Any] | None = None,
) -> list[Row]:
    """One row more than the limit, if there is a next page."""
    filters = {**query.filters, **(more or {})}
    place = {"after_at": query.after_at, "after_id": query.after_id, "limit": query.limit + 1}
    statement = kind.page(filters, onwards=query.after_at is not None)
    return await db.fetch_dicts(connection, statement, {**filters, **place})


async def find(connection: db.Connection, kind: Kind, key: UUID) -> Row | None:
    """As the person: rows of other companies are not visible."""
    matches = await db.fetch_dicts(connection, kind.single(), {"id": key})
    return matches[0] if matches else None


async def companies(connection: db.Connection) -> list[Row]:
    return await db.fetch_dicts(
        connection,
        "select g.company_id, g.tenant_id, g.name, g.company_id = get_active_company_id() as "
        "active from get_selectable_companies() g",
    )


async def telemetry(connection: db.Connection, payload_id: UUID) -> msgspec.Raw:
    """What the camera sent, not decoded: its numbers and depth may be too large for Python."""
    text: str = await db.fetch_value(
        connection,
        "select telemetry_data::text from device_wake_payloads where payload_id = %s",
        payload_id,
    )
    return msgspec.Raw(text.encode())


async def cron_problem(connection: db.Connection, cron: str) -> str | None:
    problem: str | None = await db.fetch_value(connection, "select fn_cron_problem(%s)", cron)
    return problem


_TABLES = {
    "program_id": "pilot_programs", "site_id": "sites", "device_id": "devices",
    "alert_id": "device_alerts",
}  # fmt: skip


async def add(
    connection: db.Connection, kind: Kind, company_id: UUID, values: Mapping[str, Any]
) -> UUID:
    """As the service. Raises the errors of constraints."""
    row = {kind.key: ids.new(), "company_id": company_id, **values}
    statement = sql.SQL("insert into {} ({}) values ({}) returning {}").format(
        sql.Identifier(_TABLES[kind.key]),
        sql.SQL(", ").join(map(sql.Identifier, row)),
        sql.SQL(", ").join(sql.Placeholder() for _ in row),
        sql.Identifier(kind.key),
    )
    key: UUID = await db.fetch_value(connection, statement, *row.values())
    return key


async def change(
    connection: db.Connection, kind: Kind, company_id: UUID, key: UUID, values: Mapping[str, Any]
) -> None:
    """As the service; only rows of the company."""
    if not values:
        return
    statement = sql.SQL("update {} set {} where {} = %s and company_id = %s").format(
        sql.Identifier(_TABLES[kind.key]),
        sql.SQL(", ").join(
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder()) for name in values
        ),
        sql.Identifier(kind.key),
    )
    await connection.execute(statement, [*values.values(), key, company_id])


async def resolve(connection: db.Connection, company_id: UUID, alert_id: UUID) -> bool:
    """As the service; whether it was open. The time of a resolved alert stays."""
    cursor = await connection.execute(
        "update device_alerts set resolved_at = fn_now() "
        "where alert_id = %s and company_id = %s and resolved_at is null",
        (alert_id, company_id),
    )
    return cursor.rowcount > 0


async def audit(
    caller: Caller, action: str, kind: Kind, row: Mapping[str, Any], detail: Mapping[str, Any]
) -> None:
    """As the service: who did what to a row, which is named as people know it."""
    named = row.get(kind.key.replace("_id", "_name"), row[kind.key])
    await caller.connection.execute(
        """
        insert into master_data_actions (action_id, at, actor, action, tenant_id, kind, key, detail)
        values (%s, fn_now(), %s, %s, %s, %s, %s, %s)
        """,
        (
            ids.new(), caller.email, action, caller.tenant_id, _TABLES[kind.key], str(named),
            Jsonb(dict(detail), dumps=msgspec.json.encode),
        ),
    )  # fmt: skip


async def resend(connection: db.Connection, image_id: UUID) -> None:
    await connection.execute("select fn_request_resend(image_id => %s)", (image_id,))


async def raw(connection: db.Connection, quarantine_id: UUID) -> bytes:
    payload: bytes | None = await db.fetch_value(
        connection, "select raw from camera_quarantine where quarantine_id = %s", quarantine_id
    )
    return bytes(payload or b"")


async def now(connection: db.Connection) -> datetime:
    time: datetime = await db.fetch_value(connection, "select fn_now()")
    return time


async def preview(connection: db.Connection, device_id: UUID, cron: str) -> Any:
    return await db.fetch_value(
        connection,
        "select fn_preview_schedule_change(device_id => %s, new_wake_schedule_cron => %s)",
        device_id,
        cron,
    )


async def request_change(connection: db.Connection, device_id: UUID, cron: str) -> Any:
    return await db.fetch_value(
        connection,
        "select fn_request_schedule_change(device_id => %s, new_wake_schedule_cron => %s)",
        device_id,
        cron,
    )


async def cancel_change(connection: db.Connection, change_id: UUID) -> None:
    await connection.execute("select fn_cancel_schedule_change(change_id => %s)", (change_id,))


async def trend(connection: db.Connection, device_id: UUID, days: int) -> list[Row]:
    return await db.fetch_dicts(
        connection,
        "select * from fn_device_trend(device_id => %(id)s, days => %(days)s)",
        {"id": device_id, "days": days},
    )


async def summary(connection: db.Connection, site_id: UUID, days: int) -> list[Row]:
    return await db.fetch_dicts(
        connection,
        "select * from fn_site_daily_summary(site_id => %(id)s, days => %(days)s)",
        {"id": site_id, "days": days},
    )


async def comparison(connection: db.Connection, company_id: UUID, days: int) -> list[Row]:
    return await db.fetch_dicts(
        connection,
        "select * from fn_program_comparison(company_id => %(id)s, days => %(days)s)",
        {"id": company_id, "days": days},
    )
