"""Devices: brings the registry to the broker, follows the state of devices, sends commands.

devices, device_state, device_commands <--> [devices] --users, SIGHUP, mqtt iot/command/…--> broker

Ingress stores what devices send (C-81). Here are the jobs: a silent device becomes late and
offline, a command is sent until it is answered or expires.
"""

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
import msgspec
from prometheus_client import Counter, Gauge

from farmiq.config import EdgeSettings
from farmiq.config.settings import secret
from farmiq.edge import alerts, outbox
from farmiq.edge import broker as broker_streams
from farmiq.edge.daily import daily_job
from farmiq.edge.devices import api, handlers, registration, rules, store
from farmiq.edge.devices import broker as device_broker
from farmiq.messages import device as messages
from farmiq.messages.envelope import SCHEMA_VERSION, Envelope
from farmiq.messages.wording import worded
from farmiq.plumbing import db, http, ids, log, retention
from farmiq.plumbing.broker import log as broker_log
from farmiq.plumbing.broker.callout import Callout
from farmiq.plumbing.broker.flood import Flow
from farmiq.plumbing.broker.follow import Follower
from farmiq.plumbing.broker.load import Guard, Load
from farmiq.plumbing.broker.store import Store
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.retention import Retention
from farmiq.plumbing.runtime import schedule
from farmiq.plumbing.runtime.clock import AgeGuard

NAME = "edge-devices-registry"

# A device without a session that was offline gets a command with a later try.
COMMAND_AGAIN_S = 10.0
MAX_COMMANDS = 100
MAX_REVOCATIONS = 500
# The broker's log may be a little late.
LOG_LATE_S = 10.0

STATES = Gauge(
    "farmiq_devices_by_state", "Registered devices that were heard, by how they are", ["state"]
)
REJECTED = Counter(
    "farmiq_devices_broker_refusals_total", "What the broker's log says it refused", ["kind"]
)


async def run(settings: EdgeSettings, server: http.HttpServer) -> None:
    async with (
        db.pool(settings.db_url.get_secret_value(), name=NAME) as pool,
        mqtt.connected(
            settings.mqtt_url.get_secret_value(),
            client_id=f"{NAME}-{ids.new().hex[-12:]}",
            persistent_session=False,
            tls=settings.tls,
        ) as broker,
        httpx2.AsyncClient(trust_env=False, verify=settings.tls.client()) as web,
        asyncio.TaskGroup() as group,
    ):
        server.ready("devices.database", lambda: db.problem(pool))
        server.ready("devices.broker", broker.problem)
        api.Api(pool).add_to(server.app)
        jobs = [
            schedule.Job(
                "devices.liveness", settings.devices_round_s, partial(check_liveness, pool)
            ),
            schedule.Job(
                "devices.revocations", settings.devices_round_s, partial(send_revocations, pool)
            ),
            schedule.Job("devices.commands", 0.2, partial(send_commands, pool, broker)),
            schedule.Job(
                "devices.forget_commands",
                3600.0,
                AgeGuard(pool, "devices.forget_commands").guard(
                    partial(purge_commands, pool, days=settings.command_days)
                ),
            ),
            daily_job(
                pool,
                settings,
                "devices.retention",
                partial(purge_states, pool, days=settings.device_state_days),
            ),
        ]
        if settings.broker_users_file is not None:
            users = device_broker.users(
                pool,
                settings.broker_users_file,
                own=settings.broker_own_users.split(","),
                pid_file=settings.broker_pid_file,
            )
            server.ready("devices.users", lambda: users.problem)
            jobs.append(schedule.Job("devices.users", 0.5, users.refresh))
        streams = broker_streams.store(settings, pool, web)
        callout = device_broker.callout(pool, settings, web)
        if callout is not None:
            server.ready("devices.callout", lambda: callout.problem)
            group.create_task(
                _answer(callout, streams if broker_streams.log_url(settings) else None)
            )
            group.create_task(callout.end_sessions())
            jobs.append(schedule.Job("devices.logins", 0.5, callout.refresh))
            check_callout = partial(alert_rejections, pool, callout)
            jobs.append(schedule.Job("devices.client_ids", 1.0, check_callout))
        if settings.broker_monitor_url is not None:
            load = Load(web, settings.broker_monitor_url)
            server.note("devices.load", lambda: load.problem)
            jobs.append(schedule.Job("devices.floods", 0.5, guard_of(settings, pool, load).look))
            jobs.append(
                schedule.Job("devices.calm", 30.0, partial(device_broker.close_flood_alerts, pool))
            )
        if streams is not None:
            server.note("devices.store", lambda: streams.problem)
            jobs.append(schedule.Job("devices.store", 2.0, streams.look))
            check_store = partial(device_broker.check_store, pool, streams)
            jobs.append(schedule.Job("devices.store_use", 10.0, check_store))
        if settings.broker_log_file is not None:
            follower = Follower(settings.broker_log_file)
            follower.look()
            jobs.append(
                schedule.Job("devices.refusals", 1.0, partial(watch_log, pool, follower, callout))
            )
        for job in jobs:
            group.create_task(schedule.run_repeatedly(job))


async def _answer(callout: Callout, streams: Store | None) -> None:
    """Accept devices only after there is a log: what they send would be lost."""
    if streams is not None:
        await streams.is_bounded.wait()
    await callout.answer()


def guard_of(settings: EdgeSettings, pool: db.Pool, load: Load) -> Guard:
    flow = Flow(settings.device_per_second, settings.device_burst)
    flow_bytes = Flow(settings.device_bytes_per_second, settings.device_bytes_burst, "bytes")
    pauser = device_broker.FloodPauser(pool, writes_users=settings.says_who_connects)
    urls = (settings.mqtt_url.get_secret_value(), secret(settings.ingress_url) or "")
    ours = [unquote(urlsplit(url).username or "") for url in urls]
    return Guard(load, flow, flow_bytes, ours=ours, hold_back=pauser.pause)


async def check_liveness(pool: db.Pool) -> dict[str, object]:
    """Update devices that are silent or back, with events to the cloud, in one transaction.

    Devices that ingress updates at the same time are left for the next round: the two must not
    wait for each other.
    """
    async with db.transaction(pool) as tx:
        now, devices = await store.all_liveness(tx)
        silent = [
            (device, before, after)
            for device, before in devices
            if (after := rules.after_silence(before, heartbeat_s=device.heartbeat_s, now=now))
            != before
        ]
        ours = await store.lock_free(tx, [device.key for device, _, _ in silent])
        changes = 0
        for device, before, after in silent:
            if device.key not in ours:
                continue
            if not await store.store_silence(tx, device.key, before, after):
                continue
            changes += 1
            if after.told_state is not None and after.told_state != before.told_state:
                event = handlers.status_event(
                    device, after.told_state, last_seen_at=before.last_seen_at, now=now
                )
                await outbox.append(tx, [event])
    _count_states([liveness.state for _, liveness in devices])
    return {"changes": changes}


async def send_revocations(pool: db.Pool) -> dict[str, object]:
    """Send the cloud an event for every device that was revoked, or registered again."""
    async with db.transaction(pool) as tx:
        now: datetime = await db.fetch_value(tx, "select fn_now()")
        revocations = await store.new_revocations(tx, limit=MAX_REVOCATIONS)
        events = [
            handlers.status_event(
                revocation.device, "offline", last_seen_at=revocation.last_seen_at, now=now,
                revoked=revocation.revoked,
            )
            for revocation in revocations
        ]  # fmt: skip
        if events:
            await outbox.append(tx, events)
    return {"changes": len(revocations)}


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
    """Publish without a lock: an answer may come before the command is marked as sent.

    After a crash in between the command is tried again after its pause.
    """
    async with db.transaction(pool) as tx:
        row = await store.command_to_send(tx, again_s=COMMAND_AGAIN_S)
    if row is None:
        return False
    try:
        await broker.publish(registration.command_address(row), command_message(row))
    except mqtt.DisconnectedError as error:
        log.get(NAME).warning("devices.command_not_sent", reason=str(error))
        async with db.transaction(pool) as tx:
            await store.clear_try(tx, row["command_id"])
        return False
    async with db.transaction(pool) as tx:
        await store.mark_sent(tx, row["command_id"])
    return True


def command_message(row: dict[str, Any]) -> bytes:
    payload = messages.DeviceCommand(
        command_id=str(row["command_id"]), args=row["args"], expires_at=row["expires_at"]
    )
    return msgspec.json.encode(
        Envelope(
            schema_version=SCHEMA_VERSION,
            event_id=ids.new(),
            trace_id=str(row["command_id"]),
            tenant_id=row["tenant_id"],
            device_id=row["device_id"],
            event_type=messages.COMMAND,
            ts=datetime.now(UTC),
            payload=msgspec.Raw(msgspec.json.encode(payload)),
        )
    )


async def purge_commands(pool: db.Pool, *, days: int) -> dict[str, object]:
    """Delete commands that ended long ago."""
    ended = "state in ('applied', 'failed', 'expired')"
    commands = Retention("device_commands", "ended_at", days, ended)
    return {"forgotten": await retention.purge(pool, commands)}


async def purge_states(pool: db.Pool, *, days: float) -> dict[str, object]:
    """Delete the states of devices that were revoked long ago."""
    revoked_at = """(
      select d.revoked_at from devices d
      where d.tenant_id = t.tenant_id and d.device_id = t.device_id)"""
    return {"count": await retention.purge(pool, Retention("device_state", revoked_at, days))}


async def watch_log(
    pool: db.Pool, follower: Follower, callout: Callout | None = None
) -> dict[str, object]:
    """Raise a security alert for what the broker rejected (C-107), unless we asked it to."""
    lines, skipped = follower.look()
    rejections = [rejection for line in lines if (rejection := broker_log.read(line))]
    if callout is not None:
        rejections = [rejection for rejection in rejections if callout.believes(rejection)]
    return await _raise_alerts(pool, rejections, skipped=skipped, own_ids=callout is not None)


async def alert_rejections(pool: db.Pool, callout: Callout) -> dict[str, object]:
    """Raise alerts for logins that the callout rejected; an unknown login by its address."""
    rejections = [
        broker_log.Refusal(
            rejection.kind,
            rejection.host,
            f"login {rejection.user!r}: {rejection.reason}",
            rejection.user,
        )
        if rejection.kind == broker_log.LOGIN
        else broker_log.Refusal(
            rejection.kind, rejection.user, f"it came from {rejection.host}, and {rejection.reason}"
        )
        for rejection in callout.rejections().elements()
    ]
    return await _raise_alerts(pool, rejections) if rejections else {}


async def _raise_alerts(
    pool: db.Pool, rejections: list[broker_log.Refusal], *, skipped: int = 0, own_ids: bool = False
) -> dict[str, object]:
    if any(rejection.login for rejection in rejections):
        async with db.transaction(pool) as tx:
            paused = await store.paused_logins(tx, late_s=LOG_LATE_S)
        rejections = [rejection for rejection in rejections if rejection.login not in paused]
    for rejection in rejections:
        REJECTED.labels(kind=rejection.kind).inc()
    raised = device_broker.rejection_alerts(rejections, own_ids=own_ids)
    if skipped:
        message = worded(
            "the broker's log grows faster than it is read; %(number)s bytes were skipped",
            number=skipped,
        )
        alert = alerts.Alert("broker.log_skipped", "broker", "security", message, whole_edge=True)
        raised[alert] = 1
    if raised:
        async with db.transaction(pool) as tx:
            await alerts.raise_all(tx, raised)
    return {"refusals": len(rejections), "skipped": skipped}


def _count_states(states: list[rules.State]) -> None:
    for state in ("online", "late", "offline", "error"):
        STATES.labels(state=state).set(states.count(state))
