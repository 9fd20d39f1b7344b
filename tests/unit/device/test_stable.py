"""The stable weight on generated curves: noise, drift, two animals, stepping off, rubbish."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.device.capture import stable
from farmiq.device.capture.stable import (
    Arrived,
    Crowded,
    GaveUp,
    Left,
    Limits,
    Occupied,
    Sample,
    Settled,
    State,
)
from tests.unit.device.curves import curve, watch


@pytest.mark.req("WV-10")
@pytest.mark.parametrize("seed", range(20))
def test_animal_that_stands_still_is_weighed(seed: int) -> None:
    _, effects = watch(curve((3, 0), (4, 92.4), (3, 0), noise_kg=0.1, seed=seed))
    assert isinstance(effects[0], Arrived)
    first = effects[1]
    assert isinstance(first, Settled)
    assert not first.again
    assert first.weight_kg == pytest.approx(92.4, abs=0.15)
    assert isinstance(effects[-1], Left)
    assert all(isinstance(each, Settled) and each.again for each in effects[2:-1])


def test_animal_that_keeps_standing_is_weighed_again() -> None:
    _, effects = watch(curve((2, 0), (12, 50.0), (2, 0)))
    again = [each for each in effects if isinstance(each, Settled) and each.again]
    assert 3 <= len(again) <= 6


@pytest.mark.req("WV-02")
def test_animal_that_never_stands_still_has_no_weight() -> None:
    _, effects = watch(curve((2, 0), (90, 80.0), (2, 0), noise_kg=4.0))
    assert not [each for each in effects if isinstance(each, Settled)]
    assert [type(each) for each in effects] == [Arrived, GaveUp, Left]


@pytest.mark.req("WV-02")
@pytest.mark.parametrize("period", range(2, 9))
def test_animal_that_sways_in_step_with_the_samples_has_no_weight(period: int) -> None:
    sways = [(n / 10, Sample(0.0)) for n in range(20)]
    sways += [(2 + n / 10, Sample(60.0 + 2 * (n % period))) for n in range(100)]
    assert not [each for each in watch(sways)[1] if isinstance(each, Settled)]


def test_weight_that_the_indicator_calls_moving_is_not_settled() -> None:
    """Its own filter sees more than the samples it sends."""
    moving = ((at, replace(each, stable=False)) for at, each in curve((2, 0), (10, 80.0), (2, 0)))
    _, effects = watch(moving)
    assert [type(each) for each in effects] == [Arrived, Left]


@pytest.mark.req("WV-02")
def test_animal_that_steps_off_early_has_no_weight() -> None:
    _, effects = watch(curve((3, 0), (1.2, 92.4), (3, 0)))
    assert [type(each) for each in effects] == [Arrived, Left]
    left = effects[1]
    assert isinstance(left, Left)
    assert left.after_s == pytest.approx(1.2, abs=0.4)


def test_second_animal_is_reported_and_not_averaged() -> None:
    _, effects = watch(curve((2, 0), (4, 60.0), (4, 125.0), (4, 65.0), (2, 0), (4, 70.0), (2, 0)))
    weights = [each.weight_kg for each in effects if isinstance(each, Settled)]
    assert all(weight == pytest.approx(60, abs=0.2) for weight in weights[:-2])
    assert weights[-1] == pytest.approx(70, abs=0.2)
    crowded = [each for each in effects if isinstance(each, Crowded)]
    assert len(crowded) == 1
    assert crowded[0].from_kg == pytest.approx(60, abs=0.2)
    assert (crowded[0].to_kg or 0) > 80
    # Who is left alone on the scale afterwards did not step on an empty one.
    assert sum(isinstance(each, Arrived) for each in effects) == 2


def test_zero_follows_a_slow_drift() -> None:
    """Half an hour in which three kilograms of dirt gather: the animal's weight has none of it."""
    state, effects = watch(curve((1800, 0), (4, 60.0), (2, 0), drift_kg_s=3 / 1800))
    assert state.zero_kg == pytest.approx(3.0, abs=0.3)
    weight = next(each.weight_kg for each in effects if isinstance(each, Settled))
    assert weight == pytest.approx(60, abs=0.3)


def test_zero_does_not_follow_an_animal_nor_beyond_its_limit() -> None:
    limits = Limits(present_kg=2.0, zero_kg=5.0, zero_kg_per_s=0.02, settle_within_s=600)
    state, effects = watch(curve((3, 0), (60, 2.6), (3, 0)), limits)
    assert abs(state.zero_kg) < 0.2
    assert isinstance(effects[0], Arrived)
    state, _ = watch(curve((4000, 0), drift_kg_s=0.01), Limits(present_kg=10.0))
    assert state.zero_kg <= Limits().zero_kg


def test_zero_follows_a_negative_drift() -> None:
    _, effects = watch(curve((900, 0), (4, 60.0), (2, 0), drift_kg_s=-2 / 900))
    weight = next(each.weight_kg for each in effects if isinstance(each, Settled))
    assert weight == pytest.approx(60, abs=0.3)


def test_single_odd_sample_is_no_animal_and_changes_no_weight() -> None:
    calm = list(curve((6, 0), (8, 60.0), (4, 0)))
    knocked = [
        (at, Sample(500.0) if number % 17 == 0 else each) for number, (at, each) in enumerate(calm)
    ]
    kinds = [type(each) for each in watch(knocked)[1]]
    assert kinds == [type(each) for each in watch(calm)[1]]
    weights = [each.weight_kg for each in watch(knocked)[1] if isinstance(each, Settled)]
    assert weights
    assert all(weight == pytest.approx(60, abs=0.2) for weight in weights)


@pytest.mark.req("WV-02")
def test_samples_that_are_no_weights_are_only_counted() -> None:
    rubbish = itertools.cycle([math.nan, math.inf, -math.inf, 1e12, -1e12, None])
    mixed = []
    for at, each in curve((3, 0), (4, 92.4), (3, 0)):
        mixed += [(at, each), (at, Sample(next(rubbish)))]
    state, effects = watch(mixed)
    assert state.rejected == len(mixed) / 2
    assert [type(each) for each in effects] == [
        type(each) for each in watch(curve((3, 0), (4, 92.4), (3, 0)))[1]
    ]


def test_overload_gives_up_and_waits_for_an_empty_scale() -> None:
    samples = list(curve((2, 0), (1, 300.0)))
    samples += [(3.0 + n / 10, Sample(None, overload=True)) for n in range(20)]
    samples += [(5.0 + n / 10, Sample(0.0)) for n in range(10)]
    _, effects = watch(samples)
    assert [type(each) for each in effects] == [Arrived, GaveUp, Left]


def test_overload_after_a_settled_weight_is_a_second_animal() -> None:
    samples = list(curve((2, 0), (4, 60.0)))
    samples += [(6.0 + n / 10, Sample(None, overload=True)) for n in range(20)]
    _, effects = watch(samples)
    assert isinstance(effects[-1], Crowded)
    assert effects[-1].to_kg is None


def test_animal_that_stands_there_at_the_start_is_not_weighed() -> None:
    """After a power cut the animal on the scale may be one that was weighed before it."""
    _, effects = watch(curve((10, 70.0), (3, 0), (4, 50.0), (2, 0)))
    weights = [each.weight_kg for each in effects if isinstance(each, Settled)]
    assert weights
    assert all(weight == pytest.approx(50, abs=0.2) for weight in weights)


def test_scale_that_is_never_empty_is_reported_once() -> None:
    _, effects = watch(curve((300, 12.0)))
    assert [type(each) for each in effects] == [Occupied]


def test_silent_scale_ends_the_weighing() -> None:
    state, effects = watch(curve((2, 0), (4, 60.0)))
    assert state.is_present
    state, more = stable.step(state, None, 20.0, Limits())
    assert [type(each) for each in more] == [GaveUp]
    assert state.phase == "unknown"
    assert stable.step(state, None, 40.0, Limits())[1] == ()
    assert isinstance(effects[0], Arrived)


@pytest.mark.parametrize("every_s", [0.5, 1.0, 2.0])
def test_slow_indicator_takes_longer(every_s: float) -> None:
    weights = [0.0] * 5 + [60.0] * 8 + [0.0] * 4
    slow = [(number * every_s, Sample(weight)) for number, weight in enumerate(weights)]
    found = [each for each in watch(slow)[1] if isinstance(each, Settled)]
    assert found
    assert all(each.weight_kg == 60.0 for each in found)
    moving = [(at, Sample(each.weight_kg and 60.0 + at % 3)) for at, each in slow]
    assert not [each for each in watch(moving)[1] if isinstance(each, Settled)]


def test_fast_indicator_does_not_fill_the_window() -> None:
    state = State(phase="settling", last_at=0.0)
    for number in range(5000):
        state, _ = stable.step(state, Sample(50.0), number / 1000, Limits())
        assert len(state.window) <= 66


samples = st.lists(
    st.tuples(
        st.floats(0, 8) | st.floats(allow_nan=False),
        st.none()
        | st.builds(
            Sample,
            st.none() | st.floats() | st.floats(-5, 150),
            st.sampled_from([None, True, False]),
            st.booleans() | st.just(value=False),
        ),
    ),
    max_size=150,
)


@given(samples)
def test_any_samples_give_effects_in_a_possible_order(
    steps: list[tuple[float, Sample | None]],
) -> None:
    """Arrived comes first, weights are weights, and nobody leaves who has not come."""
    limits = Limits(window_s=1.0)
    state, now, here, weighed = State(), 0.0, False, False
    for passed, sample in steps:
        now += passed if math.isfinite(passed) else 0.0
        state, effects = stable.step(state, sample, now, limits)
        for each in effects:
            match each:
                case Arrived():
                    assert not here
                    here, weighed = True, False
                case Settled():
                    assert here
                    assert each.again == weighed
                    assert limits.present_kg <= each.weight_kg <= 2 * limits.max_kg
                    weighed = True
                case Crowded() | GaveUp():
                    assert here
                    here = False
                case Left():
                    assert each.after_s >= 0
                    here = False
        assert here == state.is_present
        assert math.isfinite(state.zero_kg)
        assert abs(state.zero_kg) <= limits.zero_kg


@given(
    st.floats(20, 200), st.floats(0, 0.2), st.integers(0, 2**16), st.floats(2, 40), st.floats(3, 9)
)
def test_any_animal_that_stands_still_is_weighed(
    weight: float, noise: float, seed: int, waits: float, stands: float
) -> None:
    _, effects = watch(
        curve((waits, 0), (stands, weight), (2, 0), noise_kg=noise, seed=seed),
    )
    found = [each.weight_kg for each in effects if isinstance(each, Settled)]
    assert found
    assert all(kg == pytest.approx(weight, abs=0.4) for kg in found)
