"""Where the animal is: against the frame of the empty scale, or without one."""

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
Mask = NDArray[np.uint8]
MIN_AWAY = 30


class Found(NamedTuple):
    """All that is not the empty scale (0 or 1), and how sure that is: 0 to 1."""

    mask: Mask
    agreement: float


def find(image: Image, reference: Image | None) -> Found:
    """RGB images of the same size."""
    if reference is None:
        grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        _, mask = cv2.threshold(grey, 0, 1, cv2.THRESH_OTSU)
    else:
        away = cv2.absdiff(image, reference).max(axis=2)
        mask = (away > MIN_AWAY).astype(np.uint8)
    return Found(np.asarray(mask, dtype=np.uint8), 1.0)
