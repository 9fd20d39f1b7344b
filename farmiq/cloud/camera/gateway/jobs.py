"""Periodic jobs: states of cameras, commands, floods, the broker's users and store, retention."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from urllib.parse import unquote, urlsplit

import prometheus_client

from farmiq import nats_users
from farmiq.cloud.camera import registry
from farmiq.cloud.camera.gateway import commands, logins
from farmiq.cloud.camera.gateway.answers import LogPosition
from farmiq.cloud.camera.protocol import dialects
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http, log
from farmiq.plumbing.broker import flood
from farmiq.plumbing.broker import log as broker_log
from farmiq.plumbing.broker import store as broker_store
from farmiq.plumbing.broker.callout import Callout
from farmiq.plumbing.broker.flood import Flow, Pause
from farmiq.plumbing.broker.follow import Follower
from farmiq.plumbing.broker.load import Guard, Load
from farmiq.plumbing.broker.store import Store
from farmiq.plumbing.messaging import nats, stream
from farmiq.plumbing.runtime.clock import NO_AGE_DAYS, AgeGuard
from farmiq.plumbing.runtime.schedule import Job

NAME = "cloud-camera-gateway"
MAX_COMMANDS = 100
# Of one camera, and of all unknown cameras together.
MAX_QUARANTINED, MAX_UNKNOWN = 1000, 10_000
# A wake may be so late and still count for its window (C-63).
TOLERANCE_S = 3600.0
MAX_MISSED = 2
MAX_SENDERS = 200

STATES = prometheus_client.Gauge(
    "farmiq_cameras_by_state", "Cameras that are in use and expected to wake", ["state"]
)
PAUSES = prometheus_client.Counter(
    "farmiq_camera_pauses_total", "Times that a camera's login was paused because it flooded"
)
SHARED = prometheus_client.Counter(
    "farmiq_camera_floods_not_paused_total", "Times that a login flooded and could not be paused"
)
UNKNOWN = prometheus_client.Gauge(
    "farmiq_cameras_unknown", "Cameras heard within a day that nobody registered"
)
BROKER_REJECTED = prometheus_client.Counter(
    "farmiq_camera_broker_refusals_total", "What the cameras' broker says it refused", ["kind"]
)
STORE_USE = prometheus_client.Gauge(
    "farmiq_camera_broker_store_ratio", "How full the store of the cameras' broker is, 0 to 1"
)


def periodic_jobs(
    pool: db.Pool,
    settings: CloudSettings,
    server: http.HttpServer,
    *,
    load: Load | None,
    store: Store | None,
    callout: Callout | None,
    is_active: Callable[[], bool],
) -> list[Job]:
    """Jobs that need no stream; they run in the active gateway."""
    round_s, days = settings.camera_round_s, settings.camera_days
    purge_all = AgeGuard(pool, "camera.forget").guard(
        partial(purge, pool, days=days), otherwise=partial(purge, pool, days=NO_AGE_DAYS)
    )
    follower = Follower(settings.broker_log_file) if settings.broker_log_file else None
    watch = BrokerWatch(follower, callout=callout, paused=partial(logins.paused, pool))
    reset = partial(reset_far_future, pool, max_ahead_s=2 * settings.camera_timeout_s)
    jobs = [
        Job("camera.liveness", round_s, partial(update_states, pool)),
        Job("camera.forget", 300.0, purge_all),
        Job("camera.clock", 30.0, reset),
        Job("camera.unknown", round_s, partial(watch.check_unknown, pool)),
    ]
    if follower is not None or callout is not None:
        jobs.append(Job("camera.refusals", 1.0, watch.check_rejections))
    if settings.broker_users_file is not None:
        users = logins.users(
            pool,
            settings.broker_users_file,
            own=settings.broker_own_users.split(","),
            pid_file=settings.broker_pid_file,
        )
        server.ready("camera.users", lambda: users.problem if is_active() else None)
        jobs.append(Job("camera.users", 1.0, users.refresh))
    if load is not None:
        server.note("camera.load", lambda: load.problem)
        jobs.append(Job("camera.floods", 0.5, flood_guard(settings, pool, load).look))
        jobs.append(Job("camera.calm", 30.0, partial(resolve_floods, pool)))
    if store is not None:
        server.note("camera.store", lambda: store.problem)
        jobs.append(Job("camera.store", 2.0, store.look))
        jobs.append(Job("camera.store_use", 10.0, partial(watch.check_store, store)))
    jobs = [Job(job.name, job.every_s, partial(_if_active, is_active, job)) for job in jobs]
    if callout is not None:
        server.ready("camera.callout", lambda: callout.problem)
        # A standby answers the broker too.
        jobs.append(Job("camera.logins", 1.0, callout.refresh))
    return jobs


async def _if_active(is_active: Callable[[], bool], job: Job) -> dict[str, object]:
    return await job.do() if is_active() else {}


# --- retention

_PURGE = (
    """
    delete from camera_transfers where due_at is null
      and ended_at < (select fn_now()) - %(days)s * interval '1 day'
    """,
    """
    delete from camera_commands where state in ('done', 'failed', 'expired')
      and ended_at < (select fn_now()) - %(days)s * interval '1 day'
    """,
    """
    delete from camera_quarantine q using (
      select quarantine_id,
        row_number() over (partition by mac order by last_received_at desc, quarantine_id) as n,
        row_number() over (partition by device_id is null
          order by last_received_at desc, quarantine_id) as n_unknown
      from camera_quarantine) o
    where o.quarantine_id = q.quarantine_id
      and (q.last_received_at < (select fn_now()) - %(days)s * interval '1 day'
        or o.n > %(camera_limit)s or (q.device_id is null and o.n_unknown > %(unknown_limit)s))
    """,
)


async def purge(pool: db.Pool, *, days: float) -> dict[str, object]:
    limits = {"days": days, "camera_limit": MAX_QUARANTINED, "unknown_limit": MAX_UNKNOWN}
    async with db.transaction(pool) as tx:
        return {"count": sum([(await tx.execute(sql, limits)).rowcount for sql in _PURGE])}


async def reset_far_future(pool: db.Pool, *, max_ahead_s: float) -> dict[str, object]:
    """After the clock was set back, times too far in the future are due now."""
    async with db.transaction(pool) as tx:
        steps = await tx.execute(
            """
            update camera_transfers set due_at = fn_now()
            where state in ('receiving', 'complete')
              and due_at > (select fn_now()) + %s * interval '1 second'
            """,
            (max_ahead_s,),
        )
        pauses = await tx.execute(
            """
            update camera_logins set paused_until = fn_now()
            where paused_until > (select fn_now()) + %s * interval '1 second'
            """,
            (2 * flood.MAX_PAUSE_S,),
        )
    return {"count": steps.rowcount + pauses.rowcount}


# --- commands


def command_jobs(
    pool: db.Pool,
    reader: stream.Reader,
    position: LogPosition,
    writing: asyncio.Lock,
    *,
    awake_s: float,
) -> list[Job]:
    """Jobs that need the stream's connection."""
    send = partial(send_commands, pool, reader, position, writing, awake_s=awake_s)
    return [
        Job("camera.commands", 0.25, send),
        Job("camera.wanted", 1.0, partial(queue_commands, pool, awake_s=awake_s)),
    ]


async def queue_commands(pool: db.Pool, *, awake_s: float) -> dict[str, object]:
    """Expire commands that were not sent in time, and queue images that people requested."""
    async with db.transaction(pool) as tx:
        expired = await commands.expire(tx)
        return {"expired": expired, "queued": await commands.queue_resends(tx, awake_s=awake_s)}


async def send_commands(
    pool: db.Pool,
    reader: stream.Reader,
    position: LogPosition,
    writing: asyncio.Lock,
    *,
    awake_s: float,
) -> dict[str, object]:
    """Send commands to cameras that are awake; after a crash a command may be sent twice.

    `writing` is held until a command is marked as sent, so its answer is stored after that.
    """
    sent = 0
    try:
        while sent < MAX_COMMANDS and reader.problem() is None:
            async with db.autocommit(pool) as tx:
                if await commands.next_to_send(tx, awake_s=awake_s) is None:
                    break
            # Messages that are not stored yet may make the command needless.
            mark = await position.catch_up()
            async with writing, db.transaction(pool) as tx:
                command = await commands.next_to_send(tx, awake_s=awake_s)
                if command is None or not position.holds(mark):
                    break
                encoded = dialects.encode(command.dialect, command.spelling, command.answer)
                if encoded is not None:
                    reader.publish(nats_users.subject(encoded[0]), encoded[1])
                await commands.mark_sent(tx, command.command_id, unanswerable=encoded is None)
            sent += 1
    except (stream.LostError, nats.NatsError) as error:
        log.get(NAME).warning("camera.command_not_sent", reason=str(error))
    return {"sent": sent}


# --- states of cameras, from their expected wakes (peers 19)
#
# A camera sleeps between its wakes, so only missed wakes count: late after one or two, then silent.

_UPDATE_STATES = """
with missed as (
  select d.device_id, d.company_id, count(w.expected_at) as wakes, min(w.expected_at) as first_at,
    case when count(w.expected_at) = 0 then 'online'
      when count(w.expected_at) <= %(late_limit)s then 'late' else 'silent' end as state
  from devices d
  left join expected_wakes w on w.device_id = d.device_id
    and w.expected_at > coalesce(d.last_seen_at, d.created_at)
    and w.expected_at < (select fn_now()) - %(tolerance)s * interval '1 second'
  where d.is_active
  group by d.device_id
)
insert into camera_states as c (device_id, company_id, state, since, missed_wakes)
select m.device_id, m.company_id, m.state, coalesce(m.first_at, fn_now()), m.wakes
from missed m
order by m.device_id
on conflict on constraint camera_states_pkey do update set
  state = excluded.state, missed_wakes = excluded.missed_wakes,
  since = case when c.state = excluded.state then c.since
    when excluded.state = 'online' then fn_now() else excluded.since end
where (c.state, c.missed_wakes) is distinct from (excluded.state, excluded.missed_wakes)
"""
_RAISE_SILENT = """
select fn_raise_alert(company_id => c.company_id, alert_type => 'device_silent',
  alert_date => (c.since at time zone coalesce(s.timezone, 'UTC'))::date,
  message => format('%s has missed %s wakes since %s', d.device_name, c.missed_wakes,
    to_char(c.since at time zone 'UTC', 'YYYY-MM-DD HH24:MI"Z"')),
  device_id => c.device_id, site_id => d.site_id)
from camera_states c
join devices d on d.device_id = c.device_id and d.is_active
left join sites s on s.site_id = d.site_id
where c.state = 'silent'
"""
_RESOLVE_SILENT = """
update device_alerts a set resolved_at = fn_now()
from camera_states c join devices d on d.device_id = c.device_id
where a.device_id = c.device_id and a.alert_type = 'device_silent' and a.resolved_at is null
  and (c.state = 'online' or not d.is_active)
"""


async def update_states(pool: db.Pool) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        limits = {"tolerance": TOLERANCE_S, "late_limit": MAX_MISSED}
        changed = await tx.execute(_UPDATE_STATES, limits)
        raised = await db.fetch_all(tx, _RAISE_SILENT)
        resolved = await tx.execute(_RESOLVE_SILENT)
        rows = await db.fetch_all(
            tx,
            "select c.state, count(*) from camera_states c join devices d using (device_id) "
            "where d.is_active group by 1",
        )
    for state, count in ({"online": 0, "late": 0, "silent": 0} | dict(rows)).items():
        STATES.labels(state=state).set(count)
    alerts = sum(bool(row[0]) for row in raised)
    return {"changes": changed.rowcount, "alerts": alerts, "resolved": resolved.rowcount}


# --- cameras that flood the broker: their logins are paused
#
# All cameras share one log: one that sends faster than we store delays all others. Nothing is lost:
# what is in the log is stored, and a camera with QoS 1 sends the rest later.

_LOCK_LOGIN = """
select fn_now(), l.device_id, l.paused_until, l.pauses
from camera_logins l join devices d on d.device_id = l.device_id
where d.mac = %s and d.is_active and l.revoked_at is null for update of l
"""
# At most one open alert per camera.
_RAISE_FLOOD = f"""
select fn_raise_alert(company_id => d.company_id, alert_type => 'device_flooding',
  alert_date => fn_now()::date, message => %(message)s, device_id => d.device_id,
  site_id => d.site_id)
from devices d where d.mac = %(mac)s and {registry.IN_CHARGE} and not exists (
  select from device_alerts a where a.device_id = d.device_id and a.resolved_at is null
    and a.alert_type = 'device_flooding')
"""  # noqa: S608 - no input
_RESOLVE_FLOODS = """
update device_alerts a set resolved_at = fn_now()
where a.alert_type = 'device_flooding' and a.resolved_at is null
  and a.created_at < (select fn_now()) - %(calm)s * interval '1 second' and not exists (
    select from camera_logins l where l.device_id = a.device_id
      and l.paused_until >= (select fn_now()) - %(calm)s * interval '1 second')
"""


def flood_guard(settings: CloudSettings, pool: db.Pool, load: Load) -> Guard:
    url = settings.camera_url.get_secret_value() if settings.camera_url else ""
    return Guard(
        load,
        Flow(settings.camera_per_second, settings.camera_burst),
        Flow(settings.camera_bytes_per_second, settings.camera_bytes_burst, "bytes"),
        ours=[unquote(urlsplit(url).username or "")],
        hold_back=partial(hold_back, pool, may_pause=settings.says_who_connects),
    )


async def hold_back(pool: db.Pool, mac: str, flow: Flow, *, may_pause: bool) -> float:
    """Pause this login; returns the seconds until its messages are counted again."""
    pause, wait_s = None, flood.MAX_PAUSE_S
    async with db.transaction(pool) as tx:
        if rows := await db.fetch_all(tx, _LOCK_LOGIN, mac) if may_pause else []:
            now, device_id, until_at, pauses = rows[0]
            if until_at is not None and until_at > now:
                # Another gateway has paused it.
                return flood.FIRST_PAUSE_S
            before = None if until_at is None else Pause(until_at, pauses)
            pause = flood.following(before, now=now)
            wait_s = (pause.until_at - now).total_seconds()
            await tx.execute(
                "update camera_logins set paused_until = %s, pauses = %s where device_id = %s",
                (pause.until_at, pause.in_a_row, device_id),
            )
            PAUSES.inc()
        else:
            # A login that many cameras share is not paused.
            SHARED.inc()
            log.get(NAME).warning("camera.flood", name=mac, reason="not paused")
        await tx.execute(_RAISE_FLOOD, {"mac": mac, "message": flood.describe(flow, pause)})
    return wait_s


async def resolve_floods(pool: db.Pool) -> dict[str, object]:
    """Resolve the alerts of cameras that have not flooded for a while."""
    async with db.transaction(pool) as tx:
        return {"calm": (await tx.execute(_RESOLVE_FLOODS, {"calm": flood.CALM_S})).rowcount}


# --- unknown cameras, rejections and a full store of the broker
#
# They belong to no company: a metric with an alert each, and few lines in the log.


class BrokerWatch:
    """Counts rejections of the broker and its callout, unknown cameras, and use of its store.

    Each sender and kind is logged once; rejected logins that are `paused` do not count.
    """

    def __init__(
        self,
        follower: Follower | None = None,
        *,
        callout: Callout | None = None,
        paused: Callable[[], Awaitable[Collection[str]]] | None = None,
    ) -> None:
        self._follower, self._callout, self._paused = follower, callout, paused
        self._senders: set[tuple[str, str]] = set()
        self._unknown, self._is_full = 0, False
        if follower is not None:
            follower.look()

    async def check_store(self, store: Store) -> dict[str, object]:
        use = store.use
        if use is None:
            return {}
        STORE_USE.set(use.share)
        if use.share >= broker_store.WARN_SHARE and not self._is_full:
            log.get(NAME).error("camera.broker_fills_up", reason=use.words())
            self._is_full = True
        elif use.share < broker_store.CALM_SHARE and self._is_full:
            log.get(NAME).info("camera.broker_has_room", reason=use.words())
            self._is_full = False
        return {}

    async def check_unknown(self, pool: db.Pool) -> dict[str, object]:
        """Log when the number has doubled: a thousand addresses are ten lines."""
        async with pool.connection() as connection:
            count = await registry.count_unknown(connection)
        UNKNOWN.set(count)
        if count and count >= 2 * self._unknown:
            log.get(NAME).warning("camera.unknown", count=count, reason="nobody registered them")
            self._unknown = count
        self._unknown = min(self._unknown, count)
        return {}

    async def check_rejections(self) -> dict[str, object]:
        lines, skipped = self._follower.look() if self._follower is not None else ([], 0)
        rejections = [entry for line in lines if (entry := broker_log.read(line))]
        if self._callout is not None:
            # A camera that replaces its own connection is not a rejection.
            rejections = [
                rejection
                for rejection in rejections
                if self._callout.believes(rejection)
                and not logins.has_mac(rejection.client_id or "")
            ] + _own_rejections(self._callout)
        if self._paused is not None and any(rejection.login for rejection in rejections):
            paused = await self._paused()
            rejections = [rejection for rejection in rejections if rejection.login not in paused]
        for rejection in rejections:
            BROKER_REJECTED.labels(kind=rejection.kind).inc()
            sender = (rejection.kind, rejection.sender)
            if sender not in self._senders and len(self._senders) < MAX_SENDERS:
                self._senders.add(sender)
                reason = f"{rejection.kind} by {rejection.sender}: {rejection.words}"
                log.get(NAME).warning("camera.broker_refused", reason=reason)
        if skipped:
            log.get(NAME).warning("camera.broker_log_skipped", count=skipped)
        return {"refusals": len(rejections), "skipped": skipped} if rejections or skipped else {}


def _own_rejections(callout: Callout) -> list[broker_log.Refusal]:
    return [
        broker_log.Refusal(
            own.kind,
            own.host if own.kind == broker_log.LOGIN else own.user,
            f"login {own.user!r} from {own.host}: {own.reason}",
            own.user,
        )
        for own in callout.rejections().elements()
    ]
