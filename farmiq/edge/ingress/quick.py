"""Pure: the quick way through the door, for a reading that looks as nearly all of them do.

One decode and a few comparisons instead of a look at everything. It only ever says yes, and then
exactly what `accept` would say (a test holds the two together); whatever is out of the ordinary,
right or wrong, is left to the long way.
"""

import hashlib
import re
from datetime import UTC, datetime
from uuid import UUID

import msgspec

from farmiq.edge.arrival import Arrival, is_clock_suspect
from farmiq.messages import check, topics
from farmiq.messages.bus import BusEvent
from farmiq.messages.envelope import SCHEMA_VERSION
from farmiq.messages.ids import Instant, TraceId
from farmiq.messages.kinds import Seq, Unit, is_in_utc
from farmiq.messages.telemetry import INGESTED, READING, Reading
from farmiq.messages.topics import TelemetryTopic

# A longer message may hold numbers with more digits than can be kept.
_MAX_BYTES = 2048
# Outside of these a double may not say what was written.
_LEAST, _MOST = 1e-30, 1e300
_ZERO = re.compile(rb'value": ?-?0(?:\.0{1,9})?[,}]')
# A key that was said twice shows in the number of `":`, unless there is space in between.
_SPACED = re.compile(rb'"[ \t\r\n]')
_NUL = b"\\u0000"
_NOT_ORDINARY = (msgspec.DecodeError, RecursionError, UnicodeDecodeError, check.InvalidError)
_REQUIRED_KEYS = 9  # of the envelope eight, of the payload its unit
_UNSET = msgspec.UNSET


class _Payload(msgspec.Struct, forbid_unknown_fields=True):
    unit: Unit
    metric_type: str | msgspec.UnsetType = _UNSET
    metric_value: float | msgspec.UnsetType = _UNSET
    value: float | msgspec.UnsetType = _UNSET


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    """Names are compared with the topic's, which were looked at: they need no look of their own."""

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


_decode = msgspec.json.Decoder(_Message).decode
_encode = msgspec.json.Encoder().encode


def reading(topic: str, raw: bytes, *, now: datetime) -> Arrival | None:
    """The arrival in an ordinary reading; None if it has to be looked at."""
    try:
        where = topics.parse(topic)
        sent = _decode(raw)
    except _NOT_ORDINARY:
        return None
    if not isinstance(where, TelemetryTopic) or not _is_ordinary(sent, where, raw):
        return None
    place, payload = where.place, sent.payload
    value = payload.value if payload.metric_value is _UNSET else payload.metric_value
    assert value is not _UNSET  # noqa: S101 - an ordinary one has it
    told = Reading(metric_type=where.metric_type, metric_value=value, unit=payload.unit)
    said = _encode(told)
    suspect = is_clock_suspect(sent.ts, now)
    event = BusEvent(
        event_id=sent.event_id,
        event_type=INGESTED,
        tenant_id=place.tenant_id,
        farm_id=place.farm_id,
        barn_id=place.barn_id,
        device_id=place.device_id,
        session_id=None,
        occurred_at=sent.ts,
        trace_id=sent.trace_id,
        payload=msgspec.Raw(said),
        clock_suspect=suspect,
    )
    return Arrival(
        topic,
        raw,
        where,
        place,
        READING,
        told,
        event,
        # As bus.content_hash makes it: the keys of a reading are in their order.
        hashlib.sha256(
            place.device_id.encode() + _BEGINS + sent.ts.isoformat().encode() + _THEN + said
        ).digest(),
        now,
        suspect,
        sent.seq if sent.seq is not _UNSET else None,
        sent.boot_id if sent.boot_id is not _UNSET else None,
    )


_THEN = b"\x1f"
_BEGINS = _THEN + INGESTED.encode() + _THEN


def _is_ordinary(sent: _Message, where: TelemetryTopic, raw: bytes) -> bool:
    place, payload = where.place, sent.payload
    value = payload.value if payload.metric_value is _UNSET else payload.metric_value
    return (
        sent.tenant_id == place.tenant_id
        and sent.device_id == place.device_id
        and sent.event_type == READING
        and sent.schema_version == SCHEMA_VERSION
        and sent.ts.tzinfo is UTC
        and is_in_utc(sent.ts)
        and (payload.metric_type is _UNSET or payload.metric_type == where.metric_type)
        and (payload.metric_value is _UNSET or payload.value is _UNSET)
        and value is not _UNSET
        and (_LEAST < abs(value) < _MOST or (value == 0 and _ZERO.search(raw) is not None))
        and len(raw) <= _MAX_BYTES
        and raw.count(b'":') == _count_keys(sent)
        and _NUL not in raw
        and _SPACED.search(raw) is None
    )


def _count_keys(sent: _Message) -> int:
    payload = sent.payload
    return (
        _REQUIRED_KEYS
        + 1  # the value, under either name
        + (payload.metric_type is not _UNSET)
        + (sent.seq is not _UNSET)
        + (sent.boot_id is not _UNSET)
        + (sent.content_hash is not _UNSET)
    )
