"""The calendar's calls, one function per statement; the database decides."""

from typing import Any

from farmiq.plumbing import db

# One key per step: whoever does the same step at this moment does it for all replicas.
_STEPS = {"lock": 1, "open": 2, "pending": 3, "counters": 4}
_KEY = 4_210_551_000

Answer = dict[str, Any]


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


async def alert_differing(tx: db.Connection) -> int:
    found: int = await db.fetch_value(tx, "select fn_alert_counters_differing()")
    return found


async def zones(tx: db.Connection) -> list[str]:
    rows = await db.fetch_all(tx, "select distinct timezone from sites order by 1")
    return [row[0] for row in rows]
