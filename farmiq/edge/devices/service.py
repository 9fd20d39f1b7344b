"""Devices: the registry kept true at the broker, how devices are, what they are told to do.

devices, device_state, device_commands <--> [devices] --users, SIGHUP, mqtt iot/command/…--> broker

What devices say is recorded by ingress inside its one transaction (C-81). Here is what time does:
silence makes a device late and offline, a command is sent until it is answered or over.
"""

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
import msgspec
import prometheus_client

from farmiq.config import EdgeSettings
from farmiq.config.settings import secret
from farmiq.edge import alerts, outbox
from farmiq.edge import broker as broker_streams
from farmiq.edge.daily import daily_job, purge_all
from farmiq.edge.devices import api, desk, floods, liveness, record, refusals, store
from farmiq.edge.devices import broker as broker_users
from farmiq.messages import device as words
from farmiq.messages.envelope import SCHEMA_VERSION, Envelope
from farmiq.plumbing import broker_log, db, http, ids, log, mqtt, schedule
from farmiq.plumbing.broker_callout import Callout
from farmiq.plumbing.broker_load import Guard, Load
from farmiq.plumbing.broker_store import Store
from farmiq.plumbing.broker_users import Users
from farmiq.plumbing.clock import AgeGuard
from farmiq.plumbing.flood import Flow
from farmiq.plumbing.follow import Follower

NAME = "edge-devices-registry"

# A device that was away when a command came, and keeps no session, gets it with a later try.
COMMAND_AGAIN_S = 10.0
MAX_COMMANDS = 100
MAX_REVOCATIONS = 500
# The broker's log may tell a little late whom it refused.
LOG_LATE_S = 10.0

STATES = prometheus_client.Gauge(
    "farmiq_devices_by_state", "Registered devices that were heard, by how they are", ["state"]
)
REFUSED = prometheus_client.Counter(
    "farmiq_devices_broker_refusals_total", "What the broker's log says it refused", ["kind"]
)


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME) as pool,
        mqtt.connected(
            settings.mqtt_url.get_secret_value(),
            client_id=f"{NAME}-{ids.new().hex[-12:]}",
            keep_session=False,
            tls=settings.tls,
        ) as broker,
        httpx2.AsyncClient(trust_env=False) as web,
        asyncio.TaskGroup() as group,
    ):
        server.ready("devices.database", lambda: db.problem(pool))
        server.ready("devices.broker", broker.problem)
        api.Api(pool).add_to(server.app)
        todo = [
            schedule.Job("devices.liveness", settings.devices_round_s, partial(look_round, pool)),
            schedule.Job(
                "devices.revocations", settings.devices_round_s, partial(tell_revocations, pool)
            ),
            schedule.Job("devices.commands", 0.2, partial(send_commands, pool, broker)),
            schedule.Job(
                "devices.forget_commands",
                3600.0,
                AgeGuard(pool, "devices.forget_commands").keep(
                    partial(forget_commands, pool, days=settings.command_days)
                ),
            ),
            daily_job(
                pool,
                settings,
                "devices.retention",
                partial(forget_states, pool, days=settings.device_state_days),
            ),
        ]
        if settings.broker_users_file is not None:
            users = broker_users.users(
                pool,
                settings.broker_users_file,
                own=settings.broker_own_users.split(","),
                pid_file=settings.broker_pid_file,
            )
            server.ready("devices.users", lambda: users.problem)
            todo.append(schedule.Job("devices.users", 0.5, partial(_keep_users, users)))
        kept = broker_streams.store(settings, web)
        asked = broker_users.callout(pool, settings, web)
        if asked is not None:
            server.ready("devices.callout", lambda: asked.problem)
            group.create_task(_answer(asked, kept if broker_streams.log_url(settings) else None))
            group.create_task(asked.end_sessions())
            todo.append(schedule.Job("devices.logins", 0.5, asked.keep))
            tell = partial(tell_of_refusals, pool, asked)
            todo.append(schedule.Job("devices.client_ids", 1.0, tell))
        if settings.broker_monitor_url is not None:
            load = Load(web, settings.broker_monitor_url)
            server.note("devices.load", lambda: load.problem)
            todo.append(schedule.Job("devices.floods", 0.5, guard_of(settings, pool, load).look))
            todo.append(schedule.Job("devices.calm", 30.0, partial(floods.calm, pool)))
        if kept is not None:
            server.note("devices.store", lambda: kept.problem)
            todo.append(schedule.Job("devices.store", 2.0, kept.look))
            use = partial(broker_users.tell_of_store, pool, kept)
            todo.append(schedule.Job("devices.store_use", 10.0, use))
        if settings.broker_log_file is not None:
            follower = Follower(settings.broker_log_file)
            follower.look()
            todo.append(
                schedule.Job("devices.refusals", 1.0, partial(watch, pool, follower, asked))
            )
        for job in todo:
            group.create_task(schedule.run_repeatedly(job))


async def _answer(asked: Callout, kept: Store | None) -> None:
    """Let devices in, after there is a log for what they send: else nobody would hold it."""
    if kept is not None:
        await kept.is_bounded.wait()
    await asked.answer()


def guard_of(settings: EdgeSettings, pool: db.Pool, load: Load) -> Guard:
    flow = Flow(settings.device_per_second, settings.device_burst)
    flow_bytes = Flow(settings.device_bytes_per_second, settings.device_bytes_burst, "bytes")
    pauser = floods.Pauser(pool, writes_users=settings.says_who_connects)
    urls = (settings.mqtt_url.get_secret_value(), secret(settings.ingress_url) or "")
    ours = [unquote(urlsplit(url).username or "") for url in urls]
    return Guard(load, flow, flow_bytes, ours=ours, hold_back=pauser.hold_back)


async def look_round(pool: db.Pool) -> dict[str, object]:
    """Who fell silent, who is back. Changes are written and owed to the cloud in one transaction.

    Whoever is heard between the look and the write, or is being written by ingress, is left for
    the next round: the two must not wait for each other.
    """
    async with db.transaction(pool) as tx:
        now, found = await store.all_lives(tx)
        passed = [
            (device, before, after)
            for device, before in found
            if (after := liveness.passed(before, heartbeat_s=device.heartbeat_s, now=now)) != before
        ]
        ours = await store.lock_free(tx, [device.key for device, _, _ in passed])
        changes = 0
        for device, before, after in passed:
            if device.key not in ours:
                continue
            if not await store.keep_passed(tx, device.key, before, after):
                continue
            changes += 1
            if after.told_state is not None and after.told_state != before.told_state:
                event = record.status_event(
                    device, after.told_state, last_seen_at=before.last_seen_at, now=now
                )
                await outbox.append(tx, [event])
    _count_states([life.state for _, life in found])
    return {"changes": changes}


async def tell_revocations(pool: db.Pool) -> dict[str, object]:
    """Owe the cloud an event of every device that was revoked, or registered again.

    However it was done, and also what was done before the cloud was told of it.
    """
    async with db.transaction(pool) as tx:
        now: datetime = await db.fetch_value(tx, "select fn_now()")
        found = await store.revocations_to_tell(tx, limit=MAX_REVOCATIONS)
        events = [
            record.status_event(
                each.device, "offline", last_seen_at=each.last_seen_at, now=now,
                revoked=each.revoked,
            )
            for each in found
        ]  # fmt: skip
        if events:
            await outbox.append(tx, events)
    return {"changes": len(found)}


async def send_commands(pool: db.Pool, broker: mqtt.Client) -> dict[str, object]:
    """Send what is due, in order; a crash in between sends it again under the same command_id."""
    async with db.transaction(pool) as tx:
        expired = await store.expire_commands(tx)
    if broker.problem() is not None:
        return {"expired": expired}
    sent = 0
    while sent < MAX_COMMANDS and await _send_one(pool, broker):
        sent += 1
    return {"sent": sent, "expired": expired}


async def _send_one(pool: db.Pool, broker: mqtt.Client) -> bool:
    """No lock is held while the broker has the word: an answer may come before we note the sending.

    Whoever dies in between leaves a command that was tried, and is tried again after its pause.
    """
    async with db.transaction(pool) as tx:
        row = await store.command_to_send(tx, again_s=COMMAND_AGAIN_S)
    if row is None:
        return False
    try:
        await broker.publish(desk.command_address(row), command_message(row))
    except mqtt.Disconnected as error:
        log.get(NAME).warning("devices.command_not_sent", reason=str(error))
        async with db.transaction(pool) as tx:
            await store.forget_try(tx, row["command_id"])
        return False
    async with db.transaction(pool) as tx:
        await store.mark_sent(tx, row["command_id"])
    return True


def command_message(row: dict[str, Any]) -> bytes:
    payload = words.DeviceCommand(
        command_id=str(row["command_id"]), args=row["args"], expires_at=row["expires_at"]
    )
    return msgspec.json.encode(
        Envelope(
            schema_version=SCHEMA_VERSION,
            event_id=ids.new(),
            trace_id=str(row["command_id"]),
            tenant_id=row["tenant_id"],
            device_id=row["device_id"],
            event_type=words.COMMAND,
            ts=datetime.now(UTC),
            payload=msgspec.Raw(msgspec.json.encode(payload)),
        )
    )


async def forget_commands(pool: db.Pool, *, days: int) -> dict[str, object]:
    async with db.transaction(pool) as tx:
        return {"forgotten": await store.forget_commands(tx, days=days)}


async def forget_states(pool: db.Pool, *, days: float) -> dict[str, object]:
    """How devices were that are gone for good."""
    return {"count": await purge_all(pool, store.forget_states, days=days)}


async def watch(
    pool: db.Pool, follower: Follower, asked: Callout | None = None
) -> dict[str, object]:
    """What the broker refused becomes a security alert (C-107), unless we told it to."""
    lines, skipped = follower.look()
    found = [refusal for line in lines if (refusal := broker_log.read(line))]
    if asked is not None:
        found = [one for one in found if asked.believes(one)]
    return await _tell(pool, found, skipped=skipped, own_ids=asked is not None)


async def tell_of_refusals(pool: db.Pool, asked: Callout) -> dict[str, object]:
    """Whom we refused when the broker asked; a login that is none is told of by its address."""
    found = [
        broker_log.Refusal(one.kind, one.host, f"login {one.user!r}: {one.reason}", one.user)
        if one.kind == broker_log.LOGIN
        else broker_log.Refusal(one.kind, one.user, f"it came from {one.host}, and {one.reason}")
        for one in asked.refusals().elements()
    ]
    return await _tell(pool, found) if found else {}


async def _tell(
    pool: db.Pool, found: list[broker_log.Refusal], *, skipped: int = 0, own_ids: bool = False
) -> dict[str, object]:
    if any(one.login for one in found):
        async with db.transaction(pool) as tx:
            paused = await store.paused_logins(tx, late_s=LOG_LATE_S)
        found = [one for one in found if one.login not in paused]
    for one in found:
        REFUSED.labels(kind=one.kind).inc()
    raised = refusals.alerts(found, own_ids=own_ids)
    if skipped:
        told = f"the broker's log grows faster than it is read; {skipped} bytes were skipped"
        raised[alerts.Alert("broker.log_skipped", "broker", "security", told)] = 1
    if raised:
        async with db.transaction(pool) as tx:
            await alerts.raise_all(tx, raised)
    return {"refusals": len(found), "skipped": skipped}


async def _keep_users(users: Users) -> dict[str, object]:
    before = users.problem
    done = await users.keep()
    if users.problem is not None and users.problem != before:
        log.get(NAME).error("devices.users_not_kept", error=users.problem)
    return {} if "problem" in done else done


def _count_states(states: list[liveness.State]) -> None:
    for state in ("online", "late", "offline", "error"):
        STATES.labels(state=state).set(states.count(state))
