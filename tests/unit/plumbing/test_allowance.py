"""So many in a time for each, also at once, and back evenly."""

from hypothesis import given
from hypothesis import strategies as st

from farmiq.plumbing.allowance import HOUR_S, Allowance


def test_allowance_of_a_minute_may_be_used_at_once_and_comes_back_evenly() -> None:
    allowance = Allowance(most=3)
    assert [allowance.take("a", now=0) for _ in range(4)] == [0, 0, 0, 20]
    assert allowance.take("a", now=5) == 15
    assert [allowance.take("a", now=20) for _ in range(2)] == [0, 20]
    assert [allowance.take("a", now=10_000) for _ in range(4)] == [0, 0, 0, 20]


def test_allowance_of_one_caller_is_not_used_by_another() -> None:
    allowance = Allowance(most=1)
    assert [allowance.take(who, now=0) for who in ("a", "b", "a")] == [0, 0, 60]


def test_allowance_of_an_hour_is_taken_in_amounts_and_a_refused_one_takes_nothing() -> None:
    allowance = Allowance(most=3600, over_s=HOUR_S)
    assert [allowance.take("a", now=0, amount=each) for each in (3000, 700, 600)] == [0, 100, 0]
    assert allowance.take("a", now=50, amount=60) == 10
    assert allowance.take("a", now=60, amount=60) == 0


@given(st.integers(1, 1000), st.lists(st.floats(0, 30), max_size=200))
def test_allowance_gives_at_most_two_minutes_worth_in_a_minute(
    per_minute: int, pauses: list[float]
) -> None:
    allowance, now, taken = Allowance(per_minute), 0.0, list[float]()
    for pause in pauses:
        now += pause
        if not allowance.take("a", now=now):
            taken.append(now)
    assert all(sum(at <= each < at + 60 for each in taken) <= 2 * per_minute for at in taken)


@given(st.integers(1, 1000), st.integers(0, 3000))
def test_allowance_is_given_after_the_wait_that_it_named(per_minute: int, asked: int) -> None:
    allowance = Allowance(per_minute)
    for _ in range(asked):
        allowance.take("a", now=0)
    wait_s = allowance.take("a", now=0)
    assert wait_s == 0 or allowance.take("a", now=wait_s + 1e-6) == 0
