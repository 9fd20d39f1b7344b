"""The months of telemetry_raw."""

from datetime import date, datetime

from farmiq.plumbing import db


async def today(tx: db.Connection) -> date:
    found: date = await db.fetch_value(tx, "select (fn_now() at time zone 'UTC')::date")
    return found


async def make_month(tx: db.Connection, month: date) -> bool:
    """Make the partition of a month; False if it was there."""
    made: bool = await db.fetch_value(tx, "select fn_make_telemetry_month(%s)", month)
    return made


async def move_month(tx: db.Connection, month: date, *, most: int) -> int:
    """Move a portion of a month's rows out of the default partition; 0 if few are left."""
    moved: int = await db.fetch_value(tx, "select fn_move_telemetry_month(%s, %s)", month, most)
    return moved


async def drop_month(tx: db.Connection, month: date) -> str:
    """Drop the partition of a month: `dropped`, or why not (the function says which)."""
    outcome: str = await db.fetch_value(tx, "select fn_drop_telemetry_month(%s)", month)
    return outcome


async def months(tx: db.Connection) -> list[date]:
    """The months that have a partition."""
    rows = await db.fetch_all(
        tx,
        """
        select to_date(right(c.relname, 7), 'YYYY_MM')
        from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'telemetry_raw'::regclass and c.relname ~ '_[0-9]{4}_[0-9]{2}$'
        order by 1
        """,
    )
    return [month for (month,) in rows]


async def half_moved(tx: db.Connection) -> list[date]:
    """Months whose rows are on their way: some are out of sight until the month is made."""
    rows = await db.fetch_all(
        tx,
        """
        select to_date(right(relname, 7), 'YYYY_MM') from pg_class
        where relname ~ '^telemetry_raw_[0-9]{4}_[0-9]{2}$' and relkind = 'r'
          and not relispartition and relnamespace = 'public'::regnamespace
        order by 1
        """,
    )
    return [month for (month,) in rows]


async def count_between(tx: db.Connection, starts_at: datetime, ends_at: datetime) -> int:
    found: int = await db.fetch_value(
        tx,
        "select count(*) from telemetry_raw where occurred_at >= %s and occurred_at < %s",
        starts_at,
        ends_at,
    )
    return found
