"""Pure: when a rule opens and resolves, sample by sample and over a whole series.

A rule opens with the sample at which its condition has held for `for_s`, since the first sample of
an unbroken run. It resolves with the sample at which all have been on the clear side for
`clear_for_s`; one that is not starts that anew, so a series that flaps makes one episode. A gap
between samples of more than MAX_GAP_S ends a run, unless the series is that slow (twice the gap
before it, also where that one was before the run). An absence opens `for_s` after the last sample
and resolves with the next one. Of a series that is slower than that (twice the smaller of its last
two gaps), it opens later: a single outage does not make a series slow.

The window of rises and falls begins with the newest value before it, however old: a total holds
until the next. Not so with telemetry: how a temperature got there during a silence is not known.

`step` is for a stream, with little state; `episodes` is written without it, and a property test
compares the two.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from typing import Final

from farmiq.farm.alerts import rules
from farmiq.messages.alerts import AlertRule

MAX_GAP_S = 900
# What rises and falls look back on is the extreme of each of so many parts of the window.
SLOTS = 60


@dataclass(frozen=True, slots=True)
class Sample:
    """A value of a series. Without one it says only that the time is `at`: a tick of the clock."""

    at: datetime
    value: float | None = None


@dataclass(frozen=True, slots=True)
class State:
    """What `step` remembers of one rule and subject.

    `gap_s` is the last gap of the run that is pending or clearing; of an absence it and the one
    before, if so long that they matter. `worst_measure` goes with worst_value; `recent` has the
    number and the extreme of each slot of the window.
    """

    last_at: datetime | None = None
    last_value: float | None = None
    pending_since: datetime | None = None
    opened_at: datetime | None = None
    clear_since: datetime | None = None
    gap_s: float | None = None
    first_value: float | None = None
    worst_value: float | None = None
    worst_measure: float | None = None
    recent: tuple[tuple[int, float], ...] = ()
    gap_before_s: float | None = None

    @property
    def is_idle(self) -> bool:
        """Whether last_at and last_value are all there is: nothing else need be stored."""
        return (
            self.pending_since is None
            and self.opened_at is None
            and self.gap_s is None
            and not self.recent
        )


START: Final = State()
_THRESHOLDS = ("above", "below")


@dataclass(frozen=True, slots=True)
class Opened:
    """The condition has held since `since`; `value` is the one at `at`, None for an absence."""

    at: datetime
    since: datetime
    value: float | None


@dataclass(frozen=True, slots=True)
class Resolved:
    at: datetime
    value: float | None


@dataclass(frozen=True, slots=True)
class Episode:
    """From `opened_at` to `resolved_at`, or still open; values are those from `since` on."""

    since: datetime
    opened_at: datetime
    resolved_at: datetime | None
    first_value: float | None
    worst_value: float | None
    last_value: float | None


Change = Opened | Resolved
_NOTHING: Sequence[Change] = ()


def is_quiet(rule: AlertRule, value: float) -> bool:
    """Whether `step` from an idle state leads to an idle one, and nothing changes by it.

    This is so of nearly all values, and costs far less to know than a step.
    """
    return rule.condition in _THRESHOLDS and rule.baseline is None and not rules.is_met(rule, value)


def step(
    rule: AlertRule, state: State, sample: Sample, *, baseline: float | None = None
) -> tuple[State, Sequence[Change]]:
    """The state after a sample that is not before `state.last_at`, and what changed by it."""
    value = sample.value
    if value is None:
        return _tick(rule, state, sample.at)
    if sample.at == state.last_at and value == state.last_value:
        return state, ()
    if rule.condition == "absent":
        return _heard(rule, state, sample.at, value)
    recent = state.recent
    if rule.condition in rules.CHANGES:
        recent = _remember(rule, state, sample.at, value)
        measured: float | None = abs(value - _extreme(rule, [extreme for _, extreme in recent]))
    else:
        measured = rules.measure(rule, value, baseline)
    if measured is None:
        return state, ()
    gap_s = None if state.last_at is None else (sample.at - state.last_at).total_seconds()
    if state.opened_at is None and not rules.is_met(rule, measured):
        state, changes = State(last_at=sample.at, last_value=value, recent=recent), _NOTHING
    else:
        state = replace(state, last_at=sample.at, last_value=value, recent=recent)
        if state.opened_at is None:
            state, changes = _pending(rule, state, measured, gap_s)
        else:
            state, changes = _clearing(rule, _worse(rule, state, measured), measured, gap_s)
    return state, changes


def _pending(
    rule: AlertRule, state: State, measured: float, gap_s: float | None
) -> tuple[State, Sequence[Change]]:
    """A sample that meets the condition while nothing is open."""
    at, value = state.last_at, state.last_value
    assert at is not None  # noqa: S101 - the sample's
    if state.pending_since is None or _is_broken(gap_s, state.gap_s):
        state = _begin(state, gap_s=gap_s, measured=measured)
    else:
        state = replace(_worse(rule, state, measured), gap_s=gap_s)
    since = state.pending_since
    assert since is not None  # noqa: S101 - just begun
    if at - since < timedelta(seconds=rule.for_s):
        return state, ()
    return replace(state, opened_at=at, gap_s=None), (Opened(at, since, value),)


def _clearing(
    rule: AlertRule, state: State, measured: float, gap_s: float | None
) -> tuple[State, Sequence[Change]]:
    """A sample while an episode is open."""
    at, value = state.last_at, state.last_value
    assert at is not None  # noqa: S101 - the sample's
    if not rules.is_clear(rule, measured):
        return replace(state, clear_since=None, gap_s=None), ()
    if state.clear_since is None or _is_broken(gap_s, state.gap_s):
        state = replace(state, clear_since=at, gap_s=gap_s)
    else:
        state = replace(state, gap_s=gap_s)
    assert state.clear_since is not None  # noqa: S101 - just set
    if at - state.clear_since < timedelta(seconds=rule.clear_for_s):
        return state, ()
    return State(last_at=at, last_value=value, recent=state.recent), (Resolved(at, value),)


def _begin(state: State, *, gap_s: float | None, measured: float) -> State:
    value = state.last_value
    return replace(
        state,
        pending_since=state.last_at,
        gap_s=gap_s,
        first_value=value,
        worst_value=value,
        worst_measure=measured,
    )


def _worse(rule: AlertRule, state: State, measured: float) -> State:
    worst = state.worst_measure
    if worst is not None and not _is_worse(rule, measured, worst):
        return state
    return replace(state, worst_value=state.last_value, worst_measure=measured)


def _is_worse(rule: AlertRule, measured: float, worst: float) -> bool:
    return measured < worst if rules.is_downward(rule) else measured > worst


def _is_broken(gap_s: float | None, gap_before_s: float | None) -> bool:
    return gap_s is not None and gap_s > max(MAX_GAP_S, 2 * (gap_before_s or 0))


def _tick(rule: AlertRule, state: State, at: datetime) -> tuple[State, Sequence[Change]]:
    if rule.condition != "absent" or state.last_at is None or state.opened_at is not None:
        return state, ()
    due_at = state.last_at + _patience(rule, state.gap_s, state.gap_before_s)
    if at <= due_at:
        return state, ()
    return _absent(state, due_at), (Opened(due_at, state.last_at, None),)


def _heard(
    rule: AlertRule, state: State, at: datetime, value: float
) -> tuple[State, Sequence[Change]]:
    """A value of a series that may not be absent; an absence that no tick saw is reported too."""
    changes: list[Change] = []
    gap_s = None if state.last_at is None else (at - state.last_at).total_seconds()
    gap_before_s = state.gap_s
    if state.opened_at is None:
        state, missed = _tick(rule, state, at)
        changes += missed
    if state.opened_at is not None:
        # What waited elsewhere may be older than the tick that noticed the absence.
        changes.append(Resolved(max(at, state.opened_at), value))
    after = State(last_at=at, last_value=value)
    # A shorter one says that the series is fast enough for the rule.
    if gap_s is not None and gap_s > rule.for_s / 2:
        after = replace(after, gap_s=gap_s, gap_before_s=gap_before_s)
    return after, changes


def _patience(rule: AlertRule, gap_s: float | None, gap_before_s: float | None) -> timedelta:
    """How long a series may be silent, by its last two gaps."""
    usual_s = 0.0 if gap_s is None or gap_before_s is None else min(gap_s, gap_before_s)
    return timedelta(seconds=max(rule.for_s, 2 * usual_s))


def _absent(state: State, due_at: datetime) -> State:
    return replace(
        state, pending_since=state.last_at, opened_at=due_at, first_value=state.last_value
    )


def _slot(rule: AlertRule, at: datetime) -> int:
    return int(at.timestamp() * SLOTS // (rule.window_s or 1))


def _extreme(rule: AlertRule, values: Sequence[float]) -> float:
    return min(values) if rule.condition == "rises" else max(values)


def _remember(
    rule: AlertRule, state: State, at: datetime, value: float
) -> tuple[tuple[int, float], ...]:
    """The extremes of the window's slots with this value, at most SLOTS of them.

    What holds until the next value is in the slot of that one too: it was the value until then.
    """
    slot = _slot(rule, at)
    recent = state.recent
    if recent and recent[-1][0] == slot:
        # Those before it were looked through when its slot began.
        value = _extreme(rule, (recent[-1][1], value))
        return recent if value == recent[-1][1] else (*recent[:-1], (slot, value))
    inside = [pair for pair in state.recent if pair[0] > slot - SLOTS]
    if state.last_value is not None and rules.is_held(rule):
        value = _extreme(rule, (state.last_value, value))
    return (*inside, (slot, value))


# --- over a whole series, independently of `step` ---


@dataclass(frozen=True, slots=True)
class _Measured:
    at: datetime
    value: float
    measured: float
    is_met: bool
    is_clear: bool


def episodes(
    rule: AlertRule,
    samples: Sequence[Sample],
    *,
    baseline: Callable[[Sample], float | None] = lambda _: None,
) -> list[Episode]:
    """What `step` makes of sorted samples, computed from the whole series."""
    if rule.condition == "absent":
        return list(_absences(rule, samples))
    points = list(_measure_all(rule, samples, baseline))
    made = []
    begin = 0
    while (opened := _held_from(points, begin, rule.for_s, _met)) is not None:
        first, at = opened
        resolved = _held_from(points, at + 1, rule.clear_for_s, _cleared)
        last = len(points) - 1 if resolved is None else resolved[1]
        inside = points[first : last + 1]
        pick = min if rules.is_downward(rule) else max
        made.append(
            Episode(
                since=points[first].at,
                opened_at=points[at].at,
                resolved_at=None if resolved is None else points[last].at,
                first_value=points[first].value,
                worst_value=pick(inside, key=lambda sample: sample.measured).value,
                last_value=points[last].value,
            )
        )
        begin = last + 1
    return made


def _met(sample: _Measured) -> bool:
    return sample.is_met


def _cleared(sample: _Measured) -> bool:
    return sample.is_clear


def _held_from(
    points: Sequence[_Measured], begin: int, for_s: int, holds: Callable[[_Measured], bool]
) -> tuple[int, int] | None:
    """The first unbroken run from `begin` on that lasts `for_s`: where it begins and is due."""
    first = None
    for index in range(begin, len(points)):
        if not holds(points[index]):
            first = None
        elif first is None or _breaks(points, index):
            first = index
        if first is not None and points[index].at - points[first].at >= timedelta(seconds=for_s):
            return first, index
    return None


def _breaks(points: Sequence[_Measured], index: int) -> bool:
    """Whether the gap before a sample is too long for its run, by the gap before that one."""
    allowed = timedelta(seconds=MAX_GAP_S)
    if index >= 2:  # noqa: PLR2004 - there was a gap before
        allowed = max(allowed, 2 * (points[index - 1].at - points[index - 2].at))
    return points[index].at - points[index - 1].at > allowed


def _measure_all(
    rule: AlertRule, samples: Sequence[Sample], baseline: Callable[[Sample], float | None]
) -> Iterator[_Measured]:
    values = [(sample, sample.value) for sample in samples if sample.value is not None]
    changes = _window_changes(rule, values) if rule.condition in rules.CHANGES else None
    before = None
    for index, (sample, value) in enumerate(values):
        if changes is not None:
            measured: float | None = changes[index]
        else:
            measured = rules.measure(rule, value, baseline(sample))
        if measured is not None and sample != before:
            before = sample
            yield _Measured(
                sample.at, value, measured,
                rules.is_met(rule, measured), rules.is_clear(rule, measured),
            )  # fmt: skip


def _window_changes(rule: AlertRule, values: Sequence[tuple[Sample, float]]) -> list[float]:
    """How far each value is above the lowest, or below the highest, of its window."""
    slots = [_slot(rule, sample.at) for sample, _ in values]
    numbers = [value for _, value in values]
    first = 0
    changes = []
    for index, value in enumerate(numbers):
        while slots[first] <= slots[index] - SLOTS:
            first += 1
        begin = max(first - 1, 0) if rules.is_held(rule) else first
        inside = numbers[begin : index + 1]
        changes.append(value - min(inside) if rule.condition == "rises" else max(inside) - value)
    return changes


def _absences(rule: AlertRule, samples: Sequence[Sample]) -> Iterator[Episode]:
    heard = [sample for sample, _ in groupby(s for s in samples if s.value is not None)]
    gaps_s = [(after.at - before.at).total_seconds() for before, after in pairwise(heard)]
    for index, (last, following) in enumerate(pairwise((*heard, None))):
        assert last is not None  # noqa: S101 - only the very last is
        before = gaps_s[max(0, index - 2) : index]
        usual_s = min(before) if len(before) == 2 else 0.0  # noqa: PLR2004
        allowed = timedelta(seconds=max(rule.for_s, 2 * usual_s))
        until = samples[-1] if following is None else following
        if until.at - last.at > allowed:
            yield Episode(
                since=last.at,
                opened_at=last.at + allowed,
                resolved_at=None if following is None else following.at,
                first_value=last.value,
                worst_value=None,
                last_value=last.value if following is None else following.value,
            )
