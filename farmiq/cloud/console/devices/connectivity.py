"""Pure: seven days of a device in cells of an hour: received, a gap, nothing due, or later."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from farmiq.cloud.console.sites import strips
from farmiq.cloud.console.sites.strips import Camera, State, Wake
from farmiq.farm import buckets
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

DAYS = 7
HOUR = timedelta(hours=1)
# The look of a cell is that of a wake in the same state; a gap looks like an overdue wake.
RECEIVED, GAP, IDLE, LATER = "received", "overdue", "not-owed", "due"
WORDS = {
    RECEIVED: marked("received"),
    GAP: marked("gap"),
    IDLE: marked("nothing due"),
    LATER: marked("later"),
    State.FAILED.value: marked("failed"),
    State.LOST.value: marked("lost"),
    State.RECEIVING.value: marked("arriving now"),
}


@dataclass(frozen=True, slots=True)
class Span:
    """A time without contact; without an end it goes on."""

    begin_at: datetime
    end_at: datetime | None


@dataclass(frozen=True, slots=True)
class HourCell:
    state: str
    count: int
    says: str


@dataclass(frozen=True, slots=True)
class DayRow:
    """A day in the zone of the place; it may have 23 or 25 hours."""

    date: date
    name: str
    cells: tuple[HourCell, ...]


@dataclass(frozen=True, slots=True)
class Connectivity:
    days: tuple[DayRow, ...]

    def _count(self, state: str) -> int:
        return sum(cell.state == state for day in self.days for cell in day.cells)

    @property
    def received(self) -> int:
        return self._count(RECEIVED)

    @property
    def gaps(self) -> int:
        return self._count(GAP)

    @property
    def failed(self) -> int:
        return self._count(State.FAILED.value)

    @property
    def lost(self) -> int:
        return self._count(State.LOST.value)


def begin_at(now: datetime, zone: ZoneInfo) -> datetime:
    """Midnight of the first of the seven days; today is the last."""
    return buckets.midnight(now.astimezone(zone).date() - timedelta(days=DAYS - 1), zone.key)


def of_readings(
    hours: Mapping[datetime, int],
    *,
    interval_s: float,
    now: datetime,
    zone: ZoneInfo,
) -> Connectivity:
    """By hours with readings. A sensor that reports less than hourly has no gaps of an hour.

    Before its first reading nothing was due.
    """
    first = min(hours, default=None)
    hourly = interval_s <= HOUR.total_seconds()

    def cell(at: datetime) -> tuple[str, int]:
        count = hours.get(at, 0)
        if count:
            return RECEIVED, count
        if at + HOUR > now:
            return (LATER if at > now else IDLE), 0
        return (GAP if hourly and first is not None and at > first else IDLE), 0

    return _days(cell, now=now, zone=zone)


def of_weighings(
    hours: Mapping[datetime, int],
    offline: Sequence[Span],
    *,
    now: datetime,
    zone: ZoneInfo,
) -> Connectivity:
    """By weighings and by changes of state: without an animal nothing is due of a station."""

    def cell(at: datetime) -> tuple[str, int]:
        if count := hours.get(at, 0):
            return RECEIVED, count
        if at > now:
            return LATER, 0
        ends = min(at + HOUR, now)
        # Away for the whole hour, or for its rest.
        is_offline = any(
            span.begin_at < ends and (span.end_at is None or span.end_at >= ends)
            for span in offline
        )
        return (GAP if is_offline else IDLE), 0

    return _days(cell, now=now, zone=zone)


def of_wakes(
    wakes: Sequence[Wake], camera: Camera, *, now: datetime, zone: ZoneInfo
) -> Connectivity:
    """By the wakes of each hour; the worst state of them is shown."""
    of_hour: dict[datetime, list[State]] = {}
    for wake in wakes:
        at = wake.expected_at or wake.at
        hour = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        of_hour.setdefault(hour, []).append(strips.state(wake, camera, now=now))

    def cell(at: datetime) -> tuple[str, int]:
        states = of_hour.get(at)
        if not states:
            return (LATER if at > now else IDLE), 0
        worst = min(states, key=strips.WORST.index)
        return worst.value, sum(state is State.RECEIVED for state in states)

    return _days(cell, now=now, zone=zone)


def _days(
    cell: Callable[[datetime], tuple[str, int]], *, now: datetime, zone: ZoneInfo
) -> Connectivity:
    today = now.astimezone(zone).date()
    days = []
    for back in reversed(range(DAYS)):
        day = today - timedelta(days=back)
        begin, end = (buckets.midnight(d, zone.key) for d in (day, day + timedelta(days=1)))
        # Zones of half an hour: an hour of UTC belongs to the day in which it begins.
        first = begin.astimezone(UTC)
        if first.minute:
            first = first.replace(minute=0) + HOUR
        cells = []
        while first < end:
            state, count = cell(first)
            cells.append(_hour_cell(first, state, count, zone=zone))
            first += HOUR
        days.append(DayRow(day, words.day(day, today=today), tuple(cells)))
    return Connectivity(tuple(days))


def _hour_cell(at: datetime, state: str, count: int, *, zone: ZoneInfo) -> HourCell:
    text = _(WORDS[state])
    if state == RECEIVED and count > 1:
        text = ngettext("%(num)s received", "%(num)s received", count) % {"num": count}
    return HourCell(state, count, f"{at.astimezone(zone):%H:%M} {text}")
