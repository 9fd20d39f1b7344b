"""The wakes of a schedule as cronsim and brute force find them; days on which clocks change."""

import zoneinfo
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from pathlib import Path

import psycopg
from cronsim import CronSim

DAY = timedelta(days=1)
# So far before the first date that is compared, that the walk is in step by then.
RUN_UP = 2 * DAY

# PostgreSQL's short file leaves a week of 2022 to a rule that Python begins too early; the system's
# spells it out.
SPELLED_OUT = {"America/Ojinaga"}

Wakes = dict[date, list[datetime]]


class StuckError(Exception):
    """cronsim goes back in time, and would for ever."""


class Walk(CronSim):
    """Says when it goes back in time; the original would go in circles."""

    def advance_day(self) -> bool:
        return self._forward(super().advance_day)

    def advance_hour(self) -> bool:
        return self._forward(super().advance_hour)

    def _forward(self, advance: Callable[[], bool]) -> bool:
        before = self.dt
        moved = advance()
        if self.dt.tzinfo is not None and self.dt.astimezone(UTC) < before.astimezone(UTC):
            raise StuckError(before)
        return moved


@dataclass(frozen=True, slots=True)
class Change:
    """A moment at which a zone's distance from UTC changes."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def days(self) -> list[date]:
        """The local dates that it touches, and their neighbours."""
        touched = [(self.at + each).date() for each in (self.before, self.after)]
        first, last = min(touched) - DAY, max(touched) + DAY
        return [first + n * DAY for n in range((last - first).days + 1)]


def reader(admin_url: str) -> Callable[[str], zoneinfo.ZoneInfo]:
    """Zones from the very files that PostgreSQL reads, so that only the reckoning is compared.

    A PostgreSQL that reads the system's database has no files of its own.
    """
    with psycopg.connect(admin_url) as connection:
        query = "select setting from pg_config where name = 'SHAREDIR'"
        (place,) = connection.execute(query).fetchone() or ("",)
    folder = Path(place) / "timezone"

    @cache
    def read(name: str) -> zoneinfo.ZoneInfo:
        if not folder.is_dir() or name in SPELLED_OUT:
            return zoneinfo.ZoneInfo(name)
        with (folder / name).open("rb") as file:
            return zoneinfo.ZoneInfo.from_file(file, key=name)

    return read


def wakes(cron: str, here: zoneinfo.ZoneInfo, days: Sequence[date]) -> Wakes:
    """By local date of the moment at which they really happen."""
    begin = datetime.combine(min(days), time(), tzinfo=here) - RUN_UP
    end = datetime.combine(max(days), time(), tzinfo=here).astimezone(UTC) + timedelta(hours=30)
    found: Wakes = {day: [] for day in days}
    for at in _moments(cron, begin, end):
        found.setdefault(at.astimezone(here).date(), []).append(at)
    return {day: found[day] for day in days if found[day]}


def once(cron: str, here: zoneinfo.ZoneInfo, days: Sequence[date]) -> Wakes:
    """By brute force: every minute that the wall shows exactly once on its day, if it matches.

    C-119: these are wakes, whatever the walk does.
    """
    fields = CronSim(cron, datetime.combine(days[0], time()))
    found = {
        day: [
            at
            for wall, at in _shown_once(here, day)
            if wall.minute in fields.minutes and wall.hour in fields.hours
        ]
        for day in days
        if day.month in fields.months and fields.match_day(day)
    }
    return {day: ats for day, ats in found.items() if ats}


@cache
def _shown_once(here: zoneinfo.ZoneInfo, day: date) -> list[tuple[datetime, datetime]]:
    """(wall, moment) of each minute of a day that the clock shows once, neither twice nor never."""
    found = []
    for minute in range(24 * 60):
        wall = datetime.combine(day, time()) + timedelta(minutes=minute)
        ats = {wall.replace(tzinfo=here, fold=fold).astimezone(UTC) for fold in (0, 1)}
        shown = {at for at in ats if at.astimezone(here).replace(tzinfo=None, fold=0) == wall}
        if len(shown) == 1:
            found.append((wall, shown.pop()))
    return found


def corrected(theirs: Wakes, cron: str, here: zoneinfo.ZoneInfo, days: Sequence[date]) -> Wakes:
    """The wakes of cronsim and those that it steps over (C-119)."""
    added = once(cron, here, days)
    return {
        day: sorted({*theirs.get(day, ()), *added.get(day, ())})
        for day in days
        if day in theirs or day in added
    }


def _moments(cron: str, begin: datetime, end: datetime) -> Iterator[datetime]:
    previous = begin.astimezone(UTC)
    for wall in Walk(cron, begin):
        at = wall.astimezone(UTC)
        if at <= previous:
            raise StuckError(at)
        if at > end:
            return
        yield at
        previous = at


class Asked:
    """cronsim's answers about changes, asked once for all zones whose walls show the same.

    It reckons with the hands on the wall and with elapsed time, never with the distance from UTC.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, datetime, timedelta], dict[date, list[timedelta]] | None] = {}

    def wakes(self, cron: str, here: zoneinfo.ZoneInfo, change: Change) -> Wakes | None:
        """Those of the change's days; None where it gets stuck."""
        key = (cron, change.at + change.before, change.after - change.before)
        if key not in self._known:
            try:
                found = wakes(cron, here, change.days)
            except StuckError:
                self._known[key] = None
            else:
                self._known[key] = {
                    day: [at - change.at for at in ats] for day, ats in found.items()
                }
        known = self._known[key]
        if known is None:
            return None
        return {day: [change.at + each for each in ats] for day, ats in known.items()}


def wakes_by_us(
    connection: psycopg.Connection, cron: str, zone: str, days: Iterable[date]
) -> Wakes:
    rows = connection.execute(
        """
        select d.day, array_agg(w.expected_at order by w.expected_at),
          array_agg(w.wake_window_index order by w.expected_at)
        from unnest(%s::date[]) d(day), fn_wake_instants(%s, %s, d.day) w group by d.day
        """,
        (list(days), cron, zone),
    ).fetchall()
    for _, ats, numbers in rows:
        assert numbers == list(range(1, len(ats) + 1)), (cron, zone)
    return {day: [at.astimezone(UTC) for at in ats] for day, ats, _ in rows}


def changes(here: zoneinfo.ZoneInfo, first_year: int, last_year: int) -> tuple[Change, ...]:
    begin = datetime(first_year, 1, 1, tzinfo=UTC)
    days = (datetime(last_year + 1, 1, 1, tzinfo=UTC) - begin).days
    offsets = [_offset(here, begin + n * DAY) for n in range(days + 1)]
    return tuple(
        Change(_moment(here, begin + n * DAY), offsets[n], offsets[n + 1])
        for n in range(days)
        if offsets[n] != offsets[n + 1]
    )


def groups(
    zones: Iterable[zoneinfo.ZoneInfo], first_year: int, last_year: int
) -> list[tuple[zoneinfo.ZoneInfo, tuple[Change, ...]]]:
    """One zone of those that have the same clock in these years, with its changes."""
    found = defaultdict(list)
    for here in zones:
        begins = _offset(here, datetime(first_year, 1, 1, tzinfo=UTC))
        found[begins, changes(here, first_year, last_year)].append(here)
    return [(members[0], key[1]) for key, members in found.items()]


def _offset(here: zoneinfo.ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(here).utcoffset() or timedelta(0)


def _moment(here: zoneinfo.ZoneInfo, early: datetime) -> datetime:
    """The change within the day that begins here."""
    late, after = early + DAY, _offset(here, early + DAY)
    while late - early > timedelta(seconds=1):
        middle = early + timedelta(seconds=(late - early).total_seconds() // 2)
        early, late = (early, middle) if _offset(here, middle) == after else (middle, late)
    return late
