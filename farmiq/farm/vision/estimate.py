"""From the frames of a session to one estimate with its interval, or to the reason for none."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import median, pstdev
from typing import Protocol

import msgspec

from farmiq.farm.vision.features import MIN_QUALITY, SCHEMA, Measurement, score
from farmiq.farm.vision.manifest import NO_MODEL, Manifest

# What makes a session doubtful even if it has good frames too, should it be in more of them.
SPOILS_A_SESSION = ("two_animals", "hand")
# An error within this is called right: what confidence is the probability of.
RIGHT_WITHIN = 0.05
# How far beyond the weights it has learned a model is believed.
MAX_BEYOND = 1.25
# Standard deviations of ln area over the frames of a session: of views that differ, of failures.
VARIED_AREA, DOUBTFUL_AREA = 0.02, 0.15


class Predictor(Protocol):
    """What an estimate needs of a model; `model.Model` is one."""

    @property
    def version(self) -> str: ...
    @property
    def manifest(self) -> Manifest: ...
    def predict(self, features: Sequence[float]) -> float: ...


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """`predicted_weight_kg` is None where there is no estimate; `reason` says why.

    With an estimate, `reason` says why there is no interval. `features` are the medians of the
    frames that were used, which training reads later; `quality` is theirs, 0 to 1.
    """

    predicted_weight_kg: float | None = None
    low_kg: float | None = None
    high_kg: float | None = None
    confidence: float = 0.0
    model_version: str = NO_MODEL
    reason: str | None = None
    frames_used: int = 0
    frames_total: int = 0
    features: tuple[float, ...] | None = None
    quality: float = 0.0


def estimate(measurements: Sequence[Measurement], model: Predictor | None) -> Estimate:
    """The weight of the one animal that these frames show."""
    silent = Estimate(
        model_version=model.version if model else NO_MODEL, frames_total=len(measurements)
    )
    used = [frame for frame in measurements if is_usable(frame)]
    if problem := _problem(measurements, used):
        return msgspec.structs.replace(silent, reason=problem)
    middle = _medians(used)
    silent = msgspec.structs.replace(
        silent, frames_used=len(used), features=middle, quality=_quality(used)
    )
    if model is None:
        return msgspec.structs.replace(silent, reason="no_model")
    manifest = model.manifest
    if manifest.schema != SCHEMA:
        return msgspec.structs.replace(silent, reason="other_feature_schema")
    predicted_kg = _predict(model, used, middle)
    if predicted_kg is None:
        return msgspec.structs.replace(silent, reason="no_prediction")
    if not manifest.knows(middle, predicted_kg, beyond=MAX_BEYOND):
        return msgspec.structs.replace(silent, reason="out_of_distribution")
    spread = manifest.spread(silent.quality)
    reach = manifest.reach(spread)
    return msgspec.structs.replace(
        silent,
        predicted_weight_kg=predicted_kg,
        low_kg=None if reach is None else predicted_kg * math.exp(-reach),
        high_kg=None if reach is None else predicted_kg * math.exp(reach),
        confidence=manifest.probability(RIGHT_WITHIN, spread),
        reason="provisional_model" if reach is None else None,
    )


def is_usable(frame: Measurement) -> bool:
    """Whether it has an animal, wholly and well enough seen."""
    return (
        frame.problem is None
        and frame.features is not None
        and all(math.isfinite(value) for value in frame.features)
        and score(frame.quality) >= MIN_QUALITY
    )


def _problem(frames: Sequence[Measurement], used: Sequence[Measurement]) -> str | None:
    """The reason that most frames give, if none is usable or one of them spoils the session."""
    if not frames:
        return "no_frames"
    problems = Counter(
        frame.problem or "poor_frame" for frame in frames if not is_usable(frame)
    ).most_common()
    if not used:
        return problems[0][0]
    return next(
        (
            problem
            for problem, count in problems
            if problem in SPOILS_A_SESSION and count > len(used)
        ),
        None,
    )


def _medians(used: Sequence[Measurement]) -> tuple[float, ...]:
    return tuple(
        median(values) for values in zip(*(frame.features or () for frame in used), strict=True)
    )


def _quality(used: Sequence[Measurement]) -> float:
    """How good the frames are, and how much they differ: the same view again is no second look.

    Frames that differ wildly are no better: then masks have failed.
    """
    areas = [frame.features[0] for frame in used if frame.features]
    deviation = pstdev(areas)
    variety = deviation**2 / (deviation**2 + VARIED_AREA**2)
    doubt = 1.0 + (deviation / DOUBTFUL_AREA) ** 2
    return median(score(frame.quality) for frame in used) * (0.5 + 0.5 * variety) / doubt


def _predict(
    model: Predictor, used: Sequence[Measurement], middle: Sequence[float]
) -> float | None:
    if model.manifest.input == "features":
        predicted_kg = model.predict(middle)
    else:
        logs = [frame.log_weight for frame in used if frame.log_weight is not None]
        if not logs:
            return None
        predicted_kg = math.exp(min(median(logs), 20.0))
    return predicted_kg if math.isfinite(predicted_kg) and predicted_kg > 0 else None
