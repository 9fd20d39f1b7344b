"""HTTP: devices for programs. A viewer reads, an operator commands, an admin registers."""

import base64
import binascii
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from fastapi import Depends, FastAPI, Query
from pydantic import Field, PlainValidator

from farmiq import api
from farmiq.api import At, BodyOf, JsonBody
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
MAX_ROWS = 500
MAX_BYTES = 128 * 1024
DEFAULT_TTL_S = 60

Kind = Literal["sensor", "silo", "feeder", "station", "gateway", "other"]
State = Literal["online", "late", "offline", "error", "never seen", "revoked"]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
CommandState = Literal["queued", "sent", "delivered", "applied", "failed", "expired"]


@dataclass(frozen=True, slots=True)
class Position:
    """The last device of a page."""

    tenant_id: str
    device_id: str


def _cursor(row: dict[str, Any]) -> str:
    key = json.dumps([row["tenant_id"], row["device_id"]]).encode()
    return base64.urlsafe_b64encode(key).decode()


def _parse_cursor(text: str) -> Position:
    try:
        tenant_id, device_id = json.loads(base64.urlsafe_b64decode(text.encode()))
    except (ValueError, TypeError, binascii.Error, RecursionError):
        tenant_id = device_id = None
    if not all(isinstance(part, str) and is_id(part) for part in (tenant_id, device_id)):
        raise ValueError("is not what an earlier page gave as `next`")
    return Position(tenant_id, device_id)


class DeviceFilter(api.Filter):
    tenant_id: api.Id | None = None
    barn_id: api.Id | None = None
    state: State | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 100
    after: Annotated[Position, PlainValidator(_parse_cursor, json_schema_input_type=str)] | None = (
        None
    )


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

    Password and token are told this once.
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
DeviceBody = BodyOf(NewDevice, max_bytes=MAX_BYTES)
CommandBody = BodyOf(NewCommand, max_bytes=MAX_BYTES)
NOT_FOUND = {404: "NOT_FOUND: no such device, or no such command of it."}


class Api:
    def __init__(self, pool: db.Pool) -> None:
        self.pool = pool

    def add_to(self, app: FastAPI) -> None:
        device_route = ROUTE + "/{tenant_id}/{device_id}"
        app.add_api_route(
            ROUTE,
            self.ls,
            summary="Devices by name (viewer)",
            response_model=DevicePage,
            response_description="A page.",
        )
        app.add_api_route(
            ROUTE,
            self.add,
            methods=["POST"],
            summary="Register a device (admin)",
            status_code=201,
            response_model=DeviceLogin,
            response_description="How it connects.",
            responses=api.errors({409: "CONFLICT: the name, or the station, is another device's."}),
        )
        app.add_api_route(
            device_route,
            self.show,
            summary="One device (viewer)",
            response_model=OneDevice,
            response_description="The device.",
            responses=api.errors(NOT_FOUND),
        )
        app.add_api_route(
            f"{device_route}/revoke",
            self.revoke,
            methods=["POST"],
            summary="Cut a device off (admin)",
            response_description="It is cut off.",
            responses=api.errors(NOT_FOUND),
        )
        app.add_api_route(
            f"{device_route}/rotate",
            self.rotate,
            methods=["POST"],
            summary="Another secret (admin)",
            response_model=DeviceLogin,
            response_description="How it connects from now on.",
            responses=api.errors(NOT_FOUND),
        )
        app.add_api_route(
            f"{device_route}/commands",
            self.command,
            methods=["POST"],
            summary="Tell a device to do something (operator)",
            status_code=202,
            response_model=QueuedCommand,
            response_description="It is queued.",
            responses=api.errors(NOT_FOUND),
        )
        app.add_api_route(
            f"{device_route}/commands/{{command_id}}",
            self.show_command,
            summary="What became of a command (viewer)",
            response_model=QueuedCommand,
            response_description="The command.",
            responses=api.errors(NOT_FOUND),
        )

    async def ls(self, caller: access.Viewer, query: Annotated[DeviceFilter, Query()]) -> Any:
        async with self._transaction() as tx:
            rows = await store.page(
                tx,
                tenant_id=caller.tenant(query.tenant_id),
                barn_id=query.barn_id,
                state=query.state,
                after=astuple(query.after) if query.after else ("", ""),
                limit=query.limit + 1,
            )
        shown = rows[: query.limit]
        more = len(rows) > len(shown)
        return {"devices": shown, "next": _cursor(shown[-1]) if more else None}

    async def show(self, caller: access.Viewer, tenant_id: str, device_id: str) -> Any:
        key = _key(caller, tenant_id, device_id)
        async with self._transaction() as tx:
            device = await store.show(tx, key)
            commands = await store.commands_of(tx, key, limit=20)
        if device is None:
            raise HttpError(404, f"no device {key[1]!r} of tenant {key[0]!r} is known")
        return {**device, "commands": commands}

    async def add(
        self, caller: access.Admin, body: Annotated[JsonBody[NewDevice], Depends(DeviceBody)]
    ) -> Any:
        written = await body.read_object()
        async with self._transaction() as tx:
            device = parse_device(written)
            caller.tenant(device.tenant_id)
            issued = await registration.add(tx, device, actor=caller.name)
        return issued.as_json()

    async def revoke(self, caller: access.Admin, tenant_id: str, device_id: str) -> DeviceRevoked:
        key = _key(caller, tenant_id, device_id)
        async with self._transaction() as tx:
            await registration.revoke(tx, key, actor=caller.name)
        return DeviceRevoked(revoked=True)

    async def rotate(self, caller: access.Admin, tenant_id: str, device_id: str) -> Any:
        key = _key(caller, tenant_id, device_id)
        async with self._transaction() as tx:
            issued = await registration.rotate(tx, key, actor=caller.name)
        return issued.as_json()

    async def command(
        self,
        caller: access.Operator,
        tenant_id: str,
        device_id: str,
        body: Annotated[JsonBody[NewCommand], Depends(CommandBody)],
    ) -> Any:
        new_command = _command(await body.read_object())
        key = _key(caller, tenant_id, device_id)
        async with self._transaction() as tx:
            command_id = await registration.command(tx, key, actor=caller.name, **new_command)
            return await store.command(tx, command_id)

    async def show_command(
        self, caller: access.Viewer, tenant_id: str, device_id: str, command_id: UUID
    ) -> Any:
        key = _key(caller, tenant_id, device_id)
        async with self._transaction() as tx:
            command = await store.command(tx, command_id)
        if command is None or (command["tenant_id"], command["device_id"]) != key:
            raise HttpError(404, f"device {key[1]!r} has no command {command_id}")
        return command

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[db.Connection]:
        """Turn errors of the registry into HTTP errors; an unavailable database is 503."""
        try:
            async with db.transaction(self.pool) as tx:
                yield tx
        except InvalidDeviceError as error:
            raise api.invalid(*error.reasons) from None
        except registration.UnknownDeviceError as error:
            raise HttpError(404, str(error)) from None
        except registration.DeviceExistsError as error:
            raise HttpError(409, str(error)) from None
        except db.UNAVAILABLE as error:
            raise HttpError(503, "the edge's database is away", retry_after_s=5) from error


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
