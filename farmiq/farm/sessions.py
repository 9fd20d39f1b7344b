"""Pure: the state of a weigh session from its events, whatever their order and repetition.

Edge and cloud compute sessions by these rules alone: the same facts give the same session at both.
Where facts disagree (D-123):

- of several created, finalized or cancelled the earliest by (time, seq, id) counts;
- finalized wins over cancelled, whichever came or happened first: no weighing is hidden;
- nothing that comes later undoes either of them;
- a weight that the device named counts before its weighings, one that the edge derived from the
  weighings it had only while there is no weighing (C-29).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

from farmiq.messages import weighvision as words

Status = Literal["created", "finalized", "cancelled"]
Part = Literal["created", "weight", "image", "finalized"]
# What a session needs to be valid, in the order in which it is reported (SC-01).
PARTS: tuple[Part, ...] = get_args(Part)
# Events that a session is made of. That an edge calls it incomplete is no fact of it: that follows
# from these, and a session must not begin with it or seem to be heard of again by it.
FACT_TYPES = (
    words.SESSION_CREATED,
    words.WEIGHT_RECORDED,
    words.IMAGE_CAPTURED,
    words.SESSION_FINALIZED,
    words.SESSION_CANCELLED,
)
# Fields of a Session that are columns of weight_sessions at both sites.
COLUMNS = (
    "status", "start_at", "end_at", "batch_id", "initial_weight_kg", "final_weight_kg",
    "image_count", "cancel_reason",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fact:
    """One event. `weight_kg` is that of a weighing, or the one in created or finalized.

    `seq` is known at the edge only, and that a weight `is_derived` by the edge in the cloud only.
    """

    event_id: UUID
    event_type: str
    occurred_at: datetime
    seq: int | None = None
    batch_id: str | None = None
    weight_kg: float | None = None
    image_count: int | None = None
    media_id: UUID | None = None
    reason: str | None = None
    is_derived: bool = False

    @property
    def order(self) -> tuple[datetime, int, int]:
        """By the device's clock, then by its seq (C-29), then by the id."""
        return self.occurred_at, -1 if self.seq is None else self.seq, self.event_id.int


@dataclass(frozen=True, slots=True)
class Session:
    """`images` were announced and are stored; `announced`, in order, may be on the way."""

    status: Status
    start_at: datetime
    end_at: datetime | None
    batch_id: str | None
    initial_weight_kg: float | None
    final_weight_kg: float | None
    image_count: int | None
    cancel_reason: str | None
    parts: frozenset[Part]
    announced: tuple[UUID, ...]
    stored: frozenset[UUID]

    @property
    def images(self) -> frozenset[UUID]:
        return self.stored.intersection(self.announced)

    @property
    def valid(self) -> bool:
        """Created, weighed, photographed and finalized: the full set alone (SC-01)."""
        return not self.missing

    @property
    def missing(self) -> tuple[Part, ...]:
        return tuple(part for part in PARTS if part not in self.parts)

    @property
    def counts_differ(self) -> bool:
        return self.image_count is not None and self.image_count != len(self.images)

    @property
    def is_settled(self) -> bool:
        """Nothing is awaited: cancelled by the device, or valid with every image it counted."""
        return self.status == "cancelled" or (self.valid and not self.counts_differ)


def fold(facts: Iterable[Fact], *, stored: Collection[UUID] = ()) -> Session:
    """The session of these facts, at least one. `stored` are the images uploaded for it."""
    in_order = sorted(facts, key=lambda fact: fact.order)
    created = _first(in_order, words.SESSION_CREATED)
    finalized = _first(in_order, words.SESSION_FINALIZED)
    cancelled = _first(in_order, words.SESSION_CANCELLED)
    weights = [fact for fact in in_order if fact.event_type == words.WEIGHT_RECORDED]
    announced = tuple(dict.fromkeys(fact.media_id for fact in in_order if fact.media_id))
    ended = finalized or cancelled
    values: dict[Part, object] = {
        "created": created,
        "weight": weights,
        "image": set(stored).intersection(announced),
        "finalized": finalized,
    }
    return Session(
        status="finalized" if finalized else "cancelled" if cancelled else "created",
        start_at=(created or in_order[0]).occurred_at,
        end_at=ended.occurred_at if ended else None,
        batch_id=created.batch_id if created else None,
        initial_weight_kg=_weight(created, weights[:1]),
        final_weight_kg=_weight(finalized, weights[-1:]) if finalized else None,
        image_count=finalized.image_count if finalized else None,
        cancel_reason=cancelled.reason if cancelled and not finalized else None,
        parts=frozenset(part for part in PARTS if values[part]),
        announced=announced,
        stored=frozenset(stored),
    )


def overdue(
    session: Session, *, waited_s: float, quiet_s: float, patience_s: float
) -> tuple[str, ...]:
    """What is missing for too long, in words; nothing of a settled session (SC-03, C-27).

    An image is awaited since the session's first event, everything else since its last: an animal
    may stand on the scale for long. Both are the edge's time, not the device's.
    """
    if session.is_settled:
        return ()
    missing = [
        _describe(part, session)
        for part in session.missing
        if (waited_s if part == "image" else quiet_s) > patience_s
    ]
    if session.counts_differ and "image" in session.parts and quiet_s > patience_s:
        missing.append(f"images: {len(session.images)} of {session.image_count}")
    return tuple(missing)


# Whether `overdue` names something, for a row `w` of weight_sessions and a `c.now`: lists choose
# rows by it. In the cloud an image counts as stored once it was announced.
OVERDUE_SQL = """
w.status <> 'cancelled' and (
  w.heard_at < c.now - %(patience_s)s * interval '1 second' and (w.missing <> '{}'
    or w.image_count is not null and w.image_count <> cardinality(w.media_ids))
  or 'image' = any(w.missing) and w.received_at < c.now - %(patience_s)s * interval '1 second')
"""


def _describe(part: Part, session: Session) -> str:
    """The name of the missing event; for an image also how far it got."""
    if part != "image":
        return part
    if session.announced:
        return "image (announced, not uploaded)"
    return "image (uploaded, not announced)" if session.stored else "image"


def _first(in_order: Iterable[Fact], event_type: str) -> Fact | None:
    return next((fact for fact in in_order if fact.event_type == event_type), None)


def _weight(fact: Fact | None, weighings: list[Fact]) -> float | None:
    """The weight that the device named itself, else its weighing (C-29), else the edge's."""
    named = fact.weight_kg if fact else None
    if named is None or (fact and fact.is_derived and weighings):
        return weighings[0].weight_kg if weighings else None
    return named
