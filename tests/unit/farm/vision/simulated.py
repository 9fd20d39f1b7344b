"""Sessions without images: features that follow a hidden size, as those of rendered animals do."""

from datetime import UTC, datetime

import numpy as np

from farmiq.farm.vision import estimate, model, training
from farmiq.farm.vision.features import FEATURES, Measurement
from farmiq.farm.vision.manifest import Scope
from farmiq.farm.vision.model import Model, Trained
from farmiq.farm.vision.training import Example

AT = datetime(2026, 11, 18, tzinfo=UTC)
SCOPE = Scope(camera_id="scale-1", species="pig")
GOOD = {"mask_agreement": 0.95, "sharpness": 1.0}
_CHANCE = np.random.default_rng(1)
# How each feature grows with size and with stoutness, and its own noise.
_SIZE = np.append(np.repeat([2.0, 1.0, 3.0], [4, 5, 4]), 0.0) / 3
_STOUT = np.append(_CHANCE.uniform(0.1, 0.9, len(FEATURES) - 1), 0.0)


def examples(count: int, seed: int, *, noise: float = 0.02) -> list[Example]:
    """Animals of about 60 kg that differ by a fifth; each in one session."""
    chance = np.random.default_rng([seed, 11])
    size, stout = 0.2 * chance.standard_normal(count), 0.08 * chance.standard_normal(count)
    seen = 10 + np.outer(size, _SIZE) + np.outer(stout, _STOUT)
    seen += noise * chance.standard_normal(seen.shape)
    log_kg = np.log(60) + size + stout + 0.03 * chance.standard_normal(count)
    return [
        Example(
            session_id=f"{seed}-{number}",
            group=f"animal-{number}",
            at=AT,
            features=tuple(seen[number].tolist()),
            weight_kg=float(np.exp(log_kg[number])),
            baseline_kg=None,
        )
        for number in range(count)
    ]


def trained(learned: list[Example]) -> Trained:
    found = training.train(learned, scope=SCOPE, cut_off=AT)
    assert isinstance(found, Trained)
    return found


def fitted(count: int, seed: int = 0) -> Model:
    return model.of(trained(examples(count, seed)))


def frames(example: Example, count: int = 3) -> list[Measurement]:
    """Frames that all show this."""
    return [Measurement(features=example.features, quality=GOOD, problem=None)] * count


def said(example: Example, by: Model) -> estimate.Estimate:
    return estimate.estimate(frames(example), by)
