"""Pure: phase 2, a picture every so many minutes, whoever stands there (WV-06, WV-15)."""

from typing import Literal
from uuid import UUID

# join: the session that is open. weigh: a session of its own, with this weight. loose: no session.
Way = Literal["join", "weigh", "loose"]


def next_at(began: float, every_s: float, now: float) -> float:
    """The next slot after now, on a clock that never jumps.

    Slots that were missed are not made up: a burst of pictures of one moment tells nothing.
    """
    return began + (max(0.0, now - began) // every_s + 1) * every_s


def way(session_id: UUID | None, steady_kg: float | None, *, with_weight: bool) -> Way:
    """Where a picture of now belongs."""
    if session_id is not None:
        return "join"
    return "weigh" if with_weight and steady_kg is not None else "loose"
