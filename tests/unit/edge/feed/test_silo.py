"""A silo's weight as intakes: noise gives none, refills are none, nothing counts twice."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farmiq.edge.feed import silo
from farmiq.edge.feed.silo import Fall, Limits, Reading, Reported, State

BEGIN = datetime(2025, 6, 1, tzinfo=UTC)
LIMITS = Limits(noise_kg=10, refill_kg=200)


def readings(weights: Sequence[float], *, every_s: float = 60) -> list[Reading]:
    return [
        Reading(UUID(int=n + 1), BEGIN + timedelta(seconds=n * every_s), weight, "f", "b")
        for n, weight in enumerate(weights)
    ]


def falls(weights: Sequence[float], limits: Limits = LIMITS) -> list[float]:
    return [each.quantity_kg for each in silo.derive(State(), readings(weights), limits)[1]]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([], []),
        ([1000.0], []),
        ([1000.0] * 9, []),
        ([1000.0] * 3 + [975.0] * 3, [25.0]),  # a meal
        ([1000.0] * 3 + [991.0] * 3, []),  # less than the noise
        ([1000, 1000, 996, 992, 988, 984, 980, 980, 980], [12.0]),  # the rest waits for more
        ([1000.0] * 3 + [1500.0] * 3, []),  # a refill is no intake
        ([500.0] * 3 + [480.0] * 3 + [4000.0] * 3 + [3950.0] * 3, [20.0, 50.0]),
        ([1000.0] * 4 + [0.0] + [1000.0] * 4, []),  # one reading that stands alone
        ([1000.0] * 4 + [5000.0] + [1000.0] * 4, []),
        ([1000.0] * 3 + [980.0] * 3 + [1100.0] * 3 + [980.0] * 3, [20.0]),  # drift there and back
        ([4200.1] * 3 + [4175.3] * 3, [24.8]),  # grams, not the digits of a double
    ],
)
def test_what_a_row_of_weights_comes_to(weights: list[float], expected: list[float]) -> None:
    assert falls(weights) == expected


def test_a_slow_refill_is_followed_to_its_top() -> None:
    """An auger lifts the weight little by little; what goes out afterwards counts from the top."""
    slow = [100.0 + 60 * n for n in range(50)]
    assert sum(falls([100.0] * 3 + slow + [slow[-1]] * 3 + [slow[-1] - 500] * 3)) == 500


@given(
    level=st.floats(0, 30_000),
    wavers=st.lists(st.floats(-0.499, 0.499), max_size=200),
    noise_kg=st.floats(0.5, 500),
)
def test_noise_alone_is_no_intake(level: float, wavers: list[float], noise_kg: float) -> None:
    weights = [level + noise_kg * waver for waver in wavers]
    assert falls(weights, Limits(noise_kg=noise_kg, refill_kg=noise_kg * 2)) == []


weights_lists = st.lists(
    st.one_of(st.floats(0, 5000), st.sampled_from([1000.0, 990.0, 985.0, 4000.0])), max_size=80
)


@given(weights=weights_lists, rng=st.randoms(use_true_random=False))
def test_any_split_and_any_repetition_give_the_same_intakes(
    weights: list[float], rng: Random
) -> None:
    """As the chore does it: round by round, each in any order, with what was known before."""
    every = readings(weights)
    state, whole = silo.derive(State(), every, LIMITS)

    again, begin = State(), 0
    parts: list[Fall] = []
    while begin < len(every):
        end = rng.randint(begin + 1, len(every))
        some = [*every[begin:end], *rng.choices(every[:end], k=rng.randint(0, 5))]
        rng.shuffle(some)
        kept = msgspec.json.decode(msgspec.json.encode(again), type=State)
        again, more = silo.derive(kept, some, LIMITS)
        parts += more
        begin = end

    assert (again, tuple(parts)) == (state, whole)
    assert len({_id(each) for each in parts}) == len(parts)


@given(weights=weights_lists)
def test_the_sum_is_the_first_mark_less_the_last_and_the_refills(weights: list[float]) -> None:
    """Each fall begins where the one before ended, unless there was a refill between."""
    _, found = silo.derive(State(), readings(weights), LIMITS)
    for fall in found:
        assert fall.quantity_kg >= LIMITS.noise_kg
        assert fall.begin.order < fall.end.order
    for one, two in itertools.pairwise(found):
        assert one.end.order <= two.begin.order
        moved = two.begin.weight_kg - one.end.weight_kg
        assert moved == 0 or moved >= LIMITS.refill_kg


@dataclass
class Day:
    weights: list[float]
    eaten_kg: float
    refills: int


def a_day(rng: Random, *, wavers_kg: float) -> Day:
    """A reading a minute; meals at any time, a refill when the silo runs low."""
    level, eaten, refills, weights = rng.uniform(1000, 3000), 0.0, 0, []
    meal_left, appetite = 0, 0.0
    for _ in range(1440):
        if meal_left == 0 and rng.random() < 0.02:
            meal_left, appetite = rng.randint(3, 40), rng.uniform(0.2, 6)
        if meal_left:
            meal_left -= 1
            level, eaten = level - appetite, eaten + appetite
        if level < 300:
            level, refills = level + rng.uniform(1500, 4000), refills + 1
        weights.append(level + rng.uniform(-wavers_kg, wavers_kg))
    return Day(weights, eaten, refills)


@given(seed=st.integers(0, 2**32), wavers_kg=st.floats(0, 4.9))
def test_a_day_with_refills_comes_to_what_was_eaten(seed: int, wavers_kg: float) -> None:
    """Within the noise: each filling of the silo may hide a little less than it at its ends."""
    day = a_day(Random(seed), wavers_kg=wavers_kg)
    error = sum(falls(day.weights)) - day.eaten_kg
    assert abs(error) <= (day.refills + 1) * 3 * LIMITS.noise_kg
    assert error <= (day.refills + 1) * LIMITS.noise_kg  # it rather misses a little than invents


def test_the_same_two_readings_give_the_same_id_and_others_another() -> None:
    one, two, three = readings([3.0, 2.0, 1.0])
    assert _id(Fall(one, two)) == _id(Fall(one, two)) != _id(Fall(one, three))
    assert Fall(one, two).intake_id(tenant_id="x", device_id="d") != _id(Fall(one, two))
    assert _id(Fall(one, two)).version == 7


def test_what_the_device_told_itself_is_not_counted() -> None:
    begin, end, *_ = readings([100.0, 50.0])
    fall = Fall(begin, end)
    minute = timedelta(minutes=1)
    day = timedelta(days=1)
    for told, counts in (
        (Reported(), True),
        (Reported(first_since=begin.at), False),
        (Reported(first_since=begin.at - 30 * day), False),
        (Reported(first_since=end.at + day), False),
        (Reported(first_since=end.at + day + minute), True),
        (Reported(last_before=begin.at - day), False),
        (Reported(last_before=begin.at - day - minute), True),
    ):
        assert silo.not_reported([fall], told) == ((fall,) if counts else ())


def _id(fall: Fall) -> UUID:
    return fall.intake_id(tenant_id="t", device_id="d")


@pytest.mark.parametrize("weight", ["null", "1.7e308"])
def test_of_a_state_with_weights_that_are_none_only_the_place_is_left(weight: str) -> None:
    at, event_id = datetime(2026, 5, 1, tzinfo=UTC), UUID(int=7)
    reading = f'{{"event_id":"{event_id}","at":"{at.isoformat()}","weight_kg":{weight},'
    reading += '"farm_id":"f","barn_id":"b"}'
    state = silo.read_state(f'{{"mark":{reading},"last":[{reading}]}}')
    assert (state.mark, state.last, state.read_to) == (None, (), (at, event_id))
    assert silo.read_state(msgspec.json.encode(state).decode()) == state
