"""How a dish grows: a curve through the changes that were measured, and when it passes a threshold.

Pure. The curve is the rising one that is nearest to the measured changes (isotonic, by medians, so
that one wrong image does not bend it). Colonies that widen evenly cover the share
1 - exp(-(v (t - t0))²) of a dish: √(-ln(1 - share)) is then a straight line in time. The forecast
is that line through the last days; its band has what the measurements and the model leave open.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from farmiq.messages.wording import worded

# A measurement below this quality does not count.
MIN_QUALITY = 0.5
# Growth is seen above this change; what is below is within the error of a measurement.
SEEN_CHANGE = 0.02
# A forecast needs so many measurements of growth over so many days, and looks back so far, in days
# or in measurements, whichever is longer.
MIN_MEASUREMENTS, MIN_DAYS = 5, 2.0
LOOK_BACK_DAYS, LOOK_BACK_MEASUREMENTS = 6.0, 8
# It goes as far ahead as this many times the days that were seen, and no further than that.
AHEAD_TIMES, MAX_AHEAD_DAYS = 2.0, 60.0
# A measurement's own error, in the line's units, and the least error of a day.
MEASURED_SD, LEAST_SD_DAYS = 0.012, 0.25
# The true growth bends: colonies that meet, or meet the rim, cover less than the line says, the
# more the higher the threshold. By so much of the days ahead for a whole dish, and how far off that
# may still be to the early side, and, for a whole dish, to the late one. Set by simulated dishes so
# that one forecast of ten misses on each side (D-561).
BEND, EARLY_SHARE, LATE_SHARE = 0.4, 0.25, 1.5
# Standard normal: 80 % lie within so many standard deviations.
Z80 = 1.2815515655446004
# A share that is covered fully has no logarithm.
MAX_SHARE = 0.995


class NotEnoughDataError(Exception):
    """No forecast can be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The change of the covered share since the reference, so many days after it."""

    day: float
    change: float
    quality: float = 1.0


@dataclass(frozen=True, slots=True)
class Point:
    day: float
    change: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """When a threshold is passed, in days after the reference, with the band of 80 %.

    `is_passed`: the curve has passed it already, then there is no band. `latest_day` is None if it
    lies further ahead than a forecast goes.
    """

    day: float
    earliest_day: float
    latest_day: float | None
    is_passed: bool = False


def curve(measurements: Sequence[Measurement]) -> list[Point]:
    """The smoothed change at each measured day that counts; it never falls."""
    counted = _counted(measurements)
    points: list[Point] = []
    for level, days in _rising(counted):
        points.extend(Point(day, level) for day in days)
    return points


def forecast(measurements: Sequence[Measurement], threshold: float) -> Forecast:
    """The day on which the change passes the threshold. Raises NotEnoughDataError."""
    points = curve(measurements)
    for point in points:
        if point.change >= threshold:
            return Forecast(point.day, point.day, point.day, is_passed=True)
    seen = [member for member in _counted(measurements) if member.change > SEEN_CHANGE]
    grown = [
        member
        for index, member in enumerate(seen, start=1)
        if member.day > points[-1].day - LOOK_BACK_DAYS
        or index > len(seen) - LOOK_BACK_MEASUREMENTS
    ]
    first, last = _enough(points, grown)
    slope, at_last, sd_slope, sd_last = _line(
        [(member.day, _widened(member.change)) for member in grown]
    )
    if slope <= Z80 * sd_slope:
        raise NotEnoughDataError(worded("the measurements do not show that it grows"))
    ahead = max(0.0, (_widened(threshold) - at_last) / slope)
    reach = min(MAX_AHEAD_DAYS, AHEAD_TIMES * max(last - first, MIN_DAYS))
    if ahead > reach:
        raise NotEnoughDataError(
            worded(
                "%(number)s days of growth allow a forecast of %(number2)s days; "
                "it is not reached by then",
                number=f"{last - first:.0f}",
                number2=f"{reach:.0f}",
            )
        )
    sd = math.hypot(math.hypot(sd_last, ahead * sd_slope) / slope, LEAST_SD_DAYS)
    day = last + ahead * (1 + BEND * threshold)
    latest = day + Z80 * math.hypot(sd, LATE_SHARE * threshold * ahead)
    return Forecast(
        day=day,
        earliest_day=max(last, day - Z80 * math.hypot(sd, EARLY_SHARE * ahead)),
        latest_day=latest if latest <= last + 2 * reach else None,
    )


def _enough(points: Sequence[Point], grown: Sequence[Measurement]) -> tuple[float, float]:
    """The first and the last day of the growth that is seen."""
    if not points:
        raise NotEnoughDataError(worded("nothing was measured yet"))
    if len(grown) < MIN_MEASUREMENTS:
        raise NotEnoughDataError(
            worded(
                "%(number)s measurements of growth, a forecast needs %(number2)s",
                number=len(grown),
                number2=MIN_MEASUREMENTS,
            )
        )
    first, last = grown[0].day, grown[-1].day
    if last - first < MIN_DAYS:
        raise NotEnoughDataError(
            worded(
                "%(number)s days of growth, a forecast needs %(number2)s",
                number=f"{last - first:.1f}",
                number2=f"{MIN_DAYS:.0f}",
            )
        )
    return first, last


def _counted(measurements: Sequence[Measurement]) -> list[Measurement]:
    return sorted(
        (member for member in measurements if member.quality >= MIN_QUALITY),
        key=lambda member: member.day,
    )


def _rising(measurements: Sequence[Measurement]) -> Iterator[tuple[float, list[float]]]:
    """Levels that never fall with the days of each: neighbours that fall become one, by median."""
    blocks: list[tuple[float, list[Measurement]]] = []
    for measurement in measurements:
        members, level = [measurement], measurement.change
        while blocks and blocks[-1][0] >= level:
            members = blocks.pop()[1] + members
            level = statistics.median(member.change for member in members)
        blocks.append((level, members))
    for level, members in blocks:
        yield min(max(level, 0.0), 1.0), [member.day for member in members]


def _widened(share: float) -> float:
    """How far colonies that cover the share have widened: a straight line in time."""
    return math.sqrt(-math.log(1 - min(max(share, 0.0), MAX_SHARE)))


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float, float, float]:
    """Slope and value at the last day, with their standard deviations.

    The slope is the median of those between all pairs (Theil and Sen): a few wrong images do not
    turn it.
    """
    last = points[-1][0]
    slopes = [
        (y2 - y1) / (x2 - x1)
        for index, (x1, y1) in enumerate(points)
        for x2, y2 in points[index + 1 :]
        if x2 > x1
    ]
    slope = statistics.median(slopes)
    at_last = statistics.median(y + slope * (last - x) for x, y in points)
    left = [abs(y + slope * (last - x) - at_last) for x, y in points]
    sd = max(MEASURED_SD, 1.4826 * statistics.median(left))
    middle = statistics.fmean(x for x, _ in points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    sd_slope = sd / math.sqrt(spread)
    return (
        slope,
        at_last,
        sd_slope,
        sd * math.hypot(1 / math.sqrt(len(points)), (last - middle) / math.sqrt(spread)),
    )
