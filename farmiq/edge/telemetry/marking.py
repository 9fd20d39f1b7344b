"""Which buckets have to be made again, who makes them, and from which time on (raw_from).

Buckets are made by one at a time, whoever it is: a bucket read early must not be written late.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from farmiq.edge.telemetry.buckets import Span
from farmiq.plumbing import db


async def lead(tx: db.Connection) -> bool:
    """Be the one who makes buckets, until this transaction ends; False if somebody is already."""
    mine: bool = await db.fetch_value(
        tx, "select pg_try_advisory_xact_lock(hashtextextended('edge-telemetry-timeseries', 0))"
    )
    return mine


async def wait_to_lead(tx: db.Connection) -> None:
    """As `lead`, but wait for the other; raises psycopg.OperationalError after ten seconds."""
    await tx.execute("set local lock_timeout = '10s'")
    await tx.execute(
        "select pg_advisory_xact_lock(hashtextextended('edge-telemetry-timeseries', 0))"
    )


async def newest_mark(tx: db.Connection) -> int:
    return int(await db.fetch_value(tx, "select coalesce(max(id), 0) from telemetry_dirty"))


async def marks(tx: db.Connection, *, most: int, upto: int | None = None) -> list[int]:
    """The oldest marks that name at most about `most` hours together; at least one mark."""
    rows = await db.fetch_all(
        tx,
        """
        select id from (
          select id, sum(cardinality(tenants)) over (order by id) - cardinality(tenants) as before
          from (
            select id, tenants from telemetry_dirty
            where id <= coalesce(%s, 9223372036854775807) order by id limit 1000) oldest) d
        where before < %s
        """,
        upto,
        most,
    )
    return [mark for (mark,) in rows]


async def marked(tx: db.Connection, ids: Sequence[int]) -> list[Span]:
    """What these marks name, each hour of a series once."""
    rows = await db.fetch_all(
        tx,
        """
        select e.tenant_id, e.device_id, e.metric_type,
          min(coalesce(e.first_at, to_timestamp(e.first * 60))),
          max(coalesce(e.last_at, to_timestamp((e.last + 1) * 60) - interval '1 microsecond')),
          bool_or(e.metric_type = any(d.owed_metrics))
        from telemetry_dirty d, unnest(d.tenants, d.devices, d.metrics, d.first_minutes,
            d.last_minutes, d.first_times, d.last_times)
          as e(tenant_id, device_id, metric_type, first, last, first_at, last_at)
        where d.id = any(%s)
        group by 1, 2, 3, floor(e.first / 60.0)
        order by 1, 2, 3, 4
        """,
        list(ids),
    )
    return [Span(*row) for row in rows]


async def forget_marks(tx: db.Connection, ids: Sequence[int]) -> None:
    await tx.execute("delete from telemetry_dirty where id = any(%s)", (list(ids),))


@dataclass(frozen=True, slots=True)
class Dirt:
    """How far the buckets are behind the readings."""

    marks: int
    oldest_s: float


async def dirt(tx: db.Connection) -> Dirt:
    rows = await db.fetch_all(
        tx,
        "select count(*), coalesce(extract(epoch from fn_now() - min(marked_at)), 0)::float8 "
        "from telemetry_dirty",
    )
    return Dirt(*rows[0])


async def raw_from(tx: db.Connection) -> datetime:
    """Before this, readings may be gone: nothing is made of what is left there."""
    return await known_raw_from(tx) or datetime.min.replace(tzinfo=UTC)


async def known_raw_from(tx: db.Connection) -> datetime | None:
    found: datetime | None = await db.fetch_value(
        tx, "select raw_from from telemetry_state where raw_from > '-infinity'"
    )
    return found


async def held_raw_from(tx: db.Connection) -> datetime | None:
    """As `known_raw_from`, and it stays there until this transaction ends."""
    await tx.execute(
        "select pg_advisory_xact_lock_shared(hashtextextended('telemetry raw_from', 0))"
    )
    return await known_raw_from(tx)


async def wait_to_move_raw_from(tx: db.Connection) -> None:
    """Until nobody holds it. Whoever moves it looks at the marks after this."""
    await tx.execute("select pg_advisory_xact_lock(hashtextextended('telemetry raw_from', 0))")


async def is_needed_before(tx: db.Connection, before: datetime) -> bool:
    """Whether a bucket from before this still has to be made again."""
    cursor = await tx.execute(
        """
        select exists (
          select from telemetry_dirty d, unnest(d.first_minutes) minute
          where d.first_at < %(before)s and to_timestamp(minute * 60) < %(before)s
            and to_timestamp(minute * 60) >= coalesce(
              (select s.raw_from from telemetry_state s), '-infinity'))
        """,
        {"before": before},
    )
    return await cursor.fetchone() == (True,)


async def begin_raw_from(tx: db.Connection, *, keep_days: int) -> None:
    """On the first day: what is older than what is kept has never been here."""
    await tx.execute(
        """
        insert into telemetry_state (raw_from)
        values ((date_trunc('day', fn_now() at time zone 'UTC') - make_interval(days => %s))
          at time zone 'UTC')
        on conflict on constraint telemetry_state_pkey do nothing
        """,
        (keep_days,),
    )


async def advance_raw_from(tx: db.Connection, before: datetime) -> None:
    """From now on, buckets from before this are never made again."""
    await tx.execute(
        """
        insert into telemetry_state as s (raw_from) values (%s)
        on conflict on constraint telemetry_state_pkey do update
          set raw_from = greatest(s.raw_from, excluded.raw_from)
        """,
        (before,),
    )
