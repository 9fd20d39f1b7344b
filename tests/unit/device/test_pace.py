"""Sending: at most twenty in a second, a jitter that is one, a watchdog that barks in time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.device.uplink import rules
from farmiq.device.uplink.rules import Progress, RateLimiter

CHANCE = st.floats(0, 1, exclude_max=True)


def sent(pauses: list[tuple[float, float | None]]) -> list[float]:
    """When each leaves if one comes after each pause, and is slept for until its time."""
    own, now, left = RateLimiter(20), 0.0, []
    for pause, chance in pauses:
        now = max(now + pause, own.next_at(now + pause, chance=chance))
        own.sent(now)
        left.append(now)
    return left


@pytest.mark.req("WV-24")
@given(
    st.lists(
        st.tuples(st.one_of(st.just(0.0), st.floats(0, 0.3)), st.one_of(st.none(), CHANCE)),
        max_size=200,
    )
)
def test_no_second_holds_more_than_twenty(pauses: list[tuple[float, float | None]]) -> None:
    left = sent(pauses)
    assert left == sorted(left)
    for number, at in enumerate(left):
        assert sum(at <= each < at + 1 for each in left[number:]) <= 20


@pytest.mark.req("WV-22")
@given(st.lists(CHANCE, min_size=2, max_size=40, unique=True))
def test_replay_gets_a_jitter_of_up_to_200_ms(chances: list[float]) -> None:
    waits = [RateLimiter(20).next_at(0.0, chance=chance) for chance in chances]
    assert all(0 <= wait <= 0.2 for wait in waits)
    assert len(set(waits)) > 1 or max(chances) - min(chances) < 1e-9


def test_live_event_leaves_at_once() -> None:
    assert RateLimiter(20).next_at(100.0) == 100.0


@pytest.mark.req("WV-24")
def test_backlog_is_not_slower_for_its_jitter() -> None:
    """C-32: ten thousand in about five hundred seconds."""
    left = sent([(0.0, (number * 0.37) % 1) for number in range(1000)])
    assert left[-1] < 1000 / 20 * 1.06


@pytest.mark.req("WV-30")
def test_wait_for_a_receipt_doubles_up_to_ten_minutes() -> None:
    waits = [rules.receipt_wait_s(attempts, base_s=30) for attempts in range(1, 8)]
    assert waits == [30, 60, 120, 240, 480, 600, 600]


@pytest.mark.parametrize(
    ("connected_at", "settled_at", "left", "stalls", "now", "barks"),
    [
        (None, 0, 5, 0, 1000, False),
        (0, 0, 0, 0, 1000, False),
        (0, 0, 5, 0, 121, True),
        (0, 100, 5, 0, 121, False),
        (900, 100, 5, 0, 1000, False),
        (0, 0, 5, 1, 121, False),
        (0, 0, 5, 1, 241, True),
        (0, 0, 5, 99, 961, True),
    ],
)
def test_drain_is_stalled_when_connected_and_nothing_settles(
    connected_at: float | None,
    settled_at: float,
    left: int,
    stalls: int,
    now: float,
    *,
    barks: bool,
) -> None:
    progress = Progress(connected_at, settled_at, left, stalls)
    assert rules.is_stalled(progress, now, limit_s=120) is barks
