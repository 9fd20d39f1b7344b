"""An arrival: a valid message of a device, ready for the handlers of its domains.

Pure: (topic, bytes, now) → Arrival. Each domain has `record(tx, arrivals)`: it writes its own
tables in the caller's transaction and returns the events for the cloud. Ingress calls it and
appends them to the outbox.

Nearly all messages are readings of the same form: `parse_usual` decodes them once, with a few
comparisons. It only accepts, and then returns the same as `parse` (a test compares the two). Any
other message, valid or not, goes to `parse`.
"""

import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from farmiq.messages import bus, check, mqtt, topics
from farmiq.messages.bus import BusEvent
from farmiq.messages.catalogue import Direction
from farmiq.messages.envelope import SCHEMA_VERSION, Envelope
from farmiq.messages.ids import Instant, TraceId
from farmiq.messages.kinds import Seq, Unit, is_in_utc
from farmiq.messages.telemetry import INGESTED, READING, Reading
from farmiq.messages.topics import EventTopic, Place, SessionTopic, StatusTopic, TelemetryTopic

# A device that replays what it buffered for days is not suspect; one that is far ahead is (C-122).
MAX_AHEAD = timedelta(hours=24)
MAX_BEHIND = timedelta(days=7)

UpTopic = TelemetryTopic | EventTopic | StatusTopic | SessionTopic


def is_clock_suspect(said_at: datetime, received_at: datetime) -> bool:
    """Whether a device's clock cannot be right; what it said is kept as it is (C-44)."""
    return said_at - received_at > MAX_AHEAD or received_at - said_at > MAX_BEHIND


class Arrival(msgspec.Struct, frozen=True):
    """One message. `payload` is of the type that the catalogue names for `kind`.

    `event` says the same as a bus event, under the id that the device gave it; `content_hash`
    tells a repeat from a conflict.
    """

    topic: str
    raw: bytes
    where: UpTopic
    place: Place
    kind: str
    payload: Any
    event: BusEvent
    content_hash: bytes
    received_at: datetime
    clock_suspect: bool
    seq: int | None = None
    boot_id: str | None = None

    @property
    def key(self) -> tuple[str, UUID]:
        return self.event.tenant_id, self.event.event_id


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
    return bus.from_envelope(
        envelope,
        place,
        kind,
        envelope.payload,
        session_id=parsed.session_id if isinstance(parsed, SessionTopic) else None,
        clock_suspect=suspect,
    )


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
            place.device_id.encode() + _PREFIX + bus.instant(message.ts) + _SEPARATOR + encoded
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
