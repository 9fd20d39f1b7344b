"""Pure: the distribution of a day's weights: mean, uniformity, CV and a histogram."""

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from farmiq.messages.kinds import MAX_WEIGHT_KG

# Uniformity is the share of animals within this part of the mean.
UNIFORM_SHARE = 0.10
MIN_WEIGHT_KG = 0.001
MAX_BARS = 12
MAX_TICKS = 6
_STEPS = (1, 2, 2.5, 5, 10)
# 2.3 / 0.05 is a little less than 46.
_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Bar:
    """Weights from `low` up to `high`; `share` is its height as a part of the highest."""

    low: float
    high: float
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class Tick:
    """A weight below the bars, `x` of 0 to 100 from the left."""

    kg: float
    x: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The distribution of the weights of a day, of finalized weighings only."""

    count: int
    mean_kg: float
    cv_percent: float | None
    uniformity_percent: float
    bars: tuple[Bar, ...]
    # What the breed standard expects of the barn on this day.
    target_kg: float | None = None

    def x(self, kg: float) -> float:
        """Where a weight stands, of 0 to 100; what lies outside the bars is at their end."""
        low, high = self.bars[0].low, self.bars[-1].high
        return min(100.0, max(0.0, 100 * (kg - low) / (high - low)))

    @property
    def highest(self) -> int:
        return max(bar.count for bar in self.bars)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """Both ends and the edges of bars between them, few enough for a phone."""
        edges = [bar.low for bar in self.bars] + [self.bars[-1].high]
        every = -(-len(edges) // MAX_TICKS)
        return tuple(Tick(kg, self.x(kg)) for kg in edges[::every])

    @property
    def target_band(self) -> tuple[float, float] | None:
        """From where to where an animal is near the target, of 0 to 100."""
        if self.target_kg is None:
            return None
        low, high = (self.x(self.target_kg * (1 + sign * UNIFORM_SHARE)) for sign in (-1, 1))
        return (low, high) if high > low else None


def spread(weights_kg: Sequence[float], *, target_kg: float | None = None) -> Spread | None:
    """None if nothing was weighed. Uniformity: the share within 10 % of the mean.

    Impossible weights are left out.
    """
    weights = [weight for weight in weights_kg if MIN_WEIGHT_KG <= weight <= MAX_WEIGHT_KG]
    if not weights:
        return None
    mean = statistics.fmean(weights)
    near = sum(abs(weight - mean) <= UNIFORM_SHARE * mean for weight in weights)
    return Spread(
        count=len(weights),
        mean_kg=mean,
        cv_percent=100 * statistics.stdev(weights) / mean if len(weights) > 1 else None,
        uniformity_percent=100 * near / len(weights),
        bars=_bars(weights),
        target_kg=target_kg,
    )


def _bars(weights: Sequence[float]) -> tuple[Bar, ...]:
    """At most twelve bars, of a round width."""
    low, high = min(weights), max(weights)
    width = _width((high - low) / MAX_BARS, least=high * 0.005)
    first = math.floor(low / width + _SLACK)
    counts = Counter(math.floor(weight / width + _SLACK) - first for weight in weights)
    highest = max(counts.values())
    return tuple(
        Bar((first + n) * width, (first + n + 1) * width, counts[n], counts[n] / highest)
        for n in range(max(counts) + 1)
    )


def _width(about: float, *, least: float) -> float:
    """The next round number: 1, 2, 2.5 or 5 times a power of ten."""
    wanted = max(about, least)
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(step * power for step in _STEPS if step * power >= wanted * (1 - 1e-9))
