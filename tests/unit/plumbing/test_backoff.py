"""Waiting before trying again: longer each time, within bounds, over from the start when stable."""

import asyncio
import contextlib
import itertools
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.plumbing import retry
from farmiq.plumbing.backoff import Backoff, cancelled_so_far, end_if_cancelled
from farmiq.plumbing.retry import RetryPolicy


@given(
    attempt=st.integers(0, 10_000),
    base_s=st.floats(0.001, 10),
    cap_s=st.floats(0.001, 1000),
    chance=st.floats(0, 1),
)
def test_a_delay_lies_between_half_and_the_whole(
    attempt: int, base_s: float, cap_s: float, chance: float
) -> None:
    delay = RetryPolicy(base_s, cap_s).delay_s(attempt, chance=chance)
    whole = min(base_s * 2.0 ** min(attempt, 32), cap_s)

    assert whole / 2 <= delay <= whole <= cap_s


@given(chance=st.floats(0, 1))
def test_a_delay_doubles_until_its_cap(chance: float) -> None:
    delays = [RetryPolicy(0.2, 10).delay_s(n, chance=chance) for n in range(40)]

    assert delays == sorted(delays)
    assert delays[3] == pytest.approx(delays[0] * 8)
    assert set(delays[6:]) == {delays[39]}


NOW = datetime(2026, 3, 10, 5, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("7", 7),
        ("99999999999999999999", retry.MAX_RETRY_AFTER_S),
        ("Tue, 10 Mar 2026 05:01:00 GMT", 60),
        ("Tue, 10 Mar 2026 05:01:00 -0000", 60),
        ("Tue, 10 Mar 2020 05:01:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 -2300", retry.MAX_RETRY_AFTER_S),
        ("Mon, 01 Jan 0001 00:00:00 +2300", 0),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("soon", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_beyond_the_calendar_is_clamped(
    header: str | None, wait_s: float | None
) -> None:
    assert retry.retry_after_s(header, now=NOW) == wait_s


_PART = st.sampled_from(["Fri, ", "31 ", "Dec ", "9999 ", "23:59:59 ", "-2359", "GMT", "", "0001 "])


@given(header=st.text() | st.lists(_PART).map("".join) | st.integers().map(str))
def test_any_retry_after_is_a_wait_within_bounds_or_none(header: str) -> None:
    wait_s = retry.retry_after_s(header, now=NOW)

    assert wait_s is None or 0 <= wait_s <= retry.MAX_RETRY_AFTER_S


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("farmiq.plumbing.backoff.time.monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr("farmiq.plumbing.backoff.random.random", lambda: 1.0)
    return Clock(monkeypatch)


def test_backoff_starts_over_only_after_a_while_without_failure(clock: Clock) -> None:
    tried = Backoff(base_s=1, cap_s=10, stable_s=60)
    assert [tried.next_s() for _ in range(5)] == [1, 2, 4, 8, 10]

    clock.now += 60
    assert tried.next_s() == 10
    clock.now += 60.001
    assert tried.next_s() == 1


def test_a_connection_that_fails_every_minute_never_counts_as_stable(clock: Clock) -> None:
    tried = Backoff(base_s=1, cap_s=10, stable_s=60)
    waits = []
    for _ in range(6):
        waits.append(tried.next_s())
        clock.now += 59

    assert waits == [1, 2, 4, 8, 10, 10]


def test_two_that_fail_together_do_not_stay_in_step() -> None:
    one, other = Backoff(), Backoff()

    assert any(one.next_s() != other.next_s() for _ in itertools.repeat(None, 10))


async def test_backoff_wait_sleeps_for_its_delay(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        clock.now += seconds

    monkeypatch.setattr("farmiq.plumbing.backoff.asyncio.sleep", sleep)
    tried = Backoff(base_s=1, cap_s=10, stable_s=60)
    for _ in range(5):
        await tried.wait()

    assert waited == [1, 2, 4, 8, 10]


async def test_a_cancellation_that_was_lost_ends_the_loop_that_tries_again() -> None:
    async def careless() -> None:
        before = cancelled_so_far()
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                end_if_cancelled(beyond=before)

    task = asyncio.create_task(careless())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)


async def test_cancellation_left_by_a_task_group_ends_no_loop() -> None:
    """Python 3.11 counts the cancellation of a group's parent also when the group took it back."""

    async def fails() -> None:
        raise OSError

    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())
    before = cancelled_so_far()
    await Backoff(base_s=0.001).wait()
    end_if_cancelled(beyond=before)
