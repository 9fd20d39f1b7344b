"""How much of a dish is covered more than in its reference image, and how sure that is.

The first image of a dish is its reference. The light of a later one is corrected by what lies
outside of the dish, which does not grow; glare is left out. What differs from the reference then,
and did not look like the agar before, is told as a change. Of one image alone nothing is told.
"""

import io
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from PIL import Image

from farmiq.farm.vision.dishes import locate
from farmiq.farm.vision.dishes.locate import Circle
from farmiq.farm.vision.grey import Levels
from farmiq.messages.wording import worded
from farmiq.plumbing.images import pictures
from farmiq.plumbing.images.pictures import UnreadableError

# The rim and what it mirrors belong to neither side.
INNER, OUTER = 0.94, 1.06
# As bright as this in every colour: a reflection, below which nothing is seen.
GLARE_LEVEL = 236
GLARE_MARGIN_PX = 2
# What differs by fewer levels, or by less than so many times the grain, is the same.
MIN_DIFFERENCE, GRAIN_TIMES, MAX_DIFFERENCE = 12.0, 3.0, 20.0
# What was so many times that from the agar's colour was no free agar in the reference.
FREE_TIMES = 2.0
# How soft the edge of a colony is.
EDGE_PX = 3
# How far a camera may shake, in pixels of the small image.
MAX_SHAKE_PX = 4
# The light of an image that differs more than this from that of the reference, as a factor.
MAX_LIGHT = 3.0
# Less of the dish is in sight, or less around it: nothing is told.
MIN_IN_SIGHT, MIN_OUTSIDE = 0.4, 0.03
MIN_SIDE_PX = 64
# Around a dish that stays where it is, edges correlate by more than this.
MIN_ALIKE = 0.25
# So many levels of grain outside of the dish leave no quality.
MAX_GRAIN = 25.0
# A pixel of shake is believed if the edges fit better by this share.
MIN_GAIN = 0.02
_STEPS = ((0, 1), (0, -1), (1, 0), (-1, 0))
# A lamp's reflection is narrower than this share of the radius; what is wider is white and grows.
GLARE_WIDTH = 0.09
_REFERENCE_QUALITY = 95
# Added to levels before their ratio is taken: black says nothing of the light.
_LIFT = 4.0
_MAD_TO_SD = 1.4826

Colours = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """A dish as it was first seen: where it is, and its small image as a JPEG."""

    circle: Circle
    image: bytes


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """`change` of the covered share since the reference; `quality` from 0 to 1.

    Without a change `problem` says why. `reference` is made by the first image of a dish, whose
    change is 0 by definition.
    """

    change: float | None = None
    quality: float = 0.0
    problem: str | None = None
    reference: Reference | None = None


class _Light(NamedTuple):
    corrected: Colours
    factor: float
    left: float


def measure(data: bytes, reference: Reference | None) -> Measured:
    """Compare a dish with its reference, or become it. Any bytes are answered."""
    try:
        if pictures.is_animated(data):
            return Measured(problem=worded("animated: an image that moves is not measured"))
        small = pictures.small(data)
    except UnreadableError as error:
        return Measured(problem=worded("not readable: %(why)s", why=error))
    if min(small.size) < MIN_SIDE_PX:
        return Measured(
            problem=worded(
                "too small: %(number)s x %(number2)s pixels",
                number=small.width,
                number2=small.height,
            )
        )
    if reference is None:
        return _first(small)
    with Image.open(io.BytesIO(reference.image)) as first:
        if first.size != small.size:
            return Measured(
                problem=worded(
                    "another size than the reference: %(number)s x %(number2)s, "
                    "not %(number3)s x %(number4)s",
                    number=small.width,
                    number2=small.height,
                    number3=first.width,
                    number4=first.height,
                )
            )
        then = _colours(first)
    return _compare(_colours(small), then, reference.circle)


def _first(small: Image.Image) -> Measured:
    colours = _colours(small)
    circle = locate.locate(colours)
    if circle is None:
        return Measured(problem=worded("no dish found: no rim is seen all around"))
    distance = _distance(colours.shape, circle)
    problem = _outside_problem(distance) or _glare_problem(distance, _glare(colours))
    if problem:
        return Measured(problem=problem)
    file = io.BytesIO()
    small.save(file, "JPEG", quality=_REFERENCE_QUALITY, subsampling=0)
    made = Reference(circle=circle, image=file.getvalue())
    return Measured(change=0.0, quality=1.0, reference=made)


def _compare(now: Colours, then: Colours, circle: Circle) -> Measured:
    distance = _distance(then.shape, circle)
    outside = distance > OUTER
    problem = _outside_problem(distance)
    if problem:
        return Measured(problem=problem)
    shift, alike = _shake(now, then, distance > INNER)
    if alike < MIN_ALIKE:
        return Measured(
            problem=worded("what is around the dish has changed: was the camera moved?")
        )
    now = np.roll(now, shift, axis=(0, 1))
    white = _white(now)
    wide = _widest(white, int(GLARE_WIDTH * circle.radius * then.shape[1]))
    glare = _grown(white & ~wide, GLARE_MARGIN_PX) | _glare(then)
    light = _fit_light(now, then, outside & ~glare)
    if not 1 / MAX_LIGHT <= light.factor <= MAX_LIGHT:
        return Measured(
            problem=worded(
                "the light is %(number)s times the reference's", number=f"{1 / light.factor:.2f}"
            )
        )
    problem = _glare_problem(distance, glare)
    if problem:
        return Measured(problem=problem)
    seen = (distance < INNER) & ~glare
    limit = min(max(MIN_DIFFERENCE, GRAIN_TIMES * light.left), MAX_DIFFERENCE)
    change = _covered_more(light.corrected, then, seen, limit)
    in_sight = float(seen.sum()) / float((distance < INNER).sum())
    steady = 1 - max(abs(part) for part in shift) / (MAX_SHAKE_PX + 1)
    clear = 1 - light.left / MAX_GRAIN
    lit = 1 - abs(np.log(light.factor)) / np.log(MAX_LIGHT)
    # White that is wide may be a lamp after all.
    certain = 1 - float((wide & seen).sum()) / float(seen.sum())
    quality = (
        certain
        * in_sight
        * min(1.0, 0.5 + steady / 2)
        * min(1.0, 0.4 + clear)
        * min(1.0, 0.4 + lit)
    )
    return Measured(change=round(change, 4), quality=round(float(quality), 3))


def _covered_more(now: Colours, then: Colours, seen: Mask, limit: float) -> float:
    """Newly covered cells less newly free ones, as a share of what is seen.

    Free is what looks as most of the dish did at first.
    """
    difference = np.abs(now - then).max(axis=2)
    # An edge is where half of the step is done, however soft it is.
    differs = (difference > np.maximum(limit, _largest_near(difference, EDGE_PX) / 2)) & seen
    agar = np.stack([_plane(then[:, :, colour], seen) for colour in range(3)], axis=2)
    was_free = np.abs(then - agar).max(axis=2) <= FREE_TIMES * limit
    is_free = np.abs(now - agar).max(axis=2) <= limit
    more = (differs & was_free).sum()
    less = (differs & ~was_free & is_free).sum()
    return float(more - less) / float(seen.sum())


def _fit_light(now: Colours, then: Colours, outside: Mask) -> _Light:
    """Correct the light by a factor per colour that changes evenly over the image.

    `left` is what still differs outside of the dish, in levels: grain, and what moved there.
    """
    corrected, factors, left = np.empty_like(now), [], []
    for colour in range(now.shape[2]):
        ratios = np.log((then[:, :, colour] + _LIFT) / (now[:, :, colour] + _LIFT))
        gain = np.exp(_plane(ratios, outside))
        corrected[:, :, colour] = (now[:, :, colour] + _LIFT) * gain - _LIFT
        off = np.abs(corrected[:, :, colour] - then[:, :, colour])[outside]
        factors.append(float(np.exp(np.median(ratios[outside]))))
        left.append(float(np.median(off)) * _MAD_TO_SD)
    return _Light(corrected, float(np.median(factors)), max(left))


def _plane(values: Levels, where: Mask) -> Levels:
    """The plane through most of the values there, over the whole image."""
    height, width = values.shape
    across, down = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    # Every third cell of every third row says it as well.
    sample = (slice(None, None, 3), slice(None, None, 3))
    levels = values[sample][where[sample]]
    terms = np.column_stack(
        (np.ones(len(levels)), across[sample][where[sample]], down[sample][where[sample]])
    )
    plane = np.array((float(np.median(levels)), 0.0, 0.0))
    for _ in range(3):
        off = np.abs(levels - terms @ plane)
        near = off <= 2 * float(np.median(off)) + 1e-6
        plane, *_ = np.linalg.lstsq(terms[near], levels[near], rcond=None)
    return np.asarray(plane[0] + plane[1] * across + plane[2] * down, dtype=np.float32)


def _shake(now: Colours, then: Colours, fixed: Mask) -> tuple[tuple[int, int], float]:
    """By how many pixels it is to be shifted to lie on the reference, and how well that fits.

    How well is the correlation of the edges that do not grow: rim, table and what lies there.
    """
    edges, other = _edges(now), _edges(then)
    inner = (slice(MAX_SHAKE_PX, -MAX_SHAKE_PX), slice(MAX_SHAKE_PX, -MAX_SHAKE_PX))
    where = fixed[inner]
    wanted = other[inner][where] - other[inner][where].mean()

    def fit(shift: tuple[int, int]) -> float:
        return float((np.roll(edges, shift, axis=(0, 1))[inner][where] * wanted).sum())

    best, best_fit = (0, 0), fit((0, 0))
    while max(abs(part) for part in best) < MAX_SHAKE_PX:
        beside = [(best[0] + down, best[1] + across) for down, across in _STEPS]
        fits = [fit(shift) for shift in beside]
        # Grain alone makes a shift a little better than none.
        if max(fits) <= best_fit + MIN_GAIN * abs(best_fit):
            break
        best_fit = max(fits)
        best = beside[fits.index(best_fit)]
    fitted = np.roll(edges, best, axis=(0, 1))[inner][where]
    spread = float(fitted.std() * wanted.std()) * fitted.size
    return best, best_fit / spread if spread else 0.0


def _edges(colours: Colours) -> Levels:
    grey = colours.mean(axis=2)
    down, across = np.gradient(grey / max(1.0, float(grey.mean())))
    return np.asarray(np.hypot(down, across), dtype=np.float32)


def _white(colours: Colours) -> Mask:
    return np.asarray(colours.min(axis=2) >= GLARE_LEVEL)


def _glare(colours: Colours) -> Mask:
    return _grown(_white(colours), GLARE_MARGIN_PX)


def _widest(mask: Mask, half_width_px: int) -> Mask:
    """The parts of a mask that are wider than that, with their edges."""
    cores = ~_grown(~mask, half_width_px)
    return _grown(cores, half_width_px + 2 * GLARE_MARGIN_PX) & mask


def _grown(mask: Mask, by_px: int) -> Mask:
    return _largest_near(mask, by_px)


def _largest_near(values: npt.NDArray[Any], within_px: int) -> npt.NDArray[Any]:
    """The largest value within a square around each cell."""
    for axis in (0, 1):
        shifted = [np.roll(values, by, axis=axis) for by in range(-within_px, within_px + 1)]
        values = np.maximum.reduce(shifted)
    return values


def _outside_problem(distance: Levels) -> str | None:
    share = float((distance > OUTER).mean())
    if share < MIN_OUTSIDE:
        return worded("too little is seen around the dish to correct the light by")
    return None


def _glare_problem(distance: Levels, glare: Mask) -> str | None:
    in_sight = float((~glare[distance < INNER]).mean())
    if in_sight < MIN_IN_SIGHT:
        return worded(
            "glare: only %(number)s%% of the dish is in sight", number=f"{100 * in_sight:.0f}"
        )
    return None


def _distance(shape: tuple[int, ...], circle: Circle) -> Levels:
    """How far each cell is from the dish's middle, in radii."""
    height, width = shape[:2]
    ys, xs = np.mgrid[0:height, 0:width]
    off = np.hypot(xs - circle.x * width, ys - circle.y * width)
    return np.asarray(off / (circle.radius * width), dtype=np.float32)


def _colours(image: Image.Image) -> Colours:
    """Its levels, a little softened: grain and the codec's blocks are no growth."""
    return locate.soften(np.asarray(image.convert("RGB"), dtype=np.float32))
