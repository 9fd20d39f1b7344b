"""One frame from bytes to a Measurement: decode within bounds, mask, quality, shape.

The work of a process with limits of its own: a few kilobytes can ask a codec for anything.
"""

import numpy as np
from numpy.typing import NDArray

from farmiq.farm.vision import mask as masks
from farmiq.farm.vision import shape
from farmiq.farm.vision.features import Measurement
from farmiq.plumbing.images import pictures

# Frames are measured at this length of their longer side.
SIDE_PX = 480
MIN_SIDE_PX = 48
MIN_AREA = 0.01
MIN_LIGHT, MAX_LIGHT = 20, 240
# A frame of a camera that is not calibrated is so long.
SIDE_UNITS = 1000.0

Image = NDArray[np.uint8]


def measure(
    image: bytes, *, reference: bytes | None, mm_per_pixel: float | None = None
) -> Measurement:
    """What a frame shows. Never raises: what cannot be used has a problem."""
    try:
        frame = decode(image)
    except pictures.UnreadableError as error:
        return _unusable(f"not_decodable: {error}")
    except MemoryError:
        return _unusable("not_decodable: it takes too much memory")
    empty = None
    if reference is not None:
        try:
            empty = decode(reference)
        except (pictures.UnreadableError, MemoryError):
            empty = None
    if empty is not None and empty.shape != frame.shape:
        empty = None
    found = masks.find(frame, empty)
    if found.mask.mean() < MIN_AREA:
        return _unusable("empty_scale")
    return Measurement(
        features=shape.features(found.mask, unit=_unit(image, frame, mm_per_pixel)),
        quality={"mask_agreement": found.agreement},
        problem=None,
    )


def is_usable_reference(image: bytes) -> bool:
    """Whether it can be the picture of the empty scale: light enough, sharp enough."""
    try:
        frame = decode(image)
    except (pictures.UnreadableError, MemoryError):
        return False
    return MIN_LIGHT < float(frame.mean()) < MAX_LIGHT


def decode(data: bytes) -> Image:
    """RGB, upright, at most SIDE_PX long. Raises UnreadableError."""
    if is_animated(data):
        raise pictures.UnreadableError("it is animated")
    decoded = np.asarray(pictures.small(data, side_px=SIDE_PX), dtype=np.uint8)
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


def _unusable(problem: str) -> Measurement:
    return Measurement(features=None, quality={}, problem=problem)


def _unit(data: bytes, frame: Image, mm_per_pixel: float | None) -> float:
    """How long a pixel of the decoded frame is: millimetres, or thousandths of the longer side."""
    side_px = int(max(frame.shape[:2]))
    if mm_per_pixel is None:
        return SIDE_UNITS / side_px
    picture = pictures.look(data)
    return mm_per_pixel * max(picture.width_px, picture.height_px) / side_px
