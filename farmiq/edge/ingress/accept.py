"""Pure: is this message one of ours, and what does it say? (topic, bytes, now) → Arrival."""

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from farmiq.edge.arrival import Arrival
from farmiq.messages import bus, check, mqtt, topics
from farmiq.messages.catalogue import Direction, MqttType
from farmiq.messages.telemetry import Reading
from farmiq.messages.topics import EventTopic, StatusTopic, TelemetryTopic

# A device clock further off than this is kept as sent, and flagged (C-44).
MOST_SKEW = timedelta(hours=24)


def accept(topic: str, raw: bytes, *, now: datetime) -> Arrival:
    """Raises check.Invalid listing everything that is wrong."""
    if len(raw) > topics.MAX_PAYLOAD_BYTES:
        raise check.Invalid([f"payload of {len(raw)} bytes, at most {topics.MAX_PAYLOAD_BYTES}"])
    message = mqtt.read(topic, raw)
    match message.where, message.payload:
        case TelemetryTopic(place), Reading() as reading:
            event = bus.from_reading(message.envelope, place, reading)
        case _:
            raise check.Invalid([_not_here(message.kind)])
    return Arrival(
        topic=topic,
        raw=raw,
        place=place,
        reading=reading,
        event=event,
        content_hash=bus.content_hash(event),
        clock_suspect=abs(now - message.envelope.ts) > MOST_SKEW,
    )


def _not_here(kind: MqttType) -> str:
    """Why a message that is right in every respect still goes to quarantine, which keeps it."""
    if kind.direction is Direction.DOWN:
        return f"{kind.name} goes from the edge to devices, not the other way"
    return f"{kind.name} is understood but not recorded at this edge yet"


def sender_and_id(topic: str, raw: bytes) -> tuple[topics.Place, UUID] | None:
    """Whom to tell that a message was refused, if the message says at least that much.

    A session's topic names a station. Its device is known from the body alone, which is not
    believed: a receipt ends retransmission, and must not end another device's.
    """
    try:
        where = topics.parse(topic)
        event_id = _just_the_id.decode(raw).event_id
    except (check.Invalid, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    match where:
        case TelemetryTopic(place) | EventTopic(place) | StatusTopic(place):
            return place, event_id
        case _:
            return None


class _JustTheId(msgspec.Struct):
    event_id: UUID


_just_the_id = msgspec.json.Decoder(_JustTheId)
