"""What `make test` prints of fault rounds, and which rounds count."""

import pytest

from farmiq.lab.simulate import check
from tests.chaos.rounds import Result, grown
from tests.chaos.summary import fault_lines


def test_rounds_of_a_kind_are_folded_into_a_line() -> None:
    rounds = [
        {"kind": "kill b", "events": 10, "lost": 0, "twice": 0, "recovery_s": 1.0},
        {"kind": "kill a", "events": 5, "lost": 1, "twice": 2, "recovery_s": 0.5},
        {"kind": "kill b", "events": 20, "lost": 0, "twice": 0, "recovery_s": 2.55},
    ]
    lines = [" ".join(line.split()) for line in fault_lines(rounds)]
    assert lines == [
        "kill a rounds 1 events 5 lost 1 twice 2 slowest recovery 0.5 s",
        "kill b rounds 2 events 30 lost 0 twice 0 slowest recovery 2.5 s",
    ]


def test_redeliveries_of_earlier_rounds_are_not_counted_again() -> None:
    assert grown({1: 80, 2: 0}, {1: 80, 2: 0}) == 0
    assert grown({1: 80, 2: 5}, {1: 81, 3: 7}) == 8  # 2 was killed, 3 is new


CLEAN = check.compare({}, [])


def result(*, unresolved: int = 100, redelivered: int = 1, doubled: tuple[str, ...] = ()) -> Result:
    return Result("kill", 5, unresolved, redelivered, 1.0, CLEAN, CLEAN, doubled)


def test_a_round_counts_only_with_enough_on_the_way_and_a_redelivery() -> None:
    assert result().proves_something
    for poor in (result(unresolved=99), result(redelivered=0)):
        assert not poor.proves_something


def test_a_round_fails_for_an_effect_had_twice_and_says_so() -> None:
    result().check()
    twice = result(doubled=("d temperature: 3 stored, 4 counted",))
    assert twice.summary()["twice"] == 1
    with pytest.raises(AssertionError):
        twice.check()
