"""The desk: devices are registered, revoked, given another secret and told what to do; audited."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

import psycopg

from farmiq.edge import audit
from farmiq.edge.devices import credentials, entry, permissions, store
from farmiq.edge.devices.entry import Device
from farmiq.messages.topics import command as command_topic
from farmiq.plumbing import db, ids

MAX_TTL_S = 7 * 86_400


class NotThere(Exception):  # noqa: N818 - an answer
    """No such device is registered."""


class Taken(Exception):  # noqa: N818 - an answer
    """The name, or the station, belongs to a registered device already."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a device needs to connect. Told once."""

    device: Device
    password: str
    token: str

    def as_json(self) -> dict[str, Any]:
        device = self.device
        return {
            "tenant_id": device.tenant_id,
            "farm_id": device.farm_id,
            "barn_id": device.barn_id,
            "device_id": device.device_id,
            "station_id": device.station_id,
            "user": device.broker_user,
            "password": self.password,
            "token": self.token,
            "publish": permissions.publishes(device),
            "subscribe": permissions.subscribes(device),
        }


async def add(tx: db.Connection, device: Device, *, actor: str) -> Credentials:
    """Raises Taken."""
    made = await _add(tx, device)
    await audit.note(
        tx, actor=actor, action="device.add", subject=_name(device.key), **asdict(device)
    )
    return made


async def add_all(tx: db.Connection, devices: Sequence[Device], *, actor: str) -> list[Credentials]:
    """All or none. Raises Taken for the first that cannot be."""
    made = [await _add(tx, device) for device in devices]
    await audit.note(
        tx,
        actor=actor,
        action="device.import",
        subject=f"{len(devices)} devices",
        devices=[_name(device.key) for device in devices],
    )
    return made


async def taken(
    tx: db.Connection, devices: Sequence[tuple[int, Device]]
) -> list[tuple[int, str, str]]:
    """(line, field, reason) of everything in a list that is registered already."""
    known = await store.registered(tx, [device.key for _, device in devices])
    wanted = [device.station for _, device in devices if device.station]
    stands = await store.stations(tx, wanted) if wanted else {}
    found = []
    for line, device in devices:
        if device.key in known:
            found.append((line, "device_id", f"{device.device_id!r} is registered already"))
        elif device.station in stands:
            there = stands[device.station]
            found.append((line, "station_id", f"device {there!r} stands there already"))
    return found


async def revoke(tx: db.Connection, key: store.Key, *, actor: str) -> None:
    """Raises NotThere."""
    if not await store.revoke(tx, key):
        raise NotThere(f"no device {key[1]!r} of tenant {key[0]!r} is registered")
    await audit.note(tx, actor=actor, action="device.revoke", subject=_name(key))


async def rotate(tx: db.Connection, key: store.Key, *, actor: str) -> Credentials:
    """Raises NotThere."""
    secret = credentials.new()
    device = await store.rotate(tx, key, secret)
    if device is None:
        raise NotThere(f"no device {key[1]!r} of tenant {key[0]!r} is registered")
    await audit.note(tx, actor=actor, action="device.rotate", subject=_name(key))
    return Credentials(device, secret.plain, secret.token)


async def command(
    tx: db.Connection,
    key: store.Key,
    *,
    name: str,
    args: dict[str, Any],
    ttl_s: int,
    actor: str,
) -> UUID:
    """Queue a command; edge-devices-registry sends it. Raises NotThere, or Wrong."""
    wrong = _command_problems(name, args, ttl_s)
    if wrong:
        raise entry.Wrong(wrong)
    if key not in await store.registered(tx, [key]):
        raise NotThere(f"no device {key[1]!r} of tenant {key[0]!r} is registered")
    command_id = ids.new()
    await store.queue_command(
        tx, key, command_id=command_id, name=name, args=args, ttl_s=ttl_s, created_by=actor
    )
    await audit.note(
        tx, actor=actor, action="device.command", subject=_name(key),
        command_id=command_id, name=name, ttl_s=ttl_s,
    )  # fmt: skip
    return command_id


def _command_problems(name: str, args: dict[str, Any], ttl_s: int) -> list[tuple[str, str]]:
    wrong = []
    if not entry.is_id(name):
        wrong.append(("name", f"{name[:40]!r} cannot be a level of a topic"))
    if not 1 <= ttl_s <= MAX_TTL_S:
        wrong.append(("ttl_s", f"is not from 1 to {MAX_TTL_S} seconds"))
    wrong += [("args", reason) for reason in entry.unkeepable(args)]
    return wrong


async def _add(tx: db.Connection, device: Device) -> Credentials:
    secret = credentials.new()
    try:
        async with tx.transaction():
            added = await store.add(tx, device, secret)
    except psycopg.errors.UniqueViolation as error:
        if error.diag.constraint_name != "devices_station_key":
            raise
        raise Taken(f"another device stands at station {device.station_id!r} already") from None
    if not added:
        raise Taken(
            f"device {device.device_id!r} of tenant {device.tenant_id!r} is registered already; "
            "`farmiq device rotate` gives it another secret"
        )
    return Credentials(device, secret.plain, secret.token)


def publish_line(made: Credentials, *, host: str, port: int) -> str:
    """A first message that anybody can send from a shell."""
    device = made.device
    topic = permissions.publishes(device)[0].replace("+", "temperature")
    body = (
        '{"schema_version":"1.0","event_id":"\'$(cat /proc/sys/kernel/random/uuid)\'",'
        '"trace_id":"by-hand",'
        f'"tenant_id":"{device.tenant_id}","device_id":"{device.device_id}",'
        '"event_type":"telemetry.reading","ts":"\'$(date -u +%FT%TZ)\'",'
        '"payload":{"value":21.5,"unit":"C"}}'
    )
    return (
        f"mosquitto_pub -h {host} -p {port} -q 1 -u '{device.broker_user}' "
        f"-P '{made.password}' -t '{topic}' -m '{body}'"
    )


def command_address(row: dict[str, Any]) -> str:
    device = Device(
        tenant_id=row["tenant_id"], farm_id=row["farm_id"], barn_id=row["barn_id"],
        device_id=row["device_id"],
    )  # fmt: skip
    return command_topic(device.where, row["name"])


def _name(key: store.Key) -> str:
    return "/".join(key)
