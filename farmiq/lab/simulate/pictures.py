"""Pictures of a simulated farm: an animal on a scale, as big as it weighs; a dish under a camera.

No two pictures have the same bytes: each has its own grain.
"""

import random
import zlib
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

import numpy as np

from farmiq.lab.simulate import dishes, scenes

# Small animals are drawn as if they weighed so much more: their camera hangs lower.
_SMALL_KG, _CLOSER = 15.0, 20.0


def render(
    *,
    station_id: str,
    number: int,
    at: datetime,
    animal: int | None = None,
    weight_kg: float = 0.0,
) -> bytes:
    """A JPEG from above the scale, the animal as large as it weighs; without one, of the scale."""
    scene = _scene(station_id)
    seed = random.Random(f"{station_id} {number} {at.isoformat()}").getrandbits(31)
    if animal is None:
        return scene.empty(seed).jpeg()
    stand = scenes.pose(np.random.default_rng([seed, 3]))
    return scene.render([(_animal(station_id, animal, weight_kg), stand)], seed).jpeg()


@lru_cache(maxsize=16)
def _scene(station_id: str) -> scenes.Scene:
    """A station's floor, lamp and camera stay as they are."""
    return scenes.Scene(zlib.crc32(station_id.encode()), hard=False)


def _animal(station_id: str, animal: int, weight_kg: float) -> scenes.Animal:
    """An animal keeps its looks and proportions, and grows in all directions."""
    chance = np.random.default_rng([zlib.crc32(station_id.encode()), animal])
    drawn_kg = max(weight_kg, 0.05) * (_CLOSER if weight_kg < _SMALL_KG else 1.0)
    # Broilers are white; pigs of a herd have any skin.
    skin = "white" if weight_kg < _SMALL_KG else None
    usual = scenes.animal(chance, mean_kg=drawn_kg, skin=skin)
    factor = (drawn_kg / usual.weight_kg) ** (1 / 3)
    return replace(usual, length_mm=usual.length_mm * factor, width_mm=usual.width_mm * factor)


_DISH_SIZES = ((320, 240), (480, 360), (640, 480))
# A simulated dish grows by this much from one picture to the next.
_DAYS_A_PICTURE = 0.25


def dish(*, camera_id: str, number: int, at: datetime, seed: int = 1) -> bytes:
    """A JPEG of about 5 to 60 kB: a petri dish whose colonies grow from picture to picture."""
    name = f"{seed} {camera_id}"
    width, height = random.Random(name).choice(_DISH_SIZES)
    stamp = f"{camera_id}  {at:%Y-%m-%d %H:%M:%S}  #{number}"
    shown = dishes.Dish(name, width, height)
    return shown.render(number * _DAYS_A_PICTURE, number=number, stamp=stamp)
