"""The shape of an animal seen from above: what its mask tells of its size."""

import math

import cv2
import numpy as np
from numpy.typing import NDArray

from farmiq.farm.vision.features import FEATURES

Mask = NDArray[np.uint8]
# Parts thinner than this share of the widest are no body: legs, tail, neck, ears.
CORE_SHARE = 0.5


def features(mask: Mask, *, unit: float) -> tuple[float, ...]:
    """Return FEATURES of a mask (0 or 1) with at least one pixel; a pixel is `unit` long."""
    inner = inner_radius(mask)
    core = core_of(mask, inner)
    hull = cv2.convexHull(outline(mask))
    whole, body = _profile(mask), _profile(core)
    quarter = sorted((_width_at(body, 0.2), _width_at(body, 0.8)))
    lengths = {
        "log_length": float(len(whole)),
        "log_perimeter": cv2.arcLength(outline(mask), closed=True),
        "log_inner_width": 2 * inner,
        "log_core_length": float(len(body)),
        "log_core_width": float(core.sum()) / max(len(body), 1),
        "log_middle_width": _width_at(body, 0.5),
        "log_wide_end": quarter[1],
        "log_narrow_end": quarter[0],
    }
    areas = {
        "log_area": float(mask.sum()),
        "log_hull_area": cv2.contourArea(hull),
        "log_core_area": float(core.sum()),
    }
    volumes = {
        "log_volume": float((whole**2).sum()),
        "log_core_volume": float((body**2).sum()),
    }
    values = {"bend": _bend(core)}
    for power, sizes in ((1, lengths), (2, areas), (3, volumes)):
        values |= {name: math.log(max(size, 1.0) * unit**power) for name, size in sizes.items()}
    return tuple(values[name] for name in FEATURES)


def outline(mask: Mask) -> NDArray[np.int32]:
    """The longest outline of a mask."""
    found, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return np.asarray(max(found, key=len), dtype=np.int32)


def inner_radius(mask: Mask) -> float:
    """The radius of the largest circle in it; what is outside of the frame counts as background."""
    framed = cv2.copyMakeBorder(mask, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    return float(cv2.distanceTransform(framed, cv2.DIST_L2, 5).max())


def core_of(mask: Mask, inner: float) -> Mask:
    """The body alone: what is left of the mask when thin parts are taken off."""
    radius = max(1.0, CORE_SHARE * inner)
    framed = cv2.copyMakeBorder(mask, 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    seeds = (cv2.distanceTransform(framed, cv2.DIST_L2, 5) > radius).astype(np.uint8)
    grown = cv2.distanceTransform(1 - seeds, cv2.DIST_L2, 5) <= radius
    core = np.ascontiguousarray(grown.astype(np.uint8)[1:-1, 1:-1] & mask)
    return core if core.any() else mask


def _profile(mask: Mask) -> NDArray[np.float64]:
    """How wide it is along its longest axis, pixel by pixel."""
    y, x = np.nonzero(mask)
    points = np.stack([x - x.mean(), y - y.mean()])
    axis = _axis(points)
    along = axis @ points
    along = (along - along.min()).astype(np.int64)
    return np.bincount(along).astype(np.float64)


def _axis(points: NDArray[np.float64]) -> NDArray[np.float64]:
    _, vectors = np.linalg.eigh(points @ points.T)
    return np.asarray(vectors[:, -1])


def _width_at(profile: NDArray[np.float64], share: float) -> float:
    """The mean width in a tenth of the length around a place."""
    middle, half = share * len(profile), max(1.0, 0.05 * len(profile))
    return float(profile[max(0, int(middle - half)) : int(middle + half) + 1].mean())


def _bend(mask: Mask) -> float:
    """How far the middle line leaves the straight one, relative to the length; 0 is straight."""
    y, x = np.nonzero(mask)
    points = np.stack([x - x.mean(), y - y.mean()])
    axis = _axis(points)
    along, across = axis @ points, np.array([-axis[1], axis[0]]) @ points
    length = float(np.ptp(along))
    if length == 0:
        return 0.0
    return abs(float(np.polyfit(along / length, across / length, 2)[0]))
