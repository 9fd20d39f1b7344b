"""Cameras at the broker: a secret of its own for each, told once and kept as a hash."""

import re
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2

from farmiq import nats_users
from farmiq.cloud.camera import secret as camera_secret
from farmiq.cloud.camera.gateway import dialects, wire
from farmiq.config import CloudSettings
from farmiq.config.settings import secret
from farmiq.plumbing import broker_callout, db, mqtt, nats_jwt
from farmiq.plumbing.broker_callout import Callout
from farmiq.plumbing.broker_store import Bounds, LogStream
from farmiq.plumbing.broker_users import Users
from farmiq.plumbing.flood import Pause

LOG_LATE_S = 10.0
_MAC = re.compile("(?:[0-9A-Fa-f]{2}[:-]?){5}[0-9A-Fa-f]{2}")
# All that cameras send, with QoS 0 or 1, in the order in which the broker got it. What they send
# with QoS 1 passes the broker's own queue too, which keeps nothing of it: nobody reads it there.
LOG = LogStream(
    "FARMIQ_CAMERAS",
    subjects=[nats_users.subject(each) for each in dialects.UP],
    queue_subjects=["$MQTT.msgs.>"],
)
# A camera may leave its status at the broker for whoever listens later; its images it may not.
BOUNDS = Bounds(
    retained=[nats_users.subject(each) for each in dialects.UP if each.endswith("/status")],
    not_retained=[nats_users.subject(each) for each in dialects.UP if not each.endswith("/status")],
    log=LOG,
)


class NoCamera(Exception):  # noqa: N818 - what a person asked for is not there
    """No camera in use has this MAC address."""


async def make(
    tx: db.Connection, mac: str, *, made_by: str, tenant_id: str | None = None, move: bool = False
) -> str:
    """A new secret for a camera; an older one ends with it, of other companies too.

    Where several companies have registered the address, `tenant_id` says whose it is; `move` takes
    it from a company whose camera was heard. Raises NoCamera.
    """
    device_id = await _chosen(tx, mac, tenant_id, move=move)
    plain, hashed = camera_secret.make()
    await tx.execute(
        """
        insert into camera_logins (device_id, company_id, secret_bcrypt, made_by, made_at)
        select d.device_id, d.company_id, %s, %s, fn_now()
        from devices d where d.device_id = %s
        on conflict on constraint camera_logins_pkey do update set
          secret_bcrypt = excluded.secret_bcrypt, made_by = excluded.made_by,
          made_at = excluded.made_at, revoked_at = null
        """,
        (hashed, made_by, device_id),
    )
    await tx.execute(
        """
        update camera_logins l set revoked_at = coalesce(l.revoked_at, fn_now())
        from devices d where d.device_id = l.device_id and d.mac = %s and l.device_id <> %s
        """,
        (mac, device_id),
    )
    return plain


async def _chosen(tx: db.Connection, mac: str, tenant_id: str | None, *, move: bool) -> UUID:
    """Which claim of an address gets the login; all of them are locked."""
    rows = await db.fetch_all(
        tx,
        """
        select d.device_id, c.tenant_id, d.proven_at is not null
        from devices d join companies c on c.company_id = d.company_id
        where d.mac = %s and d.is_active order by d.device_id for update of d
        """,
        mac,
    )
    proven = next((row for row in rows if row[2]), None)
    wanted = [row for row in rows if tenant_id in (None, row[1])]
    if not wanted:
        whose = f" of {tenant_id}" if tenant_id else ""
        raise NoCamera(f"no camera {mac}{whose} is registered and in use")
    if tenant_id is None and proven is None and len(wanted) > 1:
        names = ", ".join(sorted(row[1] for row in wanted))
        raise NoCamera(f"{names} have registered {mac}: find out whose it is and say --company")
    chosen = proven if tenant_id is None and proven is not None else wanted[0]
    if proven is not None and proven[0] != chosen[0]:
        if not move:
            raise NoCamera(
                f"{mac} is heard as a camera of {proven[1]}: retire it there, or say --move"
            )
        await tx.execute("update devices set proven_at = null where device_id = %s", (proven[0],))
    found: UUID = chosen[0]
    return found


async def revoke(tx: db.Connection, mac: str) -> None:
    """The broker cuts it when its users are written again. Raises NoCamera."""
    cursor = await tx.execute(
        """
        update camera_logins l set revoked_at = coalesce(l.revoked_at, fn_now())
        from devices d where d.device_id = l.device_id and d.mac = %s and d.is_active
        """,
        (mac,),
    )
    if cursor.rowcount == 0:
        raise NoCamera(f"camera {mac} has no login")


async def ls(tx: db.Connection) -> list[dict[str, Any]]:
    rows = await db.fetch_all(
        tx,
        """
        select d.mac, d.device_name, d.dialect, c.name, d.last_seen_at, s.state, l.made_at,
          l.revoked_at, case when l.paused_until > fn_now() then l.paused_until end, d.proven_at
        from devices d join companies c on c.company_id = d.company_id
        left join camera_states s on s.device_id = d.device_id
        left join camera_logins l on l.device_id = d.device_id
        where d.is_active order by c.name, d.device_name
        """,
    )
    names = (
        "mac", "name", "dialect", "company", "last_seen_at", "state", "made_at", "revoked_at",
        "paused_until", "proven_at",
    )  # fmt: skip
    return [dict(zip(names, row, strict=True)) for row in rows]


async def last_pause(tx: db.Connection, mac: str) -> tuple[datetime, Pause | None] | None:
    """(now, this camera's last pause, which may be over); None: no camera has such a login."""
    rows = await db.fetch_all(
        tx,
        """
        select fn_now(), l.paused_until, l.pauses
        from camera_logins l join devices d on d.device_id = l.device_id
        where d.mac = %s and d.is_active and l.revoked_at is null
        """,
        mac,
    )
    if not rows:
        return None
    now, until_at, pauses = rows[0]
    return now, None if until_at is None else Pause(until_at, pauses)


async def paused(pool: db.Pool) -> list[str]:
    """Who is paused now, or was just now: the broker's log may tell a little late."""
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


async def pause(tx: db.Connection, mac: str, pause: Pause) -> bool:
    """False if somebody else has paused the camera meanwhile."""
    cursor = await tx.execute(
        """
        update camera_logins l set paused_until = %s, pauses = %s
        from devices d where d.device_id = l.device_id and d.mac = %s and d.is_active
          and l.revoked_at is null and coalesce(l.paused_until <= fn_now(), true)
        """,
        (pause.until_at, pause.in_a_row, mac),
    )
    return cursor.rowcount > 0


_ADMITTED = """
  from camera_logins l join devices d on d.device_id = l.device_id
  where d.is_active and l.revoked_at is null
    and coalesce(l.paused_until <= (select fn_now()), true)
"""


def users(pool: db.Pool, file: Path, *, own: list[str], pid_file: Path | None) -> Users:
    """Keeps the broker's users equal to the logins of cameras in use."""

    async def text(tx: db.Connection) -> tuple[str, int]:
        accounts = await _accounts(tx)
        return nats_users.users_file(accounts, own=own), len(accounts)

    return Users(pool, file, pid_file=pid_file, version=_version, make=text)


def callout(pool: db.Pool, settings: CloudSettings, web: httpx2.AsyncClient) -> Callout | None:
    """Answers the broker who may connect, if it asks."""
    url, key_file = secret(settings.broker_callout_url), settings.broker_callout_key_file
    monitor_url, mqtt_url = settings.broker_monitor_url, secret(settings.mqtt_url)
    if url is None or key_file is None or monitor_url is None or mqtt_url is None:
        return None

    async def end_session(ended: str) -> bool | None:
        return await mqtt.end_session(mqtt_url, ended, tls=settings.tls)

    strict = settings.broker_client_ids == "own"
    ours = [settings.mqtt_client_id or "cloud-camera-gateway"]
    return Callout(
        pool,
        url=url,
        key=nats_jwt.Key(key_file.read_text(encoding="ascii")),
        monitor=(web, monitor_url),
        version=_version,
        load=_accounts,
        end_session=end_session,
        own_urls=(url, mqtt_url, secret(settings.broker_nats_url), secret(settings.camera_url)),
        is_own=own_client_id if strict else partial(not_anothers, ours=ours),
    )


def own_client_id(client_id: str, mac: str) -> bool:
    """Whether an id is this camera's own: its firmware puts the MAC address into it somewhere."""
    named = any(each in client_id for each in wire.spellings(mac))
    return named or broker_callout.made_by_broker(client_id)


def not_anothers(client_id: str, mac: str, *, ours: Sequence[str]) -> bool:
    """Whether an id may pass of cameras whose id cannot be changed: it names no other."""
    if own_client_id(client_id, mac):
        return True
    return client_id not in ours and not _MAC.search(client_id)


def is_proven(client_id: str) -> bool:
    """Whether a broker that asks us lets one login alone in under this id: it holds an address."""
    return _MAC.search(client_id) is not None


async def _version(tx: db.Connection) -> Any:
    return await db.fetch_all(
        tx, "select count(*), max(l.made_at), md5(string_agg(d.mac, ',' order by d.mac))"
        + _ADMITTED
    )  # fmt: skip


async def _accounts(tx: db.Connection) -> list[nats_users.Account]:
    rows = await db.fetch_all(tx, "select d.mac, l.secret_bcrypt" + _ADMITTED + "order by 1")
    return [
        nats_users.Account(
            user=mac,
            secret_bcrypt=hashed,
            publish=dialects.topics(mac, wire.UP_CHANNELS),
            subscribe=dialects.topics(mac, wire.DOWN_CHANNELS),
        )
        for mac, hashed in rows
    ]
