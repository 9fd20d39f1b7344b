"""The MQTT topic map: every topic is built and parsed here and nowhere else."""

import re
from dataclasses import dataclass

from farmiq.messages.check import Invalid
from farmiq.messages.ids import ID_PATTERN

MAX_TOPIC_BYTES = 512
MAX_PAYLOAD_BYTES = 256 * 1024

# What the gateway listens to: everything that devices send. Receipts and commands run the other
# way; listening to `iot/#` would bring every one of them back to us.
UP = ("iot/telemetry/#", "iot/event/#", "iot/status/#", "iot/weighvision/#")

_ID = re.compile(ID_PATTERN)
_TELEMETRY = ("tenantId", "farmId", "barnId", "deviceId", "metricType")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message came from, as its topic says: the part that the broker's rules checked."""

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str


@dataclass(frozen=True, slots=True)
class TelemetryTopic:
    place: Place
    metric_type: str


def telemetry(place: Place, metric_type: str) -> str:
    return f"iot/telemetry/{_levels(place)}/{metric_type}"


def receipts(place: Place) -> str:
    """Down: which events the edge has committed, or refused for good (C-91)."""
    return f"iot/ack/{_levels(place)}"


def parse(topic: str) -> TelemetryTopic:
    """What the topic says. Raises Invalid if it is not in the map."""
    if len(topic.encode(errors="surrogatepass")) > MAX_TOPIC_BYTES:
        raise Invalid([f"topic longer than {MAX_TOPIC_BYTES} bytes"])
    levels = topic.split("/")
    if levels[:2] != ["iot", "telemetry"] or len(levels) != 2 + len(_TELEMETRY):
        raise Invalid([f"topic is not in the topic map: {topic!r}"])
    named = dict(zip(_TELEMETRY, levels[2:], strict=True))
    odd = [f"topic level {name} is not an id: {v!r}" for name, v in named.items() if not _is_id(v)]
    if odd:
        raise Invalid(odd)
    tenant_id, farm_id, barn_id, device_id, metric_type = levels[2:]
    return TelemetryTopic(Place(tenant_id, farm_id, barn_id, device_id), metric_type)


def _levels(place: Place) -> str:
    return f"{place.tenant_id}/{place.farm_id}/{place.barn_id}/{place.device_id}"


def _is_id(level: str) -> bool:
    return _ID.match(level) is not None
