"""Where the dish is in an image: the circle that most edges point to, then fitted to its rim."""

import msgspec
import numpy as np
import numpy.typing as npt

from farmiq.farm.vision.grey import Levels

# The radius of a dish, as a share of the image's shorter side.
MIN_RADIUS, MAX_RADIUS = 0.25, 0.62
# The steepest cells are taken as edges.
EDGE_SHARE = 0.08
RADIUS_STEP_PX = 2
# The rim is looked for this far on all sides of the first circle, in so many directions.
NEAR_PX, DIRECTIONS = 5, 120
# A rim is a step of so many levels within so many pixels, and seen in this share of directions.
MIN_STEP, STEP_PX, MIN_SUPPORT = 5.0, 2, 0.7
# Edges of texture are softened so often before edges vote.
SOFTENED = 3

Points = npt.NDArray[np.float64]


class Circle(msgspec.Struct, frozen=True, array_like=True):
    """Middle and radius as shares of the image's width: they fit any size of the same image."""

    x: float
    y: float
    radius: float


def locate(colours: Levels) -> Circle | None:
    """The dish, or None if no circle is seen well enough."""
    softer = colours
    for _ in range(SOFTENED):
        softer = soften(softer)
    first = _vote(softer)
    if first is None:
        return None
    fitted = _fit_rim(colours, *first)
    if fitted is None:
        return None
    width = colours.shape[1]
    x, y, radius = (round(value / width, 5) for value in fitted)
    return Circle(x, y, radius)


def soften(levels: Levels) -> Levels:
    """Each cell as the mean of the nine around it."""
    padded = np.pad(levels, ((1, 1), (1, 1), (0, 0)), mode="edge")
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    return np.asarray((rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / 9, dtype=np.float32)


def _vote(colours: Levels) -> tuple[float, float, float] | None:
    """Each edge votes for the middles that it may be a rim of; the best of all radii."""
    height, width = colours.shape[:2]
    down, across = _steepest(colours)
    steep = np.hypot(down, across)
    limit = max(1.0, float(np.quantile(steep, 1 - EDGE_SHARE)))
    ys, xs = np.nonzero(steep > limit)
    if len(xs) < DIRECTIONS:
        return None
    towards_x, towards_y = across[ys, xs] / steep[ys, xs], down[ys, xs] / steep[ys, xs]
    shorter = min(height, width)
    best = (0.0, 0.0, 0.0, 0.0)
    for radius in np.arange(MIN_RADIUS * shorter, MAX_RADIUS * shorter, RADIUS_STEP_PX):
        # Half the resolution: edges of grain point a little past the middle.
        votes = np.zeros((height // 2 + 1) * (width // 2 + 1))
        for side in (radius, -radius):
            x, y = (xs + side * towards_x) / 2, (ys + side * towards_y) / 2
            inside = (x >= 0) & (x < width / 2) & (y >= 0) & (y < height / 2)
            cells = y[inside].astype(int) * (width // 2 + 1) + x[inside].astype(int)
            votes += np.bincount(cells, minlength=len(votes))
        at = int(votes.argmax())
        score = float(votes[at]) / radius
        if score > best[0]:
            row, column = divmod(at, width // 2 + 1)
            best = (score, column * 2.0 + 1, row * 2.0 + 1, float(radius))
    return best[1:] if best[0] else None


def _fit_rim(
    colours: Levels, x: float, y: float, radius: float
) -> tuple[float, float, float] | None:
    """The circle near the first one over which the step is largest; None if few directions see it.

    The mean step all around is what counts: grain and texture go both ways.
    """
    angles = np.linspace(0, 2 * np.pi, DIRECTIONS, endpoint=False)
    radii = np.arange(radius - NEAR_PX, radius + NEAR_PX + 1)
    best: tuple[float, float, float, float] | None = None
    seen_by = 0.0
    for down in range(-NEAR_PX, NEAR_PX + 1):
        for across in range(-NEAR_PX, NEAR_PX + 1):
            steps = _steps(colours, x + across, y + down, radii, angles)
            means = np.abs(steps.mean(axis=0))
            at, colour = np.unravel_index(int(means.argmax()), means.shape)
            if best is None or means[at, colour] > best[0]:
                here = steps[:, at, colour]
                mean = float(means[at, colour])
                best = (mean, x + across, y + down, float(radii[at]))
                seen_by = float((np.sign(here.mean()) * here > mean / 4).mean())
    if best is None or best[0] < MIN_STEP or seen_by < MIN_SUPPORT:
        return None
    return best[1:]


def _steps(colours: Levels, x: float, y: float, radii: Points, angles: Points) -> Levels:
    """How much brighter it is beyond each radius than before it: by direction, radius, colour."""
    height, width = colours.shape[:2]
    around = np.arange(radii[0] - STEP_PX, radii[-1] + STEP_PX + 1)
    columns = np.clip(np.rint(x + np.outer(np.cos(angles), around)), 0, width - 1).astype(int)
    rows = np.clip(np.rint(y + np.outer(np.sin(angles), around)), 0, height - 1).astype(int)
    profile = colours[rows, columns]
    return np.asarray(profile[:, 2 * STEP_PX :] - profile[:, : -2 * STEP_PX])


def _steepest(colours: Levels) -> tuple[Levels, Levels]:
    """The slope of each cell, in the colour in which it is steepest."""
    down, across = np.gradient(colours, axis=(0, 1))
    colour = np.hypot(down, across).argmax(axis=2)[:, :, None]
    return (
        np.take_along_axis(down, colour, axis=2)[:, :, 0],
        np.take_along_axis(across, colour, axis=2)[:, :, 0],
    )
