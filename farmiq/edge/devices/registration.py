"""Register, revoke and rotate devices, and queue their commands; all with audit entries."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

import psycopg

from farmiq.edge import audit
from farmiq.edge.devices import credentials, store
from farmiq.edge.devices.device import (
    Device,
    InvalidDeviceError,
    args_problems,
    is_id,
    publishes,
    subscribes,
)
from farmiq.messages.topics import command as command_topic
from farmiq.plumbing import db, ids

MAX_TTL_S = 7 * 86_400


class UnknownDeviceError(Exception):
    """No such device is registered."""


class DeviceExistsError(Exception):
    """The name, or the station, belongs to a registered device already."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a device needs to connect; shown once."""

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
            "publish": publishes(device),
            "subscribe": subscribes(device),
        }


async def add(tx: db.Connection, device: Device, *, actor: str) -> Credentials:
    """Raises DeviceExistsError."""
    issued = await _add(tx, device)
    await audit.note(
        tx, actor=actor, action="device.add", subject=_name(device.key), **asdict(device)
    )
    return issued


async def add_all(tx: db.Connection, devices: Sequence[Device], *, actor: str) -> list[Credentials]:
    """All or none. Raises DeviceExistsError for the first that is registered."""
    issued = [await _add(tx, device) for device in devices]
    await audit.note(
        tx,
        actor=actor,
        action="device.import",
        subject=f"{len(devices)} devices",
        devices=[_name(device.key) for device in devices],
    )
    return issued


async def find_registered(
    tx: db.Connection, devices: Sequence[tuple[int, Device]]
) -> list[tuple[int, str, str]]:
    """(line, field, reason) of each device or station that is registered already."""
    known = await store.registered(tx, [device.key for _, device in devices])
    wanted = [device.station for _, device in devices if device.station]
    devices_at = await store.stations(tx, wanted) if wanted else {}
    problems = []
    for line, device in devices:
        if device.key in known:
            problems.append((line, "device_id", f"{device.device_id!r} is registered already"))
        elif device.station in devices_at:
            other = devices_at[device.station]
            problems.append((line, "station_id", f"device {other!r} stands there already"))
    return problems


async def revoke(tx: db.Connection, key: store.Key, *, actor: str) -> None:
    """Raises UnknownDeviceError."""
    if not await store.revoke(tx, key):
        raise UnknownDeviceError(f"no device {key[1]!r} of tenant {key[0]!r} is registered")
    await audit.note(tx, actor=actor, action="device.revoke", subject=_name(key))


async def rotate(tx: db.Connection, key: store.Key, *, actor: str) -> Credentials:
    """Raises UnknownDeviceError."""
    secret = credentials.new()
    device = await store.rotate(tx, key, secret)
    if device is None:
        raise UnknownDeviceError(f"no device {key[1]!r} of tenant {key[0]!r} is registered")
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
    """Queue a command; edge-devices-registry sends it.

    Raises UnknownDeviceError, or InvalidDeviceError with every reason.
    """
    problems = _command_problems(name, args, ttl_s)
    if problems:
        raise InvalidDeviceError(problems)
    if key not in await store.registered(tx, [key]):
        raise UnknownDeviceError(f"no device {key[1]!r} of tenant {key[0]!r} is registered")
    command_id = ids.new()
    await store.queue_command(
        tx, key, command_id=command_id, name=name, args=args, ttl_s=ttl_s, created_by=actor
    )
    await audit.note(
        tx, actor=actor, action="device.command", subject=_name(key),
        command_id=command_id, name=name, ttl_s=ttl_s,
    )  # fmt: skip
    return command_id


async def announce_restored(tx: db.Connection, *, hours: float, actor: str) -> int:
    """Ask every station to send again what it has of the last hours; return how many they are.

    For a database that was restored from a backup: it lacks what came since.
    """
    stations = await store.all_stations(tx)
    for key in stations:
        await command(
            tx, key, name="edge.restored", args={"hours": hours}, ttl_s=MAX_TTL_S, actor=actor
        )
    return len(stations)


def _command_problems(name: str, args: dict[str, Any], ttl_s: int) -> list[tuple[str, str]]:
    problems = []
    if not is_id(name):
        problems.append(("name", f"{name[:40]!r} cannot be a level of a topic"))
    if not 1 <= ttl_s <= MAX_TTL_S:
        problems.append(("ttl_s", f"is not from 1 to {MAX_TTL_S} seconds"))
    problems += [("args", reason) for reason in args_problems(args)]
    return problems


async def _add(tx: db.Connection, device: Device) -> Credentials:
    secret = credentials.new()
    try:
        async with tx.transaction():
            added = await store.add(tx, device, secret)
    except psycopg.errors.UniqueViolation as error:
        if error.diag.constraint_name != "devices_station_key":
            raise
        raise DeviceExistsError(
            f"another device stands at station {device.station_id!r} already"
        ) from None
    if not added:
        raise DeviceExistsError(
            f"device {device.device_id!r} of tenant {device.tenant_id!r} is registered already; "
            "`farmiq device rotate` gives it another secret"
        )
    return Credentials(device, secret.plain, secret.token)


def publish_line(issued: Credentials, *, host: str, port: int) -> str:
    """A first message that anybody can send from a shell."""
    device = issued.device
    topic = publishes(device)[0].replace("+", "temperature")
    body = (
        '{"schema_version":"1.0","event_id":"\'$(cat /proc/sys/kernel/random/uuid)\'",'
        '"trace_id":"by-hand",'
        f'"tenant_id":"{device.tenant_id}","device_id":"{device.device_id}",'
        '"event_type":"telemetry.reading","ts":"\'$(date -u +%FT%TZ)\'",'
        '"payload":{"value":21.5,"unit":"C"}}'
    )
    return (
        f"mosquitto_pub -h {host} -p {port} -q 1 -u '{device.broker_user}' "
        f"-P '{issued.password}' -t '{topic}' -m '{body}'"
    )


def command_address(row: dict[str, Any]) -> str:
    device = Device(
        tenant_id=row["tenant_id"], farm_id=row["farm_id"], barn_id=row["barn_id"],
        device_id=row["device_id"],
    )  # fmt: skip
    return command_topic(device.where, row["name"])


def _name(key: store.Key) -> str:
    return "/".join(key)
