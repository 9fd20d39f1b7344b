"""Pure: which rollup buckets readings fall into, and which months have partitions.

Minutes and hours are those of UTC, days those of the farm (C-40).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from farmiq.edge.arrival import Arrival

Window = Literal["1m", "1h", "1d"]
LENGTHS: dict[Window, timedelta] = {
    "1m": timedelta(minutes=1),
    "1h": timedelta(hours=1),
    "1d": timedelta(days=1),
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
MAX_POINTS = 1000
MAX_AHEAD = timedelta(hours=24)  # of its arrival: a reading from further ahead is in no bucket
MONTHS_AHEAD = 2  # partitions for a clock that runs early, or a box that was off

Series = tuple[str, str, str]  # tenant, device, metric


class DirtyRange(NamedTuple):
    """The first and the last time of new readings of one series in one hour.

    `pending`: the readings were not sent to the cloud, so it waits for the buckets.
    """

    tenant_id: str
    device_id: str
    metric_type: str
    first_at: datetime
    last_at: datetime
    pending: bool = False

    @property
    def series(self) -> Series:
        return self.tenant_id, self.device_id, self.metric_type

    @property
    def hour_at(self) -> datetime:
        return EPOCH + (self.first_at - EPOCH) // HOUR * HOUR


@dataclass(frozen=True, slots=True)
class LocalDay:
    """A local day of a series. `zones` are those in which it starts and ends at these times."""

    tenant_id: str
    device_id: str
    metric_type: str
    starts_at: datetime
    ends_at: datetime
    zones: tuple[str, ...]


def minute_number(at: datetime) -> int:
    """Minutes since 1970 in UTC."""
    return (at - EPOCH) // MINUTE


def has_bucket(at: datetime, *, now: datetime, raw_from: datetime) -> bool:
    """Whether a reading of this time that arrives `now` is counted in buckets (D-55)."""
    return EPOCH + (at - EPOCH) // HOUR * HOUR >= raw_from and at <= now + MAX_AHEAD


def dirty_ranges(arrivals: Sequence[Arrival]) -> list[DirtyRange]:
    """What a batch of readings changes, by series and hour, sorted."""
    times: dict[tuple[str, str, str, int], list[datetime]] = {}
    for arrival in arrivals:
        at = arrival.event.occurred_at
        key = (*series_of(arrival), (at - EPOCH) // HOUR)
        times.setdefault(key, []).append(at)
    return [DirtyRange(*key[:3], min(ats), max(ats)) for key, ats in sorted(times.items())]


def series_of(arrival: Arrival) -> Series:
    return arrival.place.tenant_id, arrival.place.device_id, arrival.payload.metric_type


def newest_by_series(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The newest of each series: by its own time if that is believed, else by its arrival."""
    newest: dict[Series, Arrival] = {}
    for arrival in arrivals:
        series = series_of(arrival)
        if series not in newest or _newness(newest[series]) < _newness(arrival):
            newest[series] = arrival
    return [newest[series] for series in sorted(newest)]


def _newness(arrival: Arrival) -> tuple[bool, datetime]:
    at = arrival.received_at
    if not arrival.clock_suspect:
        at = min(arrival.event.occurred_at, at)
    return not arrival.clock_suspect, at


def series_over_limit(
    new: Iterable[Series], known: Mapping[tuple[str, str], int], *, limit: int
) -> set[Series]:
    """Which new series are too many. `known`: how many a (tenant, device) has already."""
    counts = defaultdict(int, known)
    over: set[Series] = set()
    for series in sorted(new):
        device = series[:2]
        counts[device] += 1
        if counts[device] > limit:
            over.add(series)
    return over


def series_columns(
    rows: Sequence[DirtyRange | LocalDay],
) -> tuple[list[str], list[str], list[str]]:
    """Their series as three lists: tenants, devices, metrics."""
    return (
        [row.tenant_id for row in rows],
        [row.device_id for row in rows],
        [row.metric_type for row in rows],
    )


def local_day(at: datetime, zone: str) -> tuple[datetime, datetime]:
    """When the local day of `at` starts and ends, in UTC; it may have 23 or 25 hours."""
    day = at.astimezone(ZoneInfo(zone)).date()
    return midnight(day, zone), midnight(day + timedelta(days=1), zone)


def midnight(day: date, zone: str) -> datetime:
    """When a local day starts: the first time, if the clock shows midnight twice."""
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def local_days(
    hours: Iterable[tuple[Series, datetime, str]], zones_in_use: Mapping[str, Sequence[str]]
) -> list[LocalDay]:
    """The local days that these (series, hour, zone) reach into, each once.

    `zones_in_use` are the zones of a tenant's farms: two zones can have the same day, and a device
    may have been in both.
    """
    days: set[LocalDay] = set()
    for series, hour_at, zone in hours:
        for at in (hour_at, hour_at + HOUR - timedelta(microseconds=1)):
            starts_at, ends_at = local_day(at, zone)
            zones = tuple(
                other
                for other in sorted({zone, *zones_in_use.get(series[0], ())})
                if local_day(starts_at, other) == (starts_at, ends_at)
            )
            days.add(LocalDay(*series, starts_at, ends_at, zones))
    return sorted(days, key=lambda day: (day.tenant_id, day.device_id, day.metric_type,
                                         day.starts_at, day.ends_at))  # fmt: skip


def whole_hours(day: LocalDay) -> tuple[datetime, datetime]:
    """The part of a day that full UTC hours cover; the rest at both ends is minutes."""
    first = EPOCH + -((EPOCH - day.starts_at) // HOUR) * HOUR
    return first, EPOCH + (day.ends_at - EPOCH) // HOUR * HOUR


def finest_window(length: timedelta, *, series: int) -> Window:
    """The finest window with at most about a thousand buckets in a time range of this length."""
    for window, bucket in LENGTHS.items():
        if max(series, 1) * -(-length // bucket) <= MAX_POINTS:
            return window
    return "1d"


def partition_months(today: date, retention_days: int) -> list[date]:
    """The months from the oldest day that is stored to two months ahead."""
    first = (today - timedelta(days=retention_days)).replace(day=1)
    count = (today.year - first.year) * 12 + today.month - first.month + MONTHS_AHEAD
    return [add_months(first, number) for number in range(count + 1)]


def add_months(day: date, months: int) -> date:
    """The first day of the month that many months later."""
    index = day.year * 12 + day.month - 1 + months
    return date(index // 12, index % 12 + 1, 1)


def days_before(day: date, days: int = 0) -> datetime:
    """Midnight in UTC, that many days before."""
    return datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=days)
