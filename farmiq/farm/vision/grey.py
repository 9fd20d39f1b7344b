"""An image as an array of its levels of grey or colour, decoded within bounds."""

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from farmiq.plumbing.images import pictures
from farmiq.plumbing.images.pictures import UnreadableError

Levels = npt.NDArray[np.float32]


def read(data: bytes, *, size: tuple[int, int], mode: str = "L") -> Levels:
    """Its levels from 0 to 255, drawn into `size` (width, height). Raises UnreadableError.

    One that moves is no photograph: it is rejected.
    """
    if pictures.is_animated(data):
        raise UnreadableError("it is animated: an image that moves is not looked at")
    small = pictures.small(data).convert(mode).resize(size, Image.Resampling.BOX)
    return np.asarray(small, dtype=np.float32)


def as_bytes(levels: npt.NDArray[Any]) -> bytes:
    """To be stored: a byte a level."""
    return bytes(np.clip(np.rint(levels), 0, 255).astype(np.uint8).tobytes())


def from_bytes(data: bytes, *, shape: tuple[int, ...]) -> Levels:
    return np.frombuffer(data, np.uint8).reshape(shape).astype(np.float32)
