"""States of devices and commands: over all states, answers and lengths of silence."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.devices import rules
from farmiq.edge.devices.rules import CommandOutcome, CommandState, Liveness, ReportedState, State

NOW = datetime(2025, 5, 5, tzinfo=UTC)
SAID: tuple[ReportedState, ...] = ("online", "offline", "error")
STATES: tuple[State, ...] = ("online", "late", "offline", "error")
OUTCOMES: tuple[CommandOutcome, ...] = ("delivered", "applied", "failed")


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def life(state: State = "online", **changes: object) -> Liveness:
    usual: dict[str, object] = {"state": state, "since": NOW, "last_seen_at": NOW}
    return Liveness(**{**usual, "told_state": rules.cloud_state(state), **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("said", SAID)
def test_the_first_status_is_the_state(said: ReportedState) -> None:
    found = rules.after_status(None, reported=said, event_id=UUID(int=1), now=NOW)
    assert (found.state, found.told_state, found.since, found.said_at) == (said, said, NOW, NOW)


@pytest.mark.parametrize(("state", "said"), [*product(STATES, SAID)])
def test_a_status_is_believed_and_since_moves_only_with_a_change(
    state: State, said: ReportedState
) -> None:
    before = life(state)
    found = rules.after_status(before, reported=said, event_id=UUID(int=1), now=after(9))
    assert (found.state, found.told_state) == (said, said)
    assert found.since == (NOW if state == said else after(9))
    # A last will is the broker's word: the device itself was not heard.
    assert found.last_seen_at == (NOW if said == "offline" else after(9))


@pytest.mark.parametrize(("state", "said"), [*product(STATES, SAID)])
def test_a_retained_status_that_comes_again_changes_nothing(
    state: State, said: ReportedState
) -> None:
    before = life(state, status_event_id=UUID(int=1))
    assert rules.after_status(before, reported=said, event_id=UUID(int=1), now=after(9)) is before


@pytest.mark.parametrize(
    ("silence_s", "state"),
    [(0, "online"), (20, "online"), (20.1, "late"), (50, "late"), (50.1, "offline")],
)
def test_silence_makes_late_and_then_offline(silence_s: float, state: State) -> None:
    found = rules.after_silence(life(), heartbeat_s=10, now=after(silence_s))
    assert found.state == state
    assert found.told_state == ("offline" if state == "offline" else "online")
    assert found.since == (NOW if state == "online" else after(silence_s))


def test_an_error_stays_until_the_device_says_better_or_falls_silent() -> None:
    wrong = life("error", said_state="error", said_at=NOW)
    assert rules.after_silence(wrong, heartbeat_s=10, now=after(5)).state == "error"
    assert rules.after_silence(wrong, heartbeat_s=10, now=after(60)).state == "offline"


def test_whoever_left_is_back_as_soon_as_it_is_heard() -> None:
    gone = life("offline", said_state="offline", said_at=after(5), last_seen_at=after(4))
    assert rules.after_silence(gone, heartbeat_s=60, now=after(6)) == gone
    back = life("offline", said_state="offline", said_at=after(5), last_seen_at=after(5.5))
    assert rules.after_silence(back, heartbeat_s=60, now=after(6)).state == "online"


@given(st.sampled_from(STATES), st.lists(st.floats(0, 1000), min_size=2, max_size=20))
def test_the_longer_the_silence_the_worse(state: State, moments: list[float]) -> None:
    worse = {"online": 0, "error": 0, "late": 1, "offline": 2}
    states = [
        rules.after_silence(life(state), heartbeat_s=10, now=after(moment)).state
        for moment in sorted(moments)
    ]
    assert all(worse[one] <= worse[next_] for one, next_ in pairwise(states))


@given(st.floats(0, 1000))
def test_looking_twice_at_the_same_moment_changes_nothing_more(moment: float) -> None:
    once = rules.after_silence(life(), heartbeat_s=10, now=after(moment))
    assert rules.after_silence(once, heartbeat_s=10, now=after(moment)) == once


@pytest.mark.parametrize(("state", "outcome"), [*product(rules.COMMAND_STATES, OUTCOMES)])
def test_what_the_device_says_counts_and_its_first_final_word_stays(
    state: CommandState, outcome: CommandOutcome
) -> None:
    found = rules.after_answer(state, outcome)
    if state in ("applied", "failed"):
        assert found == state
    elif state == "expired" and outcome == "delivered":
        assert found == "expired"
    else:
        assert found == outcome
