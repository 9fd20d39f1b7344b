"""Which silos are derived from, as `farmiq silo` sets and shows it."""

import re
from datetime import datetime
from typing import Any

import psycopg
from psycopg.rows import dict_row

from farmiq.edge import audit
from farmiq.edge.feed import store
from farmiq.messages.ids import ID_PATTERN
from farmiq.messages.kinds import MOST_KG
from farmiq.plumbing import db


async def change(
    url: str, *, tenant_id: str, device_id: str, since: datetime | None = None, **given: Any
) -> dict[str, Any]:
    """Set derive_intake, noise_kg or refill_kg where given, keep the rest; returns all of it.

    A silo that is switched on, or given a `since`, begins afresh from there. Raises ValueError
    if the settings are odd, or if feed would be counted that was counted already; LookupError if
    the device is not registered. What was set for such a one can still be switched off.
    """
    for name in (tenant_id, device_id):
        if not re.match(ID_PATTERN, name):
            raise ValueError(f"{name!r} is not an id: letters, digits and . _ : -, at most 128")
    async with await psycopg.AsyncConnection.connect(url) as tx:
        off = given.get("derive_intake") is False
        if not await _is_known(tx, tenant_id, device_id, off=off):
            raise LookupError(f"no device {device_id!r} of tenant {tenant_id!r} is known")
        before = await _before(tx, tenant_id, device_id)
        wanted = {**before, **{name: value for name, value in given.items() if value is not None}}
        if since or (wanted["derive_intake"] and not before["derive_intake"]):
            wanted["derive_since"] = await _begin(tx, tenant_id, device_id, since)
        if not 0 < wanted["noise_kg"] <= wanted["refill_kg"] <= MOST_KG:
            raise ValueError(
                "noise_kg must be more than 0, and refill_kg not less than noise_kg nor more than "
                f"{MOST_KG:,.0f}"
            )
        await _write(tx, wanted)
        subject = f"{tenant_id}/{device_id}"
        await audit.note(tx, actor="cli", action="silo.set", subject=subject, **wanted)
    return wanted


async def listed(url: str) -> list[dict[str, Any]]:
    """Those that were set, and those registered with `--derive-intake`."""
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        cursor = await connection.execute(
            """
            select s.*, (t.state -> 'last' -> -1 ->> 'at')::timestamptz as derived_to
            from (
              select tenant_id, device_id, derive_intake, derive_since, noise_kg, refill_kg
              from silo_settings
              union all
              select d.tenant_id, d.device_id, true, d.created_at, %s, %s
              from devices d
              where d.derive_intake and d.revoked_at is null and not exists (
                select from silo_settings o
                where o.tenant_id = d.tenant_id and o.device_id = d.device_id)
            ) s left join silo_states t using (tenant_id, device_id)
            order by s.tenant_id, s.device_id
            """,
            (store.NOISE_KG, store.REFILL_KG),
        )
        return await cursor.fetchall()


async def _is_known(tx: db.Connection, tenant_id: str, device_id: str, *, off: bool) -> bool:
    known: bool = await db.fetch_value(
        tx,
        """
        select exists (select from devices where tenant_id = %s and device_id = %s)
          or (%s and exists (
            select from silo_settings where tenant_id = %s and device_id = %s))
        """,
        tenant_id,
        device_id,
        off,
        tenant_id,
        device_id,
    )
    return known


async def _before(tx: db.Connection, tenant_id: str, device_id: str) -> dict[str, Any]:
    """The settings as they are, the table's defaults if the silo is new; ours alone."""
    await tx.execute(
        "insert into silo_settings (tenant_id, device_id, derive_since) values (%s, %s, fn_now()) "
        "on conflict do nothing",
        (tenant_id, device_id),
    )
    async with tx.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(
            """
            select tenant_id, device_id, derive_intake, derive_since, noise_kg, refill_kg
            from silo_settings where tenant_id = %s and device_id = %s for update
            """,
            (tenant_id, device_id),
        )
        row = await cursor.fetchone()
    assert row is not None  # noqa: S101 - made above
    return row


async def _begin(
    tx: db.Connection, tenant_id: str, device_id: str, since: datetime | None
) -> datetime:
    """Forget how far the silo was read; returns from when on it is read again."""
    counted_to = await db.fetch_value(
        tx,
        """
        select max(occurred_at) from feed_intakes
        where tenant_id = %s and device_id = %s and parent_event_id is not null
          and import_row is null
        """,
        tenant_id,
        device_id,
    )
    if since and counted_to and since < counted_to:
        raise ValueError(
            f"intakes of {device_id} were derived up to {counted_to:%Y-%m-%d %H:%M:%S}Z; an "
            "earlier --since would count them twice: choose a later one"
        )
    await tx.execute(
        "delete from silo_states where tenant_id = %s and device_id = %s", (tenant_id, device_id)
    )
    now: datetime = await db.fetch_value(tx, "select fn_now()")
    return since or now


async def _write(tx: db.Connection, wanted: dict[str, Any]) -> None:
    await tx.execute(
        """
        update silo_settings set derive_intake = %(derive_intake)s, noise_kg = %(noise_kg)s,
          derive_since = %(derive_since)s, refill_kg = %(refill_kg)s, changed_at = fn_now()
        where tenant_id = %(tenant_id)s and device_id = %(device_id)s
        """,
        wanted,
    )
