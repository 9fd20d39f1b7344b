"""Pictures of a simulated farm: an animal on a scale, as big as it weighs; a dish under a camera.

No two pictures have the same bytes: each has its own grain.
"""

import io
import random
import zlib
from dataclasses import replace
from datetime import datetime
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

from farmiq.lab.simulate import scenes

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
    return scene.shot([(_animal(station_id, animal, weight_kg), stand)], seed).jpeg()


@lru_cache(maxsize=16)
def _scene(station_id: str) -> scenes.Scene:
    """A station's floor, lamp and camera stay as they are."""
    return scenes.Scene(zlib.crc32(station_id.encode()), hard=False)


def _animal(station_id: str, animal: int, weight_kg: float) -> scenes.Animal:
    """An animal keeps its looks and proportions, and grows in all directions."""
    chance = np.random.default_rng([zlib.crc32(station_id.encode()), animal])
    drawn_kg = max(weight_kg, 0.05) * (_CLOSER if weight_kg < _SMALL_KG else 1.0)
    usual = scenes.animal(chance, mean_kg=drawn_kg)
    factor = (drawn_kg / usual.weight_kg) ** (1 / 3)
    return replace(usual, length_mm=usual.length_mm * factor, width_mm=usual.width_mm * factor)


_DISH_SIZES = ((320, 240), (480, 360), (640, 480))


def dish(*, camera_id: str, number: int, at: datetime, seed: int = 1) -> bytes:
    """A JPEG of about 5 to 60 kB: a petri dish whose colonies grow from picture to picture."""
    chance = random.Random(f"{seed} {camera_id} {number} {at.isoformat()}")
    width, height = chance.choice(_DISH_SIZES)
    image = Image.effect_noise((width, height), chance.uniform(4, 22)).convert("RGB")
    image = Image.blend(image, Image.new("RGB", (width, height), (196, 190, 170)), 0.75)
    draw = ImageDraw.Draw(image)
    radius = height * 0.44
    middle = (width / 2, height / 2)
    draw.circle(middle, radius, outline=(90, 90, 84), width=3)
    _colonies(draw, random.Random(f"{seed} {camera_id}"), middle, radius, day=number)
    draw.text((6, 6), f"{camera_id}  {at:%Y-%m-%d %H:%M:%S}  #{number}", fill=(20, 24, 20))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=chance.randrange(60, 91))
    return file.getvalue()


def _colonies(
    draw: ImageDraw.ImageDraw,
    chance: random.Random,
    middle: tuple[float, float],
    radius: float,
    *,
    day: int,
) -> None:
    """The same places in every picture of a camera."""
    for _ in range(chance.randrange(3, 9)):
        x = middle[0] + chance.uniform(-0.6, 0.6) * radius
        y = middle[1] + chance.uniform(-0.6, 0.6) * radius
        grown = min(0.25, chance.uniform(0.01, 0.03) * (1 + day / 4)) * radius
        shade = chance.randrange(60, 140)
        draw.circle((x, y), grown, fill=(shade, shade + 30, shade - 20))
