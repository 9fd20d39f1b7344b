"""After the clock has jumped nothing is deleted by age, until it can be believed again."""

from datetime import UTC, datetime, timedelta

from farmiq.plumbing.runtime.clock import BELIEVED_AFTER_S, Steadiness

START = datetime(2025, 5, 5, 12, tzinfo=UTC)
DAYS_S = 3 * 86400.0


def seen(clock: Steadiness, after_s: float, *, ahead_s: float = 0.0) -> float:
    now = START + timedelta(seconds=after_s + ahead_s)
    return clock.jump_s(now, mono_s=1000.0 + after_s)


def test_a_clock_that_goes_steadily_is_believed() -> None:
    clock = Steadiness()
    assert [seen(clock, hour * 3600.0) for hour in range(100)] == [0.0] * 100


def test_a_clock_that_jumps_ahead_is_not_believed_until_it_is_back() -> None:
    clock = Steadiness()
    seen(clock, 0)
    assert seen(clock, 60, ahead_s=DAYS_S) == DAYS_S
    assert seen(clock, 120, ahead_s=DAYS_S) == DAYS_S
    assert seen(clock, 180) == 0.0
    assert seen(clock, 240, ahead_s=-DAYS_S) == -DAYS_S


def test_a_clock_that_was_put_right_is_believed_after_a_day() -> None:
    clock = Steadiness()
    seen(clock, 0)
    assert seen(clock, 60, ahead_s=DAYS_S) == DAYS_S
    assert seen(clock, 60 + BELIEVED_AFTER_S - 1, ahead_s=DAYS_S) == DAYS_S
    assert seen(clock, 60 + BELIEVED_AFTER_S, ahead_s=DAYS_S) == 0.0
    assert seen(clock, 61 + BELIEVED_AFTER_S, ahead_s=DAYS_S) == 0.0


def test_a_clock_that_jumps_again_has_to_be_steady_for_a_day_from_then() -> None:
    clock = Steadiness()
    seen(clock, 0)
    seen(clock, 60, ahead_s=DAYS_S)
    seen(clock, 60 + BELIEVED_AFTER_S - 1, ahead_s=2 * DAYS_S)
    assert seen(clock, 60 + BELIEVED_AFTER_S, ahead_s=2 * DAYS_S) == 2 * DAYS_S


def test_a_clock_far_ahead_after_a_start_is_not_believed_until_it_is_steady_or_confirmed() -> None:
    after_a_start = Steadiness()
    ahead = START + timedelta(days=3)
    assert after_a_start.jump_s(ahead, mono_s=10.0, believed_at=START) == DAYS_S
    assert after_a_start.jump_s(ahead, mono_s=11.0, believed_at=ahead) == 0.0
    assert Steadiness().jump_s(START + timedelta(minutes=5), mono_s=10.0, believed_at=START) == 0.0

    alone = Steadiness()
    assert alone.jump_s(ahead, mono_s=10.0, believed_at=START) == DAYS_S
    later = ahead + timedelta(seconds=BELIEVED_AFTER_S)
    assert alone.jump_s(later, mono_s=10.0 + BELIEVED_AFTER_S, believed_at=START) == 0.0
