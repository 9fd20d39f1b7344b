"""Pictures of a simulated farm: an animal on a scale, as big as it weighs; a dish under a camera.

No two pictures have the same bytes: each shows its number and its moment, and its own grain.
"""

import io
import random
from datetime import datetime

from PIL import Image, ImageDraw

from farmiq.lab.simulate import dishes

WIDTH, HEIGHT = 640, 400
_FLOOR = 330
_PX_AT_100_KG = 300
_SKINS = ((232, 180, 170), (222, 165, 155), (205, 150, 140), (240, 195, 185))
_DARK = (70, 50, 50)


def render(
    *,
    station_id: str,
    number: int,
    at: datetime,
    animal: int | None = None,
    weight_kg: float = 0.0,
) -> bytes:
    """A JPEG; without an animal, of the empty scale."""
    chance = random.Random(f"{station_id} {number} {at.isoformat()}")
    image = Image.new("RGB", (WIDTH, HEIGHT), (96, 104, 92))
    draw = ImageDraw.Draw(image)
    _barn(draw, chance)
    if animal is not None:
        _animal(draw, chance, animal=animal, weight_kg=weight_kg)
    _bars(draw)
    stamp = f"{station_id}  {at:%Y-%m-%d %H:%M:%S.%f}  #{number}"
    draw.text((8, 8), stamp, fill=(245, 245, 230))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return file.getvalue()


def _barn(draw: ImageDraw.ImageDraw, chance: random.Random) -> None:
    draw.rectangle((0, 0, WIDTH, 150), fill=(120, 116, 100))
    for left in range(0, WIDTH, 80):
        draw.line((left, 0, left, 150), fill=(104, 100, 86), width=3)
    draw.rectangle((0, _FLOOR, WIDTH, HEIGHT), fill=(120, 104, 76))
    for _ in range(400):
        x, y = chance.randrange(WIDTH), chance.randrange(_FLOOR, HEIGHT)
        straw = (chance.randrange(150, 220), chance.randrange(130, 190), 90)
        draw.line((x, y, x + chance.randrange(-9, 9), y + 2), fill=straw)
    draw.rectangle((70, _FLOOR - 8, WIDTH - 70, _FLOOR + 6), fill=(150, 155, 160))


def _bars(draw: ImageDraw.ImageDraw) -> None:
    for height in (190, 250):
        draw.line((70, height, WIDTH - 70, height), fill=(170, 175, 180), width=4)
    for left in (70, WIDTH - 70):
        draw.line((left, 150, left, _FLOOR), fill=(170, 175, 180), width=6)


def _animal(
    draw: ImageDraw.ImageDraw, chance: random.Random, *, animal: int, weight_kg: float
) -> None:
    """Length goes with the cube root of the weight."""
    length = _PX_AT_100_KG * (max(weight_kg, 1.0) / 100) ** (1 / 3)
    height = length * 0.42
    skin = _SKINS[animal % len(_SKINS)]
    left = (WIDTH - length) / 2 + chance.uniform(-25, 25)
    leg = height * 0.45
    top = _FLOOR - 8 - leg - height
    for share in (0.12, 0.24, 0.72, 0.84):
        x = left + length * share
        draw.rectangle((x, top + height * 0.7, x + length * 0.06, _FLOOR - 8), fill=skin)
    draw.ellipse((left, top, left + length, top + height), fill=skin)
    _head(draw, skin, x=left + length * 0.86, y=top + height * 0.1, size=height * 0.62)
    draw.arc(
        (left - length * 0.08, top + height * 0.2, left + length * 0.04, top + height * 0.5),
        90,
        360,
        fill=skin,
        width=4,
    )
    draw.text((left + length * 0.4, top + height * 0.35), f"{animal:03d}", fill=(40, 70, 150))


def _head(
    draw: ImageDraw.ImageDraw, skin: tuple[int, int, int], *, x: float, y: float, size: float
) -> None:
    draw.ellipse((x, y, x + size, y + size), fill=skin)
    draw.ellipse(
        (x + size * 0.75, y + size * 0.45, x + size * 1.15, y + size * 0.8), fill=(214, 140, 135)
    )
    draw.polygon(
        ((x + size * 0.2, y + size * 0.2), (x + size * 0.5, y - size * 0.2), (x + size * 0.6, y)),
        fill=_DARK,
    )
    draw.ellipse((x + size * 0.6, y + size * 0.3, x + size * 0.7, y + size * 0.4), fill=_DARK)


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
