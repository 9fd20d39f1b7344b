import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.ui import sparkline
from farmiq.ui.sparkline import Point

START = datetime(2026, 3, 10, tzinfo=UTC)


def points(*pairs: tuple[float, float]) -> list[Point]:
    return [Point(START + timedelta(seconds=second), value) for second, value in pairs]


def draw(*pairs: tuple[float, float], now_s: float | None = None) -> sparkline.Drawing:
    now = START + timedelta(seconds=pairs[-1][0] if now_s is None else now_s)
    return sparkline.draw(points(*pairs), interval_s=10, now=now)


def test_sparkline_without_readings_is_empty() -> None:
    assert sparkline.draw([], interval_s=10, now=START) == sparkline.NOTHING


def test_a_line_goes_from_edge_to_edge_and_low_is_down() -> None:
    assert draw((0, 1), (10, 2), (20, 1)).path == "M3 25L60 3 117 25"


def test_a_gap_is_drawn_as_a_gap() -> None:
    drawing = draw((0, 1), (10, 1), (90, 1), (100, 2))
    assert drawing.path.count("M") == 2
    assert drawing.gaps == 1


def test_a_missed_reading_is_no_gap_yet() -> None:
    assert draw((0, 1), (10, 1), (35, 1)).gaps == 0


def test_a_lone_reading_between_gaps_is_a_dot() -> None:
    assert "M60 3h0" in draw((0, 1), (50, 2), (100, 1)).path


def test_equal_values_lie_in_the_middle() -> None:
    assert draw((0, 7), (10, 7)).path == "M3 14L117 14"


def test_noise_within_the_span_of_its_metric_is_a_flat_line() -> None:
    noisy = points((0, 20.0), (10, 20.2), (20, 20.0))
    drawing = sparkline.draw(noisy, interval_s=10, now=noisy[-1].at, min_span=4)
    numbers = [float(number) for number in re.findall(r"[0-9.]+", drawing.path)]
    heights = numbers[1::2]
    assert max(heights) - min(heights) < 2
    assert (drawing.lowest, drawing.highest) == (20.0, 20.2)


@pytest.mark.parametrize(("silent_s", "end_x"), [(0, 117), (10, 106.6), (100_000, 90.7)])
def test_silence_up_to_now_leaves_room_but_not_all_of_it(silent_s: float, end_x: float) -> None:
    drawing = draw((0, 1), (50, 1), (100, 1), now_s=100 + silent_s)
    assert drawing.end is not None
    assert drawing.end[0] == end_x


def test_sparkline_leaves_out_values_that_are_not_finite() -> None:
    assert draw((0, 1), (10, float("nan")), (20, 2)).count == 2


@given(
    st.lists(
        st.tuples(st.floats(0, 1e7), st.floats(allow_nan=True, allow_infinity=True)),
        min_size=1,
        max_size=40,
    )
)
def test_sparkline_stays_inside_its_box(pairs: list[tuple[float, float]]) -> None:
    drawing = draw(*sorted(pairs, key=lambda pair: pair[0]))
    assert re.fullmatch(r"[MLh0-9. ]*", drawing.path)
    for number in re.findall(r"[0-9.]+", drawing.path):
        assert 0 <= float(number) <= sparkline.WIDTH
