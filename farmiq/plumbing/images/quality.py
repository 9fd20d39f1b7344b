"""How good a picture is: its size, how sharp it is, how it is exposed, and the grade in a word.

It is judged by its small copy, the one that people see in lists: so sharpness means the same for
cameras of any resolution, and a fine grain of the sensor counts less than the edges of things.
"""

import hashlib
from dataclasses import dataclass
from typing import Literal

from PIL import Image, ImageFilter, ImageStat

from farmiq.plumbing.images import pictures
from farmiq.plumbing.images.pictures import Picture, UnreadableError

Grade = Literal["ok", "blurred", "dark", "bright", "unreadable", "missing"]

# A camera of this kind has five million; a progressive JPEG of this many takes 100 MB to decode.
MAX_PIXELS = 16_000_000
# Levels of grey from 0 to 255. Below and above these hardly anything can be told apart.
DARK_LEVEL, BRIGHT_LEVEL = 16, 240
# Measured (D-165): pictures as they should be had a mean of 69 to 172, and no clipped level.
DARK_MEAN, BRIGHT_MEAN = 30.0, 210.0
DARK_SHARE, BRIGHT_SHARE = 0.8, 0.5
# Measured (D-165): sharp pictures had 177 and more, ones blurred by 0.6 % of their length 35 or
# less.
LEAST_SHARPNESS = 90.0
_MIDDLE = 128.0
_LAPLACIAN_SCALE = 4
# Around the middle of the levels: a filter of bytes would cut off what is below nothing.
_LAPLACIAN = ImageFilter.Kernel(
    (3, 3), (0, 1, 0, 1, -4, 1, 0, 1, 0), scale=_LAPLACIAN_SCALE, offset=128
)
_LEAST_PX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Levels go from 0 to 255; the shares are of the pixels that are black, or white."""

    width_px: int
    height_px: int
    sharpness: float
    brightness: float
    dark_share: float
    bright_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """`reason` says why it is not ok. What cannot be read has no measures."""

    grade: Grade
    reason: str | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    measures: Measures | None = None


def assess(data: bytes) -> tuple[Quality, bytes | None]:
    """What a picture is worth, and its small copy as a JPEG. decoding.py has it done."""
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        picture = pictures.look(data)
        small = pictures.small(data, max_pixels=MAX_PIXELS)
    except UnreadableError as error:
        quality = Quality(
            grade="unreadable", reason=str(error), size_bytes=len(data), sha256=sha256
        )
        return quality, None
    measures = _measured(picture, small.convert("L"))
    grade, reason = grade_of(measures)
    quality = Quality(
        grade=grade, reason=reason, size_bytes=len(data), sha256=sha256, measures=measures
    )
    return quality, pictures.as_jpeg(small)


def grade_of(seen: Measures) -> tuple[Grade, str | None]:
    """Light goes first: where there is too little or too much, nothing is sharp."""
    light = f"brightness {seen.brightness:.0f} of 255"
    if seen.brightness < DARK_MEAN or seen.dark_share > DARK_SHARE:
        return "dark", f"{light}, {seen.dark_share:.0%} of it black"
    if seen.brightness > BRIGHT_MEAN or seen.bright_share > BRIGHT_SHARE:
        return "bright", f"{light}, {seen.bright_share:.0%} of it white"
    if seen.sharpness < LEAST_SHARPNESS:
        return "blurred", f"sharpness {seen.sharpness:.0f} is less than {LEAST_SHARPNESS:.0f}"
    return "ok", None


def _measured(picture: Picture, grey: Image.Image) -> Measures:
    levels, pixels = grey.histogram(), grey.width * grey.height
    brightness = ImageStat.Stat(grey).mean[0]
    return Measures(
        width_px=picture.width_px,
        height_px=picture.height_px,
        sharpness=round(_sharpness(grey, brightness), 2),
        brightness=round(brightness, 2),
        dark_share=round(sum(levels[:DARK_LEVEL]) / pixels, 4),
        bright_share=round(sum(levels[BRIGHT_LEVEL:]) / pixels, 4),
    )


def _sharpness(grey: Image.Image, brightness: float) -> float:
    """Variance of the Laplacian, as if the picture were of middle brightness.

    Half the light halves all differences: without that, a dim picture would look blurred.
    """
    if min(grey.size) < _LEAST_PX:
        return 0.0
    # Its outermost pixels have no neighbours: there the filter says what the picture says.
    inner = (1, 1, grey.width - 1, grey.height - 1)
    edges = grey.filter(_LAPLACIAN).crop(inner)
    variance: float = ImageStat.Stat(edges).var[0]
    return variance * (_LAPLACIAN_SCALE * _MIDDLE / max(brightness, 1.0)) ** 2
