"""Calendar: opens and locks the day of every site of cameras at the site's own midnight.

the clock --> [calendar] --fn_midnight_session_opener_all, fn_end_of_day_locker_all-->
site_device_sessions, device_alerts

The functions decide what is due and may be called at any time: whatever was missed while nobody
called is made up for, and any number of replicas may call them.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, time
from zoneinfo import ZoneInfo

import prometheus_client

from farmiq import crash
from farmiq.cloud.camera.calendar import store, zones
from farmiq.cloud.camera.calendar.clock import CalendarClock
from farmiq.config import CloudSettings
from farmiq.plumbing import chores, db, http, log
from farmiq.plumbing.chores import Chore, Daily

NAME = "cloud-camera-calendar"
NIGHT = time(3, 0)
# A clock that has jumped is noticed so soon.
CLOCK_S = 60.0

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


async def run(settings: CloudSettings, door: http.Door) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME, least=0) as pool,
        asyncio.TaskGroup() as group,
    ):
        door.ready("calendar.database", lambda: db.problem(pool))
        for chore in all_chores(pool, settings):
            group.create_task(chores.keep_doing(chore))


def all_chores(pool: db.Pool, settings: CloudSettings) -> list[Chore]:
    """A step that fails does not keep the others from being done."""
    often_s, pending_s = settings.camera_calendar_s, settings.camera_pending_s
    clock = CalendarClock(pool)
    return [
        Chore("calendar.clock", min(often_s, CLOCK_S), clock.look),
        Chore("calendar.lock", often_s, clock.believed(lambda: lock_days(pool))),
        Chore("calendar.early", often_s, clock.believed(lambda: close_early_days(pool))),
        Chore("calendar.open", often_s, clock.seen(lambda: open_days(pool))),
        Chore(
            "calendar.pending",
            often_s,
            clock.steady(lambda: fail_pending(pool, older_than_s=pending_s)),
        ),
        _nightly("calendar.counters", lambda: recount(pool)),
        _nightly("calendar.zones", lambda: compare_zones(pool)),
    ]


async def lock_days(pool: db.Pool) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        if not await store.alone(tx, "lock"):
            return {}
        answer = await store.lock_days(tx)
        crash.here("calendar.before_lock_commit")
    crash.here("calendar.after_lock_commit")
    _tell_failing("lock", answer)
    LOCKED.inc(answer["success_count"])
    ALERTS.inc(answer["total_alerts_created"])
    return {"count": answer["success_count"]}


async def open_days(pool: db.Pool) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        if not await store.alone(tx, "open"):
            return {}
        answer = await store.open_days(tx)
        crash.here("calendar.before_open_commit")
    crash.here("calendar.after_open_commit")
    _tell_failing("open", answer)
    # Most are open already: not worth a line every minute.
    return {}


async def close_early_days(pool: db.Pool) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        if not await store.alone(tx, "open"):
            return {}
        closed = await store.close_early_days(tx)
    CLOSED.inc(closed)
    if closed:
        log.get(NAME).warning(
            "calendar.early_days_removed",
            count=closed,
            reason="the clock was ahead when they were opened",
        )
    return {}


async def fail_pending(pool: db.Pool, *, older_than_s: float) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        if not await store.alone(tx, "pending"):
            return {}
        failed = await store.fail_pending(tx, older_than_s=older_than_s)
        crash.here("calendar.before_pending_commit")
    TIMED_OUT.inc(failed)
    return {"count": failed}


async def recount(pool: db.Pool) -> dict[str, object]:
    """The database itself keeps the counters: a day on which they are wrong is our mistake.

    They are set right; what a day expects is not, since it never changes.
    """
    async with db.transaction(pool) as tx:
        if not await store.alone(tx, "counters"):
            return {}
        found = await store.differing(tx)
        mended = await store.mend_differing(tx)
        left = await store.differing(tx)
    DIFFERING.set(len(left))
    MENDED.inc(mended - len(left))
    for day in found:
        log.get(NAME).error(
            "calendar.counters_differ",
            name=str(day["site_id"]),
            reason=f"{day['session_date']} had counted {day['counted']}, its wakes add up to "
            f"{day['recounted']}",
        )
    return {}


async def compare_zones(pool: db.Pool) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        found = await zones.differing(tx, await store.zones(tx))
    ZONES.set(len(found))
    for name, reason in found.items():
        log.get(NAME).error("calendar.zone_differs", name=name, reason=reason)
    return {}


def _tell_failing(step: str, answer: store.Answer) -> None:
    failing = [each for each in answer["results"] if "error" in each]
    FAILING.labels(step=step).set(len(failing))
    for each in failing:
        log.get(NAME).error(f"calendar.{step}_failed", name=each["site_id"], error=each["error"])


def _nightly(name: str, do: Callable[[], Awaitable[dict[str, object]]]) -> Chore:
    """When we start, and every night: looking once more than needed harms nobody."""
    last: datetime | None = None

    async def last_done() -> datetime | None:
        return last

    async def done(at: datetime) -> None:
        nonlocal last
        last = at

    return Chore(name, 0.0, do, daily=Daily(NIGHT, ZoneInfo("UTC"), last_done, done))
