"""How a backlog goes: rate, time left, and when it does not fall."""

import pytest

from farmiq.edge.sync import rules
from farmiq.edge.sync.rules import Sample


def looks(*waiting: int, every_s: float = 60.0, oldest_s: float = 10_000.0) -> list[Sample]:
    return [
        Sample(number * every_s, count, oldest_s, delivered=number * 600)
        for number, count in enumerate(waiting)
    ]


def test_the_rate_is_what_was_delivered_over_the_time() -> None:
    assert rules.rate(looks(500, 400, 300)) == 10.0
    assert rules.rate(looks(500)) == rules.rate([]) == 0.0


def test_the_time_left_follows_from_the_fall() -> None:
    assert rules.eta_s(looks(300, 200, 100)) == pytest.approx(60.0)
    assert rules.eta_s(looks(100, 200)) is None
    assert rules.eta_s(looks(100, 100)) is None
    assert rules.eta_s(looks(100, 0)) == rules.eta_s([]) == 0.0


@pytest.mark.req("BK-10")
@pytest.mark.parametrize(
    ("waiting", "oldest_s", "stalled"),
    [
        ((100, 100, 100), 10_000, True),
        ((100, 150, 200), 10_000, True),
        ((200, 150, 100), 10_000, False),
        ((0, 0, 0), 0, False),
        ((100, 0, 100), 30, False),  # busy, not stalled: the oldest is young
        ((100, 100), 10_000, False),  # not looked at for long enough
    ],
)
def test_a_backlog_stalls_if_it_does_not_fall_and_something_is_old(
    waiting: tuple[int, ...], oldest_s: float, *, stalled: bool
) -> None:
    assert rules.stalled(looks(*waiting, oldest_s=oldest_s), over_s=120) is stalled


def test_recent_leaves_out_samples_that_are_too_old() -> None:
    kept = rules.recent(looks(*range(100)), over_s=180)
    assert [look.waiting for look in kept] == [95, 96, 97, 98, 99]
