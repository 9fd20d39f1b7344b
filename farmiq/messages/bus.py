"""The bus envelope: what the edge's outbox sends and what RabbitMQ carries."""

import hashlib
from datetime import UTC
from typing import Any
from uuid import UUID

import msgspec

from farmiq.messages import catalogue, check, telemetry
from farmiq.messages.envelope import Envelope
from farmiq.messages.ids import Id, Instant, TraceId
from farmiq.messages.topics import Place

PAYLOAD = "$.payload"


class BusEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Absent stays absent, null stays null: consumers see what was sent."""

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


_decoder = msgspec.json.Decoder(BusEvent)


def read(raw: bytes | msgspec.Raw) -> BusEvent:
    """The event in these bytes, its payload checked against its type's.

    Raises check.Invalid with every problem found, also for a type the catalogue does not know.
    """
    try:
        return _read(raw)
    except check.Invalid as invalid:
        raise check.Invalid(_everything(bytes(raw)) or invalid.reasons) from None


def write(event: BusEvent) -> bytes:
    return msgspec.json.encode(event)


def from_reading(envelope: Envelope, place: Place, reading: telemetry.Reading) -> BusEvent:
    """The step from MQTT to the bus: the place comes from the topic, the id stays (C-02, C-05)."""
    return BusEvent(
        event_id=envelope.event_id,
        event_type=telemetry.INGESTED,
        tenant_id=place.tenant_id,
        farm_id=place.farm_id,
        barn_id=place.barn_id,
        device_id=place.device_id,
        session_id=None,
        occurred_at=envelope.ts,
        trace_id=envelope.trace_id,
        payload=msgspec.Raw(msgspec.json.encode(reading)),
    )


def content_hash(event: BusEvent) -> bytes:
    """Tells a repeat from another event under the same id (C-05)."""
    payload = msgspec.json.encode(msgspec.json.decode(event.payload), order="sorted")
    instant = event.occurred_at.astimezone(UTC).isoformat()
    parts = (event.event_type.encode(), instant.encode(), payload)
    return hashlib.sha256(b"\x1f".join(parts)).digest()


def _read(raw: bytes | msgspec.Raw) -> BusEvent:
    event = check.read(raw, _decoder, BusEvent)
    reasons = [*check.keepable(raw), *_own_problems(event)]
    if reasons:
        raise check.Invalid(reasons)
    kind = catalogue.BUS[event.event_type]
    check.read(event.payload, kind.decoder, kind.payload, path=PAYLOAD)
    return event


def _own_problems(event: BusEvent) -> list[str]:
    return [
        *_type_problems(event.event_type),
        *_place_problems(event.event_type, {"farm_id": event.farm_id, "barn_id": event.barn_id}),
        *check.not_in_utc(event.occurred_at, "occurred_at"),
    ]


def _type_problems(event_type: str) -> list[str]:
    return [] if event_type in catalogue.BUS else [f"event_type {event_type!r} is not registered"]


def _place_problems(event_type: str, place: dict[str, Any]) -> list[str]:
    """Only events about a whole tenant may leave the place open (C-08)."""
    kind = catalogue.BUS.get(event_type)
    if kind is None or kind.place_optional:
        return []
    return [f"`{name}` must not be null" for name, value in place.items() if value is None]


def _everything(raw: bytes) -> list[str]:
    """The slow path: what the envelope and the payload lack, both listed in one go."""
    try:
        event = check.read(raw, _decoder, BusEvent)
        reasons = [*check.keepable(raw), *_own_problems(event)]
    except check.Invalid as invalid:
        reasons = invalid.reasons
    if check.problems(raw, dict[str, Any]):
        return reasons
    body = msgspec.json.decode(raw)
    kind = catalogue.BUS.get(str(body.get("event_type")))
    if kind is not None and "payload" in body:
        reasons = [*reasons, *check.misfits(body["payload"], kind.payload, PAYLOAD)]
    return reasons
