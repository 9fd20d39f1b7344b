"""The settings of silos, as `farmiq silo` sets and shows them."""

import re
from datetime import datetime
from typing import Any

import psycopg

from farmiq.edge import audit
from farmiq.edge.feed import store
from farmiq.messages.ids import ID_PATTERN
from farmiq.messages.kinds import MAX_KG
from farmiq.plumbing import db


async def change(
    url: str, *, tenant_id: str, device_id: str, since: datetime | None = None, **given: Any
) -> dict[str, Any]:
    """Set derive_intake, noise_kg or refill_kg where given, keep the rest; returns all of it.

    A silo that is switched on, or given a `since`, starts again from there. Raises ValueError if
    the settings are wrong, or if feed would be counted twice; LookupError if the device is not
    registered. The settings of such a one can still be switched off.
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
        if not 0 < wanted["noise_kg"] <= wanted["refill_kg"] <= MAX_KG:
            raise ValueError(
                "noise_kg must be more than 0, and refill_kg not less than noise_kg nor more than "
                f"{MAX_KG:,.0f}"
            )
        await _write(tx, wanted)
        subject = f"{tenant_id}/{device_id}"
        await audit.note(tx, actor="cli", action="silo.set", subject=subject, **wanted)
    return wanted


async def listed(url: str) -> list[dict[str, Any]]:
    """The silos that were set, and those registered with `--derive-intake`."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        return await db.fetch_dicts(
            connection,
            f"""
            select s.*, (t.state -> 'last' -> -1 ->> 'at')::timestamptz as derived_to
            from ({store.SILOS}) s left join silo_states t using (tenant_id, device_id)
            order by s.tenant_id, s.device_id
            """,  # noqa: S608 - our own words
        )


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
    """The settings as they are, the table's defaults if the silo is new; locked."""
    await tx.execute(
        "insert into silo_settings (tenant_id, device_id, derive_since) values (%s, %s, fn_now()) "
        "on conflict do nothing",
        (tenant_id, device_id),
    )
    (row,) = await db.fetch_dicts(
        tx,
        "select tenant_id, device_id, derive_intake, derive_since, noise_kg, refill_kg "
        "from silo_settings where tenant_id = %s and device_id = %s for update",
        (tenant_id, device_id),
    )
    return row


async def _begin(
    tx: db.Connection, tenant_id: str, device_id: str, since: datetime | None
) -> datetime:
    """Reset how far the silo was read; returns from when on it is read again."""
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
