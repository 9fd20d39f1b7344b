"""The life of a command over all pairs of states and answers."""

from itertools import product

import pytest

from farmiq.edge.devices import command
from farmiq.edge.devices.command import Outcome, State

OUTCOMES: tuple[Outcome, ...] = ("delivered", "applied", "failed")


@pytest.mark.parametrize(("state", "outcome"), [*product(command.STATES, OUTCOMES)])
def test_what_the_device_says_counts_and_its_first_final_word_stays(
    state: State, outcome: Outcome
) -> None:
    found = command.answered(state, outcome)
    if state in ("applied", "failed"):
        assert found == state
    elif state == "expired" and outcome == "delivered":
        assert found == "expired"
    else:
        assert found == outcome


def test_a_command_is_open_or_ended() -> None:
    assert sorted((*command.OPEN, *command.ENDED)) == sorted(command.STATES)
