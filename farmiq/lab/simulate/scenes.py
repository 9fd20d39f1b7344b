"""Animals on a scale as a camera above it sees them, with the true mask and the true weight.

A Scene is a place: its floor, its lamp, its wires. A Shot is one picture of it: of the empty scale,
of an animal, of two, of a hand. All of it follows from seeds; numpy and Pillow are all it needs.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from PIL import Image

HEIGHT, WIDTH = 240, 320
# What the picture shows of the floor, and how high the camera hangs above it.
FIELD_MM, CAMERA_MM = 1900.0, 2300.0
KG_PER_MM3 = 1.03e-6
FLOORS = ("concrete", "slats", "grid", "straw", "rubber", "metal")
_SPINE_POINTS = 28

Plane = NDArray[np.float32]
Colour = tuple[float, float, float]

_SKINS: dict[str, Colour] = {
    "pink": (0.70, 0.46, 0.40),
    "white": (0.80, 0.74, 0.66),
    "brown": (0.36, 0.20, 0.11),
    "grey": (0.34, 0.33, 0.32),
    "black": (0.045, 0.042, 0.045),
}
_GROUND: dict[str, Colour] = {
    "concrete": (0.36, 0.36, 0.34),
    "slats": (0.40, 0.39, 0.36),
    "grid": (0.20, 0.32, 0.24),
    "straw": (0.48, 0.38, 0.20),
    "rubber": (0.10, 0.10, 0.11),
    "metal": (0.42, 0.44, 0.46),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Animal:
    """Seen from above: a body along a spine, a head, ears and a tail. Heights cannot be seen."""

    length_mm: float
    width_mm: float
    # Of the width, from rump to shoulder; and the share of the head.
    profile: tuple[float, float, float]
    head: float
    height_ratio: float
    skin: str
    seed: int

    @property
    def weight_kg(self) -> float:
        """The volume of the body and the head, with the heights that no camera above can see."""
        _, radii = self._body()
        step = self.length_mm / (_SPINE_POINTS - 1)
        body = float((math.pi * radii**2).sum()) * step * self.height_ratio
        head = 4 / 3 * math.pi * (0.5 * self.head * self.width_mm) ** 2 * 0.22 * self.length_mm
        return (body + head) * KG_PER_MM3

    def _body(self) -> tuple[Plane, Plane]:
        """Places along the spine, 0 to 1, and half the width there in mm."""
        along = np.linspace(0, 1, _SPINE_POINTS, dtype=np.float32)
        rump, belly, shoulder = self.profile
        width = np.interp(along, (0, 0.25, 0.55, 0.85, 1), (rump, rump, belly, shoulder, shoulder))
        ends = np.sqrt(np.clip(1 - (2 * along - 1) ** 6, 0, 1))
        return along, (0.5 * self.width_mm * width * (0.45 + 0.55 * ends)).astype(np.float32)

    def discs(self, pose: "Pose") -> tuple[Plane, Plane, Plane]:
        """x, y and radius in mm, around the middle of the body, of the discs that make it up."""
        along, radii = self._body()
        arc = (along - 0.5) * self.length_mm
        angle = pose.bend * (along - 0.5) * 2
        step = np.gradient(arc)
        x, y = np.cumsum(np.cos(angle) * step), np.cumsum(np.sin(angle) * step)
        x, y = x - x[len(x) // 2], y - y[len(y) // 2]
        nose = float(angle[-1]) + pose.head_angle
        reach = np.linspace(0.04, 0.26, 6) * self.length_mm * pose.head_reach
        head_x, head_y = x[-1] + np.cos(nose) * reach, y[-1] + np.sin(nose) * reach
        head_r = 0.5 * self.head * self.width_mm * np.linspace(1.05, 0.55, 6)
        ears = np.array([-1.0, 1.0])
        ear_x = head_x[1] - np.sin(nose) * ears * head_r[0] * 1.05
        ear_y = head_y[1] + np.cos(nose) * ears * head_r[0] * 1.05
        tail = np.linspace(0.02, 0.09, 4) * self.length_mm
        tail_x, tail_y = x[0] - tail, y[0] + tail * pose.tail
        return (
            np.concatenate([x, head_x, ear_x, tail_x]).astype(np.float32),
            np.concatenate([y, head_y, ear_y, tail_y]).astype(np.float32),
            np.concatenate(
                [radii, head_r, np.full(2, 0.16 * self.width_mm), np.full(4, 0.03 * self.width_mm)]
            ).astype(np.float32),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pose:
    """Where an animal stands in the field, in mm from its middle, and how it holds itself."""

    x_mm: float = 0.0
    y_mm: float = 0.0
    heading: float = 0.0
    bend: float = 0.0
    head_angle: float = 0.0
    head_reach: float = 1.0
    tail: float = 0.0


@dataclass(frozen=True, slots=True)
class Rendered:
    """A picture, RGB, and the true mask of the animals in it (wires in front left out)."""

    image: NDArray[np.uint8]
    mask: NDArray[np.bool_]

    def jpeg(self, quality: int = 85) -> bytes:
        file = io.BytesIO()
        Image.fromarray(self.image).save(file, "JPEG", quality=quality)
        return file.getvalue()


def animal(chance: Generator, *, mean_kg: float = 60.0, skin: str | None = None) -> Animal:
    """One of a herd: sizes differ by about 8 % in length, proportions by about 6 %."""
    size = (mean_kg / 60.0) ** (1 / 3) * math.exp(0.085 * float(chance.standard_normal()))
    return Animal(
        length_mm=880 * size * math.exp(0.04 * float(chance.standard_normal())),
        width_mm=300 * size * math.exp(0.06 * float(chance.standard_normal())),
        profile=(
            0.92 + 0.04 * float(chance.standard_normal()),
            0.98 + 0.04 * float(chance.standard_normal()),
            0.95 + 0.04 * float(chance.standard_normal()),
        ),
        head=0.55 + 0.03 * float(chance.standard_normal()),
        height_ratio=1.12 * math.exp(0.025 * float(chance.standard_normal())),
        skin=skin or str(chance.choice(list(_SKINS))),
        seed=int(chance.integers(2**31)),
    )


def pose(chance: Generator) -> Pose:
    """An animal that stands on the scale somehow, wholly in the picture."""
    return Pose(
        x_mm=float(chance.uniform(-120, 120)),
        y_mm=float(chance.uniform(-70, 70)),
        heading=float(chance.choice([0.0, math.pi])) + float(chance.uniform(-0.35, 0.35)),
        bend=float(chance.normal(0, 0.16)),
        head_angle=float(chance.normal(0, 0.3)),
        head_reach=float(chance.uniform(0.6, 1.1)),
        tail=float(chance.normal(0, 0.6)),
    )


class Scene:
    """A place with a fixed camera. `hard` has everything that makes masks difficult."""

    def __init__(
        self,
        seed: int,
        *,
        floor: str | None = None,
        size: tuple[int, int] = (HEIGHT, WIDTH),
        hard: bool = True,
    ) -> None:
        chance = np.random.default_rng([seed, 1])
        self.height, self.width = size
        self.mm_per_pixel = FIELD_MM / self.width
        self.hard = hard
        self.floor = floor or str(chance.choice(FLOORS))
        self._ground = self._floor(chance)
        self._lamp = float(chance.uniform(0, 2 * math.pi))
        self._slope = float(chance.uniform(0.05, 0.45))
        self._warm = float(chance.uniform(-0.08, 0.12))
        self._light = float(chance.uniform(0.55, 1.25) if hard else 1.0)
        self._shade = float(chance.uniform(0.4, 0.8) if hard else 0.75)
        self._wires, self._wire_tone = self._wire_mask(chance)

    def empty(self, seed: int = 0) -> Rendered:
        """The empty scale."""
        return self.render((), seed)

    def render(
        self, animals: Sequence[tuple[Animal, Pose]], seed: int, *, hand: float | None = None
    ) -> Rendered:
        """A picture of these animals; `hand` is where an arm comes in from, 0 to 1 of the side."""
        chance = np.random.default_rng([seed, 2])
        albedo = self._ground * self._dirt(chance)
        body = np.zeros((self.height, self.width), np.float32)
        lit = np.ones_like(body)
        for subject, stand in animals:
            albedo, lit, body = self._put(albedo, lit, body, subject, stand)
        if hand is not None:
            albedo, lit = self._arm(albedo, lit, hand)
        mask = body > 0.5  # noqa: PLR2004 - half of the pixel
        albedo = np.where(self._wires[..., None], self._wire_tone, albedo)
        picture = albedo * (lit * self._lamp_light(chance))[..., None]
        picture = picture * np.array([1 + self._warm, 1.0, 1 - self._warm], np.float32)
        return Rendered(self._exposed(picture, chance, moves=bool(animals)), mask)

    def _put(
        self, albedo: Plane, lit: Plane, body: Plane, subject: Animal, stand: Pose
    ) -> tuple[Plane, Plane, Plane]:
        cover, depth = self._silhouette(subject, stand)
        back = 0.5 * subject.width_mm * subject.height_ratio
        shift = self._slope * 1.6 * back / self.mm_per_pixel
        shadow = _moved(cover, math.sin(self._lamp) * shift, math.cos(self._lamp) * shift)
        shadow = _blurred(shadow, 1.0 + 0.18 * shift)
        lit = lit * (1 - (1 - self._shade) * np.clip(shadow, 0, 1))
        round_ = 0.62 + 0.38 * np.sqrt(np.clip(1 - (1 - np.clip(depth, 0, 1)) ** 2, 0, 1))
        side = _moved(depth, -math.sin(self._lamp) * 2, -math.cos(self._lamp) * 2) - depth
        shading = np.clip(round_ + 0.8 * self._slope * side, 0.2, 1.4)
        skin = self._skin(subject)
        albedo = albedo * (1 - cover[..., None]) + skin * shading[..., None] * cover[..., None]
        return albedo, lit * (1 - cover) + cover, np.maximum(body, cover)

    def _silhouette(self, subject: Animal, stand: Pose) -> tuple[Plane, Plane]:
        """How much of each pixel it covers, and how deep inside it is (0 at the edge, 1 inside)."""
        x, y, radius = subject.discs(stand)
        # What is higher is nearer to the camera and looks larger.
        nearer = CAMERA_MM / (CAMERA_MM - 0.5 * subject.width_mm * subject.height_ratio)
        scale = nearer / self.mm_per_pixel
        angle, lean = math.cos(stand.heading), math.sin(stand.heading)
        centre_x = self.width / 2 + (x * angle - y * lean + stand.x_mm) * scale
        centre_y = self.height / 2 + (x * lean + y * angle + stand.y_mm) * scale
        r = radius * scale
        rows = np.arange(self.height, dtype=np.float32)[:, None]
        columns = np.arange(self.width, dtype=np.float32)[None, :]
        inside = np.full((self.height, self.width), -1e3, np.float32)
        for cx, cy, cr in zip(centre_x, centre_y, r, strict=True):
            top, bottom = max(0, int(cy - cr - 3)), min(self.height, int(cy + cr + 4))
            left, right = max(0, int(cx - cr - 3)), min(self.width, int(cx + cr + 4))
            if top >= bottom or left >= right:
                continue
            part = inside[top:bottom, left:right]
            difference = np.hypot(rows[top:bottom] - cy, columns[:, left:right] - cx)
            np.maximum(part, cr - difference, out=part)
        return np.clip(inside + 0.5, 0, 1), np.clip(inside / max(float(r.max()), 1.0), 0, 1)

    def _skin(self, subject: Animal) -> Plane:
        chance = np.random.default_rng([subject.seed, 3])
        tone = np.asarray(_SKINS[subject.skin], np.float32) * float(chance.uniform(0.85, 1.15))
        fur = 1 + 0.10 * self._noise(chance, 24) + 0.05 * self._noise(chance, 4)
        skin = tone * fur[..., None]
        if self.hard:
            dirt = np.clip(self._noise(chance, 30) - 0.9, 0, 1)[..., None] * 0.7
            skin = skin * (1 - dirt) + np.asarray(_GROUND[self.floor], np.float32) * dirt
        return np.asarray(skin, np.float32)

    def _arm(self, albedo: Plane, lit: Plane, where: float) -> tuple[Plane, Plane]:
        rows = np.arange(self.height, dtype=np.float32)[:, None]
        columns = np.arange(self.width, dtype=np.float32)[None, :]
        half = 55.0 / self.mm_per_pixel
        top, tip = where * self.height, 0.42 * self.width
        along = np.clip(columns, 0, tip)
        wide = half * (1 + 0.35 * (columns > tip - 1.6 * half))
        cover = np.clip(wide - np.hypot(rows - top, columns - along) + 0.5, 0, 1)
        cover = cover.astype(np.float32)
        sleeve = (columns < 0.5 * tip)[..., None]
        tone = np.where(sleeve, np.array([0.10, 0.14, 0.30]), np.array([0.62, 0.42, 0.33]))
        return (
            (albedo * (1 - cover[..., None]) + tone * cover[..., None]).astype(np.float32),
            lit * (1 - 0.4 * _blurred(_moved(cover, 4, 4), 3.0) * (1 - cover)),
        )

    def _floor(self, chance: Generator) -> Plane:
        rows = np.arange(self.height, dtype=np.float32)[:, None]
        columns = np.arange(self.width, dtype=np.float32)[None, :]
        tone = 1 + 0.08 * self._noise(chance, 40) + 0.07 * self._noise(chance, 3)
        step = self.width / float(chance.uniform(14, 26))
        if self.floor == "slats":
            tone = tone * np.where((columns % step) < 0.22 * step, 0.22, 1.0)
        elif self.floor == "grid":
            holes = ((columns % step) < 0.3 * step) & ((rows % step) < 0.3 * step)
            tone = tone * np.where(holes, 0.3, 1.0)
        elif self.floor == "straw":
            tone = tone + 0.5 * self._straw(chance)
        elif self.floor == "metal":
            tone = tone + 0.25 * np.exp(-(((columns - 0.4 * self.width) / (0.2 * self.width)) ** 2))
            tone = tone + 0.12 * ((columns + rows) % 12 < 2)  # noqa: PLR2004 - a chequer plate
        ground = np.asarray(_GROUND[self.floor], np.float32) * tone[..., None]
        stains = np.clip(self._noise(chance, 34) - 1.0, 0, 1)[..., None] * 0.6
        return np.asarray(np.clip(ground * (1 - stains), 0.01, 1), np.float32)

    def _straw(self, chance: Generator) -> Plane:
        tone = np.zeros((self.height, self.width), np.float32)
        count = self.height * self.width // 70
        x, y = chance.uniform(0, self.width, count), chance.uniform(0, self.height, count)
        angle, light = chance.uniform(0, math.pi, count), chance.uniform(-0.7, 0.7, count)
        for place in range(-4, 5):
            column = np.clip(x + place * np.cos(angle), 0, self.width - 1).astype(int)
            row = np.clip(y + place * np.sin(angle), 0, self.height - 1).astype(int)
            tone[row, column] = light
        return tone

    def _dirt(self, chance: Generator) -> Plane:
        """What has changed on the floor since the last picture of it."""
        tone = np.ones((self.height, self.width, 1), np.float32)
        if not self.hard:
            return tone
        for _ in range(int(chance.integers(0, 5))):
            row, column = int(chance.integers(self.height)), int(chance.integers(self.width))
            size = max(1, int(chance.uniform(0.004, 0.016) * self.width))
            tone[max(0, row - size) : row + size, max(0, column - size) : column + size] *= 0.5
        return tone

    def _wire_mask(self, chance: Generator) -> tuple[NDArray[np.bool_], Plane]:
        wires = np.zeros((self.height, self.width), bool)
        tone = np.full(3, float(chance.uniform(0.15, 0.6)), np.float32)
        if self.hard and chance.random() < 0.5:  # noqa: PLR2004
            rows = np.arange(self.height)[:, None]
            columns = np.arange(self.width)[None, :]
            slant = float(chance.uniform(-0.4, 0.4))
            step = self.width / float(chance.uniform(3, 7))
            thick = max(1.0, float(chance.uniform(0.003, 0.012)) * self.width)
            wires |= (columns + slant * rows) % step < thick
        return wires, tone

    def _lamp_light(self, chance: Generator) -> Plane:
        rows = np.linspace(-1, 1, self.height, dtype=np.float32)[:, None]
        columns = np.linspace(-1, 1, self.width, dtype=np.float32)[None, :]
        wander = 0.12 if self.hard else 0.03
        angle = self._lamp + float(chance.normal(0, wander))
        slope = self._slope + float(chance.normal(0, wander / 3))
        gain = self._light * math.exp(float(chance.normal(0, wander)))
        across = np.cos(angle) * columns + np.sin(angle) * rows
        fall = 1 - 0.18 * (rows**2 + columns**2) / 2
        return np.asarray(gain * (1 + 0.5 * slope * across) * fall, np.float32)

    def _exposed(self, picture: Plane, chance: Generator, *, moves: bool) -> NDArray[np.uint8]:
        if self.hard and moves and chance.random() < 0.4:  # noqa: PLR2004
            length, angle = float(chance.uniform(1, 4)), float(chance.uniform(0, math.pi))
            places = np.linspace(-0.5, 0.5, 5) * length
            picture = np.mean(
                [_moved(picture, math.sin(angle) * at, math.cos(angle) * at) for at in places],
                axis=0,
                dtype=np.float32,
            )
        if self.hard:
            picture = _blurred(picture, float(chance.uniform(0.3, 0.9)))
        noise = chance.standard_normal(picture.shape, dtype=np.float32)
        grain = 0.012 if self.hard else 0.006
        seen = np.clip(picture, 0, 1) ** np.float32(1 / 2.2) + grain * noise
        return (np.clip(seen, 0, 1) * 255).astype(np.uint8)

    def _noise(self, chance: Generator, cell_px: int) -> Plane:
        """Smooth noise of mean 0 and spread 1 with spots of about this size."""
        cell = max(1.0, cell_px * self.width / WIDTH)
        rows, columns = int(self.height / cell) + 2, int(self.width / cell) + 2
        grid = chance.standard_normal((rows, columns), dtype=np.float32)
        return np.asarray(
            1.5 * _stretch(self.height, rows) @ grid @ _stretch(self.width, columns).T, np.float32
        )


@lru_cache(maxsize=64)
def _stretch(size: int, points: int) -> Plane:
    """Linear interpolation from `points` values to `size` of them, as a matrix."""
    at = np.linspace(0, points - 1, size)
    return np.asarray(
        np.clip(1 - np.abs(at[:, None] - np.arange(points)[None, :]), 0, 1), np.float32
    )


@lru_cache(maxsize=256)
def _band(size: int, sigma: float) -> Plane:
    """A Gaussian blur of one axis as a matrix."""
    difference = np.arange(size)[:, None] - np.arange(size)[None, :]
    weights = np.exp(-0.5 * (difference / sigma) ** 2)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)


def _blurred(picture: Plane, sigma: float) -> Plane:
    sigma = round(max(sigma, 0.3), 1)
    down, across = _band(picture.shape[0], sigma), _band(picture.shape[1], sigma)
    if picture.ndim == 2:  # noqa: PLR2004 - one channel
        return np.asarray(down @ picture @ across.T, np.float32)
    return np.stack([down @ picture[..., c] @ across.T for c in range(3)], axis=-1)


def _moved(picture: Plane, rows: float, columns: float) -> Plane:
    """Moved by parts of pixels; the edge is repeated."""
    y, x = math.floor(rows), math.floor(columns)
    down, right = rows - y, columns - x
    return np.asarray(
        (1 - down) * (1 - right) * _rolled(picture, y, x)
        + down * (1 - right) * _rolled(picture, y + 1, x)
        + (1 - down) * right * _rolled(picture, y, x + 1)
        + down * right * _rolled(picture, y + 1, x + 1),
        np.float32,
    )


def _rolled(picture: Plane, rows: int, columns: int) -> Plane:
    height, width = picture.shape[:2]
    row = np.clip(np.arange(height) - rows, 0, height - 1)
    column = np.clip(np.arange(width) - columns, 0, width - 1)
    return np.asarray(picture[row][:, column], np.float32)
