"""The bus envelope: what the edge's outbox sends and what RabbitMQ carries."""

import hashlib
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.messages import catalogue, check, telemetry
from farmiq.messages.envelope import Envelope
from farmiq.messages.ids import Id, Instant, TraceId
from farmiq.messages.topics import HasPlace, Place

PAYLOAD = "$.payload"


class BusEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Absent stays absent, null stays null: consumers see what was sent.

    `clock_suspect` is the edge's own word, and only there when it is true: the device's clock, from
    which `occurred_at` comes, cannot be right (C-44, C-122).
    """

    event_id: UUID
    event_type: Id
    tenant_id: Id
    farm_id: Id | None
    barn_id: Id | None
    device_id: Id | msgspec.UnsetType | None = msgspec.UNSET
    session_id: UUID | msgspec.UnsetType | None = msgspec.UNSET
    occurred_at: Instant
    trace_id: TraceId
    payload: msgspec.Raw
    clock_suspect: bool = False


_decoder = msgspec.json.Decoder(BusEvent)


def read(raw: bytes | msgspec.Raw) -> BusEvent:
    """The event in these bytes, its payload checked against its type's.

    Raises check.InvalidError with every problem found, also for a type the catalogue does not know.
    """
    try:
        return _read(raw)
    except check.DECODE_ERRORS as error:
        body, unkeepable = check.look(raw)
        raise check.InvalidError([*unkeepable, *problems(body)] or [str(error)]) from None


def problems(body: Any) -> list[str]:
    """Everything that keeps a looked-at body from being an event, its payload's faults among it."""
    reasons = check.misfits(body, BusEvent, "$")
    if not isinstance(body, dict):
        return reasons
    event_type = body.get("event_type")
    reasons += [*_type_problems(event_type), *_place_problems(event_type, body)]
    kind = catalogue.BUS.get(str(event_type))
    if kind is not None and "payload" in body:
        reasons += check.misfits(body["payload"], kind.payload, PAYLOAD)
    return reasons


def write(event: BusEvent) -> bytes:
    return msgspec.json.encode(event)


def from_reading(
    envelope: Envelope, place: Place, reading: telemetry.Reading, *, clock_suspect: bool = False
) -> BusEvent:
    """The step from MQTT to the bus: the place comes from the topic, the id stays (C-02, C-05)."""
    payload = telemetry.bus_payload(reading, envelope.payload)
    return from_envelope(envelope, place, telemetry.INGESTED, payload, clock_suspect=clock_suspect)


def from_envelope(
    envelope: Envelope,
    place: Place,
    event_type: str,
    payload: msgspec.Raw,
    *,
    session_id: UUID | None = None,
    clock_suspect: bool = False,
) -> BusEvent:
    """A device's message as an event, under the id that the device gave it."""
    return BusEvent(
        event_id=envelope.event_id,
        event_type=event_type,
        tenant_id=place.tenant_id,
        farm_id=place.farm_id,
        barn_id=place.barn_id,
        device_id=place.device_id,
        session_id=session_id,
        occurred_at=envelope.ts,
        trace_id=envelope.trace_id,
        payload=payload,
        clock_suspect=clock_suspect,
    )


def own_event(
    event_type: str,
    place: HasPlace,
    payload: Any,
    *,
    event_id: UUID,
    occurred_at: datetime,
    trace_id: str | None = None,
    session_id: UUID | None = None,
) -> BusEvent:
    """An event that a site makes itself, with its payload encoded."""
    return BusEvent(
        event_id=event_id,
        event_type=event_type,
        tenant_id=place.tenant_id,
        farm_id=place.farm_id,
        barn_id=place.barn_id,
        device_id=place.device_id,
        session_id=session_id,
        occurred_at=occurred_at,
        trace_id=trace_id or f"edge-{event_id}",
        payload=msgspec.Raw(msgspec.json.encode(payload)),
    )


def content_hash(event: BusEvent, *, sender: str | None = None) -> bytes:
    """Tells a repeat from another event under the same id (C-05).

    The order of keys, spaces and the zone of the moment do not matter. With a `sender` the same
    words of somebody else are another event.
    """
    parts = (event.event_type.encode(), instant(event.occurred_at), _in_order(event.payload))
    who = () if sender is None else (sender.encode(),)
    return hashlib.sha256(b"\x1f".join((*who, *parts))).digest()


def instant(at: datetime) -> bytes:
    """As `isoformat` writes it in UTC, in a fifth of the time."""
    return msgspec.json.encode(at.astimezone(UTC))[1:-2] + b"+00:00"


def _in_order(payload: msgspec.Raw) -> bytes:
    return _sorted.encode(_any.decode(payload))


_any = msgspec.json.Decoder()
_sorted = msgspec.json.Encoder(order="sorted")


def _read(raw: bytes | msgspec.Raw) -> BusEvent:
    event = _decoder.decode(raw)
    place = {"farm_id": event.farm_id, "barn_id": event.barn_id}
    reasons = [
        *check.keepable(raw),
        *check.not_in_utc(event.occurred_at, "occurred_at"),
        *_type_problems(event.event_type),
        *_place_problems(event.event_type, place),
    ]
    if reasons:
        raise check.InvalidError(reasons)
    catalogue.BUS[event.event_type].decoder.decode(event.payload)
    return event


def _type_problems(event_type: Any) -> list[str]:
    if not isinstance(event_type, str) or event_type in catalogue.BUS:
        return []
    return [f"event_type {event_type!r} is not registered"]


def _place_problems(event_type: Any, body: dict[str, Any]) -> list[str]:
    """Only events about a whole tenant may leave the place open (C-08)."""
    kind = catalogue.BUS.get(str(event_type))
    if kind is None or kind.place_optional:
        return []
    return [
        f"`{name}` must not be null"
        for name in ("farm_id", "barn_id")
        if name in body and body[name] is None
    ]
