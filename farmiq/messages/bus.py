"""The bus envelope: what the edge's outbox sends and what RabbitMQ carries."""

import hashlib
from dataclasses import dataclass
from datetime import UTC
from typing import Any
from uuid import UUID

import msgspec

from farmiq.messages import check, telemetry
from farmiq.messages.envelope import Envelope
from farmiq.messages.ids import Id, Instant, TraceId
from farmiq.messages.topics import Place


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


@dataclass(frozen=True, slots=True)
class EventType:
    """What the catalogue knows of an event type on the bus."""

    name: str
    payload: Any
    decoder: "msgspec.json.Decoder[Any]"

    @property
    def exchange(self) -> str:
        """`farmiq.{first segment}.exchange`; the routing key is the type itself (C-07)."""
        return f"farmiq.{self.name.split('.', maxsplit=1)[0]}.exchange"


CATALOGUE = {
    kind.name: kind
    for kind in (EventType(telemetry.INGESTED, telemetry.Reading, telemetry.ingested_decoder),)
}

_decoder = msgspec.json.Decoder(BusEvent)


def read(raw: bytes | msgspec.Raw) -> BusEvent:
    """The event in these bytes, its payload checked against its type's.

    Raises check.Invalid with every problem found, also for a type the catalogue does not know.
    """
    event = check.read(raw, _decoder, BusEvent)
    kind = CATALOGUE.get(event.event_type)
    if kind is None:
        raise check.Invalid([f"event_type {event.event_type!r} is not registered"])
    reasons = [*_place_problems(event), *check.not_in_utc(event.occurred_at, "occurred_at")]
    reasons += [f"payload: {reason}" for reason in _payload_problems(event.payload, kind)]
    if reasons:
        raise check.Invalid(reasons)
    return event


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


def _payload_problems(payload: msgspec.Raw, kind: EventType) -> list[str]:
    """Decoding into a type skips over fields it does not know; the bus carries those too."""
    try:
        check.read(payload, kind.decoder, kind.payload)
        msgspec.json.decode(payload)
    except check.Invalid as invalid:
        return invalid.reasons
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return [f"not JSON: {error}"]
    return []


def _place_problems(event: BusEvent) -> list[str]:
    """Only events about a whole tenant may leave the place open (C-08); none is registered yet."""
    names = ("farm_id", "barn_id")
    return [f"`{name}` must not be null" for name in names if getattr(event, name) is None]
