"""Pure: the life of an outbox row. The database enforces the same (fn_sync_outbox_guard).

pending ──claim──► claimed ──send──► sending ──202──► acked
   ▲                  │                 │
   └── retry, reaper ─┴─────────────────┤
   ▲                                    └── refused, or failed too often ──► dlq ──► failed
   └───────────────────────────── redrive, by hand ──────────────────────────┘  discard, by hand
"""

from typing import Literal, get_args

State = Literal["pending", "claimed", "sending", "acked", "dlq", "failed"]
STATES: tuple[State, ...] = get_args(State)

# What is owed, what a forwarder holds under a lease, and what nothing moves by itself.
OWED: tuple[State, ...] = ("pending", "claimed", "sending")
HELD: tuple[State, ...] = ("claimed", "sending")
TERMINAL: tuple[State, ...] = ("acked", "dlq", "failed")

MOVES: dict[tuple[State, State], str] = {
    ("pending", "claimed"): "a forwarder leases it",
    ("pending", "pending"): "it is put off",
    ("pending", "dlq"): "it has failed too often already (the limit was lowered)",
    ("claimed", "claimed"): "leased anew after the lease ended, or the lease renewed",
    ("claimed", "sending"): "it is on its way",
    ("claimed", "acked"): "the cloud has it",
    ("claimed", "pending"): "it failed, or its lease ended",
    ("claimed", "dlq"): "it failed too often",
    ("sending", "sending"): "the lease is renewed by its holder",
    ("sending", "acked"): "the cloud has it",
    ("sending", "pending"): "it failed, or its lease ended",
    ("sending", "dlq"): "it was refused, or failed too often",
}
# These need an operator: a transaction that says which, and an entry in the audit log.
BY_HAND: dict[tuple[State, State], str] = {
    ("dlq", "pending"): "redrive",
    ("dlq", "failed"): "discard",
}


def may(before: State, after: State, *, by_hand: str | None = None) -> bool:
    """Whether a row may go from one state to the other."""
    return (before, after) in MOVES or (
        by_hand is not None and BY_HAND.get((before, after)) == by_hand
    )
