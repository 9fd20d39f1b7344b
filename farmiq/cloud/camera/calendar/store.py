"""The calendar's calls, one function per statement; the database decides."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from farmiq.plumbing import clock, db

# One key per step: whoever does the same step at this moment does it for all replicas.
_STEPS = {"lock": 1, "open": 2, "pending": 3, "counters": 4}
_KEY = 4_210_551_000

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Clock:
    """What the clock says now, and what was seen of it last."""

    now: datetime
    looked_at: datetime | None
    ahead: timedelta


async def alone(tx: db.Connection, step: str) -> bool:
    """Whether no other replica is at this step; until the transaction ends none will be."""
    found: bool = await db.fetch_value(
        tx, "select pg_try_advisory_xact_lock(%s)", _KEY + _STEPS[step]
    )
    return found


async def lock_days(tx: db.Connection) -> Answer:
    answer: Answer = await db.fetch_value(tx, "select fn_end_of_day_locker_all()")
    return answer


async def open_days(tx: db.Connection) -> Answer:
    answer: Answer = await db.fetch_value(tx, "select fn_midnight_session_opener_all()")
    return answer


async def fail_pending(tx: db.Connection, *, older_than_s: float) -> int:
    failed: int = await db.fetch_value(
        tx, "select fn_fail_pending_payloads(make_interval(secs => %s))", older_than_s
    )
    return failed


async def close_early_days(tx: db.Connection) -> int:
    closed: int = await db.fetch_value(tx, "select fn_close_early_days()")
    return closed


async def clock_seen(tx: db.Connection) -> Clock:
    rows = await db.fetch_all(
        tx,
        "select fn_now(), c.looked_at, coalesce(c.ahead, interval '0') "
        "from (values (true)) v(only_row) left join calendar_clock c using (only_row)",
    )
    return Clock(*rows[0])


async def saw_clock(tx: db.Connection, now: datetime, ahead: timedelta) -> None:
    await tx.execute(
        "insert into calendar_clock (looked_at, ahead) values (%s, %s) "
        "on conflict on constraint calendar_clock_pkey do update set "
        "looked_at = excluded.looked_at, ahead = excluded.ahead",
        (now, ahead),
    )


async def edges_agree(tx: db.Connection) -> bool:
    """Whether most edges that were heard just now have the same time as we."""
    agree: bool = await db.fetch_value(
        tx,
        """
        select count(*) filter (where abs(h.clock_offset_s) <= %s)
          > count(*) filter (where abs(h.clock_offset_s) > %s)
        from edge_heartbeats h
        where h.received_at between fn_now() - interval '10 minutes' and fn_now()
        """,
        clock.MAX_DRIFT_S,
        clock.MAX_DRIFT_S,
    )
    return agree


async def differing(tx: db.Connection) -> list[dict[str, Any]]:
    """Days whose counters are not what their wakes add up to."""
    rows = await db.fetch_all(
        tx, "select site_id, session_date, counted, recounted from fn_counters_differing()"
    )
    names = ("site_id", "session_date", "counted", "recounted")
    return [dict(zip(names, row, strict=True)) for row in rows]


async def mend_differing(tx: db.Connection) -> int:
    """Sets them right, with an alert for each; how many."""
    found: int = await db.fetch_value(tx, "select fn_alert_counters_differing()")
    return found


async def zones(tx: db.Connection) -> list[str]:
    rows = await db.fetch_all(tx, "select distinct timezone from sites order by 1")
    return [row[0] for row in rows]
