"""How full the disks are, and what that calls for (C-42)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge import disk
from farmiq.edge.disk import State, Thresholds, Usage

THRESHOLDS = Thresholds(85, 92)


def used(percent: float) -> Usage:
    return Usage(1000, round(1000 - 10 * percent))


@pytest.mark.parametrize(
    ("percent", "state"),
    [(0, "fine"), (84.9, "fine"), (85, "warn"), (91.9, "warn"), (92, "shed"), (100, "shed")],
)
def test_the_levels_are_reached_where_they_say(percent: float, state: str) -> None:
    assert disk.assess({"/": used(percent)}, THRESHOLDS).state == state


def test_the_fullest_disk_counts() -> None:
    found = disk.assess({"/a": used(10), "/b": used(90), "/c": used(50)}, THRESHOLDS)
    assert (found.path, found.state, round(found.percent)) == ("/b", "warn", 90)


def test_a_disk_of_no_size_counts_as_full() -> None:
    assert disk.assess({"/": Usage(0, 0)}, THRESHOLDS).state == "shed"


@given(
    st.sampled_from(["fine", "warn", "shed"]),
    st.lists(st.text("abc", min_size=1), unique=True),
    st.sets(st.text("abc", min_size=1)),
)
def test_shedding_keeps_its_order_and_asks_nobody_twice(
    state: State, order: list[str], done: set[str]
) -> None:
    name = disk.next_to_shed(state, order, done)
    left = [each for each in order if each not in done]
    assert name == (left[0] if state == "shed" and left else None)


@pytest.mark.parametrize(
    ("setting", "paths"),
    [("/", ("/",)), ("/a, /b", ("/a", "/b")), ("", ("/",)), (" , ", ("/",))],
)
def test_paths_stand_with_commas_between(setting: str, paths: tuple[str, ...]) -> None:
    assert disk.paths(setting) == paths
