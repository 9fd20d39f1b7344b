"""One picture that explains an estimate: frame, mask, features, neighbours, interval."""

import io
import math
from collections.abc import Sequence

import msgspec
import numpy as np
from PIL import Image as Pictures
from PIL import ImageDraw

from farmiq.farm.vision import mask as masks
from farmiq.farm.vision import shape
from farmiq.farm.vision.estimate import Estimate
from farmiq.farm.vision.features import FEATURES
from farmiq.farm.vision.frames import Sight
from farmiq.farm.vision.manifest import Manifest
from farmiq.farm.vision.mask import Image, Mask

WIDTH, HEIGHT = 1000, 720
TILE, THUMB, LINE = 320, 150, 18
# Spreads of the training set to either side of its mean that a bar of a feature can show.
BAR_SPREADS, BAR_PX = 4.0, 90
_INK, _FAINT, _ACCENT, _PAPER = (25, 30, 35), (150, 155, 160), (20, 120, 90), (255, 255, 255)
_OUTLINE = (255, 220, 0)


class Neighbour(msgspec.Struct, frozen=True):
    """A session that the model has learned from and that is like the one explained."""

    name: str
    weight_kg: float
    distance: float
    frame: Image | None = None


def draw(
    sight: Sight,
    answer: Estimate,
    manifest: Manifest | None,
    neighbours: Sequence[Neighbour],
    *,
    title: str,
    weight_kg: float | None = None,
) -> bytes:
    """A PNG. `weight_kg` is the scale's, where it is known."""
    page = Pictures.new("RGB", (WIDTH, HEIGHT), _PAPER)
    pen = ImageDraw.Draw(page)
    pen.text((20, 14), title, fill=_INK)
    if sight.frame is not None:
        page.paste(_fitted(sight.frame, TILE), (20, 40))
        page.paste(_fitted(_outlined(sight.frame, sight.mask), TILE), (350, 40))
    pen.text((20, 40 + TILE + 4), "frame", fill=_FAINT)
    pen.text((350, 40 + TILE + 4), _frame_words(sight), fill=_FAINT)
    _draw_features(pen, answer, manifest)
    _draw_neighbours(page, pen, neighbours)
    _draw_estimate(pen, answer, weight_kg)
    file = io.BytesIO()
    page.save(file, "PNG")
    return file.getvalue()


def neighbours_of(
    features: Sequence[float],
    learned: Sequence[tuple[str, float, Sequence[float]]],
    manifest: Manifest,
    *,
    count: int = 4,
) -> list[Neighbour]:
    """The nearest of (name, weight, features), by the distance that the model uses itself."""
    result = [
        Neighbour(name, weight_kg, manifest.apart(features, theirs))
        for name, weight_kg, theirs in learned
    ]
    return sorted(result, key=lambda neighbour: neighbour.distance)[:count]


def _fitted(frame: Image, side_px: int) -> Pictures.Image:
    picture = Pictures.fromarray(frame)
    scale = side_px / max(picture.size)
    return picture.resize((max(1, int(picture.width * scale)), max(1, int(picture.height * scale))))


def _outlined(frame: Image, mask: Mask | None) -> Image:
    marked = frame.copy()
    if mask is not None and mask.any():
        for point in shape.outline(masks.components(mask)[0]).reshape(-1, 2):
            marked[point[1], point[0]] = _OUTLINE
    return marked


def _frame_words(sight: Sight) -> str:
    quality = sight.measurement.quality
    named = [
        f"{name} {quality[name]:.2f}" for name in ("mask_agreement", "sharpness") if name in quality
    ]
    return ", ".join(
        ["mask", *named, *([sight.measurement.problem] if sight.measurement.problem else [])]
    )


def _draw_features(pen: ImageDraw.ImageDraw, answer: Estimate, manifest: Manifest | None) -> None:
    left, top = 690, 40
    pen.text((left, top - 22), "features, beside what was learned", fill=_FAINT)
    for row, name in enumerate(FEATURES):
        y = top + row * LINE
        pen.text((left, y), name, fill=_INK)
        if answer.features is None:
            continue
        pen.text((left + 120, y), f"{answer.features[row]:.2f}", fill=_INK)
        if manifest is not None:
            spread = math.sqrt(manifest.feature_covariance[row][row])
            difference = (answer.features[row] - manifest.feature_mean[row]) / max(spread, 1e-9)
            middle = left + 170 + BAR_PX / 2
            reach = float(np.clip(difference / BAR_SPREADS, -1, 1)) * BAR_PX / 2
            pen.line((middle, y, middle, y + LINE - 4), fill=_FAINT)
            pen.rectangle(
                (min(middle, middle + reach), y + 3, max(middle, middle + reach), y + LINE - 7),
                fill=_ACCENT,
            )


def _draw_neighbours(
    page: Pictures.Image, pen: ImageDraw.ImageDraw, neighbours: Sequence[Neighbour]
) -> None:
    top = 40 + TILE + 40
    pen.text((20, top), "most like it, of those it has learned from", fill=_FAINT)
    for number, neighbour in enumerate(neighbours):
        left = 20 + number * (THUMB + 12)
        if neighbour.frame is not None:
            page.paste(_fitted(neighbour.frame, THUMB), (left, top + 20))
        words = f"{neighbour.weight_kg:.2f} kg, {neighbour.distance:.1f} away"
        pen.text((left, top + 24 + THUMB), f"{neighbour.name}\n{words}", fill=_INK)


def _draw_estimate(pen: ImageDraw.ImageDraw, answer: Estimate, weight_kg: float | None) -> None:
    top = HEIGHT - 100
    known = "" if weight_kg is None else f"; the scale said {weight_kg:.2f} kg"
    if answer.predicted_weight_kg is None:
        pen.text((20, top), f"no estimate: {answer.reason}{known}", fill=_INK)
        return
    words = f"{answer.predicted_weight_kg:.2f} kg, confidence {answer.confidence:.2f}{known}"
    if answer.low_kg is None or answer.high_kg is None:
        pen.text((20, top), f"{words}; no interval: {answer.reason}", fill=_INK)
        return
    pen.text((20, top), f"{words}; 90 %: {answer.low_kg:.2f} to {answer.high_kg:.2f} kg", fill=_INK)
    values = [answer.low_kg, answer.high_kg, *([weight_kg] if weight_kg else [])]
    low, high = min(values) * 0.97, max(values) * 1.03
    x = {
        value: 40 + (value - low) / (high - low) * (WIDTH - 80)
        for value in (*values, answer.predicted_weight_kg)
    }
    pen.line((x[answer.low_kg], top + 45, x[answer.high_kg], top + 45), fill=_ACCENT, width=8)
    middle = x[answer.predicted_weight_kg]
    pen.line((middle, top + 32, middle, top + 58), fill=_INK, width=3)
    if weight_kg:
        pen.ellipse((x[weight_kg] - 6, top + 39, x[weight_kg] + 6, top + 51), outline=_INK, width=2)
