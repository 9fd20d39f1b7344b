"""Pure: is this message one of ours, and what does it say? (topic, bytes, now) → Arrival."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.edge.arrival import Arrival, UpTopic, is_clock_suspect
from farmiq.edge.ingress import quick
from farmiq.messages import bus, check, mqtt, topics
from farmiq.messages.catalogue import Direction
from farmiq.messages.envelope import Envelope
from farmiq.messages.topics import EventTopic, Place, SessionTopic, StatusTopic, TelemetryTopic

AtStation = Callable[[SessionTopic], Place | None]


def nobody(_where: SessionTopic) -> Place | None:
    return None


def accept(topic: str, raw: bytes, *, now: datetime) -> Arrival:
    """Raises check.InvalidError listing everything that is wrong."""
    return quick.reading(topic, raw, now=now) or look(topic, raw, now=now)


def look(topic: str, raw: bytes, *, now: datetime) -> Arrival:
    """The long way, for any message."""
    if len(raw) > topics.MAX_PAYLOAD_BYTES:
        raise check.InvalidError(
            [f"payload of {len(raw)} bytes, at most {topics.MAX_PAYLOAD_BYTES}"]
        )
    message = mqtt.read(topic, raw)
    where, worn = message.where, message.envelope
    if message.kind.direction is Direction.DOWN or not isinstance(where, UpTopic):
        raise check.InvalidError(
            [f"{message.kind.name} goes from the edge to devices, not the other way"]
        )
    place = _place(where, worn)
    event = _event(message.kind.name, where, worn, place, message.payload, now=now)
    return Arrival(
        topic=topic,
        raw=raw,
        where=where,
        place=place,
        kind=message.kind.name,
        payload=message.payload,
        event=event,
        content_hash=bus.content_hash(event, sender=place.device_id),
        received_at=now,
        clock_suspect=event.clock_suspect,
        seq=worn.seq if worn.seq is not msgspec.UNSET else None,
        boot_id=worn.boot_id if worn.boot_id is not msgspec.UNSET else None,
    )


def _place(where: UpTopic, worn: Envelope) -> Place:
    """A session's topic names a station; which device may speak there the registry knows."""
    if isinstance(where, SessionTopic):
        return Place(where.tenant_id, where.farm_id, where.barn_id, worn.device_id)
    return where.place


def _event(
    kind: str, where: UpTopic, worn: Envelope, place: Place, payload: Any, *, now: datetime
) -> bus.BusEvent:
    """A reading is always told in its long form (C-109); everything else as it was said."""
    suspect = is_clock_suspect(worn.ts, now)
    if isinstance(where, TelemetryTopic):
        return bus.from_reading(worn, place, payload, clock_suspect=suspect)
    return bus.BusEvent(
        event_id=worn.event_id,
        event_type=kind,
        tenant_id=place.tenant_id,
        farm_id=place.farm_id,
        barn_id=place.barn_id,
        device_id=place.device_id,
        session_id=where.session_id if isinstance(where, SessionTopic) else None,
        occurred_at=worn.ts,
        trace_id=worn.trace_id,
        payload=worn.payload,
        clock_suspect=suspect,
    )


def sender_and_id(
    topic: str, raw: bytes, at_station: AtStation = nobody
) -> tuple[Place, UUID] | None:
    """Whom to tell that a message was refused, if the message says at least that much.

    A session's topic names a station, and `at_station` the device that is registered there. What
    the body says is not believed: a receipt ends retransmission, and must not end another device's.
    """
    event_id = _id_in(raw)
    if event_id is None:
        return None
    try:
        where: topics.Topic | None = topics.parse(topic)
    except check.InvalidError:
        where = topics.sender(topic)
    match where:
        case TelemetryTopic(place) | EventTopic(place) | StatusTopic(place):
            return place, event_id
        case SessionTopic():
            device = at_station(where)
            return (device, event_id) if device else None
        case _:
            return None


def _id_in(raw: bytes) -> UUID | None:
    """The event's id, also where the rest is no JSON; nothing if more than one might be meant."""
    try:
        return _just_the_id.decode(raw).event_id
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        found = {*_WRITTEN_ID.findall(raw)}
    return UUID(found.pop().decode()) if len(found) == 1 else None


_WRITTEN_ID = re.compile(
    rb'"event_id"\s*:\s*"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"'
)


class _JustTheId(msgspec.Struct):
    event_id: UUID


_just_the_id = msgspec.json.Decoder(_JustTheId)
