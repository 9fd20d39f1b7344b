"""Pure: is this message one of ours, and what does it say? (topic, bytes, now) → Arrival.

The topic is what the broker's permissions checked, so the topic is believed and the body has to
agree with it (C-02).
"""

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from farmiq.edge.arrival import Arrival
from farmiq.messages import bus, check, envelope, telemetry, topics
from farmiq.messages.envelope import Envelope
from farmiq.messages.topics import TelemetryTopic

# A device clock further off than this is kept as sent, and flagged (C-44).
MOST_SKEW = timedelta(hours=24)


def accept(topic: str, raw: bytes, *, now: datetime) -> Arrival:
    """Raises check.Invalid listing everything that is wrong."""
    if len(raw) > topics.MAX_PAYLOAD_BYTES:
        raise check.Invalid([f"payload of {len(raw)} bytes, at most {topics.MAX_PAYLOAD_BYTES}"])
    where = topics.parse(topic)
    message = envelope.read(raw)
    mismatches = _mismatches(where, message)
    if mismatches:
        raise check.Invalid(mismatches)
    reading = telemetry.read(message.payload, metric_type=where.metric_type)
    event = bus.from_reading(message, where.place, reading)
    return Arrival(
        topic=topic,
        raw=raw,
        place=where.place,
        reading=reading,
        event=event,
        content_hash=bus.content_hash(event),
        clock_suspect=abs(now - message.ts) > MOST_SKEW,
    )


def sender_and_id(topic: str, raw: bytes) -> tuple[topics.Place, UUID] | None:
    """Whom to tell that a message was refused, if the message says at least that much."""
    try:
        place = topics.parse(topic).place
        event_id = _just_the_id.decode(raw).event_id
    except (check.Invalid, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return place, event_id


class _JustTheId(msgspec.Struct):
    event_id: UUID


_just_the_id = msgspec.json.Decoder(_JustTheId)


def _mismatches(where: TelemetryTopic, message: Envelope) -> list[str]:
    expected = {
        "tenant_id": where.place.tenant_id,
        "device_id": where.place.device_id,
        "event_type": telemetry.READING,
    }
    return [
        f"topic says {name} {value!r}, envelope {getattr(message, name)!r}"
        for name, value in expected.items()
        if getattr(message, name) != value
    ]
