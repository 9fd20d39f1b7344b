"""The life of an outbox row: the documented moves, and ours beside them."""

import pytest

from farmiq.edge.sync import rules

DOCUMENTED = {
    ("pending", "claimed"), ("pending", "pending"), ("pending", "dlq"),
    ("claimed", "sending"), ("claimed", "acked"), ("claimed", "pending"), ("claimed", "dlq"),
    ("sending", "acked"), ("sending", "pending"), ("sending", "dlq"),
}  # fmt: skip
# C-14: claimed again after its lease; a lease of a row being sent is renewed (D-70).
OURS = {("claimed", "claimed"), ("sending", "sending")}


@pytest.mark.req("OB-01", "OB-02", "OB-03", "OB-04", "OB-05", "OB-06", "OB-07", "OB-08")
def test_the_moves_are_the_documented_ones_and_the_two_of_leases() -> None:
    assert set(rules.MOVES) == DOCUMENTED | OURS


@pytest.mark.req("OB-09")
def test_nothing_leaves_a_terminal_state_by_itself() -> None:
    for before in rules.TERMINAL:
        assert not any(rules.may_move(before, after) for after in rules.STATES)
    assert rules.may_move("dlq", "pending", by_hand="redrive")
    assert rules.may_move("dlq", "failed", by_hand="discard")
    assert not rules.may_move("dlq", "failed", by_hand="redrive")
    assert not rules.may_move("acked", "pending", by_hand="redrive")


def test_every_state_is_unsent_or_terminal() -> None:
    assert {*rules.UNSENT, *rules.TERMINAL} == set(rules.STATES)
    assert set(rules.HELD) < set(rules.UNSENT)
