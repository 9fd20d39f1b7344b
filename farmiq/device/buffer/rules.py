"""Pure: what may become an event, how it is encoded and ordered, what a full buffer deletes."""

import hashlib
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

import msgspec

from farmiq.messages import device, envelope, topics, weighvision
from farmiq.messages.envelope import Envelope
from farmiq.messages.topics import Place, SessionTopic

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


# --- what may become an event (WV-02); each function returns the problem, or None

MAX_PICTURE_BYTES = 10 * 2**20
CONTENT_TYPES = ("image/jpeg", "image/png", "image/webp")
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"
_MIN_BYTES = 64


def weight_problem(weight_kg: float, *, max_kg: float) -> str | None:
    if not math.isfinite(weight_kg):
        return f"a weight of {weight_kg} kg is not a number"
    if weight_kg <= 0:
        return f"a weight of {weight_kg:g} kg is not above 0"
    if weight_kg > max_kg:
        return f"a weight of {weight_kg:g} kg is above {max_kg:g} kg (AGENT_MOST_WEIGHT_KG)"
    return None


def picture_problem(data: bytes, content_type: str) -> str | None:
    """By its first and last bytes: empty, too large, no picture, another type, cut off."""
    if content_type not in CONTENT_TYPES:
        return f"a picture of type {content_type!r}; only {', '.join(CONTENT_TYPES)} are taken"
    if not data:
        return "an empty picture"
    if len(data) > MAX_PICTURE_BYTES:
        return f"a picture of {len(data)} bytes is larger than {MAX_PICTURE_BYTES}"
    actual_type = _type_of(data)
    if actual_type is None:
        return "bytes that are no JPEG, PNG or WebP picture"
    if actual_type != content_type:
        return f"a picture that is {actual_type} and was called {content_type}"
    return "a picture that is cut off" if _is_cut_off(data, actual_type) else None


def _type_of(data: bytes) -> str | None:
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith(_PNG):
        return "image/png"
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None


def _is_cut_off(data: bytes, content_type: str) -> bool:
    if len(data) < _MIN_BYTES:
        return True
    if content_type == "image/jpeg":
        # Some cameras fill up with zeros after the end mark.
        return not data.rstrip(b"\0").endswith(b"\xff\xd9")
    if content_type == "image/png":
        return not data.endswith(_PNG_END)
    return len(data) < int.from_bytes(data[4:8], "little") + 8


# --- encoding: made once, and sent with the same bytes ever after (C-84)


@dataclass(frozen=True, slots=True)
class Identity:
    """The device that its topics name, and the station of its sessions."""

    place: Place
    station_id: str


def encode(
    identity: Identity,
    payload: msgspec.Struct,
    *,
    event_type: str,
    event_id: UUID,
    trace_id: str,
    at: datetime,
    seq: int,
    boot_id: str,
) -> bytes:
    """The envelope of an event, as it is stored and sent."""
    body = msgspec.json.encode(payload)
    return envelope.write(
        identity.place,
        body,
        event_type=event_type,
        event_id=event_id,
        trace_id=trace_id,
        at=at,
        seq=seq,
        boot_id=boot_id,
        content_hash=hashlib.sha256(body).hexdigest(),
    )


def topic(identity: Identity, event_type: str, session_id: UUID | None) -> str:
    """Events of a session on its own topic, all others on the device's (WV-15)."""
    place = identity.place
    if session_id is None or not event_type.startswith("weighvision."):
        return topics.event(place, event_type)
    where = place.tenant_id, place.farm_id, place.barn_id, identity.station_id
    return topics.session(SessionTopic(*where, session_id, event_type))


def order_us(at: datetime, *, previous_us: int | None) -> int:
    """The order key: microseconds of the event's time, or of the session's last if later (C-30).

    A clock that steps back must not put a session's end before its beginning. Ties go by seq.
    """
    own_us = (at - _EPOCH) // _MICROSECOND
    return own_us if previous_us is None else max(own_us, previous_us)


def is_intact(raw: bytes, *, event_id: str) -> bool:
    """Whether stored bytes are still the event that was written; a torn page shows here."""
    try:
        worn = msgspec.json.decode(raw, type=Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    digest = hashlib.sha256(bytes(worn.payload)).hexdigest()
    return str(worn.event_id) == event_id and digest == worn.content_hash


# --- what a full buffer deletes, and in which order (C-31, C-86)
#
# First what the edge has: stored and rejected events. Then what was never sent, by rank and age.
# The events that say that there was a session, and its first and last weight, are never dropped;
# when only those are left, no new session begins.

Rank = Literal[0, 1, 2, 9]
COMMAND_ANSWER: Rank = 0
LOOSE_PICTURE: Rank = 1
MIDDLE_WEIGHT: Rank = 2
CRITICAL: Rank = 9

# The ledger's name for the events of a rank.
CLASSES: dict[int, str] = {
    COMMAND_ANSWER: "status",
    LOOSE_PICTURE: "image",
    MIDDLE_WEIGHT: "weight",
}

# What a session needs until its end: created, a picture, a weight, finalized.
SESSION_ROOM = 4


def rank(event_type: str, *, in_session: bool) -> Rank:
    """Of a new event. A weight becomes a middle one when another follows."""
    if event_type == device.COMMAND_ANSWERED:
        return COMMAND_ANSWER
    if event_type == weighvision.IMAGE_CAPTURED and not in_session:
        return LOOSE_PICTURE
    return CRITICAL


@dataclass(frozen=True, slots=True)
class Room:
    """How many events to delete of each kind; `short` is what cannot be found."""

    stored: int
    rejected: int
    dropped: int
    short: int


def make_room(missing: int, *, stored: int, rejected: int, droppable: int) -> Room:
    """Find `missing` places among so many events of each kind."""
    from_stored = min(max(0, missing), stored)
    from_rejected = min(max(0, missing) - from_stored, rejected)
    left = max(0, missing) - from_stored - from_rejected
    dropped = min(left, droppable)
    return Room(from_stored, from_rejected, dropped, left - dropped)


# --- planning: rate times size times hours against the limits of the buffer (peers 3)

# Created and finalized.
_EVENTS_PER_SESSION = 2
_BYTES_PER_EVENT = 1200
_EVENTS_PER_S = 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What an outage of `hours` brings, and what there is room for."""

    hours: float
    events: int
    events_limit: int
    picture_bytes: int
    picture_limit: int
    database_bytes: int
    fits: bool
    hours_that_fit: float
    drain_s: float


def plan(
    *,
    sessions_per_hour: float,
    weights: int,
    pictures: int,
    picture_bytes: int,
    loose_per_hour: float,
    hours: float,
    events_limit: int,
    picture_limit: int,
) -> Plan:
    events_per_hour = (
        sessions_per_hour * (_EVENTS_PER_SESSION + weights + pictures) + loose_per_hour
    )
    bytes_per_hour = (sessions_per_hour * pictures + loose_per_hour) * picture_bytes
    max_hours = min(
        events_limit / events_per_hour if events_per_hour else math.inf,
        picture_limit / bytes_per_hour if bytes_per_hour else math.inf,
    )
    events = round(events_per_hour * hours)
    return Plan(
        hours=hours,
        events=events,
        events_limit=events_limit,
        picture_bytes=round(bytes_per_hour * hours),
        picture_limit=picture_limit,
        database_bytes=min(events, events_limit) * _BYTES_PER_EVENT,
        fits=hours <= max_hours,
        hours_that_fit=round(min(max_hours, 1e6), 1),
        drain_s=min(events, events_limit) / _EVENTS_PER_S,
    )
