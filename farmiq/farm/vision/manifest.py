"""What a model says of itself: manifest.json. What can be known without running the model.

Residuals are |ln(scale weight / prediction)| of sessions that were left out when it was fitted,
each divided by its spread, which goes with the quality of the session's frames.
"""

import bisect
import math
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import Literal

import msgspec

# model_version where no model was used.
NO_MODEL = "none"
COVERAGE = 0.9
# Of the probability of a small error: as if one residual more had been seen on either side.
PRIOR_RESIDUALS = 2.0
# Quality makes an error at most twice as large, or half.
MAX_LOG_SPREAD = 0.7


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Whose sessions a model learns from and is used for; `batch_id` where it is of one batch."""

    camera_id: str
    species: str
    batch_id: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """`residuals` are sorted. `max_distance` is where the features are like none it has learned."""

    scope: Scope
    schema: str
    input: Literal["features", "image"] = "features"
    n_sessions: int
    n_groups: int
    min_weight_kg: float
    max_weight_kg: float
    cv_mape: float
    cv_mae_kg: float
    cv_r2: float
    rank_correlation: float
    baseline_mape: float
    # How sure it is that the camera beats the baseline: Student's t of the difference by group.
    better_by_t: float
    residual_sd: float
    residuals: tuple[float, ...]
    has_interval: bool
    # How errors go with the quality of a session: ln spread = weight · (quality - mean).
    quality_mean: float
    quality_weight: float
    feature_mean: tuple[float, ...]
    feature_covariance: tuple[tuple[float, ...], ...]
    max_distance: float
    mm_per_pixel: float | None = None
    cut_off_at: datetime

    @cached_property
    def _root(self) -> list[list[float]]:
        return _cholesky(self.feature_covariance)

    def distance(self, features: Sequence[float]) -> float:
        """Mahalanobis distance from what it was trained on; infinite where that is no number."""
        if len(features) != len(self.feature_mean):
            return math.inf
        difference = [value - mean for value, mean in zip(features, self.feature_mean, strict=True)]
        solved: list[float] = []
        for row, value in zip(self._root, difference, strict=True):
            done = sum(a * b for a, b in zip(row, solved, strict=False))
            solved.append((value - done) / row[len(solved)])
        total = sum(value * value for value in solved)
        return math.sqrt(total) if math.isfinite(total) else math.inf

    def apart(self, features: Sequence[float], others: Sequence[float]) -> float:
        """How unlike two sessions are, by the same measure as `distance`."""
        moved = zip(self.feature_mean, features, others, strict=True)
        return self.distance([mean + ours - theirs for mean, ours, theirs in moved])

    def knows(self, features: Sequence[float], predicted_kg: float, *, beyond: float) -> bool:
        """Whether features and prediction are like those it has learned from."""
        return (
            self.distance(features) <= self.max_distance
            and self.min_weight_kg / beyond <= predicted_kg <= self.max_weight_kg * beyond
        )

    def spread(self, quality: float) -> float:
        """How much larger the errors of such a session are than those of the usual one."""
        return spread(quality, middle=self.quality_mean, weight=self.quality_weight)

    def reach(self, spread: float) -> float | None:
        """Half of the 90 % interval of ln weight; None where there are too few sessions for one."""
        rank = math.ceil((len(self.residuals) + 1) * COVERAGE)
        if not self.has_interval or rank > len(self.residuals):
            return None
        return self.residuals[rank - 1] * spread

    def probability(self, within: float, spread: float) -> float:
        """How often an error was at most so large, relative to the truth; 0 to 1."""
        right = bisect.bisect_right(self.residuals, math.log1p(within) / spread)
        return (right + PRIOR_RESIDUALS / 2) / (len(self.residuals) + PRIOR_RESIDUALS)


def spread(quality: float, *, middle: float, weight: float) -> float:
    """How much larger the errors of a session of this quality are than those of the usual one."""
    return math.exp(min(MAX_LOG_SPREAD, max(-MAX_LOG_SPREAD, weight * (quality - middle))))


def _cholesky(matrix: Sequence[Sequence[float]]) -> list[list[float]]:
    """The lower triangle L with L Lᵀ = matrix. Raises ValueError if it is not positive definite."""
    rows: list[list[float]] = []
    for i, line in enumerate(matrix):
        row: list[float] = []
        for j in range(i + 1):
            left = rows[j] if j < i else row
            rest = line[j] - sum(a * b for a, b in zip(row[:j], left[:j], strict=True))
            if j < i:
                row.append(rest / rows[j][j])
            elif rest > 0:
                row.append(math.sqrt(rest))
            else:
                raise ValueError("the covariance of the features is not positive definite")
        rows.append(row)
    return rows
