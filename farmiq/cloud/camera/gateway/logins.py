"""Which cameras may connect to the broker, and how much of what they send it stores."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from farmiq import nats_users
from farmiq.cloud.camera.protocol import dialects, wire
from farmiq.config import CloudSettings
from farmiq.config.settings import secret
from farmiq.plumbing import db
from farmiq.plumbing.broker import callout as broker_callout
from farmiq.plumbing.broker import nats_jwt
from farmiq.plumbing.broker.callout import Callout
from farmiq.plumbing.broker.store import Bounds, LogStream
from farmiq.plumbing.broker.users import Users
from farmiq.plumbing.messaging import mqtt

# The broker's log may report a pause so late.
LOG_LATE_S = 10.0
_MAC = re.compile("(?:[0-9A-Fa-f]{2}[:-]?){5}[0-9A-Fa-f]{2}")
_SUBJECTS = {topic: nats_users.subject(topic) for topic in dialects.UP}
# All messages of cameras, with QoS 0 or 1, in the order of the broker. Those with QoS 1 also pass
# the broker's own queue, which stores none: nobody subscribes to it.
LOG = LogStream(
    "FARMIQ_CAMERAS", subjects=list(_SUBJECTS.values()), queue_subjects=["$MQTT.msgs.>"]
)
# Cameras may send retained messages on status, not on data.
BOUNDS = Bounds(
    retained=[name for topic, name in _SUBJECTS.items() if topic.endswith("/status")],
    not_retained=[name for topic, name in _SUBJECTS.items() if not topic.endswith("/status")],
    log=LOG,
)
_ADMITTED = """
  from camera_logins l join devices d on d.device_id = l.device_id
  where d.is_active and l.revoked_at is null
    and coalesce(l.paused_until <= (select fn_now()), true)
"""


def users(pool: db.Pool, file: Path, *, own: list[str], pid_file: Path | None) -> Users:
    """Writes the logins of cameras in use to the broker's users file."""

    async def text(tx: db.Connection) -> tuple[str, int]:
        accounts = await _accounts(tx)
        return nats_users.users_file(accounts, own=own), len(accounts)

    return Users(pool, file, pid_file=pid_file, version=_version, make=text)


def callout(pool: db.Pool, settings: CloudSettings, web: httpx2.AsyncClient) -> Callout | None:
    """Answers the broker's question who may connect, if it is configured."""
    url, key_file = secret(settings.broker_callout_url), settings.broker_callout_key_file
    monitor_url, mqtt_url = settings.broker_monitor_url, secret(settings.mqtt_url)
    if url is None or key_file is None or monitor_url is None or mqtt_url is None:
        return None
    ours = [settings.mqtt_client_id or "cloud-camera-gateway"]
    is_strict = settings.broker_client_ids == "own"
    return Callout(
        pool,
        url=url,
        key=nats_jwt.Key(key_file.read_text(encoding="ascii")),
        monitor=(web, monitor_url),
        version=_version,
        load=_accounts,
        end_session=partial(mqtt.end_session, mqtt_url, tls=settings.tls),
        own_urls=(url, mqtt_url, secret(settings.broker_nats_url), secret(settings.camera_url)),
        is_own=own_client_id if is_strict else partial(not_anothers, ours=ours),
        tls=settings.tls,
    )


def own_client_id(client_id: str, mac: str) -> bool:
    """Whether an id is this camera's own: it contains the MAC address."""
    has_own_mac = any(spelling in client_id for spelling in wire.spellings(mac))
    return has_own_mac or broker_callout.made_by_broker(client_id)


def not_anothers(client_id: str, mac: str, *, ours: Sequence[str]) -> bool:
    """Whether a camera with a fixed id may use it: it is not the id of another client."""
    if own_client_id(client_id, mac):
        return True
    return client_id not in ours and not has_mac(client_id)


def has_mac(client_id: str) -> bool:
    """Whether an id contains a MAC address: the callout admits only that login under it."""
    return _MAC.search(client_id) is not None


async def paused(pool: db.Pool) -> list[str]:
    """Cameras that are paused, or were until just now."""
    async with pool.connection() as connection:
        rows = await db.fetch_all(
            connection,
            """
            select d.mac from camera_logins l join devices d on d.device_id = l.device_id
            where l.paused_until > (select fn_now()) - %s * interval '1 second'
            """,
            LOG_LATE_S,
        )
    return [mac for (mac,) in rows]


async def _version(tx: db.Connection) -> Any:
    sql = "select md5(string_agg(d.mac || l.secret_bcrypt, ',' order by d.mac))"
    return await db.fetch_all(tx, sql + _ADMITTED)


async def _accounts(tx: db.Connection) -> list[nats_users.Account]:
    rows = await db.fetch_all(tx, "select d.mac, l.secret_bcrypt" + _ADMITTED + "order by 1")
    return [
        nats_users.Account(
            user=mac,
            secret_bcrypt=secret_bcrypt,
            publish=dialects.topics(mac, wire.UP_CHANNELS),
            subscribe=dialects.topics(mac, wire.DOWN_CHANNELS),
        )
        for mac, secret_bcrypt in rows
    ]
