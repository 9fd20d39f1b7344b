"""The MQTT topic map: every topic is built and parsed here and nowhere else (C-45).

A topic is parsed into the type of its kind; `match` on it. SHAPES holds the map itself.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol
from uuid import UUID

from farmiq.messages.check import InvalidError
from farmiq.messages.ids import ID_PATTERN

MAX_TOPIC_BYTES = 512
MAX_PAYLOAD_BYTES = 256 * 1024

# What the gateway listens to: everything that devices send. Receipts and commands run the other
# way; listening to `iot/#` would bring every one of them back to us.
UP = ("iot/telemetry/#", "iot/event/#", "iot/status/#", "iot/weighvision/#")
# What the edge sends to devices: receipts and commands.
DOWN = ("iot/ack/#", "iot/command/#")
# The stream of a NATS broker that holds what devices send until the gateway has stored it.
LOG = "FARMIQ_UP"
# The broker retains the last message of these.
RETAINED = ("iot/status/#",)

CameraChannel = Literal["status", "data", "ack", "cmd"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message came from, as its topic says: the part that the broker's rules checked."""

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str


class HasPlace(Protocol):
    """Whatever names its place by the four ids."""

    @property
    def tenant_id(self) -> str: ...
    @property
    def farm_id(self) -> str: ...
    @property
    def barn_id(self) -> str: ...
    @property
    def device_id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class TelemetryTopic:
    place: Place
    metric_type: str


@dataclass(frozen=True, slots=True)
class EventTopic:
    place: Place
    event_type: str


@dataclass(frozen=True, slots=True)
class StatusTopic:
    place: Place


@dataclass(frozen=True, slots=True)
class SessionTopic:
    """Names a station, not a device: which device stands there is the registry's to say (C-02)."""

    tenant_id: str
    farm_id: str
    barn_id: str
    station_id: str
    session_id: UUID
    event_type: str


@dataclass(frozen=True, slots=True)
class CommandTopic:
    place: Place
    command: str


@dataclass(frozen=True, slots=True)
class ReceiptTopic:
    place: Place


@dataclass(frozen=True, slots=True)
class CameraTopic:
    """A camera's own topics keep the format of its firmware: no envelope."""

    mac: str
    channel: CameraChannel


Topic = (
    TelemetryTopic
    | EventTopic
    | StatusTopic
    | SessionTopic
    | CommandTopic
    | ReceiptTopic
    | CameraTopic
)

_PLACE = "{tenantId}/{farmId}/{barnId}/{deviceId}"
_STATION = "{tenantId}/{farmId}/{barnId}/{stationId}"

SHAPES: dict[type[Topic], str] = {
    TelemetryTopic: f"iot/telemetry/{_PLACE}/{{metricType}}",
    EventTopic: f"iot/event/{_PLACE}/{{eventType}}",
    StatusTopic: f"iot/status/{_PLACE}",
    SessionTopic: f"iot/weighvision/{_STATION}/session/{{sessionId}}/{{eventType}}",
    CommandTopic: f"iot/command/{_PLACE}/{{command}}",
    ReceiptTopic: f"iot/ack/{_PLACE}",
    CameraTopic: "device/{mac}/{channel}",
}
CAMERA_CHANNELS: tuple[CameraChannel, ...] = ("status", "data", "ack", "cmd")

_MAX_LEVELS = 64
_ID = re.compile(ID_PATTERN)
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_LEVELS = {kind: shape.split("/") for kind, shape in SHAPES.items()}
# A camera's topics differ from ours in the first level, ours from each other in the second.
_BY_BEGINNING = {
    (levels[0], levels[1] if levels[0] == "iot" else ""): kind for kind, levels in _LEVELS.items()
}


def telemetry(place: Place, metric_type: str) -> str:
    return f"iot/telemetry/{_levels(place)}/{metric_type}"


def event(place: Place, event_type: str) -> str:
    return f"iot/event/{_levels(place)}/{event_type}"


def status(place: Place) -> str:
    """Retained, and the topic of a device's last will."""
    return f"iot/status/{_levels(place)}"


def session(where: SessionTopic) -> str:
    station = f"{where.tenant_id}/{where.farm_id}/{where.barn_id}/{where.station_id}"
    return f"iot/weighvision/{station}/session/{where.session_id}/{where.event_type}"


def command(place: Place, name: str) -> str:
    """Down: a command to a device."""
    return f"iot/command/{_levels(place)}/{name}"


def receipts(place: Place) -> str:
    """Down: which events the edge has committed, or refused for good (C-91)."""
    return f"iot/ack/{_levels(place)}"


def camera(mac: str, channel: CameraChannel) -> str:
    """`status` and `data` come up, `ack` and `cmd` go down."""
    return f"device/{mac}/{channel}"


# The same few topics come again and again.
@lru_cache(maxsize=4096)
def parse(topic: str) -> Topic:
    """What the topic says. Raises InvalidError if it is not in the map."""
    if len(topic.encode(errors="surrogatepass")) > MAX_TOPIC_BYTES:
        raise InvalidError([f"topic longer than {MAX_TOPIC_BYTES} bytes"])
    levels = topic.split("/")
    kind = _BY_BEGINNING.get((levels[0], levels[1] if levels[0] == "iot" and levels[1:] else ""))
    named = _named(levels, _LEVELS[kind]) if kind else None
    if kind is None or named is None:
        raise InvalidError([f"topic is not in the topic map: {topic!r}"])
    odd = [reason for name, level in named.items() if (reason := _odd(name, level))]
    if odd:
        raise InvalidError(odd)
    return _made(kind, named)


def sender(topic: str) -> Topic | None:
    """Who sent a topic of devices that is in the map but for its last levels; None if none can."""
    levels = topic.split("/")
    ids = levels[2:6]
    if len(levels) > _MAX_LEVELS or len(ids) < 4 or not all(_ID.match(level) for level in ids):  # noqa: PLR2004
        return None
    kind = _BY_BEGINNING.get((levels[0], levels[1]))
    if kind is SessionTopic:
        tenant_id, farm_id, barn_id, station_id = ids
        return SessionTopic(tenant_id, farm_id, barn_id, station_id, UUID(int=0), "")
    return StatusTopic(Place(*ids)) if kind in (TelemetryTopic, EventTopic, StatusTopic) else None


def _named(levels: list[str], shape: list[str]) -> dict[str, str] | None:
    """The levels by their names in the shape; None if the fixed ones differ."""
    if len(levels) != len(shape):
        return None
    pairs = list(zip(shape, levels, strict=True))
    if any(level != name for name, level in pairs if not name.startswith("{")):
        return None
    return {name[1:-1]: level for name, level in pairs if name.startswith("{")}


def _odd(name: str, level: str) -> str | None:
    if name == "sessionId":
        fits = _UUID.fullmatch(level) is not None
        return None if fits else f"topic level {name} is not a UUID: {level!r}"
    if name == "channel" and level not in CAMERA_CHANNELS:
        return f"topic level {name} is none of {', '.join(CAMERA_CHANNELS)}: {level!r}"
    return None if _ID.match(level) else f"topic level {name} is not an id: {level!r}"


def _made(kind: type[Topic], named: dict[str, str]) -> Topic:
    levels = tuple(named.values())
    if kind is SessionTopic:
        tenant_id, farm_id, barn_id, station_id, session_id, event_type = levels
        return SessionTopic(tenant_id, farm_id, barn_id, station_id, UUID(session_id), event_type)
    if kind is CameraTopic:
        return CameraTopic(*levels)  # type: ignore[arg-type] # looked at by _odd
    made: Topic = kind(Place(*levels[:4]), *levels[4:])  # type: ignore[arg-type] # as in SHAPES
    return made


def _levels(place: Place) -> str:
    return f"{place.tenant_id}/{place.farm_id}/{place.barn_id}/{place.device_id}"
