"""Training in closed form: log-ridge with errors of sessions that were left out by animal or day.

ln weight = intercept + features · coefficients, shrunk; the strength of shrinking is chosen by the
error of each session left out of its own fit, which has a closed form. What the manifest says of
errors comes from fits without the session's whole group.
"""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from farmiq.farm.vision import manifest as manifests
from farmiq.farm.vision import model
from farmiq.farm.vision.features import FEATURES, SCHEMA
from farmiq.farm.vision.manifest import Manifest, Scope
from farmiq.farm.vision.model import Trained

MIN_SESSIONS, MIN_INTERVAL_SESSIONS, MIN_GROUPS = 10, 20, 3
MAX_FOLDS = 40
STRENGTHS = tuple(10.0**power for power in (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5))
MIN_SPREAD = 1e-6
# A weight that is so far from the rest (in spreads) is not learned from; its error still counts.
MAX_OUTLYING, MIN_OUTLYING = 6.0, 0.2
# The camera must be better than the baseline by more than chance: one in a thousand.
MIN_BETTER_T = 3.1
MIN_RANK_CORRELATION = 0.3
DISTANCE_SHARE, DISTANCE_FACTOR = 0.95, 1.6
SHRINK_COVARIANCE = 8.0
# As many sessions say that quality does not matter; errors below this are all small.
SHRINK_QUALITY, ERROR_FLOOR = 8.0, 0.01

Array = NDArray[np.float64]


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A closed session. `group` is the animal's id if it was sent, else the farm's local day.

    `baseline_kg` is what would be said without a camera: the batch's mean or its growth curve on
    that date, from earlier sessions alone; None: the mean of the other groups.
    """

    session_id: str
    group: str
    at: datetime
    features: tuple[float, ...]
    weight_kg: float
    baseline_kg: float | None
    quality: float = 1.0


class NotEnough(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no model yet."""

    n_sessions: int
    n_groups: int
    reason: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    state: Literal["promoted", "shadow"]
    reason: str


class Fit(NamedTuple):
    coefficients: Array
    intercept: float


def train(
    examples: Sequence[Example],
    *,
    scope: Scope,
    cut_off: datetime,
    mm_per_pixel: float | None = None,
) -> Trained | NotEnough:
    """A model from the sessions up to the cut-off; the same sessions give the same model."""
    learned = usable(examples, cut_off=cut_off)
    groups = sorted({example.group for example in learned})
    if reason := _too_few(len(learned), len(groups)):
        return NotEnough(n_sessions=len(learned), n_groups=len(groups), reason=reason)
    features = np.array([example.features for example in learned], dtype=np.float64)
    log_kg = np.log([example.weight_kg for example in learned])
    fold = np.array([groups.index(example.group) % MAX_FOLDS for example in learned])
    left_out = np.empty_like(log_kg)
    for number in np.unique(fold):
        inside = fold != number
        fitted = fit(features[inside], log_kg[inside])
        left_out[~inside] = features[~inside] @ fitted.coefficients + fitted.intercept
    fitted = fit(features, log_kg)
    return Trained(
        manifest=_manifest(
            learned,
            features,
            left_out,
            fold,
            scope=scope,
            cut_off=cut_off,
            mm_per_pixel=mm_per_pixel,
        ),
        head=model.linear_head(fitted.coefficients.tolist(), fitted.intercept),
    )


def usable(examples: Sequence[Example], *, cut_off: datetime) -> list[Example]:
    """Those that can be learned from, in an order that does not depend on how they came."""
    return sorted(
        (
            example
            for example in examples
            if example.at <= cut_off
            and len(example.features) == len(FEATURES)
            and all(math.isfinite(value) for value in example.features)
            and 0 < example.weight_kg < math.inf
        ),
        key=lambda example: (example.at, example.session_id),
    )


def decide(
    trained: Trained, current: Manifest | None, *, current_mape: float | None = None
) -> Decision:
    """Promote only what beats both the no-camera baseline and the current model.

    `current_mape` is the error that the current model had since its cut-off, if that is known:
    better evidence than what it said of itself.
    """
    new = trained.manifest
    said = f"error {new.cv_mape:.1%} in {new.n_sessions} sessions"
    if new.cv_mape >= new.baseline_mape:
        return _shadow(f"{said} is not below {new.baseline_mape:.1%} without a camera")
    if new.better_by_t < MIN_BETTER_T or new.rank_correlation < MIN_RANK_CORRELATION:
        return _shadow(
            f"{said} is below {new.baseline_mape:.1%} without a camera, but that may be chance "
            f"(t {new.better_by_t:.1f} of {MIN_BETTER_T}, rank correlation "
            f"{new.rank_correlation:.2f} of {MIN_RANK_CORRELATION})"
        )
    if current is not None and current.schema == new.schema:
        present = current.cv_mape if current_mape is None else current_mape
        if new.cv_mape >= present:
            return _shadow(f"{said} is not below {present:.1%} of the current model")
    return Decision(state="promoted", reason=f"{said}; {new.baseline_mape:.1%} without a camera")


def fit(features: Array, log_kg: Array) -> Fit:
    """Ridge regression, once more without what lies far off."""
    fitted = _ridge(features, log_kg)
    away = np.abs(log_kg - features @ fitted.coefficients - fitted.intercept)
    usual = max(MAX_OUTLYING * 1.4826 * float(np.median(away)), MIN_OUTLYING)
    near = away <= usual
    return (
        fitted
        if near.all() or near.sum() < MIN_SESSIONS - 1
        else _ridge(features[near], log_kg[near])
    )


def _ridge(features: Array, log_kg: Array) -> Fit:
    middle, width = features.mean(axis=0), features.std(axis=0)
    width = np.where(width < MIN_SPREAD, math.inf, width)
    target = log_kg - log_kg.mean()
    left, singular, right = np.linalg.svd((features - middle) / width, full_matrices=False)
    projected = left.T @ target
    best = min(STRENGTHS, key=lambda strength: _left_out_error(left, singular, target, strength))
    coefficients = right.T @ (singular / (singular**2 + best) * projected) / width
    return Fit(coefficients, float(log_kg.mean() - middle @ coefficients))


def _left_out_error(left: Array, singular: Array, target: Array, strength: float) -> float:
    """Mean absolute error of each row left out of its own fit (PRESS), in closed form."""
    share = singular**2 / (singular**2 + strength)
    away = target - left @ (share * (left.T @ target))
    leverage = 1 / len(target) + (left**2) @ share
    return float(np.mean(np.abs(away / np.maximum(1 - leverage, 1e-3))))


def _too_few(n_sessions: int, n_groups: int) -> str | None:
    if n_sessions < MIN_SESSIONS:
        return f"{n_sessions} sessions; {MIN_SESSIONS} are needed"
    if n_groups < MIN_GROUPS:
        return f"sessions of {n_groups} animals or days; {MIN_GROUPS} are needed"
    return None


def _manifest(
    learned: Sequence[Example],
    features: Array,
    left_out: Array,
    fold: NDArray[np.int64],
    *,
    scope: Scope,
    cut_off: datetime,
    mm_per_pixel: float | None,
) -> Manifest:
    kg = np.array([example.weight_kg for example in learned])
    predicted_kg = np.exp(np.minimum(left_out, model.MAX_LOG_KG))
    baseline_kg = _baseline(learned, kg, fold)
    error, baseline_error = np.abs(predicted_kg / kg - 1), np.abs(baseline_kg / kg - 1)
    mean, covariance = _gaussian(features)
    away = np.log(kg) - left_out
    distances = _left_out_distances(features, fold)
    quality = np.array([example.quality for example in learned])
    weight = _quality_weight(quality, away)
    spreads = [
        manifests.spread(value, middle=float(quality.mean()), weight=weight) for value in quality
    ]
    return Manifest(
        scope=scope,
        schema=SCHEMA,
        n_sessions=len(learned),
        n_groups=len({example.group for example in learned}),
        min_weight_kg=float(kg.min()),
        max_weight_kg=float(kg.max()),
        cv_mape=float(error.mean()),
        cv_mae_kg=float(np.abs(predicted_kg - kg).mean()),
        cv_r2=1
        - float(((predicted_kg - kg) ** 2).sum() / max(((kg - kg.mean()) ** 2).sum(), 1e-12)),
        rank_correlation=rank_correlation(left_out, kg),
        baseline_mape=float(baseline_error.mean()),
        better_by_t=_student(baseline_error - error, fold),
        residual_sd=max(1.4826 * float(np.median(np.abs(away - np.median(away)))), 1e-3),
        residuals=tuple(sorted((np.abs(away) / spreads).tolist())),
        quality_mean=float(quality.mean()),
        quality_weight=weight,
        has_interval=len(learned) >= MIN_INTERVAL_SESSIONS,
        feature_mean=tuple(mean.tolist()),
        feature_covariance=tuple(tuple(row) for row in covariance.tolist()),
        max_distance=float(np.quantile(distances, DISTANCE_SHARE)) * DISTANCE_FACTOR,
        mm_per_pixel=mm_per_pixel,
        cut_off_at=cut_off,
    )


def _quality_weight(quality: Array, away: Array) -> float:
    """How ln |error| goes with quality, shrunk; better frames never count as worse."""
    size = np.log(np.abs(away) + ERROR_FLOOR)
    spread = max(float(quality.std()), MIN_SPREAD)
    standard = (quality - quality.mean()) / spread
    slope = float(standard @ (size - size.mean()) / (standard @ standard + SHRINK_QUALITY))
    return min(0.0, slope) / spread


def _baseline(learned: Sequence[Example], kg: Array, fold: NDArray[np.int64]) -> Array:
    """What each session would be said to weigh without a camera."""
    others = {number: float(np.median(kg[fold != number])) for number in np.unique(fold)}
    return np.array(
        [
            others[number] if example.baseline_kg is None else example.baseline_kg
            for example, number in zip(learned, fold, strict=True)
        ]
    )


def _gaussian(features: Array) -> tuple[Array, Array]:
    """Mean and covariance, shrunk towards its diagonal: the fewer rows the more."""
    n, size = features.shape
    covariance = np.cov(features, rowvar=False)
    share = SHRINK_COVARIANCE / (n + SHRINK_COVARIANCE)
    diagonal = np.maximum(np.diag(covariance), MIN_SPREAD) * (1 + 1e-6)
    return features.mean(axis=0), (1 - share) * covariance + share * np.diag(
        diagonal
    ) + 1e-9 * np.eye(size)


def _left_out_distances(features: Array, fold: NDArray[np.int64]) -> Array:
    distances = np.empty(len(features))
    for number in np.unique(fold):
        inside = fold != number
        mean, covariance = _gaussian(features[inside])
        away = features[~inside] - mean
        distances[~inside] = np.sqrt(
            np.einsum("ij,ij->i", away, np.linalg.solve(covariance, away.T).T)
        )
    return distances


def _student(better_by: Array, fold: NDArray[np.int64]) -> float:
    """Student's t of the mean of these differences, each group counted as one."""
    by_group = np.array([better_by[fold == number].mean() for number in np.unique(fold)])
    deviation = float(by_group.std(ddof=1))
    return float(by_group.mean()) / max(deviation / math.sqrt(len(by_group)), 1e-9)


def rank_correlation(left: Array, right: Array) -> float:
    """Spearman's: 0 for a constant, which orders nothing."""
    ranks = [_ranks(values) - (len(values) - 1) / 2 for values in (left, right)]
    norm = math.sqrt(float((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float(ranks[0] @ ranks[1]) / norm if norm > 0 else 0.0


def _ranks(values: Array) -> Array:
    """Equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + last - 1) / 2.0)[place]


def _shadow(reason: str) -> Decision:
    return Decision(state="shadow", reason=reason)
