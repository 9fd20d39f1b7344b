"""Pure: when an animal stands on the scale, and what it weighs.

(state, sample, now) → (state, effects). `now` is a clock that never jumps (seconds).

      kg │            ╭──── settled: within tolerance_kg for window_s, so says the indicator
         │       ╭╮╭──╯·········╮  · again every again_s, as long as it stands
         │      ╭╯╰╯             │
         │ ─────╯ arrived         ╰───── left
         │ zero, followed slowly while the scale is empty
         └─────────────────────────────────► time

An animal steps on an empty scale: whatever stands there at the start, or after a gap, is ignored
until it has gone, so a power cut weighs no animal twice. A rise from a settled weight is a second
animal, or one in two steps: it is reported (`Crowded`) and never averaged. A single sample that
differs is a knock: arrivals and departures go by the median of a sample and its neighbours.
"""

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

# Samples closer together than this part of the window are skipped, so the window holds at most so
# many, whatever the indicator's speed.
_MAX_IN_WINDOW = 64
_MIN_IN_WINDOW = 3
_NEIGHBOURS = 3
_MANY = 8
# Regular samples never fill a window exactly: the first lies a little inside it.
_SPAN = 0.75
_DECIMALS = 3

Phase = Literal["unknown", "empty", "settling", "steady", "waiting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`present_kg`: more is an animal; less than half of it, and the scale is empty again.

    `zero_kg` and `zero_kg_per_s`: how far and how fast the zero follows an empty scale that drifts.
    `gap_s`: samples further apart do not belong to the same animal.
    """

    present_kg: float = 5.0
    tolerance_kg: float = 0.5
    window_s: float = 1.5
    again_s: float = 2.0
    settle_within_s: float = 60.0
    gap_s: float = 5.0
    zero_kg: float = 5.0
    zero_kg_per_s: float = 0.02
    max_kg: float = 2000.0

    @property
    def step_kg(self) -> float:
        """A rise of a settled weight by so much is another animal."""
        return max(self.present_kg, 4 * self.tolerance_kg)


@dataclass(frozen=True, slots=True)
class Sample:
    """A reading of the scale; see indicator.Reading."""

    weight_kg: float | None
    stable: bool | None = None
    overload: bool = False


@dataclass(frozen=True, slots=True)
class Arrived:
    """An animal stepped on."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A stable weight; `again` if this animal had one before."""

    weight_kg: float
    again: bool = False


@dataclass(frozen=True, slots=True)
class Crowded:
    """The weight rose from a settled one: a second animal, or one that came in two steps.

    `to_kg` is None if the scale cannot tell: overload.
    """

    from_kg: float
    to_kg: float | None


@dataclass(frozen=True, slots=True)
class Left:
    """The scale is empty again; `after_s` since the animal arrived."""

    after_s: float


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The animal cannot be weighed; it is ignored until it has gone."""

    reason: str


@dataclass(frozen=True, slots=True)
class Occupied:
    """The scale has not been empty for long: dirt, a gate, or a zero that is wrong."""

    weight_kg: float


Effect = Arrived | Settled | Crowded | Left | GaveUp | Occupied


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """`steady_kg` is the settled weight of the animal that stands there.

    `rejected` counts samples that are no weights; `reported_at` is when an effect was last
    reported, and on an empty scale when the zero last moved.
    """

    phase: Phase = "unknown"
    since: float = 0.0
    zero_kg: float = 0.0
    steady_kg: float | None = None
    reported_at: float = 0.0
    occupied_reported: bool = False
    last_at: float | None = None
    recent: tuple[float, ...] = ()
    window: tuple[tuple[float, float], ...] = ()
    rejected: int = 0

    @property
    def is_present(self) -> bool:
        return self.phase in {"settling", "steady"}


Step = tuple[State, tuple[Effect, ...]]


def step(state: State, sample: Sample | None, now: float, limits: Limits) -> Step:
    """Process a sample, or None: time has passed and nothing came."""
    state, effects = _after_gap(state, now, limits)
    if sample is None:
        return state, effects
    state = replace(state, last_at=now)
    if sample.overload:
        more = _overloaded(state, now)
    elif not is_weight(sample.weight_kg, limits):
        more = replace(state, rejected=state.rejected + 1), ()
    else:
        more = _weigh(state, float(sample.weight_kg or 0.0), sample.stable, now, limits)
    return more[0], (*effects, *more[1])


def is_weight(weight_kg: float | None, limits: Limits) -> bool:
    """False of what is not a number, too. A negative one may be an empty scale's."""
    return weight_kg is not None and math.isfinite(weight_kg) and abs(weight_kg) <= limits.max_kg


def _after_gap(state: State, now: float, limits: Limits) -> Step:
    if state.last_at is None or 0 <= now - state.last_at <= limits.gap_s:
        return state, ()
    gone = replace(
        state, phase="unknown", since=now, last_at=None, recent=(), window=(), steady_kg=None
    )
    if state.is_present:
        return gone, (GaveUp(f"the scale was silent for more than {limits.gap_s:g} s"),)
    return gone, ()


def _overloaded(state: State, now: float) -> Step:
    effects: tuple[Effect, ...] = ()
    if state.steady_kg is not None:
        effects = (Crowded(state.steady_kg, None),)
    elif state.is_present:
        effects = (GaveUp("the scale says overload"),)
    return _waiting(state, now), effects


def _waiting(state: State, now: float) -> State:
    return replace(state, phase="waiting", since=now, window=(), steady_kg=None)


def _weigh(state: State, raw_kg: float, stable: bool | None, now: float, limits: Limits) -> Step:  # noqa: FBT001
    recent = (*state.recent, raw_kg)[-_NEIGHBOURS:]
    state = replace(state, recent=recent)
    if len(recent) < _NEIGHBOURS:
        return state, ()
    kg = median(recent) - state.zero_kg
    raw_kg -= state.zero_kg
    match state.phase:
        case "unknown" | "waiting":
            return _until_empty(state, kg, now, limits)
        case "empty":
            return _empty(state, kg, now, limits)
        case _:
            return _present(state, kg, raw_kg if stable is not False else None, now, limits)


def _until_empty(state: State, kg: float, now: float, limits: Limits) -> Step:
    if abs(kg) < limits.present_kg / 2:
        left = (Left(max(0.0, now - state.since)),) if state.phase == "waiting" else ()
        return _emptied(state, now), left
    if now - state.since > limits.settle_within_s and not state.occupied_reported:
        return replace(state, occupied_reported=True), (Occupied(round(kg, _DECIMALS)),)
    return state, ()


def _emptied(state: State, now: float) -> State:
    return replace(
        state,
        phase="empty",
        since=now,
        reported_at=now,
        window=(),
        steady_kg=None,
        occupied_reported=False,
    )


def _empty(state: State, kg: float, now: float, limits: Limits) -> Step:
    if kg >= limits.present_kg:
        arrived = replace(state, phase="settling", since=now, reported_at=now, window=())
        return arrived, (Arrived(),)
    passed_s = min(max(0.0, now - state.reported_at), limits.gap_s)
    max_step = limits.zero_kg_per_s * passed_s
    zero = state.zero_kg + min(max(kg, -max_step), max_step)
    zero = min(max(zero, -limits.zero_kg), limits.zero_kg)
    return replace(state, zero_kg=zero, reported_at=now), ()


def _present(state: State, kg: float, raw_kg: float | None, now: float, limits: Limits) -> Step:
    """`raw_kg` is None if the indicator reports motion."""
    if kg < limits.present_kg / 2:
        return _emptied(state, now), (Left(max(0.0, now - state.since)),)
    if state.steady_kg is not None and kg - state.steady_kg >= limits.step_kg:
        crowded = Crowded(state.steady_kg, round(kg, _DECIMALS))
        return _waiting(state, now), (crowded,)
    if state.phase == "settling" and now - state.since > limits.settle_within_s:
        return _waiting(state, now), (
            GaveUp(f"no stable weight within {limits.settle_within_s:g} s"),
        )
    window = () if raw_kg is None else _slid(state.window, now, raw_kg, limits)
    return _settle(replace(state, window=window), now, limits)


def _slid(
    window: tuple[tuple[float, float], ...], now: float, kg: float, limits: Limits
) -> tuple[tuple[float, float], ...]:
    if window and 0 <= now - window[-1][0] < limits.window_s / _MAX_IN_WINDOW:
        return window
    recent = tuple(item for item in window if 0 <= now - item[0] <= limits.window_s)
    # A slow indicator has fewer in a window than it takes: then it takes longer.
    return (*max(recent, window[1 - _MIN_IN_WINDOW :], key=len), (now, kg))


def _settle(state: State, now: float, limits: Limits) -> Step:
    weights = [kg for _, kg in state.window]
    if (
        len(weights) < _MIN_IN_WINDOW
        or now - state.window[0][0] < _SPAN * limits.window_s
        or _spread_kg(weights) > limits.tolerance_kg
    ):
        return state, ()
    settled_kg = round(median(weights), _DECIMALS)
    if settled_kg < limits.present_kg:
        return state, ()
    again = state.phase != "settling"
    if again and now - state.reported_at < limits.again_s:
        return state, ()
    steady = replace(state, phase="steady", steady_kg=settled_kg, reported_at=now)
    return steady, (Settled(settled_kg, again=again),)


def _spread_kg(weights: list[float]) -> float:
    """Between the least and the most; one knock among many does not count.

    Of the raw samples: an animal that sways in step with a filter would look calm in it.
    """
    ordered = sorted(weights)
    if len(ordered) < _MANY:
        return ordered[-1] - ordered[0]
    return min(ordered[-2] - ordered[0], ordered[-1] - ordered[1])
