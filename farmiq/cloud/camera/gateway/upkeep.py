"""Chores of the gateway: how cameras are, commands, the broker's users, what is old."""

from collections.abc import Callable
from functools import partial
from urllib.parse import unquote, urlsplit

from farmiq import nats_users
from farmiq.cloud.camera.gateway import commands, dialects, floods, liveness, logins, watch
from farmiq.cloud.camera.gateway.answers import LogPosition
from farmiq.config import CloudSettings
from farmiq.plumbing import chores, db, http, log, nats, stream
from farmiq.plumbing.broker_callout import Callout
from farmiq.plumbing.broker_load import Guard, Load
from farmiq.plumbing.broker_store import Store
from farmiq.plumbing.broker_users import Users
from farmiq.plumbing.chores import Chore
from farmiq.plumbing.clock import NO_AGE_DAYS, AgeGuard
from farmiq.plumbing.flood import LONGEST_PAUSE_S, Flow
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
        Chore("camera.liveness", settings.camera_round_s, partial(liveness.look_round, pool)),
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
        Chore("camera.unknown", settings.camera_round_s, partial(watch.Strangers().look, pool)),
    ]
    if settings.broker_log_file is not None or asked is not None:
        refusals = watch.Refusals(
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
        todo.append(Chore("camera.calm", 30.0, partial(floods.calm, pool)))
    if store is not None:
        door.note("camera.store", lambda: store.problem)
        todo.append(Chore("camera.store", 2.0, store.look))
        todo.append(Chore("camera.store_use", 10.0, watch.StoreUse(store).look))
    todo = [Chore(chore.name, chore.every_s, partial(_in_turn, is_active, chore)) for chore in todo]
    if asked is not None:
        # Of two gateways both answer the broker.
        todo.append(Chore("camera.logins", 1.0, asked.keep))
    return todo


def guard_of(settings: CloudSettings, pool: db.Pool, load: Load) -> Guard:
    url = settings.camera_url.get_secret_value() if settings.camera_url else ""
    flow = Flow(settings.camera_per_second, settings.camera_burst)
    flow_bytes = Flow(settings.camera_bytes_per_second, settings.camera_bytes_burst, "bytes")
    pauser = floods.Pauser(pool, writes_users=settings.says_who_connects)
    ours = unquote(urlsplit(url).username or "")
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
            (2 * LONGEST_PAUSE_S,),
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
            if not sent:
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
                command = await commands.next_to_send(tx, awake_s=awake_s)
            sent += 1
    except (stream.LostError, nats.NatsError) as error:
        log.get(NAME).warning("camera.command_not_sent", reason=str(error))
    return {"sent": sent}
