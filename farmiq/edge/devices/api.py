"""HTTP: devices for programs. A viewer reads, an operator commands, an admin registers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from fastapi import Depends, Query
from pydantic import Field

from farmiq import api
from farmiq.api import At, BodyOf, JsonBody, route
from farmiq.edge import access
from farmiq.edge.devices import registration, store
from farmiq.edge.devices.device import (
    MAX_HEARTBEAT_S,
    MAX_TEXT,
    InvalidDeviceError,
    is_id,
    parse_device,
)
from farmiq.edge.devices.registration import MAX_TTL_S
from farmiq.messages.ids import Id
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError

ROUTE = "/api/v1/devices"
DEVICE = ROUTE + "/{tenant_id}/{device_id}"
MAX_ROWS = 500
MAX_BYTES = 128 * 1024
DEFAULT_TTL_S = 60

Kind = Literal["sensor", "silo", "feeder", "station", "gateway", "other"]
State = Literal["online", "late", "offline", "error", "never seen", "revoked"]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
CommandState = Literal["queued", "sent", "delivered", "applied", "failed", "expired"]


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The last device of a page."""

    tenant_id: Id
    device_id: Id


class DeviceFilter(api.Filter):
    tenant_id: api.Id | None = None
    barn_id: api.Id | None = None
    state: State | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 100
    after: Annotated[Position, api.cursor_of(Position)] | None = None


class NewDevice(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A device to be registered; a station names its station_id."""

    tenant_id: Id
    farm_id: Id
    barn_id: Id
    device_id: Id
    station_id: Id | None = None
    kind: Kind = "sensor"
    firmware: Text | None = None
    place: Text | None = None
    zone: Text | None = None
    wants_receipts: bool = False
    derive_intake: bool = False
    heartbeat_s: Annotated[int, msgspec.Meta(ge=1, le=MAX_HEARTBEAT_S)] = 60


class NewCommand(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The device must not obey when `ttl_s` seconds are over."""

    name: Id
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    ttl_s: Annotated[int, msgspec.Meta(ge=1, le=MAX_TTL_S)] = 60


class DeviceLogin(api.Model):
    """How the device connects to the broker; by its token it asks where to upload images.

    Password and token are shown this once.
    """

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str | None
    user: str
    password: str
    token: str
    publish: list[str]
    subscribe: list[str]


class RegisteredDevice(api.Model):
    """Where a device stands and how it is; `since` and `last_seen_at` by the edge's clock.

    `paused_until`: it flooded, and the broker does not let it in before then.
    """

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str | None
    kind: Kind
    firmware: str | None
    place: str | None
    zone: str | None
    wants_receipts: bool
    derive_intake: bool
    heartbeat_s: int
    broker_user: str
    created_at: At
    rotated_at: At | None
    revoked_at: At | None
    state: State
    since: At | None
    last_seen_at: At | None
    said_state: str | None
    said_at: At | None
    firmware_version: str | None
    ip: str | None
    signal_strength: float | None
    health: dict[str, bool | None] | None
    uptime_s: float | None
    buffer_depth: int | None
    battery_v: float | None
    paused_until: At | None


class DevicePage(api.Model):
    """`next` is the `after` of the next page; null on the last."""

    devices: list[RegisteredDevice]
    next: str | None


class CommandBrief(api.Model):
    """`sent`: the broker has it. `delivered`, `applied`, `failed`: the device said so."""

    command_id: UUID
    name: str
    state: CommandState
    message: str | None
    created_by: str
    created_at: At
    expires_at: At
    sent_at: At | None
    sent_count: int
    delivered_at: At | None
    ended_at: At | None


class QueuedCommand(CommandBrief):
    tenant_id: str
    device_id: str
    args: dict[str, Any]


class OneDevice(RegisteredDevice):
    """A device with its last commands, newest first."""

    commands: list[CommandBrief]


class DeviceRevoked(api.Model):
    revoked: bool


# Fields are parsed as people write them: an empty text is none, and "yes" is true.
DeviceBody = Annotated[JsonBody[NewDevice], Depends(BodyOf(NewDevice, max_bytes=MAX_BYTES))]
CommandBody = Annotated[JsonBody[NewCommand], Depends(BodyOf(NewCommand, max_bytes=MAX_BYTES))]
NOT_FOUND = {404: "NOT_FOUND: no such device, or no such command of it."}


class Api(api.Routes):
    def __init__(self, pool: db.Pool) -> None:
        self.pool = pool

    @route("GET", ROUTE, DevicePage)
    async def ls(self, caller: access.Viewer, query: Annotated[DeviceFilter, Query()]) -> Any:
        """Devices by name (viewer)."""
        async with self._transaction() as tx:
            rows = await store.page(
                tx,
                tenant_id=caller.tenant(query.tenant_id),
                barn_id=query.barn_id,
                state=query.state,
                after=msgspec.structs.astuple(query.after) if query.after else ("", ""),
                limit=query.limit + 1,
            )
        shown = rows[: query.limit]
        more = len(rows) > len(shown)
        last = shown[-1] if more else None
        following = api.cursor(last["tenant_id"], last["device_id"]) if last else None
        return {"devices": shown, "next": following}

    @route("GET", DEVICE, OneDevice, responses=NOT_FOUND)
    async def show(self, caller: access.Viewer, tenant_id: str, device_id: str) -> Any:
        """One device (viewer)."""
        key = _key(caller, tenant_id, device_id)
        async with self._transaction() as tx:
            device = await store.show(tx, key)
            commands = await store.commands_of(tx, key, limit=20)
        if device is None:
            raise HttpError(404, f"no device {key[1]!r} of tenant {key[0]!r} is known")
        return {**device, "commands": commands}

    @route(
        "POST",
        ROUTE,
        DeviceLogin,
        status_code=201,
        response_description="How it connects.",
        responses={409: "CONFLICT: the name, or the station, is another device's."},
    )
    async def add(self, caller: access.Admin, body: DeviceBody) -> Any:
        """Register a device (admin)."""
        written = await body.read_object()
        async with self._transaction() as tx:
            device = parse_device(written)
            caller.tenant(device.tenant_id)
            issued = await registration.add(tx, device, actor=caller.name)
        return issued.as_json()

    @route("POST", f"{DEVICE}/revoke", responses=NOT_FOUND)
    async def revoke(self, caller: access.Admin, tenant_id: str, device_id: str) -> DeviceRevoked:
        """Cut a device off (admin)."""
        key = _key(caller, tenant_id, device_id)
        async with self._transaction() as tx:
            await registration.revoke(tx, key, actor=caller.name)
        return DeviceRevoked(revoked=True)

    @route("POST", f"{DEVICE}/rotate", DeviceLogin, responses=NOT_FOUND)
    async def rotate(self, caller: access.Admin, tenant_id: str, device_id: str) -> Any:
        """Another secret (admin)."""
        key = _key(caller, tenant_id, device_id)
        async with self._transaction() as tx:
            issued = await registration.rotate(tx, key, actor=caller.name)
        return issued.as_json()

    @route(
        "POST",
        f"{DEVICE}/commands",
        QueuedCommand,
        status_code=202,
        response_description="It is queued.",
        responses=NOT_FOUND,
    )
    async def command(
        self, caller: access.Operator, tenant_id: str, device_id: str, body: CommandBody
    ) -> Any:
        """Tell a device to do something (operator)."""
        new_command = _command(await body.read_object())
        key = _key(caller, tenant_id, device_id)
        async with self._transaction() as tx:
            command_id = await registration.command(tx, key, actor=caller.name, **new_command)
            return await store.command(tx, command_id)

    @route("GET", f"{DEVICE}/commands/{{command_id}}", QueuedCommand, responses=NOT_FOUND)
    async def show_command(
        self, caller: access.Viewer, tenant_id: str, device_id: str, command_id: UUID
    ) -> Any:
        """What became of a command (viewer)."""
        key = _key(caller, tenant_id, device_id)
        async with self._transaction() as tx:
            command = await store.command(tx, command_id)
        if command is None or (command["tenant_id"], command["device_id"]) != key:
            raise HttpError(404, f"device {key[1]!r} has no command {command_id}")
        return command

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[db.Connection]:
        """Turn errors of the registry into HTTP errors."""
        try:
            async with db.transaction(self.pool) as tx:
                yield tx
        except InvalidDeviceError as error:
            raise api.invalid(*error.reasons) from None
        except registration.UnknownDeviceError as error:
            raise HttpError(404, str(error)) from None
        except registration.DeviceExistsError as error:
            raise HttpError(409, str(error)) from None


def _key(caller: access.Caller, *key: str) -> store.Key:
    tenant_id, device_id = key
    caller.tenant(tenant_id)
    if not all(is_id(part) for part in key):
        raise HttpError(404, "no device can have this name")
    return tenant_id, device_id


def _command(fields: dict[str, Any]) -> dict[str, Any]:
    problems = [
        (name, "is not a field of a command")
        for name in fields
        if name not in ("name", "args", "ttl_s")
    ]
    name, args, ttl_s = (
        fields.get("name"),
        fields.get("args", {}),
        fields.get("ttl_s", DEFAULT_TTL_S),
    )
    if not isinstance(name, str):
        problems.append(("name", "is missing, or no text"))
    if not isinstance(args, dict):
        problems.append(("args", "is not an object"))
    if not isinstance(ttl_s, int) or isinstance(ttl_s, bool):
        problems.append(("ttl_s", "is not a whole number"))
    if problems:
        raise api.invalid(*problems)
    return {"name": name, "args": args, "ttl_s": ttl_s}
