"""Petri dishes of known growth: what a camera sees of one on a day, and what is truly covered.

Everything follows from the dish's seed and the image's number. The dish and its colonies stay where
they are; light, colour, grain, glare and the camera's shake are of each image.
"""

import io
import math
import random
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

Shares = npt.NDArray[np.float32]

_TABLES = ((112, 116, 124), (150, 132, 108), (104, 108, 104), (176, 174, 168))
_AGARS = ((206, 196, 164), (188, 172, 132), (170, 110, 100), (200, 190, 178))
_MOULDS = ((92, 112, 74), (64, 66, 62), (122, 104, 66), (238, 236, 226), (70, 92, 96))
# A colony that does not stand out from its agar by so many levels is drawn in another colour.
_MIN_CONTRAST = 45
_MASK_PX = 96


@dataclass(frozen=True, slots=True)
class Colony:
    """Place and largest size in radii of the dish; days of its birth; radii that it grows a day."""

    x: float
    y: float
    born_day: float
    radii_per_day: float
    max_radius: float
    wave: tuple[int, float]
    colour: tuple[int, int, int]

    def radius(self, day: float) -> float:
        """Grows evenly at first and slows down towards its largest size."""
        age = max(0.0, day - self.born_day)
        return self.max_radius * math.tanh(self.radii_per_day * age / self.max_radius)


@dataclass(frozen=True)
class Dish:
    """A dish under its camera; sizes as shares of the image's height."""

    seed: str
    width_px: int = 320
    height_px: int = 240

    @cached_property
    def _scene(self) -> tuple[tuple[int, int, int], tuple[int, int, int], float, float, float]:
        """Colours of table and agar; the dish's middle and radius in shares of the height."""
        chance = random.Random(f"scene {self.seed}")
        middle = self.width_px / self.height_px / 2
        return (
            chance.choice(_TABLES),
            chance.choice(_AGARS),
            middle + chance.uniform(-0.06, 0.06),
            0.5 + chance.uniform(-0.04, 0.04),
            chance.uniform(0.36, 0.43),
        )

    @property
    def circle(self) -> tuple[float, float, float]:
        """Middle and radius of the agar, as shares of the image's width."""
        x, y, radius = (value * self.height_px / self.width_px for value in self._scene[2:])
        return x, y, radius

    @cached_property
    def colonies(self) -> tuple[Colony, ...]:
        chance = random.Random(f"colonies {self.seed}")
        agar = self._scene[1]
        moulds = [
            mould
            for mould in _MOULDS
            if max(abs(a - b) for a, b in zip(mould, agar, strict=True)) >= _MIN_CONTRAST
        ]
        speed = chance.uniform(0.02, 0.06)
        return tuple(
            Colony(
                x=chance.uniform(-0.65, 0.65),
                y=chance.uniform(-0.65, 0.65),
                born_day=chance.uniform(0.3, 6.0),
                radii_per_day=speed * chance.uniform(0.6, 1.4),
                max_radius=chance.uniform(0.4, 0.9),
                wave=(chance.randrange(3, 8), chance.uniform(0, 6)),
                colour=chance.choice(moulds),
            )
            for _ in range(chance.randrange(3, 9))
        )

    def covered(self, day: float) -> float:
        """The share of the agar that colonies cover."""
        across, down = _grid(_MASK_PX, _MASK_PX, 0.5, 0.5, 0.5)
        on_agar = np.hypot(across, down) < 1
        over = np.zeros(on_agar.shape, dtype=bool)
        for colony in self.colonies:
            over |= _depth(colony, day, across, down) > 0
        return float((over & on_agar).sum() / on_agar.sum())

    def day_of(self, share: float) -> float | None:
        """The day on which so much is covered; None if it is not within two months."""
        early, late = 0.0, 60.0
        if self.covered(late) < share:
            return None
        for _ in range(12):
            middle = (early + late) / 2
            early, late = (early, middle) if self.covered(middle) >= share else (middle, late)
        return late

    def image(self, day: float, *, number: int = 0, glare: bool = True) -> Image.Image:
        """What the camera sees on a day; `number` draws light, glare, grain and shake."""
        chance = random.Random(f"{self.seed} {number}")
        grain = np.random.default_rng(chance.getrandbits(32))
        table, agar, x, y, radius = self._scene
        size = (self.width_px, self.height_px)
        shake = [chance.gauss(0, 0.0015) for _ in range(2)]
        across, down = _grid(*size, x + shake[0], y + shake[1], radius)
        seen = self._still(across, down, table=table, agar=agar)
        soft = radius * self.height_px
        for colony in self.colonies:
            share = np.clip(_depth(colony, day, across, down) * soft / 2 + 0.5, 0, 1)
            share *= np.hypot(across, down) < 1
            seen += share[:, :, None] * (np.array(colony.colour, dtype=np.float32) - seen)
        light = chance.uniform(0.7, 1.2)
        tint = np.array([chance.uniform(0.95, 1.05) for _ in range(3)], dtype=np.float32)
        sideways = 1 + chance.uniform(-0.08, 0.08) * across + chance.uniform(-0.08, 0.08) * down
        seen *= light * tint * sideways[:, :, None]
        if glare and chance.random() < 0.6:  # noqa: PLR2004
            seen = _glared(seen, across, down, chance)
        seen += grain.normal(0, chance.uniform(2, 6), seen.shape)
        picture = Image.fromarray(np.clip(seen, 0, 255).astype(np.uint8))
        return picture.filter(ImageFilter.GaussianBlur(chance.uniform(0, 0.5)))

    def render(self, day: float, *, number: int = 0, stamp: str = "") -> bytes:
        """A JPEG of it, with a line of text as cameras write them."""
        picture = self.image(day, number=number)
        if stamp:
            ImageDraw.Draw(picture).text((6, 6), stamp, fill=(20, 24, 20))
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=random.Random(number).randrange(60, 91))
        return file.getvalue()

    def _still(
        self,
        across: Shares,
        down: Shares,
        *,
        table: tuple[int, int, int],
        agar: tuple[int, int, int],
    ) -> Shares:
        """Table and dish without colonies."""
        texture = np.random.default_rng(random.Random(f"table {self.seed}").getrandbits(32))
        cell = self.height_px // 120
        coarse = texture.normal(0, 16, (self.height_px // cell + 1, self.width_px // cell + 1))
        wide = np.kron(coarse, np.ones((cell, cell)))[: self.height_px, : self.width_px]
        seen = np.empty((self.height_px, self.width_px, 3), dtype=np.float32)
        seen[:] = table
        seen += wide[:, :, None].astype(np.float32)
        distance = np.hypot(across, down)
        seen[distance < 1] = agar
        rim = (distance >= 1) & (distance < 1.035)  # noqa: PLR2004
        seen[rim] = 0.6 * np.array(agar) + 60
        shade = np.clip(1 - 0.08 * distance, 0.85, 1)
        return np.asarray(seen * np.where(distance < 1, shade, 1)[:, :, None], dtype=np.float32)


def _grid(width: int, height: int, x: float, y: float, radius: float) -> tuple[Shares, Shares]:
    """Each cell's place in radii of the dish, from its middle; all in shares of the height."""
    across = ((np.arange(width, dtype=np.float32) + 0.5) / height - x) / radius
    down = ((np.arange(height, dtype=np.float32) + 0.5) / height - y) / radius
    wide, high = np.meshgrid(across, down)
    return wide.astype(np.float32), high.astype(np.float32)


def _depth(colony: Colony, day: float, across: Shares, down: Shares) -> Shares:
    """How far inside of a colony each cell is, in radii; negative outside."""
    radius = colony.radius(day)
    if radius <= 0:
        return np.full_like(across, -1)
    x, y = across - colony.x, down - colony.y
    waves, phase = colony.wave
    uneven = radius * (1 + 0.1 * np.sin(waves * np.arctan2(y, x) + phase))
    return np.asarray(uneven - np.hypot(x, y), dtype=np.float32)


def _glared(seen: Shares, across: Shares, down: Shares, chance: random.Random) -> Shares:
    """With the reflection of a lamp somewhere on the dish."""
    x, y = chance.uniform(-0.6, 0.6), chance.uniform(-0.6, 0.6)
    wide, high = chance.uniform(0.05, 0.2), chance.uniform(0.03, 0.1)
    near = 1 - np.hypot((across - x) / wide, (down - y) / high)
    share = np.clip(near * 6, 0, 1)[:, :, None]
    return np.asarray(seen + share * (252 - seen), dtype=np.float32)
