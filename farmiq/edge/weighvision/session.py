"""Pure: what the events of one weigh session come to, in whatever order and how often they came.

A session is the set of its facts, and everything else is read off that set: the same facts give
the same session. The rules where facts disagree (D-123):

- of several created, finalized or cancelled the earliest by (time, seq, id) counts;
- finalized wins over cancelled, whichever came or happened first: no weighing is hidden;
- nothing that comes later undoes either of them.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

from farmiq.messages import weighvision as words

Status = Literal["created", "finalized", "cancelled"]
Part = Literal["created", "weight", "image", "finalized"]
# What a session needs to be valid, in the order in which it is told (SC-01).
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, slots=True)
class Fact:
    """One event. `weight_kg` is the weighing's, or the one that created or finalized names."""

    event_id: UUID
    event_type: str
    occurred_at: datetime
    seq: int | None = None
    batch_id: str | None = None
    weight_kg: float | None = None
    image_count: int | None = None
    media_id: UUID | None = None
    reason: str | None = None

    @property
    def order(self) -> tuple[datetime, int, int]:
        """By the device's clock, then by its count (C-29); the id where both are silent."""
        return self.occurred_at, -1 if self.seq is None else self.seq, self.event_id.int


@dataclass(frozen=True, slots=True)
class Session:
    """`images` were announced and are stored; `announced` may still be on the way."""

    status: Status
    start_at: datetime
    end_at: datetime | None
    batch_id: str | None
    initial_weight_kg: float | None
    final_weight_kg: float | None
    image_count: int | None
    reason: str | None
    parts: frozenset[Part]
    announced: frozenset[UUID]
    stored: frozenset[UUID]

    @property
    def images(self) -> frozenset[UUID]:
        return self.announced & self.stored

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
        """Nothing is waited for: given up by the device, or valid with every image it counted."""
        return self.status == "cancelled" or (self.valid and not self.counts_differ)


def fold(facts: Iterable[Fact], *, stored: Collection[UUID] = ()) -> Session:
    """What these facts come to; at least one. `stored` are the images uploaded for the session."""
    in_order = sorted(set(facts), key=lambda fact: fact.order)
    created = _first(in_order, words.SESSION_CREATED)
    finalized = _first(in_order, words.SESSION_FINALIZED)
    cancelled = _first(in_order, words.SESSION_CANCELLED)
    weights = [fact for fact in in_order if fact.event_type == words.WEIGHT_RECORDED]
    announced = frozenset(fact.media_id for fact in in_order if fact.media_id)
    ended = finalized or cancelled
    return Session(
        status="finalized" if finalized else "cancelled" if cancelled else "created",
        start_at=(created or in_order[0]).occurred_at,
        end_at=ended.occurred_at if ended else None,
        batch_id=created.batch_id if created else None,
        initial_weight_kg=_weight(created, weights[:1]),
        final_weight_kg=_weight(finalized, weights[-1:]) if finalized else None,
        image_count=finalized.image_count if finalized else None,
        reason=cancelled.reason if cancelled and not finalized else None,
        parts=_parts(created, weights, announced & frozenset(stored), finalized),
        announced=announced,
        stored=frozenset(stored),
    )


def overdue(
    session: Session, *, waited_s: float, quiet_s: float, patience_s: float
) -> tuple[str, ...]:
    """What is missing for too long, in words; nothing of a session that is settled (SC-03, C-27).

    An image is waited for since the session's first event, everything else since its last: an
    animal may stand on the scale for long. Both are the edge's time, not the device's.
    """
    if session.is_settled:
        return ()
    lacking = [
        _named(part, session)
        for part in session.missing
        if (waited_s if part == "image" else quiet_s) > patience_s
    ]
    if session.counts_differ and "image" in session.parts and quiet_s > patience_s:
        lacking.append(f"images: {len(session.images)} of {session.image_count}")
    return tuple(lacking)


def _named(part: Part, session: Session) -> str:
    """An image says how far it got; the rest is the name of its event."""
    if part != "image":
        return part
    if session.announced:
        return "image (announced, not uploaded)"
    return "image (uploaded, not announced)" if session.stored else "image"


def _first(in_order: Iterable[Fact], event_type: str) -> Fact | None:
    return next((fact for fact in in_order if fact.event_type == event_type), None)


def _weight(said: Fact | None, weighed: list[Fact]) -> float | None:
    """What the device named itself counts, else its weighing (C-29)."""
    if said is not None and said.weight_kg is not None:
        return said.weight_kg
    return weighed[0].weight_kg if weighed else None


def _parts(
    created: Fact | None, weights: list[Fact], images: frozenset[UUID], finalized: Fact | None
) -> frozenset[Part]:
    has: dict[Part, object] = {
        "created": created,
        "weight": weights,
        "image": images,
        "finalized": finalized,
    }
    return frozenset(part for part in PARTS if has[part])
