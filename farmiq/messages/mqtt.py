"""A message on MQTT: topic and bytes become envelope and payload, or every reason why not.

The topic is what the broker's permissions checked, so the topic is believed and the body has to
agree with it (C-02).
"""

from dataclasses import dataclass
from typing import Any

from farmiq.messages import catalogue, check, envelope, telemetry, topics
from farmiq.messages.catalogue import MqttType
from farmiq.messages.envelope import Envelope
from farmiq.messages.topics import SessionTopic, TelemetryTopic, Topic

PAYLOAD = "$.payload"


@dataclass(frozen=True, slots=True)
class Message:
    """`payload` is of the type that `kind` names."""

    where: Topic
    kind: MqttType
    envelope: Envelope
    payload: Any


def read(topic: str, raw: bytes) -> Message:
    """Return the message. Raises check.InvalidError with every problem of topic and body."""
    try:
        return _read(topic, raw)
    except check.DECODE_ERRORS as error:
        raise check.InvalidError(_everything(topic, raw) or [str(error)]) from None


def _read(topic: str, raw: bytes) -> Message:
    where = topics.parse(topic)
    kind = _kind(where)
    worn = envelope.strict(raw)
    mismatches = _mismatches(where, _fields(worn))
    if mismatches:
        raise check.InvalidError(mismatches)
    payload = kind.decoder.decode(worn.payload)
    if isinstance(where, TelemetryTopic):
        payload = telemetry.of_topic(payload, where.metric_type)
    return Message(where, kind, worn, payload)


def _kind(where: Topic) -> MqttType:
    name = catalogue.event_type_of(where)
    if name is None:
        raise check.InvalidError(
            ["a camera's topic carries its firmware's own format, no envelope"]
        )
    kind = catalogue.MQTT.get(name)
    if kind is None or type(where) not in kind.topics:
        shape = topics.SHAPES[type(where)]
        raise check.InvalidError(
            [f"topic is not in the topic map: {shape} does not carry {name!r}"]
        )
    return kind


def _fields(worn: Envelope) -> dict[str, str]:
    return {
        "tenant_id": worn.tenant_id,
        "device_id": worn.device_id,
        "event_type": worn.event_type,
    }


def _mismatches(where: Topic, fields: dict[str, Any]) -> list[str]:
    return [
        f"topic says {name} {value!r}, envelope {fields[name]!r}"
        for name, value in _expected(where).items()
        if name in fields and fields[name] != value
    ]


def _expected(where: Topic) -> dict[str, str | None]:
    """What the envelope must say on this topic. A station's device is the registry's to know."""
    announced = catalogue.event_type_of(where)
    if isinstance(where, SessionTopic):
        return {"tenant_id": where.tenant_id, "event_type": announced}
    if isinstance(where, topics.CameraTopic):
        return {}
    place = where.place
    return {"tenant_id": place.tenant_id, "device_id": place.device_id, "event_type": announced}


def _everything(topic: str, raw: bytes) -> list[str]:
    """The slow path: what the topic, the envelope, the payload and the three together lack."""
    where, kind, reasons = _where_and_kind(topic)
    body, unkeepable = check.look(raw)
    reasons += [*unkeepable, *envelope.problems(body)]
    if not isinstance(body, dict):
        return reasons
    if where is not None:
        reasons += _mismatches(where, {k: v for k, v in body.items() if isinstance(v, str)})
    # Where the topic names no type, the body's own word is enough to look at its payload by.
    kind = kind or catalogue.MQTT.get(str(body.get("event_type")))
    if kind is not None and "payload" in body:
        reasons += _payload_problems(where, kind, body["payload"])
    return reasons


def _where_and_kind(topic: str) -> tuple[Topic | None, MqttType | None, list[str]]:
    where: Topic | None = None
    try:
        where = topics.parse(topic)
        return where, _kind(where), []
    except check.InvalidError as invalid:
        return where, None, [*invalid.reasons]


def _payload_problems(where: Topic | None, kind: MqttType, payload: Any) -> list[str]:
    reasons = check.misfits(payload, kind.payload, PAYLOAD)
    if isinstance(where, TelemetryTopic) and isinstance(payload, dict):
        reasons += telemetry.other_metric(where.metric_type, payload.get("metric_type"))
    return reasons
