"""Pure: parse and check a message of a device. (topic, bytes, now) → Arrival.

Nearly all messages are readings of the same form: `parse_usual` decodes them once, with a few
comparisons. It only accepts, and then returns the same as `parse` (a test compares the two). Any
other message, valid or not, goes to `parse`.
"""

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.edge.arrival import Arrival, UpTopic, is_clock_suspect
from farmiq.messages import bus, check, mqtt, topics
from farmiq.messages.bus import BusEvent
from farmiq.messages.catalogue import Direction
from farmiq.messages.envelope import SCHEMA_VERSION, Envelope
from farmiq.messages.ids import Instant, TraceId
from farmiq.messages.kinds import Seq, Unit, is_in_utc
from farmiq.messages.telemetry import INGESTED, READING, Reading
from farmiq.messages.topics import EventTopic, Place, SessionTopic, StatusTopic, TelemetryTopic

AtStation = Callable[[SessionTopic], Place | None]


def no_device(_where: SessionTopic) -> Place | None:
    return None


def accept(topic: str, raw: bytes, *, now: datetime) -> Arrival:
    """Raises check.InvalidError with every error."""
    return parse_usual(topic, raw, now=now) or parse(topic, raw, now=now)


def parse(topic: str, raw: bytes, *, now: datetime) -> Arrival:
    """For any message. Raises check.InvalidError with every error."""
    if len(raw) > topics.MAX_PAYLOAD_BYTES:
        raise check.InvalidError(
            [f"payload of {len(raw)} bytes, at most {topics.MAX_PAYLOAD_BYTES}"]
        )
    message = mqtt.read(topic, raw)
    parsed, envelope = message.where, message.envelope
    if message.kind.direction is Direction.DOWN or not isinstance(parsed, UpTopic):
        raise check.InvalidError(
            [f"{message.kind.name} goes from the edge to devices, not the other way"]
        )
    place = _place(parsed, envelope)
    event = _event(message.kind.name, parsed, envelope, place, message.payload, now=now)
    return Arrival(
        topic=topic,
        raw=raw,
        where=parsed,
        place=place,
        kind=message.kind.name,
        payload=message.payload,
        event=event,
        content_hash=bus.content_hash(event, sender=place.device_id),
        received_at=now,
        clock_suspect=event.clock_suspect,
        seq=envelope.seq if envelope.seq is not msgspec.UNSET else None,
        boot_id=envelope.boot_id if envelope.boot_id is not msgspec.UNSET else None,
    )


def _place(parsed: UpTopic, envelope: Envelope) -> Place:
    """The topic of a session names a station; the registry knows which device is there."""
    if isinstance(parsed, SessionTopic):
        return Place(parsed.tenant_id, parsed.farm_id, parsed.barn_id, envelope.device_id)
    return parsed.place


def _event(
    kind: str, parsed: UpTopic, envelope: Envelope, place: Place, payload: Any, *, now: datetime
) -> BusEvent:
    """A reading gets its long form (C-109); the payload of others stays as it is."""
    suspect = is_clock_suspect(envelope.ts, now)
    if isinstance(parsed, TelemetryTopic):
        return bus.from_reading(envelope, place, payload, clock_suspect=suspect)
    return BusEvent(
        event_id=envelope.event_id,
        event_type=kind,
        tenant_id=place.tenant_id,
        farm_id=place.farm_id,
        barn_id=place.barn_id,
        device_id=place.device_id,
        session_id=parsed.session_id if isinstance(parsed, SessionTopic) else None,
        occurred_at=envelope.ts,
        trace_id=envelope.trace_id,
        payload=envelope.payload,
        clock_suspect=suspect,
    )


def sender_and_id(
    topic: str, raw: bytes, at_station: AtStation = no_device
) -> tuple[Place, UUID] | None:
    """Who gets the receipt of a rejected message, if the message says that.

    The topic of a session names a station; `at_station` returns the device that is registered
    there. The body is not used: a receipt must not stop the retries of another device.
    """
    event_id = _event_id(raw)
    if event_id is None:
        return None
    try:
        parsed: topics.Topic | None = topics.parse(topic)
    except check.InvalidError:
        parsed = topics.sender(topic)
    match parsed:
        case TelemetryTopic(place) | EventTopic(place) | StatusTopic(place):
            return place, event_id
        case SessionTopic():
            device = at_station(parsed)
            return (device, event_id) if device else None
        case _:
            return None


def _event_id(raw: bytes) -> UUID | None:
    """The event id, also if the rest is no JSON; None if there is more than one."""
    try:
        return _id_decoder.decode(raw).event_id
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        written_ids = {*_WRITTEN_ID.findall(raw)}
    return UUID(written_ids.pop().decode()) if len(written_ids) == 1 else None


_WRITTEN_ID = re.compile(
    rb'"event_id"\s*:\s*"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"'
)


class _IdOnly(msgspec.Struct):
    event_id: UUID


_id_decoder = msgspec.json.Decoder(_IdOnly)


# --- usual readings

# A longer message may have numbers with more digits than a float can hold.
_MAX_BYTES = 2048
# Outside of these limits a float may differ from what was written.
_MIN, _MAX = 1e-30, 1e300
_ZERO = re.compile(rb'value": ?-?0(?:\.0{1,9})?[,}]')
# A key that comes twice shows in the number of `":`, unless there is space in between.
_SPACED = re.compile(rb'"[ \t\r\n]')
_NUL = b"\\u0000"
_NOT_USUAL = (msgspec.DecodeError, RecursionError, UnicodeDecodeError, check.InvalidError)
_REQUIRED_KEYS = 9  # eight of the envelope, and the unit of the payload
_UNSET = msgspec.UNSET


class _Payload(msgspec.Struct, forbid_unknown_fields=True):
    unit: Unit
    metric_type: str | msgspec.UnsetType = _UNSET
    metric_value: float | msgspec.UnsetType = _UNSET
    value: float | msgspec.UnsetType = _UNSET


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    """Names are compared with those of the topic, which are checked."""

    schema_version: str
    event_id: UUID
    trace_id: TraceId
    tenant_id: str
    device_id: str
    event_type: str
    ts: Instant
    payload: _Payload
    seq: Seq | msgspec.UnsetType = _UNSET
    boot_id: str | msgspec.UnsetType = _UNSET
    content_hash: str | msgspec.UnsetType = _UNSET


_decode_usual = msgspec.json.Decoder(_Message).decode
_encode_reading = msgspec.json.Encoder().encode


def parse_usual(topic: str, raw: bytes, *, now: datetime) -> Arrival | None:
    """The arrival of a usual reading; None for any other message."""
    try:
        parsed = topics.parse(topic)
        message = _decode_usual(raw)
    except _NOT_USUAL:
        return None
    if not isinstance(parsed, TelemetryTopic) or not _is_usual(message, parsed, raw):
        return None
    place, payload = parsed.place, message.payload
    value = payload.value if payload.metric_value is _UNSET else payload.metric_value
    assert value is not _UNSET  # noqa: S101 - _is_usual checks it
    reading = Reading(metric_type=parsed.metric_type, metric_value=value, unit=payload.unit)
    encoded = _encode_reading(reading)
    suspect = is_clock_suspect(message.ts, now)
    event = BusEvent(
        event_id=message.event_id,
        event_type=INGESTED,
        tenant_id=place.tenant_id,
        farm_id=place.farm_id,
        barn_id=place.barn_id,
        device_id=place.device_id,
        session_id=None,
        occurred_at=message.ts,
        trace_id=message.trace_id,
        payload=msgspec.Raw(encoded),
        clock_suspect=suspect,
    )
    return Arrival(
        topic,
        raw,
        parsed,
        place,
        READING,
        reading,
        event,
        # The same as bus.content_hash: the keys of a reading are sorted.
        hashlib.sha256(
            place.device_id.encode()
            + _PREFIX
            + message.ts.isoformat().encode()
            + _SEPARATOR
            + encoded
        ).digest(),
        now,
        suspect,
        message.seq if message.seq is not _UNSET else None,
        message.boot_id if message.boot_id is not _UNSET else None,
    )


_SEPARATOR = b"\x1f"
_PREFIX = _SEPARATOR + INGESTED.encode() + _SEPARATOR


def _is_usual(message: _Message, parsed: TelemetryTopic, raw: bytes) -> bool:
    place, payload = parsed.place, message.payload
    value = payload.value if payload.metric_value is _UNSET else payload.metric_value
    return (
        message.tenant_id == place.tenant_id
        and message.device_id == place.device_id
        and message.event_type == READING
        and message.schema_version == SCHEMA_VERSION
        and message.ts.tzinfo is UTC
        and is_in_utc(message.ts)
        and (payload.metric_type is _UNSET or payload.metric_type == parsed.metric_type)
        and (payload.metric_value is _UNSET or payload.value is _UNSET)
        and value is not _UNSET
        and (_MIN < abs(value) < _MAX or (value == 0 and _ZERO.search(raw) is not None))
        and len(raw) <= _MAX_BYTES
        and raw.count(b'":') == _count_keys(message)
        and _NUL not in raw
        and _SPACED.search(raw) is None
    )


def _count_keys(message: _Message) -> int:
    payload = message.payload
    return (
        _REQUIRED_KEYS
        + 1  # the value, under either name
        + (payload.metric_type is not _UNSET)
        + (message.seq is not _UNSET)
        + (message.boot_id is not _UNSET)
        + (message.content_hash is not _UNSET)
    )
