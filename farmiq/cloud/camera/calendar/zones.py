"""Time zones: whether PostgreSQL and Python know the same clocks.

Wakes are counted by PostgreSQL; days are opened and shown by Python. Each has a database of time
zones of its own, which may be of different years: a camera's day would then begin twice.
"""

import zoneinfo
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo

import psycopg

from farmiq.plumbing import db

AROUND = timedelta(days=2 * 366)
_DAY_S = 86_400


async def differing(
    connection: db.Connection,
    names: Iterable[str],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    read: Callable[[str], tzinfo] = zoneinfo.ZoneInfo,
) -> dict[str, str]:
    """The zones whose clocks are not the same on both sides, and how they differ.

    Looks two years back and two ahead unless told otherwise. A zone that only one side knows
    differs; one that neither knows does too, since nobody can say when its days begin.
    """
    now = await db.fetch_value(connection, "select fn_now()")
    moments = range(
        int((since or now - AROUND).timestamp()), int((until or now + AROUND).timestamp())
    )
    found = {}
    for name in sorted(set(names)):
        zone = _read(name, read)
        at = [] if zone is None else probes(zone, moments)
        theirs = await _offsets(connection, name, at)
        reason = difference(at, None if zone is None else offsets(zone, at), theirs)
        if reason is not None:
            found[name] = reason
    return found


def probes(zone: tzinfo, moments: range) -> list[int]:
    """Every day, and the seconds before and at each change that this side knows.

    A change that only the other side knows is seen on the days behind it; a change at another
    hour is seen at ours.
    """
    days = [*range(moments.start, moments.stop, _DAY_S), moments.stop]
    known = offsets(zone, days)
    changes = [
        _change(zone, early, late)
        for early, late, before, after in zip(days, days[1:], known, known[1:], strict=False)
        if before != after
    ]
    return sorted({*days, *changes, *(each - 1 for each in changes)})


def offsets(zone: tzinfo, at: Sequence[int]) -> list[int]:
    """Seconds ahead of UTC."""
    return [_offset(zone, each) for each in at]


def difference(
    at: Sequence[int], ours: Sequence[int] | None, theirs: Sequence[int] | None
) -> str | None:
    """What to say of a zone; None if both sides agree. A side that does not know it has None."""
    if ours is None or theirs is None:
        sides = [
            side for side, known in (("Python", ours), ("PostgreSQL", theirs)) if known is None
        ]
        return f"unknown to {' and '.join(sides)}"
    for moment, our, their in zip(at, ours, theirs, strict=True):
        if our != their:
            when = datetime.fromtimestamp(moment, UTC).isoformat()
            return f"at {when} it is {our} s ahead of UTC in Python, {their} s in PostgreSQL"
    return None


def _read(name: str, read: Callable[[str], tzinfo]) -> tzinfo | None:
    try:
        return read(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _offset(zone: tzinfo, at: int) -> int:
    ahead = datetime.fromtimestamp(at, zone).utcoffset() or timedelta(0)
    return int(ahead.total_seconds())


def _change(zone: tzinfo, early: int, late: int) -> int:
    """The first second of the new offset, between two moments around one change."""
    before = _offset(zone, early)
    return early + bisect(
        range(early, late + 1), 0, key=lambda each: int(_offset(zone, each) != before)
    )


async def _offsets(connection: db.Connection, name: str, at: Sequence[int]) -> list[int] | None:
    try:
        async with connection.transaction():
            found: list[int] = await db.fetch_value(
                connection,
                """
                select coalesce(array_agg(extract(epoch from
                    (to_timestamp(a.at) at time zone z.name)
                    - (to_timestamp(a.at) at time zone 'UTC'))::integer order by a.n), '{}')
                from (select fn_zone_name(%s)) z(name)
                left join unnest(%s::bigint[]) with ordinality a(at, n) on true
                """,
                name,
                list(at),
            )
    except psycopg.errors.InvalidParameterValue:
        return None
    return found
