"""How good it is on sessions with known weights: each group predicted by a model of the others."""

import math
from collections.abc import Sequence
from datetime import datetime

import msgspec
import numpy as np

from farmiq.farm.vision import estimate, model, training
from farmiq.farm.vision.estimate import RIGHT_WITHIN, Estimate
from farmiq.farm.vision.features import Measurement
from farmiq.farm.vision.manifest import Scope
from farmiq.farm.vision.training import Example, NotEnough


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """The frames of one weighing, and what the scale said."""

    name: str
    group: str
    at: datetime
    weight_kg: float
    measurements: list[Measurement]


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """`error` is relative to the scale's weight; None where there was no estimate."""

    name: str
    weight_kg: float
    baseline_kg: float
    error: float | None
    estimate: Estimate


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Figures are None where nothing was predicted; `silent` counts sessions by reason."""

    n_sessions: int
    n_predicted: int
    silent: dict[str, int]
    mape: float | None
    baseline_mape: float | None
    coverage: float | None
    rank_correlation: float | None
    confidence_right: float | None
    confidence_wrong: float | None
    predictions: list[Prediction]


def example(session: Session) -> Example | None:
    """What training reads of a session; None if it has no usable frame."""
    seen = estimate.estimate(session.measurements, None)
    if seen.features is None:
        return None
    return Example(
        session_id=session.name,
        group=session.group,
        at=session.at,
        features=seen.features,
        weight_kg=session.weight_kg,
        baseline_kg=None,
        quality=seen.quality,
    )


def evaluate(sessions: Sequence[Session]) -> Evaluation:
    """Leave each group out in turn. Without a camera, the mean of the others is the answer."""
    examples = {session.name: example(session) for session in sessions}
    predictions: list[Prediction] = []
    for group in sorted({session.group for session in sessions}):
        others = [session for session in sessions if session.group != group]
        trained = training.train(
            [found for session in others if (found := examples[session.name])],
            scope=Scope(camera_id="evaluation", species="any"),
            cut_off=max((session.at for session in others), default=sessions[0].at),
        )
        fitted = None if isinstance(trained, NotEnough) else model.of(trained)
        mean_kg = float(np.mean([session.weight_kg for session in others])) if others else math.nan
        for session in sessions:
            if session.group == group:
                said = estimate.estimate(session.measurements, fitted)
                predictions.append(_prediction(session, said, mean_kg))
    return _evaluation(predictions)


def _prediction(session: Session, said: Estimate, mean_kg: float) -> Prediction:
    predicted_kg = said.predicted_weight_kg
    return Prediction(
        name=session.name,
        weight_kg=session.weight_kg,
        baseline_kg=mean_kg,
        error=None if predicted_kg is None else abs(predicted_kg / session.weight_kg - 1),
        estimate=said,
    )


def _evaluation(predictions: list[Prediction]) -> Evaluation:
    answered = [found for found in predictions if found.error is not None]
    reasons = [found.estimate.reason or "" for found in predictions if found.error is None]
    errors = np.array([found.error for found in answered], dtype=np.float64)
    confidence = np.array([found.estimate.confidence for found in answered])
    right = errors <= RIGHT_WITHIN
    bounded = [found for found in answered if found.estimate.low_kg is not None]
    return Evaluation(
        n_sessions=len(predictions),
        n_predicted=len(answered),
        silent={reason: reasons.count(reason) for reason in sorted(set(reasons))},
        mape=_mean(errors),
        baseline_mape=_mean([abs(each.baseline_kg / each.weight_kg - 1) for each in answered]),
        coverage=_mean([float(_is_inside(found)) for found in bounded]),
        rank_correlation=training.rank_correlation(
            np.array([found.estimate.predicted_weight_kg for found in answered], np.float64),
            np.array([found.weight_kg for found in answered], np.float64),
        )
        if answered
        else None,
        confidence_right=_mean(confidence[right]),
        confidence_wrong=_mean(confidence[~right]),
        predictions=predictions,
    )


def _is_inside(found: Prediction) -> bool:
    low_kg, high_kg = found.estimate.low_kg, found.estimate.high_kg
    return low_kg is not None and high_kg is not None and low_kg <= found.weight_kg <= high_kg


def _mean(values: Sequence[float] | np.typing.NDArray[np.float64]) -> float | None:
    return float(np.mean(values)) if len(values) else None
