"""Pure: what a full buffer lets go, and in which order (C-31, C-86).

First what is stored or was refused: the edge has it. Then what was never sent, by rank: answers to
commands, pictures that belong to no session, the middle weights of a session; the oldest first.
What says that there was a session and what it weighed at first and at last is never dropped; when
only such events are left, no new session begins.
"""

from dataclasses import dataclass
from typing import Literal

from farmiq.messages import device, weighvision

Rank = Literal[0, 1, 2, 9]
ASIDE: Rank = 0
LOOSE_PICTURE: Rank = 1
MIDDLE_WEIGHT: Rank = 2
CRITICAL: Rank = 9

# What the ledger calls the events of a rank.
CLASSES: dict[int, str] = {ASIDE: "status", LOOSE_PICTURE: "image", MIDDLE_WEIGHT: "weight"}

# What a session needs to come to its end: created, a picture, a weight, finalized.
SESSION_ROOM = 4


def rank(event_type: str, *, in_session: bool) -> Rank:
    """Of an event when it is made. A weight becomes a middle one when another follows."""
    if event_type == device.COMMAND_ANSWERED:
        return ASIDE
    if event_type == weighvision.IMAGE_CAPTURED and not in_session:
        return LOOSE_PICTURE
    return CRITICAL


@dataclass(frozen=True, slots=True)
class Load:
    """How full the buffer is; `droppable` may be counted up to what is asked for."""

    events: int
    limit: int
    stored: int
    refused: int
    droppable: int


@dataclass(frozen=True, slots=True)
class Room:
    """How many to delete of each; `short` is what cannot be found."""

    stored: int
    refused: int
    dropped: int
    short: int


def make_room(load: Load, *, need: int) -> Room:
    missing = max(0, load.events + need - load.limit)
    stored = min(missing, load.stored)
    refused = min(missing - stored, load.refused)
    dropped = min(missing - stored - refused, load.droppable)
    return Room(stored, refused, dropped, missing - stored - refused - dropped)


def expired(*, rank: int, attempts: int, age_s: float, limit_s: float) -> bool:
    """Age alone drops nothing: the event is not critical, and had its chance to be sent."""
    return rank != CRITICAL and attempts > 0 and age_s > limit_s
