"""Periodic jobs: how cameras are, commands, floods, the broker's users and store, retention.

Of two gateways the active one does them.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote, urlsplit

import prometheus_client

from farmiq import nats_users
from farmiq.cloud.camera import claims, strangers
from farmiq.cloud.camera.gateway import commands, dialects, logins
from farmiq.cloud.camera.gateway.answers import LogPosition
from farmiq.config import CloudSettings
from farmiq.plumbing import broker_log, broker_store, chores, db, flood, http, log, nats, stream
from farmiq.plumbing.broker_callout import Callout
from farmiq.plumbing.broker_load import Guard, Load
from farmiq.plumbing.broker_store import Store
from farmiq.plumbing.broker_users import Users
from farmiq.plumbing.chores import Chore
from farmiq.plumbing.clock import NO_AGE_DAYS, AgeGuard
from farmiq.plumbing.flood import Flow, Pause
from farmiq.plumbing.follow import Follower

NAME = "cloud-camera-gateway"
MOST_COMMANDS = 100
MOST_QUARANTINED = 1000
# Of cameras that nobody registered, all together: whoever invents addresses invents many.
MOST_UNKNOWN = 10_000

_FORGET = (
    """
    delete from camera_transfers where due_at is null
      and ended_at < (select fn_now()) - %(days)s * interval '1 day'
    """,
    """
    delete from camera_commands where state in ('done', 'failed', 'expired')
      and ended_at < (select fn_now()) - %(days)s * interval '1 day'
    """,
    """
    delete from camera_quarantine
    where last_received_at < (select fn_now()) - %(days)s * interval '1 day'
    """,
    """
    delete from camera_quarantine where quarantine_id in (
      select o.quarantine_id from (
        select quarantine_id, row_number() over (
          partition by mac order by last_received_at desc, quarantine_id) as place
        from camera_quarantine) o
      where o.place > %(most)s)
    """,
    """
    delete from camera_quarantine where quarantine_id in (
      select quarantine_id from camera_quarantine where device_id is null
      order by last_received_at desc, quarantine_id offset %(unknown)s)
    """,
)


def chores_of(
    pool: db.Pool,
    settings: CloudSettings,
    door: http.Door,
    *,
    load: Load | None,
    store: Store | None,
    asked: Callout | None,
    is_active: Callable[[], bool],
) -> list[Chore]:
    """Those that need no MQTT; of two gateways the one whose turn it is does them."""
    todo = [
        Chore("camera.liveness", settings.camera_round_s, partial(look_round, pool)),
        Chore(
            "camera.forget",
            300.0,
            AgeGuard(pool, "camera.forget").keep(
                partial(forget, pool, days=settings.camera_days),
                otherwise=partial(forget, pool, days=NO_AGE_DAYS),
            ),
        ),
        Chore(
            "camera.clock", 30.0, partial(set_right, pool, longest_s=2 * settings.camera_timeout_s)
        ),
        Chore("camera.unknown", settings.camera_round_s, partial(Strangers().look, pool)),
    ]
    if settings.broker_log_file is not None or asked is not None:
        refusals = Refusals(
            Follower(settings.broker_log_file) if settings.broker_log_file else None,
            asked=asked,
            paused=partial(logins.paused, pool),
        )
        todo.append(Chore("camera.refusals", 1.0, refusals.look))
    if settings.broker_users_file is not None:
        users = logins.users(
            pool,
            settings.broker_users_file,
            own=settings.broker_own_users.split(","),
            pid_file=settings.broker_pid_file,
        )
        door.ready("camera.users", lambda: users.problem if is_active() else None)
        todo.append(Chore("camera.users", 1.0, partial(_keep_users, users)))
    if asked is not None:
        door.ready("camera.callout", lambda: asked.problem)
    if load is not None:
        door.note("camera.load", lambda: load.problem)
        todo.append(Chore("camera.floods", 0.5, guard_of(settings, pool, load).look))
        todo.append(Chore("camera.calm", 30.0, partial(calm, pool)))
    if store is not None:
        door.note("camera.store", lambda: store.problem)
        todo.append(Chore("camera.store", 2.0, store.look))
        todo.append(Chore("camera.store_use", 10.0, StoreUse(store).look))
    todo = [Chore(chore.name, chore.every_s, partial(_in_turn, is_active, chore)) for chore in todo]
    if asked is not None:
        # Of two gateways both answer the broker.
        todo.append(Chore("camera.logins", 1.0, asked.keep))
    return todo


def guard_of(settings: CloudSettings, pool: db.Pool, load: Load) -> Guard:
    url = settings.camera_url.get_secret_value() if settings.camera_url else ""
    flow = Flow(settings.camera_per_second, settings.camera_burst)
    flow_bytes = Flow(settings.camera_bytes_per_second, settings.camera_bytes_burst, "bytes")
    pauser = Pauser(pool, writes_users=settings.says_who_connects)
    ours = [unquote(urlsplit(url).username or "")]
    return Guard(load, flow, flow_bytes, ours=ours, hold_back=pauser.hold_back)


async def _in_turn(is_active: Callable[[], bool], chore: Chore) -> dict[str, object]:
    return await chore.do() if is_active() else {}


async def _keep_users(users: Users) -> dict[str, object]:
    before = users.problem
    done = await users.keep()
    if users.problem is not None and users.problem != before:
        log.get(NAME).error("camera.users_not_kept", error=users.problem)
    return {} if "problem" in done else done


async def forget(pool: db.Pool, *, days: float) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        most = {"days": days, "most": MOST_QUARANTINED, "unknown": MOST_UNKNOWN}
        done = [await tx.execute(each, most) for each in _FORGET]
    return {"count": sum(each.rowcount for each in done)}


async def set_right(pool: db.Pool, *, longest_s: float) -> dict[str, object]:
    """Steps and pauses put off by a clock that was ahead and has been set back are due now."""
    async with db.transaction(pool) as tx:
        steps = await tx.execute(
            """
            update camera_transfers set due_at = fn_now()
            where state in ('receiving', 'complete')
              and due_at > (select fn_now()) + %s * interval '1 second'
            """,
            (longest_s,),
        )
        pauses = await tx.execute(
            """
            update camera_logins set paused_until = fn_now()
            where paused_until > (select fn_now()) + %s * interval '1 second'
            """,
            (2 * flood.LONGEST_PAUSE_S,),
        )
    return {"count": steps.rowcount + pauses.rowcount}


async def want_commands(pool: db.Pool, *, awake_s: float) -> dict[str, object]:
    """Commands that nobody could be told in time end, and what people asked for is queued."""
    async with db.transaction(pool) as tx:
        expired = await commands.expire(tx)
        queued = await commands.wanted_meanwhile(tx, awake_s=awake_s)
    return {"expired": expired, "queued": queued}


def sending(
    pool: db.Pool, reader: stream.Reader, position: LogPosition, *, awake_s: float
) -> Chore:
    do = partial(send_commands, pool, reader, position, awake_s=awake_s)
    return chores.Chore("camera.commands", 0.25, do)


async def send_commands(
    pool: db.Pool, reader: stream.Reader, position: LogPosition, *, awake_s: float
) -> dict[str, object]:
    """Tell cameras that are awake; who dies between sending and noting sends it again."""
    async with db.autocommit(pool) as tx:
        command = await commands.next_to_send(tx, awake_s=awake_s)
    sent = 0
    try:
        while command is not None and sent < MOST_COMMANDS and reader.problem() is None:
            # Perhaps the camera has said meanwhile that there is no need.
            mark = await position.catch_up()
            async with db.transaction(pool) as tx:
                command = await commands.next_to_send(tx, awake_s=awake_s)
            if command is None or not position.holds(mark):
                break
            made = dialects.ANSWER[command.dialect](command.spelling, command.told)
            if made is not None:
                reader.publish(nats_users.subject(made[0]), made[1])
            async with db.transaction(pool) as tx:
                await commands.mark(tx, command.command_id, unanswerable=made is None)
            sent += 1
    except (stream.LostError, nats.NatsError) as error:
        log.get(NAME).warning("camera.command_not_sent", reason=str(error))
    return {"sent": sent}


# --- how cameras are, from the wakes that were expected of them (peers 19)
#
# A camera sleeps between its wakes, so silence means nothing until a wake is missed: late after
# one, silent after more than two. Asked by a timer, or nobody would hear of one that says nothing.

# A wake may come so late and still count for its window (C-63).
TOLERANCE_S = 3600.0
MOST_MISSED = 2

STATES = prometheus_client.Gauge(
    "farmiq_cameras_by_state", "Cameras that are in use and expected to wake", ["state"]
)

_LOOK_ROUND = """
with missed as (
  select d.device_id, d.company_id, d.site_id, d.device_name, count(w.expected_at) as wakes,
    min(w.expected_at) as first_at
  from devices d
  left join expected_wakes w on w.device_id = d.device_id
    and w.expected_at > coalesce(d.last_seen_at, d.created_at)
    and w.expected_at < (select fn_now()) - %(tolerance)s * interval '1 second'
  where d.is_active
  group by d.device_id
), judged as (
  select m.*, case when m.wakes = 0 then 'online' when m.wakes <= %(most)s then 'late'
    else 'silent' end as state
  from missed m
)
insert into camera_states as c (device_id, company_id, state, since, missed_wakes)
select j.device_id, j.company_id, j.state, coalesce(j.first_at, fn_now()), j.wakes
from judged j
order by j.device_id
on conflict on constraint camera_states_pkey do update set
  state = excluded.state, missed_wakes = excluded.missed_wakes,
  since = case when c.state = excluded.state then c.since
    when excluded.state = 'online' then fn_now() else excluded.since end
where (c.state, c.missed_wakes) is distinct from (excluded.state, excluded.missed_wakes)
"""
_TELL_SILENT = """
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


async def look_round(pool: db.Pool) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        changed = await tx.execute(_LOOK_ROUND, {"tolerance": TOLERANCE_S, "most": MOST_MISSED})
        raised = await db.fetch_all(tx, _TELL_SILENT)
        resolved = await tx.execute(_RESOLVE_SILENT)
        counted = await db.fetch_all(
            tx,
            "select c.state, count(*) from camera_states c join devices d using (device_id) "
            "where d.is_active group by 1",
        )
    found = {row[0]: row[1] for row in counted}
    for state in ("online", "late", "silent"):
        STATES.labels(state=state).set(found.get(state, 0))
    return {
        "changes": changed.rowcount,
        "alerts": sum(bool(row[0]) for row in raised),
        "resolved": resolved.rowcount,
    }


# --- cameras that flood their broker: their logins are paused there for a while
#
# The log has one order for all: one camera that sends faster than we take makes all others wait.
# Nothing is dropped: what is in the log is taken, and who speaks QoS 1 sends the rest later.

PAUSES = prometheus_client.Counter(
    "farmiq_camera_pauses_total", "Times that a camera's login was paused because it flooded"
)
SHARED = prometheus_client.Counter(
    "farmiq_camera_floods_not_paused_total", "Times that a login flooded and could not be paused"
)

# One open per camera, whatever the day.
_TELL_FLOOD = f"""
select fn_raise_alert(company_id => d.company_id, alert_type => 'device_flooding',
  alert_date => fn_now()::date, message => %(message)s, device_id => d.device_id,
  site_id => d.site_id)
from devices d where d.mac = %(mac)s and {claims.IN_CHARGE} and not exists (
  select from device_alerts a where a.device_id = d.device_id and a.resolved_at is null
    and a.alert_type = 'device_flooding')
"""  # noqa: S608 - the text is ours
_CALM_FLOOD = """
update device_alerts a set resolved_at = fn_now()
where a.alert_type = 'device_flooding' and a.resolved_at is null
  and a.created_at < (select fn_now()) - %(calm)s * interval '1 second' and not exists (
    select from camera_logins l where l.device_id = a.device_id
      and l.paused_until >= (select fn_now()) - %(calm)s * interval '1 second')
"""


@dataclass(frozen=True)
class Pauser:
    """`writes_users`: whether we say who may connect."""

    pool: db.Pool
    writes_users: bool

    async def hold_back(self, user: str, flow: Flow) -> float:
        """Pause this login if that can be done; how long it is before it is counted again."""
        async with db.transaction(self.pool) as tx:
            return await self._hold_back(tx, user, flow)

    async def _hold_back(self, tx: db.Connection, user: str, flow: Flow) -> float:
        found = await logins.last_pause(tx, user) if self.writes_users else None
        if found is None:
            # A login that many cameras share is paused for none of them.
            SHARED.inc()
            log.get(NAME).warning("camera.flood", name=user, reason="not paused")
            await _tell_flood(tx, user, flow, None)
            return flood.LONGEST_PAUSE_S
        now, before = found
        pause = flood.following(before, now=now)
        if not await logins.pause(tx, user, pause):
            return flood.FIRST_PAUSE_S
        PAUSES.inc()
        await _tell_flood(tx, user, flow, pause)
        return (pause.until_at - now).total_seconds()


async def _tell_flood(tx: db.Connection, mac: str, flow: Flow, pause: Pause | None) -> None:
    await tx.execute(_TELL_FLOOD, {"mac": mac, "message": flood.told(flow, pause)})


async def calm(pool: db.Pool) -> dict[str, object]:
    """Nobody need look any more at whoever has been calm for a while."""
    async with db.transaction(pool) as tx:
        return {"calm": (await tx.execute(_CALM_FLOOD, {"calm": flood.CALM_S})).rowcount}


# --- what no company can be told of: cameras nobody registered, what the broker refused
#
# For who runs the platform: a metric with one alert each, and few lines in the log, however many
# addresses somebody invents.

MOST_SENDERS = 200

UNKNOWN = prometheus_client.Gauge(
    "farmiq_cameras_unknown", "Cameras heard within a day that nobody registered"
)
BROKER_REFUSED = prometheus_client.Counter(
    "farmiq_camera_broker_refusals_total", "What the cameras' broker says it refused", ["kind"]
)


STORE_USE = prometheus_client.Gauge(
    "farmiq_camera_broker_store_ratio", "How full the store of the cameras' broker is, 0 to 1"
)


class StoreUse:
    """Says so once when the broker fills up, and once when that is over."""

    def __init__(self, store: Store) -> None:
        self._store, self._told = store, False

    async def look(self) -> dict[str, object]:
        use = self._store.use
        if use is None:
            return {}
        STORE_USE.set(use.share)
        if use.share >= broker_store.WARN_SHARE and not self._told:
            log.get(NAME).error("camera.broker_fills_up", reason=use.words())
            self._told = True
        elif use.share < broker_store.CALM_SHARE and self._told:
            log.get(NAME).info("camera.broker_has_room", reason=use.words())
            self._told = False
        return {}


class Strangers:
    """Says so when there are twice as many as it said last: a thousand addresses are ten lines."""

    def __init__(self) -> None:
        self._told = 0

    async def look(self, pool: db.Pool) -> dict[str, object]:
        async with pool.connection() as connection:
            count = await strangers.count(connection)
        UNKNOWN.set(count)
        if count and count >= 2 * self._told:
            log.get(NAME).warning("camera.unknown", count=count, reason="nobody registered them")
            self._told = count
        self._told = min(self._told, count)
        return {}


class Refusals:
    """Of the broker's log and of our own: each sender and kind of refusal is a line, once.

    Logins that are `paused` are refused because we said so.
    """

    def __init__(
        self,
        follower: Follower | None,
        *,
        asked: Callout | None = None,
        paused: Callable[[], Awaitable[Collection[str]]] | None = None,
    ) -> None:
        self._follower, self._asked, self._paused = follower, asked, paused
        self._told: set[tuple[str, str]] = set()
        if follower is not None:
            follower.look()

    async def look(self) -> dict[str, object]:
        lines, skipped = self._follower.look() if self._follower is not None else ([], 0)
        found = [refusal for line in lines if (refusal := broker_log.read(line))]
        if self._asked is not None:
            # A camera that takes its own place was cut off, no more.
            found = [
                one
                for one in found
                if self._asked.believes(one) and not logins.is_proven(one.client_id or "")
            ]
            found += [
                broker_log.Refusal(
                    one.kind,
                    one.host if one.kind == broker_log.LOGIN else one.user,
                    f"login {one.user!r} from {one.host}: {one.reason}",
                    one.user,
                )
                for one in self._asked.refusals().elements()
            ]
        if self._paused is not None and any(one.login for one in found):
            paused = await self._paused()
            found = [one for one in found if one.login not in paused]
        for one in found:
            BROKER_REFUSED.labels(kind=one.kind).inc()
            matter = (one.kind, one.sender)
            if matter not in self._told and len(self._told) < MOST_SENDERS:
                self._told.add(matter)
                told = f"{one.kind} by {one.sender}: {one.words}"
                log.get(NAME).warning("camera.broker_refused", reason=told)
        if skipped:
            log.get(NAME).warning("camera.broker_log_skipped", count=skipped)
        return {"refusals": len(found), "skipped": skipped} if found or skipped else {}
