"""Time zones: whether PostgreSQL and Python have the same data.

PostgreSQL counts wakes; Python opens and shows days. Each has its own time zone database, which may
be of different years: a camera's day would then begin twice.
"""

import zoneinfo
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise

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
    """The zones whose offsets differ between the two, and how; by default two years either way.

    A zone that one side or both do not know differs: nobody can say when its days begin.
    """
    now = await db.fetch_value(connection, "select fn_now()")
    start = int((since or now - AROUND).timestamp())
    stop = int((until or now + AROUND).timestamp())
    reasons = {}
    for name in sorted(set(names)):
        zone = _read(name, read)
        instants = [] if zone is None else _instants(zone, start, stop)
        ours = None if zone is None else [_offset(zone, instant) for instant in instants]
        theirs = await _offsets_in_postgres(connection, name, instants)
        if ours is None or theirs is None:
            sides = (("Python", ours), ("PostgreSQL", theirs))
            reasons[name] = f"unknown to {' and '.join(s for s, known in sides if known is None)}"
        elif ours != theirs:
            instant, our, their = next(
                row for row in zip(instants, ours, theirs, strict=True) if row[1] != row[2]
            )
            reasons[name] = (
                f"at {datetime.fromtimestamp(instant, UTC).isoformat()} it is {our} s ahead of UTC "
                f"in Python, {their} s in PostgreSQL"
            )
    return reasons


def _read(name: str, read: Callable[[str], tzinfo]) -> tzinfo | None:
    try:
        return read(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _instants(zone: tzinfo, start: int, stop: int) -> list[int]:
    """Every day, and the seconds before and at each change that Python knows.

    A change that only PostgreSQL knows shows on the days behind it; a change at another hour shows
    at ours.
    """
    days = [*range(start, stop, _DAY_S), stop]
    known = ((day, _offset(zone, day)) for day in days)
    changes = [
        _first_after_change(zone, early, late)
        for (early, before), (late, after) in pairwise(known)
        if before != after
    ]
    return sorted({*days, *changes, *(change - 1 for change in changes)})


def _first_after_change(zone: tzinfo, early: int, late: int) -> int:
    before = _offset(zone, early)
    seconds = range(early, late + 1)
    return early + bisect(seconds, 0, key=lambda second: int(_offset(zone, second) != before))


def _offset(zone: tzinfo, instant: int) -> int:
    """Seconds ahead of UTC."""
    ahead = datetime.fromtimestamp(instant, zone).utcoffset() or timedelta(0)
    return int(ahead.total_seconds())


async def _offsets_in_postgres(
    connection: db.Connection, name: str, instants: Sequence[int]
) -> list[int] | None:
    try:
        async with connection.transaction():
            offsets: list[int] = await db.fetch_value(
                connection,
                """
                select coalesce(array_agg(extract(epoch from
                    (to_timestamp(a.at) at time zone z.name)
                    - (to_timestamp(a.at) at time zone 'UTC'))::integer order by a.n), '{}')
                from (select fn_zone_name(%s)) z(name)
                left join unnest(%s::bigint[]) with ordinality a(at, n) on true
                """,
                name,
                list(instants),
            )
    except psycopg.errors.InvalidParameterValue:
        return None
    return offsets
