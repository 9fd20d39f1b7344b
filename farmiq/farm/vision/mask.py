"""Where the animal is: against the picture of the empty scale, or without one.

First how likely each pixel is one of an animal. With a reference that is an additive model of what
has changed; a shadow dims all channels alike and leaves the floor's grain, an animal does neither.
Without one it is what differs in colour from the edge of the frame. Then GrabCut draws the outline.
"""

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Mask = NDArray[np.uint8]
Plane = NDArray[np.float32]

# Fitted to rendered pixels of 120 scenes (D-541): of each measure, and of the same cut off at 1.
WEIGHTS = (
    (0.22, 3.84),
    (0.64, 0.05),
    (-1.73, 3.72),
    (5.06, 5.48),
    (3.93, 3.93),
    (0.49, 0.61),
)
INTERCEPT = -8.21
MAX_LOG_ODDS = 6.0
# In levels after the gamma of a camera; unexplained differences in units of five levels.
DARKEST_SHADOW, SHADOW_AWAY, SHADOW_ODDS = 0.62, 3.0, 0.5
# Beyond these log odds GrabCut may not change what a pixel is.
SURE = 4.0
GAP_PX, GAP_ODDS = 11, 1.0
GRABCUT_ROUNDS = 2
MARGIN_PX = 14
# Half of a frame may be animal: the light is compared where the rest is.
LIGHT_ROUNDS, MIN_LIGHT_AWAY = 4, 0.02
# Without a reference: the middle is likelier an animal than the edge.
MIDDLE, TO_THE_EDGE = 2.0, 4.5
COLOUR_ROUNDS = 6
LIGHT_BINS, HUE_BINS = 6, 24
MAX_SIDE_ALONE_PX = 256
FULL = 255


class Found(NamedTuple):
    """All that is not the empty scale (0 or 1); how far two ways to find it agree, 0 to 1.

    `contrast`: how much its colours differ from those around it, 0 to 1.
    """

    mask: Mask
    agreement: float
    contrast: float


def find(image: Image, reference: Image | None) -> Found:
    """RGB images of the same size."""
    if reference is None and max(image.shape) > MAX_SIDE_ALONE_PX:
        size = (image.shape[1], image.shape[0])
        halved = cv2.resize(image, (size[0] // 2, size[1] // 2), interpolation=cv2.INTER_AREA)
        half = find(np.asarray(halved, np.uint8), None)
        grown = cv2.resize(half.mask * FULL, size, interpolation=cv2.INTER_LINEAR) >= FULL // 2
        return half._replace(mask=grown.astype(np.uint8))
    smooth = _smooth(image)
    if reference is None:
        odds = _odds_by_colour(smooth)
    else:
        odds = _odds_by_change(smooth, _smooth(reference))
    rough = _cleaned((odds > 0).astype(np.uint8))
    if not rough.any():
        return Found(rough, 1.0, 0.0)
    margin_px = MARGIN_PX if reference is not None else max(image.shape)
    mask = _cleaned(_cut_out(image, odds, rough, margin_px=margin_px))
    return Found(mask, overlap(rough, mask), _contrast(smooth, mask))


def overlap(left: Mask, right: Mask) -> float:
    """Intersection over union of two masks; 1 if both are empty."""
    union = int(np.count_nonzero(left | right))
    return int(np.count_nonzero(left & right)) / union if union else 1.0


def components(mask: Mask) -> list[Mask]:
    """The connected parts of a mask, the largest first."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    order = 1 + np.argsort(-stats[1:, cv2.CC_STAT_AREA], kind="stable")
    return [(labels == number).astype(np.uint8) for number in order[: max(0, count - 1)]]


def _odds_by_change(image: Image, reference: Image) -> Plane:
    seen = image.astype(np.float32)
    empty = _in_the_same_light(seen, reference.astype(np.float32))
    odds = np.full(image.shape[:2], INTERCEPT, np.float32)
    measures = changes(seen, empty)
    for measure, (weight, capped) in zip(measures, WEIGHTS, strict=True):
        odds += weight * measure + capped * np.minimum(measure, 1.0)
    # What may be a shadow is left to GrabCut: to the colours of the whole animal.
    ratio = (seen * empty).sum(axis=2) / ((empty * empty).sum(axis=2) + 1.0)
    shadow = (measures[-1] < SHADOW_AWAY) & (ratio > DARKEST_SHADOW) & (ratio < 1)
    odds[shadow] = np.minimum(odds[shadow], SHADOW_ODDS)
    # An animal as grey as the slats shows only where the gaps were.
    odds = np.maximum(odds, _box(odds, GAP_PX) - GAP_ODDS)
    return np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS)


def changes(seen: Plane, empty: Plane) -> tuple[Plane, ...]:
    """What has changed between two pictures in the same light, pixel by pixel."""
    both = (seen * empty).sum(axis=2)
    power = (empty * empty).sum(axis=2) + 1.0
    away = seen - empty
    distance = np.sqrt((away * away).sum(axis=2))
    ratio = both / power
    # The part that no shadow explains: in a shadow the picture is the floor's, times a number.
    other = seen - np.clip(ratio, DARKEST_SHADOW, 1.02)[..., None] * empty
    unexplained = np.sqrt((other * other).sum(axis=2))
    colour = np.sqrt(np.maximum((seen * seen).sum(axis=2) - both * ratio, 0.0))
    grey, floor = seen.mean(axis=2), empty.mean(axis=2)
    mean, floor_mean = _box(grey, 15), _box(floor, 15)
    shared = _box(grey * floor, 15) - mean * floor_mean
    grain = np.maximum(_box(grey * grey, 15) - mean * mean - shared, 0.0)
    near = np.log(_box(grey, 7) / (_box(floor, 7) + 1.0) + 1e-3)
    wide = np.log(mean / (floor_mean + 1.0) + 1e-3)
    return (
        np.minimum(distance / 6, 8),
        np.minimum(colour / 4, 6),
        np.minimum(np.sqrt(grain) / 8, 3),
        np.clip(-wide, 0, 1.5),
        np.clip(near, 0, 1),
        np.minimum(_box(unexplained, 5) / 5, 5),
    )


def _in_the_same_light(seen: Plane, empty: Plane) -> Plane:
    """The reference as bright as the frame: a gain and a slope for each channel."""
    height, width = seen.shape[:2]
    step = 4
    few = cv2.blur(seen, (5, 5))[::step, ::step].reshape(-1, 3)
    of_empty = cv2.blur(empty, (5, 5))[::step, ::step].reshape(-1, 3)
    ratio = np.log((few + 4) / (of_empty + 4))
    across = np.arange(width, dtype=np.float32) / width - 0.5
    down = np.arange(height, dtype=np.float32) / height - 0.5
    x, y = np.meshgrid(across[::step], down[::step])
    places = np.stack([np.ones(x.size, np.float32), x.ravel(), y.ravel()], axis=1)
    fitted = np.zeros((3, 3), np.float32)
    fitted[0] = np.median(ratio, axis=0)
    for _ in range(LIGHT_ROUNDS):
        away = np.abs(ratio - places @ fitted).max(axis=1)
        near = away <= max(1.5 * float(np.median(away)), MIN_LIGHT_AWAY)
        fitted = np.linalg.lstsq(places[near], ratio[near], rcond=None)[0].astype(np.float32)
    slope = fitted[0] + across[None, :, None] * fitted[1] + down[:, None, None] * fitted[2]
    return np.asarray((empty + 4) * np.exp(np.clip(slope, -3, 3)) - 4, np.float32)


def _odds_by_colour(image: Image) -> Plane:
    height, width = image.shape[:2]
    x = np.linspace(-1, 1, width, dtype=np.float32)[None, :]
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    prior = np.clip(MIDDLE - TO_THE_EDGE * (x * x + y * y), -MIDDLE, MIDDLE)
    bins, odds = _colour_bins(image), prior
    for number in range(COLOUR_ROUNDS):
        inside = np.asarray(1 / (1 + np.exp(-odds)), np.float32)
        by_colour = np.log(_histogram(bins, inside)) - np.log(_histogram(bins, 1 - inside))
        found = cv2.GaussianBlur(np.clip(by_colour, -4, 4)[bins], (5, 5), 0)
        odds = np.asarray(prior / (1 + number) + 1.5 * found, np.float32)
    return np.clip(odds, -MAX_LOG_ODDS, MAX_LOG_ODDS)


def _colour_bins(image: Image) -> NDArray[np.int64]:
    """Fine in hue, coarse in lightness: light falls off across a frame, the colour stays."""
    light, *hues = np.moveaxis(cv2.cvtColor(image, cv2.COLOR_RGB2LAB).astype(np.int64), 2, 0)
    red, yellow = (np.clip(hue - 64, 0, 127) * HUE_BINS // 128 for hue in hues)
    return np.asarray((light * LIGHT_BINS // 256 * HUE_BINS + red) * HUE_BINS + yellow)


def _histogram(bins: NDArray[np.int64], weights: Plane) -> Plane:
    """The share of each colour, smoothed a little."""
    counts = np.bincount(bins.ravel(), weights.ravel(), LIGHT_BINS * HUE_BINS**2)
    cube = counts.astype(np.float32).reshape(LIGHT_BINS, HUE_BINS, HUE_BINS)
    for axis in range(3):
        cube = (np.roll(cube, 1, axis) + 2 * cube + np.roll(cube, -1, axis)) / 4
    return np.asarray(cube.ravel() / max(float(cube.sum()), 1e-9) + 2e-5, np.float32)


def _contrast(image: Image, mask: Mask) -> float:
    """1 less the overlap of the colours inside and outside (Bhattacharyya's coefficient)."""
    bins, inside = _colour_bins(image), mask.astype(np.float32)
    shared = np.sqrt(_histogram(bins, inside) * _histogram(bins, 1 - inside))
    return float(np.clip(1 - shared.sum() / (1 + 2e-5 * LIGHT_BINS * HUE_BINS**2), 0, 1))


def _cut_out(image: Image, odds: Plane, rough: Mask, *, margin_px: int) -> Mask:
    """GrabCut within the box around what is likely an animal."""
    x, y, width, height = cv2.boundingRect(rough)
    rows = slice(max(0, y - margin_px), y + height + margin_px)
    columns = slice(max(0, x - margin_px), x + width + margin_px)
    part = odds[rows, columns]
    labels = np.where(part > 0, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    labels[part > SURE] = cv2.GC_FGD
    labels[part < -SURE] = cv2.GC_BGD
    if len(np.unique(labels % 2)) < len(("inside", "outside")):
        return rough
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.setRNGSeed(0)
    cv2.grabCut(
        np.ascontiguousarray(image[rows, columns]),
        labels,
        (0, 0, 1, 1),
        *models,
        GRABCUT_ROUNDS,
        cv2.GC_INIT_WITH_MASK,
    )
    cut = np.zeros_like(rough)
    cut[rows, columns] = labels % 2
    return cut


def _cleaned(mask: Mask) -> Mask:
    """Without specks, wires and holes."""
    closing = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (7, 7))
    opening = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (5, 5))
    mask = np.asarray(cv2.morphologyEx(mask, cv2.MORPH_CLOSE, closing), np.uint8)
    mask = np.asarray(cv2.morphologyEx(mask, cv2.MORPH_OPEN, opening), np.uint8)
    outlines, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return np.asarray(cv2.drawContours(mask, outlines, -1, 1, thickness=-1), np.uint8)


def _smooth(image: Image) -> Image:
    return np.asarray(cv2.GaussianBlur(image, (3, 3), 0), np.uint8)


def _box(plane: Plane, side_px: int) -> Plane:
    return np.asarray(cv2.blur(plane, (side_px, side_px)), np.float32)
