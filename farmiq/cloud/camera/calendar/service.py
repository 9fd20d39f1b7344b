"""Calendar: opens and locks the day of every site of cameras at the site's own midnight.

the clock --> [calendar] --fn_midnight_session_opener_all, fn_end_of_day_locker_all-->
site_device_sessions, device_alerts

The functions decide what is due and may be called at any time: they catch up on what was missed,
and any number of replicas may call them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, time
from typing import Any
from zoneinfo import ZoneInfo

import prometheus_client

from farmiq import crash
from farmiq.cloud.camera.calendar import zones
from farmiq.cloud.camera.calendar.clock import CalendarClock
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http, log
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.clock import Do
from farmiq.plumbing.runtime.schedule import Daily, Job

NAME = "cloud-camera-calendar"
NIGHT = time(3, 0)
# A clock that has jumped is noticed so soon.
CLOCK_S = 60.0
# One advisory lock for each step: one replica does it for all.
_LOCKS = {
    "lock": 4_210_551_001,
    "open": 4_210_551_002,
    "pending": 4_210_551_003,
    "counters": 4_210_551_004,
}

FAILING = prometheus_client.Gauge(
    "farmiq_calendar_sites_failing", "Sites whose day could not be opened or locked", ["step"]
)
LOCKED = prometheus_client.Counter("farmiq_calendar_sites_locked_total", "Sites that were locked")
ALERTS = prometheus_client.Counter("farmiq_calendar_alerts_total", "Alerts of days that ended")
TIMED_OUT = prometheus_client.Counter(
    "farmiq_calendar_payloads_timed_out_total", "Wakes whose image never came whole"
)
DIFFERING = prometheus_client.Gauge(
    "farmiq_calendar_counters_differing", "Days whose counters a recount did not confirm"
)
MENDED = prometheus_client.Counter(
    "farmiq_calendar_counters_mended_total", "Days whose counters were set to what a recount gave"
)
CLOSED = prometheus_client.Counter(
    "farmiq_calendar_early_days_total", "Days that a wrong clock had opened and that were removed"
)
ZONES = prometheus_client.Gauge(
    "farmiq_calendar_zones_differing", "Time zones of sites on which PostgreSQL and we disagree"
)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME, min_size=0) as pool,
        asyncio.TaskGroup() as group,
    ):
        server.ready("calendar.database", lambda: db.problem(pool))
        for job in all_jobs(pool, settings):
            group.create_task(schedule.run_repeatedly(job))


def all_jobs(pool: db.Pool, settings: CloudSettings) -> list[Job]:
    """Each runs by itself: one that fails does not stop the others."""
    often_s, pending_s = settings.camera_calendar_s, settings.camera_pending_s
    clock = CalendarClock(pool)
    fail = clock.if_steady(lambda: fail_pending(pool, older_than_s=pending_s))
    return [
        Job("calendar.clock", min(often_s, CLOCK_S), clock.check),
        Job("calendar.lock", often_s, clock.if_believed(lambda: lock_days(pool))),
        Job("calendar.early", often_s, clock.if_believed(lambda: close_early_days(pool))),
        Job("calendar.open", often_s, clock.after_check(lambda: open_days(pool))),
        Job("calendar.pending", often_s, fail),
        _nightly("calendar.counters", lambda: recount(pool)),
        _nightly("calendar.zones", lambda: compare_zones(pool)),
    ]


@asynccontextmanager
async def _step(pool: db.Pool, step: str) -> AsyncIterator[db.Connection | None]:
    """A transaction for this step; None while another replica does it."""
    async with db.transaction(pool) as tx:
        is_alone = await db.fetch_value(tx, "select pg_try_advisory_xact_lock(%s)", _LOCKS[step])
        yield tx if is_alone else None


async def lock_days(pool: db.Pool) -> dict[str, object]:
    async with _step(pool, "lock") as tx:
        if tx is None:
            return {}
        answer = await db.fetch_value(tx, "select fn_end_of_day_locker_all()")
        crash.here("calendar.before_lock_commit")
    crash.here("calendar.after_lock_commit")
    _report_failing("lock", answer)
    LOCKED.inc(answer["success_count"])
    ALERTS.inc(answer["total_alerts_created"])
    return {"count": answer["success_count"]}


async def open_days(pool: db.Pool) -> dict[str, object]:
    """Logs no count: most days are open already."""
    async with _step(pool, "open") as tx:
        if tx is None:
            return {}
        answer = await db.fetch_value(tx, "select fn_midnight_session_opener_all()")
        crash.here("calendar.before_open_commit")
    crash.here("calendar.after_open_commit")
    _report_failing("open", answer)
    return {}


async def close_early_days(pool: db.Pool) -> dict[str, object]:
    async with _step(pool, "open") as tx:
        closed = 0 if tx is None else await db.fetch_value(tx, "select fn_close_early_days()")
    CLOSED.inc(closed)
    if closed:
        reason = "the clock was ahead when they were opened"
        log.get(NAME).warning("calendar.early_days_removed", count=closed, reason=reason)
    return {}


async def fail_pending(pool: db.Pool, *, older_than_s: float) -> dict[str, object]:
    async with _step(pool, "pending") as tx:
        if tx is None:
            return {}
        sql = "select fn_fail_pending_payloads(make_interval(secs => %s))"
        failed: int = await db.fetch_value(tx, sql, older_than_s)
        crash.here("calendar.before_pending_commit")
    TIMED_OUT.inc(failed)
    return {"count": failed}


async def recount(pool: db.Pool) -> dict[str, object]:
    """Compare the counters of days with their wakes, and correct them; each difference is a bug.

    What a day expects is not corrected, since it never changes.
    """
    differing = "select site_id, session_date, counted, recounted from fn_counters_differing()"
    async with _step(pool, "counters") as tx:
        if tx is None:
            return {}
        days = await db.fetch_all(tx, differing)
        corrected = await db.fetch_value(tx, "select fn_alert_counters_differing()")
        left = len(await db.fetch_all(tx, differing))
    DIFFERING.set(left)
    MENDED.inc(corrected - left)
    for site_id, date, counted, recounted in days:
        reason = f"{date} had counted {counted}, its wakes add up to {recounted}"
        log.get(NAME).error("calendar.counters_differ", name=str(site_id), reason=reason)
    return {}


async def compare_zones(pool: db.Pool) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        rows = await db.fetch_all(tx, "select distinct timezone from sites order by 1")
        differing = await zones.differing(tx, [name for (name,) in rows])
    ZONES.set(len(differing))
    for name, reason in differing.items():
        log.get(NAME).error("calendar.zone_differs", name=name, reason=reason)
    return {}


def _report_failing(step: str, answer: dict[str, Any]) -> None:
    failing = [site for site in answer["results"] if "error" in site]
    FAILING.labels(step=step).set(len(failing))
    for site in failing:
        log.get(NAME).error(f"calendar.{step}_failed", name=site["site_id"], error=site["error"])


def _nightly(name: str, do: Do) -> Job:
    """At start and every night; once too often does no harm."""
    last: datetime | None = None

    async def last_done() -> datetime | None:
        return last

    async def done(at: datetime) -> None:
        nonlocal last
        last = at

    return Job(name, 0.0, do, daily=Daily(NIGHT, ZoneInfo("UTC"), last_done, done))
