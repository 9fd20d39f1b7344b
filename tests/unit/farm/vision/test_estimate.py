"""From frames to an estimate: gates, silence, intervals that hold, confidence."""

import math

import msgspec
import numpy as np
import pytest

from farmiq.farm.vision import estimate, training
from farmiq.farm.vision.features import FEATURES, Measurement
from farmiq.farm.vision.model import Model
from tests.unit.farm.vision import simulated

REPETITIONS = 24


@pytest.fixture(scope="module")
def fifty() -> Model:
    return simulated.fitted(50)


def test_estimate_after_fifty_sessions_is_within_five_percent_and_in_order(fifty: Model) -> None:
    others = simulated.examples(100, seed=90)
    said = [simulated.said(other, fifty).predicted_weight_kg for other in others]
    pairs = [(kg, other.weight_kg) for kg, other in zip(said, others, strict=True) if kg]
    predicted, truth = np.array(pairs).T

    assert len(pairs) >= 95
    assert np.mean(np.abs(predicted / truth - 1)) <= 0.05
    assert training.rank_correlation(predicted, truth) > 0.9
    constant = np.full(len(truth), truth.mean())
    assert training.rank_correlation(constant, truth) < 0.9


@pytest.mark.parametrize("sessions", [20, 50])
def test_interval_contains_the_truth_in_nine_of_ten_cases(sessions: int) -> None:
    inside = []
    for seed in range(REPETITIONS):
        fitted = simulated.fitted(sessions, seed)
        for other in simulated.examples(40, seed=1000 + seed):
            said = simulated.said(other, fitted)
            if said.low_kg is not None and said.high_kg is not None:
                inside.append(said.low_kg <= other.weight_kg <= said.high_kg)

    assert len(inside) > 0.9 * 40 * REPETITIONS
    assert 0.85 <= np.mean(inside) <= 0.97


def test_confidence_is_the_share_of_small_errors(fifty: Model) -> None:
    others = simulated.examples(200, seed=91)
    answers = [(simulated.said(other, fifty), other.weight_kg) for other in others]
    right = [
        abs(said.predicted_weight_kg / kg - 1) <= 0.05
        for said, kg in answers
        if said.predicted_weight_kg
    ]
    confidence = [said.confidence for said, _ in answers if said.predicted_weight_kg]

    assert abs(np.mean(right) - np.mean(confidence)) < 0.15


def test_poor_frames_lower_confidence_and_widen_the_interval_where_they_did_so_before() -> None:
    learned = [
        msgspec.structs.replace(
            each,
            quality=0.4 if number % 2 else 0.9,
            weight_kg=each.weight_kg
            * math.exp((0.15 if number % 4 == 1 else -0.15) * (number % 2)),
        )
        for number, each in enumerate(simulated.examples(80, seed=3))
    ]
    manifest = simulated.trained(learned).manifest

    good, poor = manifest.spread(0.9), manifest.spread(0.4)
    assert poor > good
    assert manifest.probability(0.05, poor) < manifest.probability(0.05, good)
    assert (manifest.reach(poor) or 0) > (manifest.reach(good) or 0)


def test_features_unlike_all_learned_ones_get_no_estimate(fifty: Model) -> None:
    usual = simulated.examples(1, seed=92)[0]
    twice = msgspec.structs.replace(usual, features=tuple(x + 0.7 for x in usual.features))
    said = simulated.said(twice, fifty)

    assert said.predicted_weight_kg is None
    assert (said.reason, said.confidence) == ("out_of_distribution", 0.0)
    assert said.features == twice.features


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_features_that_are_no_numbers_get_no_estimate(bad: float, fifty: Model) -> None:
    frame = Measurement(features=(bad,) * len(FEATURES), quality=simulated.GOOD, problem=None)
    assert estimate.estimate([frame], fifty).predicted_weight_kg is None


def test_model_of_few_sessions_is_provisional_and_gives_no_interval() -> None:
    said = simulated.said(simulated.examples(1, seed=93)[0], simulated.fitted(19))

    assert said.predicted_weight_kg is not None
    assert (said.low_kg, said.high_kg, said.reason) == (None, None, "provisional_model")


def test_session_without_usable_frames_names_the_commonest_problem(fifty: Model) -> None:
    frames = [
        Measurement(features=None, quality={}, problem=problem)
        for problem in ("empty_scale", "hand", "empty_scale")
    ]
    said = estimate.estimate(frames, fifty)

    assert said.predicted_weight_kg is None
    assert (said.reason, said.frames_used, said.frames_total) == ("empty_scale", 0, 3)
    assert estimate.estimate([], fifty).reason == "no_frames"


def test_two_animals_in_most_frames_spoil_the_good_ones(fifty: Model) -> None:
    good = simulated.frames(simulated.examples(1, seed=94)[0], 2)
    bad = [Measurement(features=None, quality={}, problem="two_animals")] * 3

    assert estimate.estimate(good + bad, fifty).reason == "two_animals"
    assert estimate.estimate(good + bad[:2], fifty).predicted_weight_kg is not None


def test_session_without_a_model_still_gives_features_to_learn_from() -> None:
    example = simulated.examples(1, seed=95)[0]
    said = estimate.estimate(simulated.frames(example), None)

    assert (said.reason, said.model_version) == ("no_model", "none")
    assert said.features == example.features


def test_model_of_another_feature_schema_is_not_used(fifty: Model) -> None:
    other = simulated.fitted(20)
    other.manifest = msgspec.structs.replace(fifty.manifest, schema="older")
    said = simulated.said(simulated.examples(1, seed=96)[0], other)
    assert said.reason == "other_feature_schema"
