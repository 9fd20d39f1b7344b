"""Pure: the life of a command.

queued → sent (the broker has it) → delivered → applied | failed (the device said so); expired if
its time is over first. What the device says counts, also when it says it late: it is what happened.
"""

from typing import Literal

State = Literal["queued", "sent", "delivered", "applied", "failed", "expired"]
Outcome = Literal["delivered", "applied", "failed"]

STATES: tuple[State, ...] = ("queued", "sent", "delivered", "applied", "failed", "expired")
ENDED: tuple[State, ...] = ("applied", "failed", "expired")
OPEN: tuple[State, ...] = ("queued", "sent", "delivered")


def answered(state: State, outcome: Outcome) -> State:
    """After the device's word; its first final word stays."""
    if state in ("applied", "failed") or (state == "expired" and outcome == "delivered"):
        return state
    return outcome
