"""Pure: the feed taken out of a silo, from its weight (C-47).

(state, reading) → (state, intake or nothing). The state holds a mark, the weight up to which
everything is accounted for:

      kg │  mark──╮
         │        ╰╮ a fall of noise_kg below the mark is an intake; the mark follows it down
         │         ╰──mark─╮          ╭──mark  a rise of refill_kg above it is a refill, and
         │                 ╰╮        ╭╯        no intake; the mark follows until feed goes out
         │                  ╰──mark──╯
         └──────────────────────────────────► time

Between the two nothing moves the mark, so noise cannot add up, and a slow drift there and back is
counted once at most. The sum of a silo's intakes is its first mark less its last, whatever the
readings between them did. Each reading is taken as the median of itself and its two neighbours, so
a single odd one (a gust of wind, a knock) has no effect.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from statistics import median
from uuid import UUID

import msgspec

from farmiq.messages import feed, ids
from farmiq.messages.kinds import MAX_KG

METRIC = "silo.weight"
# A weight in another unit is kept as telemetry, and nothing is derived from it.
KG_OF = {"kg": 1.0, "t": 1000.0, "g": 0.001}
# Half of the largest quantity, which is the distance from one end to the other.
MAX_WEIGHT_KG = MAX_KG / 2
# A device that reports its intakes itself may report a whole day at once, at its end.
REPORT_PERIOD = timedelta(hours=24)
_WINDOW = 3
_DECIMALS = 3


Order = tuple[datetime, UUID]


class Reading(msgspec.Struct, frozen=True):
    event_id: UUID
    at: datetime
    weight_kg: float
    farm_id: str
    barn_id: str

    @property
    def order(self) -> Order:
        return self.at, self.event_id

    @property
    def is_sensible(self) -> bool:
        """False of what is not a number, too."""
        return -MAX_WEIGHT_KG <= self.weight_kg <= MAX_WEIGHT_KG


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """`noise_kg` is more than the scale wavers, top to bottom; `refill_kg` is not less than it."""

    noise_kg: float
    refill_kg: float


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """`last` are the newest readings, which have no neighbours on both sides yet.

    `reports_since` is when the device first reported feed itself, as far as we know. `passed` is
    the newest reading that was skipped. The names are stored as JSON.
    """

    mark: Reading | None = None
    filling: bool = True
    last: tuple[Reading, ...] = ()
    reports_since: datetime | None = msgspec.field(name="told_since", default=None)
    passed: Order | None = None

    @property
    def read_to(self) -> Order | None:
        taken = self.last[-1].order if self.last else None
        return max((order for order in (taken, self.passed) if order), default=None)

    @property
    def is_sensible(self) -> bool:
        held = (*self.last, self.mark) if self.mark else self.last
        return all(reading.is_sensible for reading in held)


class Fall(msgspec.Struct, frozen=True):
    """Feed that went out between two readings; the same two always give the same id (C-93)."""

    begin: Reading
    end: Reading

    @property
    def quantity_kg(self) -> float:
        return round(self.begin.weight_kg - self.end.weight_kg, _DECIMALS)

    def intake_id(self, *, tenant_id: str, device_id: str) -> UUID:
        parents = (str(self.begin.event_id), str(self.end.event_id))
        return ids.derived(self.end.at, tenant_id, device_id, *parents, feed.INTAKE_RECORDED)


def derive(
    state: State, readings: Iterable[Reading], limits: Limits
) -> tuple[State, tuple[Fall, ...]]:
    """Take readings in the order of their time; those up to the last one taken are known.

    A weight that no silo can have is skipped.
    """
    read_to = state.read_to
    fresh = {
        reading.order: reading for reading in readings if not read_to or reading.order > read_to
    }
    falls: list[Fall] = []
    for order in sorted(fresh):
        if not fresh[order].is_sensible:
            state = msgspec.structs.replace(state, passed=order)
            continue
        state, fall = step(state, fresh[order], limits)
        falls += [fall] if fall else []
    return state, tuple(falls)


def read_state(raw: str) -> State:
    """The state in this JSON. If its weights are wrong, only how far it was read is left.

    Raises msgspec.ValidationError if not even that can be read.
    """
    try:
        state = msgspec.json.decode(raw, type=State)
    except msgspec.ValidationError:
        pass
    else:
        if state.is_sensible:
            return state
    rest = msgspec.json.decode(raw, type=_Rest)
    orders = [(taken.at, taken.event_id) for taken in rest.last]
    orders += [rest.passed] if rest.passed else []
    return State(reports_since=rest.reports_since, passed=max(orders, default=None))


class _Taken(msgspec.Struct):
    event_id: UUID
    at: datetime


class _Rest(msgspec.Struct):
    last: tuple[_Taken, ...] = ()
    reports_since: datetime | None = msgspec.field(name="told_since", default=None)
    passed: Order | None = None


def step(state: State, reading: Reading, limits: Limits) -> tuple[State, Fall | None]:
    window = (*state.last, reading)
    state = msgspec.structs.replace(state, last=window[1 - _WINDOW :])
    if len(window) < _WINDOW:
        return state, None
    middle = window[_WINDOW // 2]
    weight_kg = median(item.weight_kg for item in window)
    return _weigh(state, msgspec.structs.replace(middle, weight_kg=weight_kg), limits)


def _weigh(state: State, now: Reading, limits: Limits) -> tuple[State, Fall | None]:
    mark = state.mark
    if mark is None:
        return msgspec.structs.replace(state, mark=now), None
    rise_kg = now.weight_kg - mark.weight_kg
    if -rise_kg >= limits.noise_kg:
        return msgspec.structs.replace(state, mark=now, filling=False), Fall(mark, now)
    if rise_kg >= limits.refill_kg or (state.filling and rise_kg > 0):
        return msgspec.structs.replace(state, mark=now, filling=True), None
    return state, None


class Reported(msgspec.Struct, frozen=True):
    """When the device reported feed itself: last before the derivation began, first since then."""

    last_before: datetime | None = None
    first_since: datetime | None = None


def not_reported(falls: Iterable[Fall], reported: Reported) -> tuple[Fall, ...]:
    """Those that the device does not report itself: feed must not be counted twice.

    A report before the derivation was switched on counts for a day. The first one since then
    counts for good, and for the day before it, which it may cover.
    """
    return tuple(fall for fall in falls if not _is_reported(fall, reported))


def uncertain_from(reports_since: datetime) -> datetime:
    """From when on an intake derived from the weight may be one that the device reported."""
    return reports_since - REPORT_PERIOD


def _is_reported(fall: Fall, reported: Reported) -> bool:
    before, since = reported.last_before, reported.first_since
    if before is not None and fall.begin.at <= before + REPORT_PERIOD:
        return True
    return since is not None and fall.end.at >= uncertain_from(since)
