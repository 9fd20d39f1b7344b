"""One frame from bytes to a Measurement: decode within bounds, mask, quality, shape.

The work of a process with limits of its own: a few kilobytes can ask a codec for anything.
"""

from functools import lru_cache
from typing import NamedTuple, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from farmiq.farm.vision import mask as masks
from farmiq.farm.vision import shape
from farmiq.farm.vision.features import Measurement
from farmiq.farm.vision.mask import Found, Image, Mask
from farmiq.plumbing.images import pictures

MIN_SIDE_PX = 48
# Levels of grey, 0 to 255: the mean of a frame, and how far its darkest and lightest parts lie
# apart. Below these nothing can be told apart.
MIN_LIGHT, MAX_LIGHT, MIN_RANGE = 14.0, 244.0, 12.0
# Variance of the Laplacian: as in a sharp frame, and where outlines are lost.
SHARP, BLURRED = 60.0, 1.5
# Shares of the frame.
MIN_PART, MIN_ANIMAL, MAX_ANIMAL = 0.002, 0.012, 0.75
# Of the largest part: another that large is a second animal; of the widest, where two are joined.
SECOND_ANIMAL, JOINED_AT = 0.3, 0.62
# Of the largest part: what reaches in from the edge. Longer for its width than any animal: an arm.
HAND, SLENDER = 0.05, 13.5
# Of the outline: more of it at the edge, and the animal is not wholly in the frame. A camera
# without a reference may be one that sees hardly more than the animal.
CUT_OFF, CUT_OFF_ALONE = 0.13, 0.35
# Without a reference something must stand out from the floor by its colour.
MIN_CONTRAST = 0.3
# A picture of the empty scale shows an animal: how far two ways to find it agree, its share of the
# frame, and of the rectangle around it; a platform fills its own. Of the outline: how far from a
# straight line a side may be.
SEEN_ALONE, MIN_ALONE, RECTANGLE = 0.6, 0.03, 0.88
STRAIGHT, CORNERS = 0.03, 4
# A frame of a camera that is not calibrated is so long.
SIDE_UNITS = 1000.0

# A barn's box has other work: one frame takes one core.
cv2.setNumThreads(1)


class ImageModel(Protocol):
    """A model that takes images; `model.Model` is one. `image_size` is None if it takes none."""

    @property
    def image_size(self) -> tuple[int, int] | None: ...
    def predict_image(self, image: NDArray[np.float32]) -> float: ...


class Sight(NamedTuple):
    """A frame on its way to a Measurement, for those who want to see it."""

    frame: Image | None
    mask: Mask | None
    measurement: Measurement


def measure(
    image: bytes,
    *,
    reference: bytes | None,
    mm_per_pixel: float | None = None,
    model: ImageModel | None = None,
) -> Measurement:
    """What a frame shows. Never raises: what cannot be used has a problem.

    A reference that cannot be used, or is of another shape, is as none: see quality["reference"].
    """
    return look(image, reference=reference, mm_per_pixel=mm_per_pixel, model=model).measurement


def look(
    image: bytes,
    *,
    reference: bytes | None,
    mm_per_pixel: float | None = None,
    model: ImageModel | None = None,
) -> Sight:
    """The same, with the decoded frame and the mask of the animal."""
    try:
        frame = decode(image)
        unit = _unit(image, frame, mm_per_pixel)
    except pictures.UnreadableError as error:
        return Sight(None, None, _unusable(f"not_decodable: {error}", {}))
    except MemoryError:
        return Sight(None, None, _unusable("not_decodable: it takes too much memory", {}))
    quality = _light_and_sharpness(frame)
    if problem := _problem_of_light(quality):
        return Sight(frame, None, _unusable(problem, quality))
    empty = _usable(reference, frame)
    quality["reference"] = float(empty is not None)
    result = masks.find(frame, empty)
    parts = [part for part in masks.components(result.mask) if part.mean() >= MIN_PART]
    problem = _problem_of_parts(parts, result, has_reference=empty is not None)
    if not parts or problem in ("empty_scale", "no_animal"):
        return Sight(frame, None, _unusable(problem or "no_animal", quality))
    animal = parts[0]
    quality |= _quality_of_mask(animal, parts, result)
    problem = problem or _problem_of_edge(animal, quality, has_reference=empty is not None)
    if problem:
        return Sight(frame, animal, _unusable(problem, quality))
    measured = Measurement(
        features=shape.features(animal, unit=unit),
        quality=quality,
        problem=None,
        log_weight=log_weight_by_image(frame, model),
    )
    return Sight(frame, animal, measured)


def is_usable_reference(image: bytes) -> bool:
    """Whether it may be the picture of the empty scale: it can be decoded, is lit and sharp.

    That the scale is empty is the scale's word: it reads a stable zero.
    """
    return _decode_reference(image) is not None


def problem_of_reference(image: bytes) -> str | None:
    """Why it cannot be the picture of the empty scale, or None.

    An animal is looked for without anything to compare with, so only one that stands out is seen:
    whole in the frame, of other colours than the floor, and without the four sides of a platform.
    """
    frame = _decode_reference(image)
    if frame is None:
        return "unusable_reference"
    result = masks.find(frame, None)
    if result.contrast < MIN_CONTRAST or result.agreement < SEEN_ALONE:
        return None
    largest = masks.components(result.mask)[0]
    is_whole = MIN_ALONE <= largest.mean() <= MAX_ANIMAL and not _at_the_edge(largest)
    return "animal_in_reference" if is_whole and not _is_platform(largest) else None


def _is_platform(part: Mask) -> bool:
    """Whether straight lines around it have four corners, or it fills the rectangle around it."""
    hull = cv2.convexHull(shape.outline(part))
    corners = cv2.approxPolyDP(hull, STRAIGHT * cv2.arcLength(hull, True), True)
    _, sides, _ = cv2.minAreaRect(hull)
    return len(corners) <= CORNERS or bool(part.sum() >= RECTANGLE * sides[0] * sides[1])


def decode(data: bytes) -> Image:
    """RGB, turned as its EXIF says, at most 320 pixels long. Raises UnreadableError."""
    if is_animated(data):
        raise pictures.UnreadableError("it is animated")
    decoded = np.asarray(pictures.small(data), dtype=np.uint8)
    if min(decoded.shape[:2]) < MIN_SIDE_PX:
        height, width = decoded.shape[:2]
        raise pictures.UnreadableError(f"{width} x {height} pixels are too few")
    return decoded


def is_animated(data: bytes) -> bool:
    """Whether it says that it has several frames: none of them is more the picture than others."""
    kind = pictures.kind(data)
    if kind == pictures.WEBP:
        return data[12:16] == b"VP8X" and bool(data[20:21]) and bool(data[20] & 0x02)
    return kind == pictures.PNG and 0 <= data.find(b"acTL") < max(data.find(b"IDAT"), 0)


def _usable(reference: bytes | None, frame: Image) -> Image | None:
    empty = None if reference is None else _decode_reference(reference)
    return empty if empty is not None and empty.shape == frame.shape else None


@lru_cache(maxsize=1)
def _decode_reference(reference: bytes) -> Image | None:
    """Once for all frames of a session; None if it cannot be decoded or is too dark or blurred."""
    try:
        empty = decode(reference)
    except (pictures.UnreadableError, MemoryError):
        return None
    return None if _problem_of_light(_light_and_sharpness(empty)) else empty


def _light_and_sharpness(frame: Image) -> dict[str, float]:
    grey = cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY)
    low, high = np.percentile(grey[::2, ::2], (1, 99))
    blur = float(cv2.Laplacian(grey, cv2.CV_32F).var())
    return {
        "light": float(grey.mean()),
        "range": float(high - low),
        "blur": blur,
        "sharpness": min(1.0, blur / SHARP),
    }


def _problem_of_light(quality: dict[str, float]) -> str | None:
    if quality["light"] < MIN_LIGHT:
        return "too_dark"
    if quality["light"] > MAX_LIGHT:
        return "too_bright"
    if quality["range"] < MIN_RANGE:
        return "no_contrast"
    return "too_blurred" if quality["blur"] < BLURRED else None


def _problem_of_parts(parts: list[Mask], result: Found, *, has_reference: bool) -> str | None:
    if not has_reference and result.contrast < MIN_CONTRAST:
        return "no_animal"
    if not parts or parts[0].mean() < MIN_ANIMAL:
        return "empty_scale" if has_reference else "no_animal"
    if parts[0].mean() > MAX_ANIMAL:
        return "scene_changed"
    largest = float(parts[0].sum())
    for part in parts[1:] if has_reference else ():
        share = float(part.sum()) / largest
        if _at_the_edge(part) and share >= HAND:
            return "hand"
        if share >= SECOND_ANIMAL:
            return "two_animals"
    return "two_animals" if has_reference and _is_joined(parts[0]) else None


def _quality_of_mask(animal: Mask, parts: list[Mask], result: Found) -> dict[str, float]:
    outline = shape.outline(animal)
    height, width = animal.shape
    y, x = np.nonzero(animal)
    difference = np.hypot(x.mean() / width - 0.5, y.mean() / height - 0.5) / np.hypot(0.5, 0.5)
    return {
        "mask_agreement": result.agreement,
        "contrast": result.contrast,
        "components": float(len(parts)),
        "border_contact": _at_the_edge(animal) / max(len(outline), 1),
        "centre_offset": float(difference),
        "area": float(animal.mean()),
    }


def _problem_of_edge(animal: Mask, quality: dict[str, float], *, has_reference: bool) -> str | None:
    if not _at_the_edge(animal):
        return None
    if has_reference:
        inner = shape.inner_radius(animal)
        if float(animal.sum()) > SLENDER * inner * inner or _has_arm(animal, inner):
            return "hand"
    limit = CUT_OFF if has_reference else CUT_OFF_ALONE
    return "cut_off" if quality["border_contact"] > limit else None


def _has_arm(animal: Mask, inner: float) -> bool:
    """Whether something thinner than the body reaches from it to the edge of the frame."""
    core = shape.core_of(animal, inner)
    if _at_the_edge(core):
        return False
    limbs = masks.components(animal & (1 - core))
    return any(_at_the_edge(limb) and limb.sum() >= HAND * animal.sum() for limb in limbs)


def _is_joined(mask: Mask) -> bool:
    """Whether it falls apart into two bodies of like size where it is narrow."""
    framed = cv2.copyMakeBorder(mask, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    depth = cv2.distanceTransform(framed, cv2.DIST_L2, 5)
    cores = masks.components((depth > JOINED_AT * depth.max()).astype(np.uint8))
    return len(cores) > 1 and float(cores[1].sum()) >= SECOND_ANIMAL * float(cores[0].sum())


def _at_the_edge(mask: Mask) -> int:
    """How many pixels of it lie at the edge of the frame."""
    edges = (mask[0], mask[-1], mask[:, 0], mask[:, -1])
    return sum(int(np.count_nonzero(edge)) for edge in edges)


def log_weight_by_image(frame: Image, model: ImageModel | None) -> float | None:
    if model is None or model.image_size is None:
        return None
    height, width = model.image_size
    sized = cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA)
    log_kg = model.predict_image(np.asarray(sized.transpose(2, 0, 1) / 255, np.float32))
    return log_kg if np.isfinite(log_kg) else None


def _unit(data: bytes, frame: Image, mm_per_pixel: float | None) -> float:
    """How long a pixel of the decoded frame is: millimetres, or thousandths of the longer side."""
    side_px = int(max(frame.shape[:2]))
    if mm_per_pixel is None:
        return SIDE_UNITS / side_px
    picture = pictures.look(data)
    return mm_per_pixel * max(picture.width_px, picture.height_px) / side_px


def _unusable(problem: str, quality: dict[str, float]) -> Measurement:
    return Measurement(features=None, quality=quality, problem=problem)
