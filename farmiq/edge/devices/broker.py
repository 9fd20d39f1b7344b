"""The broker at the edge: its users follow the registry, its floods and rejections become alerts.

The broker serves all logins in one order: one that sends faster than ingress stores makes the
others wait. So the login of such a device is paused for some time. Nothing is lost: what the broker
has acknowledged is stored, and a QoS 1 client sends the rest later.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
import prometheus_client

from farmiq.config import EdgeSettings
from farmiq.config.settings import secret
from farmiq.edge import alerts
from farmiq.edge.alerts import Alert
from farmiq.edge.devices import store
from farmiq.edge.devices.device import Device, account, nats_users
from farmiq.messages.wording import phrase, worded
from farmiq.nats_users import Account
from farmiq.plumbing import db
from farmiq.plumbing.broker import flood, nats_jwt
from farmiq.plumbing.broker import store as broker_store
from farmiq.plumbing.broker.callout import (
    CLIENT_ID,
    SESSIONS,
    Callout,
    not_anothers,
    own_client_id,
)
from farmiq.plumbing.broker.flood import Flow, Pause
from farmiq.plumbing.broker.log import FORM, LOGIN, PERMISSION, RETAINED, TAKEOVER, Refusal
from farmiq.plumbing.broker.store import Store
from farmiq.plumbing.broker.users import Users
from farmiq.plumbing.messaging import mqtt

STORE_KIND, FLOOD_KIND = "broker.store", "device.flood"
# The client id of gateways before ids were generated.
GATEWAY = "edge-ingress-gateway"
# A rejected client chooses its name: so many senders get their own alert in one round.
MAX_SENDERS = 50
OTHERS = "others"
# A client took over its own session.
BACK = "broker.back"

PAUSES = prometheus_client.Counter(
    "farmiq_devices_pauses_total", "Times that a device's login was paused because it flooded"
)


def users(pool: db.Pool, file: Path, *, own: list[str], pid_file: Path | None) -> Users:
    async def make(tx: db.Connection) -> tuple[str, int]:
        logins = await store.logins(tx, paused=False)
        return nats_users(logins, own=own), len(logins)

    return Users(pool, file, pid_file=pid_file, version=_version, make=make)


def callout(pool: db.Pool, settings: EdgeSettings, web: httpx2.AsyncClient) -> Callout | None:
    """Answers the broker who may connect, if it is configured so."""
    url, key_file = secret(settings.broker_callout_url), settings.broker_callout_key_file
    monitor_url = settings.broker_monitor_url
    if url is None or key_file is None or monitor_url is None:
        return None

    async def load(tx: db.Connection) -> list[Account]:
        return [account(login) for login in await store.logins(tx, paused=False)]

    async def end_session(ended: str) -> bool | None:
        return await mqtt.end_session(settings.mqtt_url.get_secret_value(), ended, tls=settings.tls)

    strict = settings.broker_client_ids == "own"
    ours = [settings.mqtt_client_id or GATEWAY]
    return Callout(
        pool,
        url=url,
        key=nats_jwt.Key(key_file.read_text(encoding="ascii")),
        monitor=(web, monitor_url),
        version=_version,
        load=load,
        end_session=end_session,
        own_urls=(
            url,
            settings.mqtt_url.get_secret_value(),
            secret(settings.broker_nats_url),
            secret(settings.ingress_url),
        ),
        is_own=own_client_id if strict else partial(not_anothers, ours=ours),
        tls=settings.tls,
    )


async def _version(tx: db.Connection) -> tuple[int, list[str]]:
    """The registry and the pauses: those begin and end without a change of the registry."""
    return await store.version(tx), await store.paused_logins(tx)


async def check_store(pool: db.Pool, streams: Store) -> dict[str, object]:
    """Raise an alert before the broker is full, and close it afterwards."""
    use = streams.use
    if use is None or broker_store.CALM_SHARE <= use.share < broker_store.WARN_SHARE:
        return {}
    async with db.transaction(pool) as tx:
        if use.share < broker_store.CALM_SHARE:
            await alerts.close(tx, kind=STORE_KIND, subject="broker")
        else:
            message = worded(
                "the broker holds %(what)s. When its queue is full it takes nothing "
                "more. To do: see that edge-ingress-gateway runs and commits; what is "
                "taken is freed",
                what=use.words(),
            )
            full = Alert(STORE_KIND, "broker", "critical", message, whole_edge=True)
            await alerts.raise_(tx, full)
    return {}


# --- rejections


def rejection_alerts(rejections: Iterable[Refusal], *, own_ids: bool = False) -> dict[Alert, int]:
    """One alert per kind and sender, with the last message and a count.

    `own_ids`: the broker accepts a client id with a `/` only from the login it begins with.
    """
    counts: Counter[tuple[str, str]] = Counter()
    texts: dict[tuple[str, str], str] = {}
    for rejection in rejections:
        kind = BACK if own_ids and "/" in (rejection.client_id or "") else rejection.kind
        full = len(counts) >= MAX_SENDERS
        known = (kind, rejection.sender) in counts
        group = (kind, rejection.sender if known or not full else OTHERS)
        counts[group] += 1
        texts[group] = rejection.words
    return {_rejection_alert(*group, texts[group]): count for group, count in counts.items()}


_TO_DO = {
    PERMISSION: phrase("todo", "find out which device it is; `farmiq device revoke` cuts one off"),
    LOGIN: phrase(
        "todo",
        "a device has an old secret (`farmiq device rotate` makes a new one), or somebody guesses",
    ),
    CLIENT_ID: phrase(
        "todo",
        "give the device such a client id; if it has one, somebody has its password: "
        "`farmiq device rotate`",
    ),
    SESSIONS: phrase(
        "todo",
        "let the device keep one client id; if it has one, somebody has its password: "
        "`farmiq device rotate`",
    ),
    FORM: phrase(
        "todo",
        "mend the device: what it sends is never taken, and it may try that one message for ever",
    ),
    RETAINED: phrase(
        "todo",
        "mend the device: only its status is retained, and only if it is short; the message "
        "itself was delivered",
    ),
    BACK: phrase(
        "todo",
        "nothing after a cut of the network; if none was cut, two devices have one login and one "
        "client id",
    ),
    TAKEOVER: phrase(
        "todo",
        "after a cut of the network a client takes its own place; if none was cut, two "
        "devices have one client id, or somebody uses one that is not theirs",
    ),
}


def _rejection_alert(kind: str, sender: str, text: str) -> Alert:
    pattern = worded("the broker refused %(sender)s: %(text)s. To do: %(todo)s")
    if kind in (TAKEOVER, BACK):
        pattern = worded("the broker let in %(sender)s: %(text)s. To do: %(todo)s")
    message = pattern % {"sender": sender, "text": text, "todo": _TO_DO[kind]}
    if kind == BACK:  # every cut of the network makes some
        return Alert(kind, sender, "info", message)
    return Alert(kind, sender, "warning" if kind in (FORM, RETAINED) else "security", message)


# --- floods


@dataclass(frozen=True)
class FloodPauser:
    """`writes_users`: whether this edge decides who may connect."""

    pool: db.Pool
    writes_users: bool

    async def pause(self, user: str, flow: Flow) -> float:
        """Pause this login if possible; return the seconds until it is counted again."""
        async with db.transaction(self.pool) as tx:
            return await self._pause(tx, user, flow)

    async def _pause(self, tx: db.Connection, user: str, flow: Flow) -> float:
        device = await store.with_login(tx, user)
        if device is None or not self.writes_users:
            subject = user if device is None else _subject(device)
            await alerts.raise_(tx, _flood_alert(subject, flow, None))
            return flood.MAX_PAUSE_S
        now, before = await store.last_pause(tx, device.key)
        pause = flood.following(before, now=now)
        if not await store.pause(tx, device.key, pause):
            return flood.FIRST_PAUSE_S
        PAUSES.inc()
        await alerts.raise_(tx, _flood_alert(_subject(device), flow, pause))
        return (pause.until_at - now).total_seconds()


def _flood_alert(subject: str, flow: Flow, pause: Pause | None) -> Alert:
    names = f"DEVICE_{flow.what.upper()}"
    return Alert(
        FLOOD_KIND,
        subject,
        "warning",
        worded(
            "%(sentence)s. Mend the device, or raise %(names)s_PER_SECOND or %(names)s_BURST if it "
            "is right to",
            sentence=flood.describe(flow, pause),
            names=names,
        ),
    )


async def close_flood_alerts(pool: db.Pool) -> dict[str, object]:
    """Close the alerts of devices that did not flood again.

    A pause that is longer than any comes from a clock that was set back: it ends.
    """
    async with db.transaction(pool) as tx:
        await tx.execute(
            """
            update device_pauses set until_at = fn_now()
            where until_at > (select fn_now()) + %s * interval '1 second'
            """,
            (2 * flood.MAX_PAUSE_S,),
        )
        return {"calm": await alerts.close_unseen(tx, kind=FLOOD_KIND, seconds=flood.CALM_S)}


def _subject(device: Device) -> str:
    return f"{device.tenant_id}/{device.farm_id}/{device.barn_id}/{device.device_id}"
