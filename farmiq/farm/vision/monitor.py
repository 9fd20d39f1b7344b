"""Images without a weighing as a series: how light, how lively, how full, and is the view the same.

A camera's view is learned from its images: the level that each cell has most of the time, animals
or not. Against it, and against the image before, each image is compared after a correction of its
light. Nothing here says what an animal weighs.
"""

from typing import Literal

import msgspec
import numpy as np

from farmiq.farm.vision import grey
from farmiq.farm.vision.grey import Levels
from farmiq.plumbing.images.pictures import UnreadableError

View = Literal["learning", "ok", "moved", "dirty", "dark", "bright"]

WIDTH, HEIGHT = 96, 72
# Below and above these shares of full light nothing can be told from an image.
DARK_LIGHT, BRIGHT_LIGHT = 0.06, 0.92
# A cell has changed if it differs by this share of its level, and by these levels at least.
CHANGED_SHARE, CHANGED_LEVELS = 0.12, 14.0
# So many images are needed to know what the view looks like without what moves in it.
LEARNED_AFTER = 12
# How far a level of the learned view goes towards an image: fast at first, then by one level.
FIRST_STEP = 24.0
# The strongest edges of the learned view; they are what stays where it is.
EDGE_SHARE = 0.15
# Less steep ones, in levels a cell, are grain. An edge is found again if it goes the same way (the
# cosine) and is steep enough.
MIN_EDGE, SAME_DIRECTION, SAME_STEEPNESS = 4.0, 0.8, 0.3
# So few of the usual edges are found where the camera was moved, or sees nothing.
LOST_SHARE = 0.5
# An image that is softer than this share of the usual is of a dirty lens, not of another view.
SOFT_SHARE = 0.5
# One image may show an animal before the lens: a state changes when so many agree.
AGREE = 3
# A camera that stays moved for so long has a new view: it is learned again.
RELEARN_AFTER = 60
# How fast the usual follows: the share of a new value.
_USUAL_RATE = 0.1
# Darker cells say nothing of the light.
MIN_LEVEL = 8.0
VERSION = 1


class _Memory(msgspec.Struct, kw_only=True):
    """What is known of a camera: its learned view, the image before, and what is usual."""

    version: int = VERSION
    seen: int = 0
    learned: bytes = b""
    before: bytes = b""
    usual_found: float = 0.0
    usual_sharpness: float = 0.0
    view: View = "learning"
    candidate: View = "learning"
    agreed: int = 0


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What one image says; shares from 0 to 1, None where nothing can be said.

    `changed_from` is the view before, if this image changed it. `state` is to be given with the
    camera's next image; it is the old one if the image could not be used.
    """

    light: float | None = None
    activity: float | None = None
    occupancy: float | None = None
    view: View = "learning"
    changed_from: View | None = None
    problem: str | None = None
    state: bytes | None = None


def monitor(image: bytes, state: bytes | None = None) -> Observation:
    """Compare an image with its camera's view so far. Any bytes are answered."""
    memory = _decoded(state)
    try:
        levels = grey.read(image, size=(WIDTH, HEIGHT))
    except UnreadableError as error:
        return Observation(view=memory.view, problem=str(error), state=state)
    light = round(float(levels.mean()) / 255, 4)
    if light < DARK_LIGHT or light > BRIGHT_LIGHT:
        # The next image is compared with none: hours may lie between.
        memory.before = b""
        return _observed(memory, "dark" if light < DARK_LIGHT else "bright", light=light)
    activity = _share_changed(levels, _levels(memory.before)) if memory.before else None
    memory.before = grey.as_bytes(levels)
    seems, occupancy = _compare(memory, levels)
    return _observed(memory, seems, light=light, activity=activity, occupancy=occupancy)


def _compare(memory: _Memory, levels: Levels) -> tuple[View, float | None]:
    """What the view seems to be and how full it is; learn from the image if it is the same view."""
    if memory.seen == 0:
        _learn_anew(memory, levels)
        return "learning", None
    learned = _levels(memory.learned)
    fitted = _fit_light(levels, learned)
    seems = _view(memory, fitted, learned)
    if seems not in ("ok", "learning"):
        return seems, None
    step = max(1.0, FIRST_STEP / memory.seen)
    memory.learned = grey.as_bytes(learned + np.clip(fitted - learned, -step, step))
    memory.seen += 1
    return seems, _share_changed(fitted, learned) if seems == "ok" else None


def _view(memory: _Memory, fitted: Levels, learned: Levels) -> View:
    found_share, sharpness = _edges_found(fitted, learned)
    if memory.seen < LEARNED_AFTER:
        memory.usual_found, memory.usual_sharpness = found_share, sharpness
        return "learning"
    if sharpness < SOFT_SHARE * memory.usual_sharpness:
        return "dirty"
    if found_share < LOST_SHARE * memory.usual_found:
        return "moved"
    memory.usual_found += _USUAL_RATE * (found_share - memory.usual_found)
    memory.usual_sharpness += _USUAL_RATE * (sharpness - memory.usual_sharpness)
    return "ok"


def _edges_found(fitted: Levels, learned: Levels) -> tuple[float, float]:
    """The share of the learned view's edges that the image has too, and how sharp it is.

    A view without edges has all of them.
    """
    (down, across), (own_down, own_across) = np.gradient(learned), np.gradient(fitted)
    steep, own_steep = np.hypot(down, across), np.hypot(own_down, own_across)
    bends = 4 * fitted[1:-1, 1:-1] - fitted[:-2, 1:-1] - fitted[2:, 1:-1]
    bends = bends - fitted[1:-1, :-2] - fitted[1:-1, 2:]
    sharpness = float(np.sqrt((bends**2).mean()))
    strong = steep > max(MIN_EDGE, float(np.quantile(steep, 1 - EDGE_SHARE)))
    if not strong.any():
        return 1.0, sharpness
    product = np.asarray(down * own_down + across * own_across)[strong]
    same = (product > SAME_DIRECTION * steep[strong] * own_steep[strong]) & (
        own_steep[strong] > SAME_STEEPNESS * steep[strong]
    )
    return float(same.mean()), sharpness


def _observed(
    memory: _Memory,
    seems: View,
    *,
    light: float,
    activity: float | None = None,
    occupancy: float | None = None,
) -> Observation:
    """Decide whether the view has changed, after enough images that agree."""
    before = memory.view
    memory.agreed = memory.agreed + 1 if seems == memory.candidate else 1
    memory.candidate = seems
    if memory.agreed >= AGREE or before == "learning":
        memory.view = seems
    if memory.view == seems == "moved" and memory.agreed >= RELEARN_AFTER:
        memory.seen, memory.view = 0, "learning"
    return Observation(
        light=light,
        activity=activity,
        occupancy=occupancy,
        view=memory.view,
        changed_from=before if memory.view != before else None,
        state=msgspec.msgpack.encode(memory),
    )


def _share_changed(levels: Levels, other: Levels) -> float:
    difference = np.abs(_fit_light(levels, other) - other)
    return round(float((difference > np.maximum(CHANGED_LEVELS, CHANGED_SHARE * other)).mean()), 4)


def _fit_light(levels: Levels, other: Levels) -> Levels:
    """The image as if it had the light of the other: most cells show the same in both."""
    lit = (levels > MIN_LEVEL) & (other > MIN_LEVEL)
    if not lit.any():
        return levels
    return np.asarray(levels * np.median(other[lit] / levels[lit]), dtype=np.float32)


def _learn_anew(memory: _Memory, levels: Levels) -> None:
    memory.learned, memory.seen = grey.as_bytes(levels), 1


def _levels(stored: bytes) -> Levels:
    return grey.from_bytes(stored, shape=(HEIGHT, WIDTH))


def _decoded(state: bytes | None) -> _Memory:
    """A state of another version, or none, begins anew."""
    try:
        memory = msgspec.msgpack.decode(state or b"", type=_Memory)
    except msgspec.MsgspecError:
        return _Memory()
    return memory if memory.version == VERSION else _Memory()
