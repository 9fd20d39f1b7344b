"""Weight curves as a scale would send them: (seconds, sample) at ten a second, seeded noise."""

import random
from collections.abc import Iterable, Iterator

from farmiq.device.capture import stable
from farmiq.device.capture.stable import Effect, Limits, Sample, State

RATE = 10.0


def curve(
    *parts: tuple[float, float], noise_kg: float = 0.05, seed: int = 1, drift_kg_s: float = 0.0
) -> Iterator[tuple[float, Sample]]:
    """Each part is (seconds, weight); an animal trots for a second before it stands."""
    chance = random.Random(seed)
    at, before = 0.0, 0.0
    for seconds, weight in parts:
        began = at
        while at - began < seconds:
            moving = weight > before and at - began < 1.0
            swing = weight * 0.15 * chance.uniform(-1, 1) if moving else 0.0
            kg = weight + swing + chance.uniform(-noise_kg, noise_kg) + drift_kg_s * at
            yield at, Sample(round(kg, 3))
            at += 1 / RATE
        before = weight


def watch(
    samples: Iterable[tuple[float, Sample]],
    limits: Limits | None = None,
    state: State | None = None,
) -> tuple[State, list[Effect]]:
    state = state or State()
    effects: list[Effect] = []
    for at, sample in samples:
        state, told = stable.step(state, sample, at, limits or Limits())
        effects += told
    return state, effects
