"""Training in closed form, what is promoted and what is not, and drift."""

import random
from datetime import timedelta

import msgspec
import numpy as np
import pytest

from farmiq.farm.vision import training
from farmiq.farm.vision.drift import DriftState, cusum
from farmiq.farm.vision.training import Example, NotEnough
from tests.unit.farm.vision import simulated
from tests.unit.farm.vision.simulated import AT, SCOPE


def shuffled(learned: list[Example], seed: int) -> list[Example]:
    weights = [item.weight_kg for item in learned]
    random.Random(seed).shuffle(weights)
    return [
        msgspec.structs.replace(item, weight_kg=kg)
        for item, kg in zip(learned, weights, strict=True)
    ]


def test_good_model_is_promoted_and_says_why() -> None:
    result = simulated.trained(simulated.examples(50, seed=1))
    decision = training.decide(result, None)

    assert decision.state == "promoted"
    assert result.manifest.cv_mape < 0.05 < result.manifest.baseline_mape
    assert f"{result.manifest.baseline_mape:.1%} without a camera" in decision.reason


@pytest.mark.parametrize("sessions", [10, 20, 50])
def test_model_of_shuffled_weights_is_never_promoted(sessions: int) -> None:
    for seed in range(20):
        learned = shuffled(simulated.examples(sessions, seed), seed)
        assert training.decide(simulated.trained(learned), None).state == "shadow"


def test_model_that_is_no_better_than_the_baseline_stays_in_shadow() -> None:
    learned = [
        msgspec.structs.replace(item, baseline_kg=item.weight_kg * 1.001)
        for item in simulated.examples(50, seed=2)
    ]
    decision = training.decide(simulated.trained(learned), None)
    assert decision.state == "shadow"
    assert "0.1% without a camera" in decision.reason


def test_model_must_beat_the_current_one_by_its_known_error() -> None:
    result = simulated.trained(simulated.examples(50, seed=3))
    better = msgspec.structs.replace(result.manifest, cv_mape=result.manifest.cv_mape * 0.9)

    assert training.decide(result, better).state == "shadow"
    assert training.decide(result, better, current_mape=0.2).state == "promoted"
    older = msgspec.structs.replace(better, schema="older")
    assert training.decide(result, older).state == "promoted"


def test_same_sessions_in_any_order_give_the_same_model() -> None:
    learned = simulated.examples(30, seed=4)
    assert simulated.trained(learned).version == simulated.trained(learned[::-1]).version
    assert simulated.trained(learned).version != simulated.trained(learned[:-1]).version


def test_sessions_after_the_cut_off_and_impossible_ones_are_not_learned_from() -> None:
    learned = simulated.examples(30, seed=5)
    later = msgspec.structs.replace(learned[0], at=AT + timedelta(seconds=1), session_id="later")
    empty = msgspec.structs.replace(learned[0], weight_kg=0.0, session_id="empty")
    odd = msgspec.structs.replace(
        learned[0], features=(float("nan"), *learned[0].features[1:]), session_id="odd"
    )

    assert simulated.trained([*learned, later, empty, odd]).version == (
        simulated.trained(learned).version
    )


def test_one_weight_that_belongs_to_two_animals_hardly_moves_the_model() -> None:
    learned = simulated.examples(50, seed=6)
    doubled = [
        msgspec.structs.replace(learned[0], weight_kg=2 * learned[0].weight_kg), *learned[1:]
    ]  # fmt: skip
    features, weights = (
        np.array([item.features for item in learned]),
        np.log([item.weight_kg for item in learned]),
    )
    plain = training.fit(features, weights)
    moved = training.fit(features, np.log([item.weight_kg for item in doubled]))
    difference = features @ (plain.coefficients - moved.coefficients)
    difference += plain.intercept - moved.intercept
    assert np.abs(difference).max() < 0.03


def test_groups_are_left_out_whole() -> None:
    """Ten copies of each animal would look like ten proofs otherwise."""
    few = simulated.examples(6, seed=7, noise=0.3)
    copies = [
        msgspec.structs.replace(item, session_id=f"{item.session_id}-{copy}")
        for item in shuffled(few, 7)
        for copy in range(10)
    ]
    assert simulated.trained(copies).manifest.cv_mape > 0.1


@pytest.mark.parametrize(
    ("sessions", "groups", "reason"), [(9, 9, "10 are needed"), (30, 2, "3 are needed")]
)
def test_too_few_sessions_or_animals_give_no_model(sessions: int, groups: int, reason: str) -> None:
    learned = [
        msgspec.structs.replace(item, group=str(number % groups))
        for number, item in enumerate(simulated.examples(sessions, seed=8))
    ]
    result = training.train(learned, scope=SCOPE, cut_off=AT)
    assert isinstance(result, NotEnough)
    assert reason in result.reason


def test_features_that_never_change_do_not_break_training() -> None:
    learned = [
        msgspec.structs.replace(item, features=(*item.features[:-1], 1.0))
        for item in simulated.examples(25, seed=9)
    ]
    assert simulated.trained(learned).manifest.cv_mape < 0.06
    same = [msgspec.structs.replace(item, features=(1.0,) * 14) for item in learned]
    assert training.decide(simulated.trained(same), None).state == "shadow"


def test_drift_is_found_within_thirty_sessions_and_not_by_chance() -> None:
    chance = np.random.default_rng(10)
    state = DriftState()
    for residual in chance.standard_normal(3000):
        state = cusum(state, float(residual))
        assert not state.is_drifting
    needed = 0
    while not state.is_drifting:
        state, needed = cusum(state, float(chance.standard_normal()) + 1.0), needed + 1
    assert needed <= 30
    assert state.above > state.below


def test_single_absurd_residual_is_no_drift() -> None:
    assert not cusum(DriftState(), 1e9).is_drifting


def test_drift_that_went_on_for_long_ends_after_twenty_weighings_that_agree() -> None:
    state = DriftState()
    for _ in range(10_000):
        state = cusum(state, 3.0)
    assert state.is_drifting
    for _ in range(20):
        state = cusum(state, 0.0)
    assert not state.is_drifting
