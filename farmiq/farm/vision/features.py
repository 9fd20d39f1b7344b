"""What is measured of one frame: the names of the features, and how good the frame is."""

import hashlib
from collections.abc import Mapping

import msgspec

# All of a shape, none of a colour. Lengths are natural logarithms: of millimetres where the camera
# is calibrated, else of thousandths of the frame's longer side.
FEATURES: tuple[str, ...] = (
    "log_area",
    "log_length",
    "log_perimeter",
    "log_hull_area",
    "log_inner_width",
    "log_core_area",
    "log_core_length",
    "log_core_width",
    "log_volume",
    "log_core_volume",
    "log_middle_width",
    "log_wide_end",
    "log_narrow_end",
    "bend",
)
# Raise it when a feature is measured in another way: a model of another schema is not used.
MEASURED_AS = 1
SCHEMA = hashlib.sha256(f"{MEASURED_AS} {' '.join(FEATURES)}".encode()).hexdigest()[:12]

# Below this a frame is not used.
MIN_QUALITY = 0.25


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """Of one frame. `features` are None where there is no usable animal; `problem` says why.

    `log_weight` is what a model that takes images says of it; those that take features leave it.
    """

    features: tuple[float, ...] | None
    quality: dict[str, float]
    problem: str | None
    log_weight: float | None = None


def score(quality: Mapping[str, float]) -> float:
    """How good a frame is, 0 to 1: the product of what each measure takes away."""
    agreement = quality.get("mask_agreement", 1.0)
    contact = quality.get("border_contact", 0.0)
    offset = quality.get("centre_offset", 0.0)
    sharpness = quality.get("sharpness", 1.0)
    value = _clamped((agreement - 0.5) / 0.4) * _clamped(1.3 - 1.5 * contact)
    return value * _clamped(1.2 - 0.6 * offset) * _clamped(0.4 + sharpness)


def _clamped(value: float) -> float:
    return min(1.0, max(0.0, value))
