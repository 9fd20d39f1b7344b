"""SQL of dead letters, with the person's rights (row level security); orders are the service's."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.dead_letters.view import (
    Group,
    NewOrder,
    Order,
    Outcome,
    ShownLetter,
    outcomes,
)
from farmiq.plumbing import db, ids

MAX_GROUPS = 200
MAX_ORDERS = 20
# Of one company; more would only wait.
MAX_OPEN_ORDERS = 20
_ORDER = """
  order_id, action, dry_run, queue, reason, event_ids, note, max_letters, rate_per_s, ordered_by,
  ordered_at, state, ended_at, done, failed, error
"""
# Where the events of each domain are stored.
_TABLES = (
    "weighvision_events", "media_events", "inference_events", "feed_events", "barn_events",
    "device_events", "sync_events", "kpi_events",
)  # fmt: skip


async def groups(connection: db.Connection) -> list[Group]:
    """What waits for a person, most first."""
    rows = await db.fetch_dicts(
        connection,
        """
        select queue, reason, is_of_no_company, count, oldest_at, newest_at, event_types, letters,
          is_whole, looked_at
        from dead_letter_groups order by count desc, queue, reason limit %s
        """,
        (MAX_GROUPS,),
    )
    return [
        Group(**{**row, "letters": [ShownLetter(**letter) for letter in row["letters"]]})
        for row in rows
    ]


async def orders(connection: db.Connection) -> list[Order]:
    return await db.fetch_as(
        connection,
        Order,
        f"select {_ORDER} from dead_letter_orders "  # noqa: S608 - a constant
        "order by ordered_at desc, order_id desc limit %s",
        (MAX_ORDERS,),
    )


async def order(connection: db.Connection, order_id: UUID) -> tuple[Order, list[Outcome]] | None:
    """An order with what became of its letters; None if the company has no such order."""
    orders_found = await db.fetch_as(
        connection,
        Order,
        f"select {_ORDER} from dead_letter_orders where order_id = %s",  # noqa: S608
        (order_id,),
    )
    if not orders_found:
        return None
    written = await db.fetch_value(
        connection, "select outcomes from dead_letter_orders where order_id = %s", order_id
    )
    event_ids = [entry["event_id"] for entry in written if entry.get("event_id")]
    return orders_found[0], outcomes(
        written,
        stored=await _stored(connection, event_ids),
        dead=await _dead(connection, event_ids, since=orders_found[0].ordered_at),
    )


async def _stored(connection: db.Connection, event_ids: Sequence[str]) -> dict[str, datetime]:
    """When these events were stored, as far as they are."""
    known = [text for text in event_ids if _is_uuid(text)]
    if not known:
        return {}
    parts = [
        f"select event_id::text, stored_at from {table} where event_id = any(%(ids)s::uuid[])"  # noqa: S608
        for table in (*_TABLES, "telemetry_readings")
    ]
    rows = await db.fetch_dicts(connection, " union all ".join(parts), {"ids": known})
    return {row["event_id"]: row["stored_at"] for row in rows}


async def _dead(
    connection: db.Connection, event_ids: Sequence[str], *, since: datetime
) -> dict[str, str]:
    """The reasons of those that died again after the order, as far as pages know them."""
    rows = await db.fetch_all(
        connection,
        """
        select letter ->> 'event_id', letter ->> 'reason'
        from dead_letter_groups, jsonb_array_elements(letters) letter
        where letter ->> 'event_id' = any(%s) and (letter ->> 'failed_at') > %s
        """,
        list(event_ids),
        since.isoformat(),
    )
    return dict(rows)


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


async def insert_order(
    connection: db.Connection, company: Company, new_order: NewOrder
) -> UUID | None:
    """As the service, for the active company; None if too many of its orders are open."""
    await connection.execute("reset role")
    order_id = ids.new()
    cursor = await connection.execute(
        """
        insert into dead_letter_orders (order_id, tenant_id, action, dry_run, queue, reason,
          event_ids, note, max_letters, rate_per_s, ordered_by, ordered_at)
        select %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, fn_now()
        where (select count(*) from dead_letter_orders
          where tenant_id = %s and state in ('queued', 'running')) < %s
        """,
        (
            order_id,
            company.tenant_id,
            new_order.action,
            new_order.dry_run,
            new_order.queue,
            new_order.reason,
            list(new_order.event_ids),
            new_order.note,
            new_order.max_letters,
            new_order.rate_per_s,
            company.email,
            company.tenant_id,
            MAX_OPEN_ORDERS,
        ),
    )
    return order_id if cursor.rowcount else None
