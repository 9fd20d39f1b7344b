"""Pure: how a capture becomes an event; made once, and sent with the same bytes ever after (C-84).

The order of events is that of their time, but never against the order of one session: a clock that
steps back must not put the end of a session before its beginning (C-30).
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from farmiq.messages import topics, weighvision
from farmiq.messages.envelope import SCHEMA_VERSION, Envelope
from farmiq.messages.topics import Place, SessionTopic

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Payload = msgspec.Struct


@dataclass(frozen=True, slots=True)
class Identity:
    """Who speaks: the device of the topics, and the station of its sessions."""

    place: Place
    station_id: str


@dataclass(frozen=True, slots=True)
class Minted:
    """An event as it is kept and sent."""

    topic: str
    raw: bytes


def mint(
    who: Identity,
    payload: Payload,
    *,
    event_type: str,
    event_id: UUID,
    trace_id: str,
    session_id: UUID | None,
    at: datetime,
    seq: int,
    boot_id: str,
) -> Minted:
    said = msgspec.json.encode(payload)
    envelope = Envelope(
        schema_version=SCHEMA_VERSION,
        event_id=event_id,
        trace_id=trace_id,
        tenant_id=who.place.tenant_id,
        device_id=who.place.device_id,
        event_type=event_type,
        ts=at.astimezone(UTC),
        payload=msgspec.Raw(said),
        seq=seq,
        boot_id=boot_id,
        content_hash=hashlib.sha256(said).hexdigest(),
    )
    return Minted(topic(who, event_type, session_id), msgspec.json.encode(envelope))


def topic(who: Identity, event_type: str, session_id: UUID | None) -> str:
    """Events of a session on its own topic, all others on the device's (WV-15)."""
    if session_id is None or not event_type.startswith("weighvision."):
        return topics.event(who.place, event_type)
    place = who.place
    return topics.session(
        SessionTopic(
            place.tenant_id, place.farm_id, place.barn_id, who.station_id, session_id, event_type
        )
    )


def order_us(at: datetime, *, previous_us: int | None) -> int:
    """The order key: microseconds of the event's time, or of the session's last if that is later.

    Ties are broken by seq.
    """
    own = (at - _EPOCH) // _MICROSECOND
    return own if previous_us is None else max(own, previous_us)


def intact(raw: bytes, *, event_id: str) -> bool:
    """Whether kept bytes are still the event that they were; a torn page shows here."""
    try:
        read = msgspec.json.decode(raw, type=Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return str(read.event_id) == event_id and (
        hashlib.sha256(bytes(read.payload)).hexdigest() == read.content_hash
    )


SESSION_ENDS = (weighvision.SESSION_FINALIZED, weighvision.SESSION_CANCELLED)
