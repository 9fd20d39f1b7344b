"""The edge's routes of devices, for its OpenAPI document."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from farmiq.contracts import schemas
from farmiq.edge.devices.api import MOST_ON_A_PAGE, ROUTE
from farmiq.edge.devices.desk import LONGEST_TTL_S
from farmiq.edge.devices.entry import MOST_HEARTBEAT_S, MOST_TEXT
from farmiq.messages.ids import ID_PATTERN, Id

Kind = Literal["sensor", "silo", "feeder", "station", "gateway", "other"]
State = Literal["online", "late", "offline", "error", "never seen", "revoked"]
Text = Annotated[str, msgspec.Meta(max_length=MOST_TEXT)]
CommandState = Literal["queued", "sent", "delivered", "applied", "failed", "expired"]


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
    heartbeat_s: Annotated[int, msgspec.Meta(ge=1, le=MOST_HEARTBEAT_S)] = 60


class DeviceLogin(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
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


class RegisteredDevice(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
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
    created_at: datetime
    rotated_at: datetime | None
    revoked_at: datetime | None
    state: State
    since: datetime | None
    last_seen_at: datetime | None
    said_state: str | None
    said_at: datetime | None
    firmware_version: str | None
    ip: str | None
    signal_strength: float | None
    health: dict[str, bool | None] | None
    uptime_s: float | None
    buffer_depth: int | None
    battery_v: float | None
    paused_until: datetime | None


class DevicePage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`next` is the `after` of the next page; null on the last."""

    devices: list[RegisteredDevice]
    next: str | None


class CommandBrief(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`sent`: the broker has it. `delivered`, `applied`, `failed`: the device said so."""

    command_id: UUID
    name: str
    state: CommandState
    message: str | None
    created_by: str
    created_at: datetime
    expires_at: datetime
    sent_at: datetime | None
    sent_count: int
    delivered_at: datetime | None
    ended_at: datetime | None


class QueuedCommand(CommandBrief, kw_only=True, forbid_unknown_fields=True):
    tenant_id: str
    device_id: str
    args: dict[str, Any]


class OneDevice(RegisteredDevice, kw_only=True, forbid_unknown_fields=True):
    """A device with its last commands, newest first."""

    commands: list[CommandBrief]


class NewCommand(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The device must not obey when `ttl_s` seconds are over."""

    name: Id
    args: dict[str, Any] = msgspec.field(default_factory=dict)
    ttl_s: Annotated[int, msgspec.Meta(ge=1, le=LONGEST_TTL_S)] = 60


class DeviceRevoked(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    revoked: bool


TYPES = (NewDevice, DeviceLogin, DevicePage, OneDevice, NewCommand, QueuedCommand, DeviceRevoked)
_WRONG = {
    "400": "VALIDATION_ERROR: `details` names every field that is wrong.",
    "401": "UNAUTHENTICATED: no key, or one that is not known (farmiq key add).",
    "403": "FORBIDDEN: the key's role does not reach.",
    "503": "UNAVAILABLE: the edge's database is away; try again after Retry-After.",
}
_THERE = {"404": "NOT_FOUND: no such device, or no such command of it."}
_BODY = {
    "413": "PAYLOAD_TOO_LARGE: the body is too large.",
    "415": "UNSUPPORTED_MEDIA_TYPE: send application/json.",
}
_OFTEN = {"429": "TOO_MANY_REQUESTS: the key acts too often; wait for Retry-After."}
_UUID = {"type": "string", "format": "uuid"}
_TAKEN = {"409": "CONFLICT: the name, or the station, is another device's."}


def paths(error: Any) -> dict[str, Any]:
    """`error` is the type of the standard error body."""

    def route(
        summary: str, role: str, code: str, answer: Any, more: dict[str, str], **other: Any
    ) -> dict[str, Any]:
        wrong = {**_WRONG, **more, **({} if role == "viewer" else _OFTEN)}
        return {
            "summary": f"{summary} ({role})",
            "security": [{"key": []}],
            **other,
            "responses": {
                code: {"description": summary, "content": _json(answer)},
                **{
                    status: {"description": why, "content": _json(error)}
                    for status, why in wrong.items()
                },
            },
        }

    named = {"type": "string", "pattern": ID_PATTERN}
    who = {"parameters": [_path("tenant_id", named), _path("device_id", named)]}
    one = ROUTE + "/{tenant_id}/{device_id}"
    followed = {"parameters": [*who["parameters"], _path("command_id", _UUID)]}
    return {
        ROUTE: {
            "get": route("Devices by name", "viewer", "200", DevicePage, {}, parameters=_FILTERS),
            "post": route(
                "Register a device", "admin", "201", DeviceLogin, {**_TAKEN, **_BODY},
                requestBody=_body(NewDevice),
            ),
        },
        one: {"get": route("One device", "viewer", "200", OneDevice, _THERE, **who)},
        f"{one}/revoke": {
            "post": route("Cut a device off", "admin", "200", DeviceRevoked, _THERE, **who)
        },
        f"{one}/rotate": {
            "post": route("Another secret", "admin", "200", DeviceLogin, _THERE, **who)
        },
        f"{one}/commands": {
            "post": route(
                "Tell a device to do something", "operator", "202", QueuedCommand,
                {**_THERE, **_BODY}, requestBody=_body(NewCommand), **who,
            )
        },
        f"{one}/commands/{{command_id}}": {
            "get": route(
                "What became of a command", "viewer", "200", QueuedCommand, _THERE, **followed
            )
        },
    }  # fmt: skip


def _path(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query(name: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema}


_FILTERS = [
    _query("tenant_id", type="string", pattern=ID_PATTERN),
    _query("barn_id", type="string", pattern=ID_PATTERN),
    _query("state", type="string", enum=list(State.__args__)),  # type: ignore[attr-defined]
    _query("limit", type="integer", minimum=1, maximum=MOST_ON_A_PAGE, default=100),
    _query("after", type="string"),
]


def _body(kind: Any) -> dict[str, Any]:
    return {"required": True, "content": _json(kind)}


def _json(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schemas.ref(kind)}}
