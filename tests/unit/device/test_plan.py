"""The planner says whether an outage fits into the buffer."""

import pytest

from farmiq.device.buffer import rules


def test_plan_that_does_not_fit_says_when_the_buffer_is_full() -> None:
    def made(sessions_per_hour: float) -> rules.Plan:
        return rules.plan(
            sessions_per_hour=sessions_per_hour, weights=2, pictures=1, picture_bytes=250_000,
            loose_per_hour=0, hours=72, events_limit=10_000, picture_limit=2 * 2**30,
        )  # fmt: skip

    assert made(20).fits
    assert not made(60).fits
    assert made(60).hours_that_fit == pytest.approx(33.3)
    assert made(60).events == 21_600
