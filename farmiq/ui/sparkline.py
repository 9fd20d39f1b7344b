"""Pure: a sparkline shows the last readings as an SVG path, with gaps."""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

WIDTH, HEIGHT = 120, 28
# Room for the stroke and the dot at the end.
_MARGIN = 3
# Longer than this many expected intervals without a reading is a gap.
_GAP_INTERVALS = 2.5
# The time since the last reading is empty space, up to this share of the width.
_MAX_SILENCE = 0.3
_SILENCE_STEP = 0.02


@dataclass(frozen=True, slots=True)
class Point:
    at: datetime
    value: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """`path` is empty if there is nothing to draw; `end`: the position of the newest reading."""

    path: str
    end: tuple[float, float] | None
    lowest: float
    highest: float
    gaps: int
    count: int


NOTHING = Drawing("", None, 0, 0, 0, 0)


def draw(
    history: Sequence[Point], *, interval_s: float, now: datetime, min_span: float = 0.0
) -> Drawing:
    """The height stands for `min_span` at least: a steady sensor is a flat line, not noise."""
    points = tuple(point for point in history if math.isfinite(point.value))
    if not points:
        return NOTHING
    return _drawn(points, interval_s, _silence(points, now=now), min_span)


# Most sensors have nothing new when a page refreshes: their drawings come from the cache.
@functools.lru_cache(maxsize=2048)
def _drawn(
    points: tuple[Point, ...], interval_s: float, silence: float, min_span: float
) -> Drawing:
    placed = _place(points, silence=silence, min_span=min_span)
    runs = list(_runs(points, max_gap_s=_GAP_INTERVALS * interval_s))
    values = [point.value for point in points]
    return Drawing(
        path="".join(_line(placed[run]) for run in runs),
        end=placed[-1],
        lowest=min(values),
        highest=max(values),
        gaps=len(runs) - 1,
        count=len(points),
    )


def _runs(points: Sequence[Point], *, max_gap_s: float) -> Iterator[slice]:
    """The ranges without a gap."""
    max_gap = timedelta(seconds=max_gap_s)
    begin = 0
    for index in range(1, len(points)):
        if points[index].at - points[index - 1].at > max_gap:
            yield slice(begin, index)
            begin = index
    yield slice(begin, len(points))


def _silence(points: Sequence[Point], *, now: datetime) -> float:
    """The time since the newest reading as a share of the time they span, in coarse steps."""
    span_s = (points[-1].at - points[0].at).total_seconds()
    silent_s = max(0.0, (now - points[-1].at).total_seconds())
    share = silent_s / span_s if span_s > 0 else 0.0
    return round(min(share, _MAX_SILENCE) / _SILENCE_STEP) * _SILENCE_STEP


def _place(
    points: Sequence[Point], *, silence: float, min_span: float
) -> list[tuple[float, float]]:
    first = points[0].at
    width_s = (points[-1].at - first).total_seconds() * (1 + silence)
    low = min(point.value for point in points)
    high = max(point.value for point in points)
    missing = max(0.0, min_span - (high - low))
    low, high = low - missing / 2, high + missing / 2
    return [
        (
            _spread((point.at - first).total_seconds(), width_s, WIDTH),
            HEIGHT - _spread(point.value - low, high - low, HEIGHT),
        )
        for point in points
    ]


def _spread(amount: float, whole: float, size: int) -> float:
    inner = size - 2 * _MARGIN
    share = amount / whole if whole > 0 and math.isfinite(whole) else 0.5
    return round(_MARGIN + share * inner, 1)


def _line(run: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = run
    if not rest:
        # A lone reading between two gaps: no length, the round cap makes it a dot.
        return f"M{x:g} {y:g}h0"
    return f"M{x:g} {y:g}L" + " ".join(f"{x:g} {y:g}" for x, y in rest)
