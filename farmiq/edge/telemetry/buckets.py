"""Pure: which buckets of time readings fall into, and which bucket suits a question.

Minutes are counted since 1970 in UTC. Minutes and hours are UTC's, days the farm's own (C-40).
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
MOST_POINTS = 1000
MOST_AHEAD = timedelta(hours=24)  # of its arrival: a reading from further ahead is in no bucket

Series = tuple[str, str, str]  # tenant, device, metric


class Span(NamedTuple):
    """The first and the last time of new readings of one series in one hour.

    `owed`: the cloud was not told the readings, so it is owed the buckets.
    """

    tenant_id: str
    device_id: str
    metric_type: str
    first_at: datetime
    last_at: datetime
    owed: bool = False

    @property
    def series(self) -> Series:
        return self.tenant_id, self.device_id, self.metric_type

    @property
    def hour_at(self) -> datetime:
        return EPOCH + (self.first_at - EPOCH) // HOUR * HOUR


@dataclass(frozen=True, slots=True)
class Day:
    """A local day of a series. `zones` are those that have this very day, from start to end."""

    tenant_id: str
    device_id: str
    metric_type: str
    starts_at: datetime
    ends_at: datetime
    zones: tuple[str, ...]


def minute(at: datetime) -> int:
    return (at - EPOCH) // MINUTE


def at_minute(count: int) -> datetime:
    return EPOCH + count * MINUTE


def has_bucket(at: datetime, *, now: datetime, raw_from: datetime) -> bool:
    """Whether a reading of this time that arrives `now` comes into buckets (D-55)."""
    return at_minute(minute(at) // 60 * 60) >= raw_from and at <= now + MOST_AHEAD


def spans(arrivals: Sequence[Arrival]) -> list[Span]:
    """What a batch touches, hour by hour, in one order whoever asks."""
    found: dict[tuple[str, str, str, int], list[datetime]] = {}
    for each in arrivals:
        at = each.event.occurred_at
        key = (
            each.place.tenant_id,
            each.place.device_id,
            each.payload.metric_type,
            (at - EPOCH) // HOUR,
        )
        found.setdefault(key, []).append(at)
    return [Span(*key[:3], min(times), max(times)) for key, times in sorted(found.items())]


def newest(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """The newest of each series: by its time if that is believed, else by its arrival."""
    found: dict[Series, Arrival] = {}
    for each in arrivals:
        key = series(each)
        if key not in found or _age(found[key]) < _age(each):
            found[key] = each
    return [found[key] for key in sorted(found)]


def series(each: Arrival) -> Series:
    return each.place.tenant_id, each.place.device_id, each.payload.metric_type


def beyond(
    new: Iterable[Series], known: Mapping[tuple[str, str], int], *, most: int
) -> set[Series]:
    """Which new series are too many. `known`: how many a (tenant, device) has already."""
    counts = defaultdict(int, known)
    found: set[Series] = set()
    for each in sorted(new):
        device = each[:2]
        counts[device] += 1
        if counts[device] > most:
            found.add(each)
    return found


def columns(of: Iterable[Span | Day]) -> tuple[list[str], list[str], list[str]]:
    """Their series as three lists: tenants, devices, metrics."""
    listed = list(of)
    return (
        [each.tenant_id for each in listed],
        [each.device_id for each in listed],
        [each.metric_type for each in listed],
    )


def _age(each: Arrival) -> tuple[bool, datetime]:
    at = each.received_at
    return not each.clock_suspect, at if each.clock_suspect else min(each.event.occurred_at, at)


def local_day(at: datetime, zone: str) -> tuple[datetime, datetime]:
    """First and last moment (not included) of the local day that `at` falls into, in UTC.

    A day that is turned forward or back has 23 or 25 hours.
    """
    local = at.astimezone(ZoneInfo(zone)).date()
    return midnight(local, zone), midnight(local + timedelta(days=1), zone)


def midnight(day: date, zone: str) -> datetime:
    """The moment a local day begins: the first, if the clock shows midnight twice."""
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


def days(
    hours: Iterable[tuple[Series, datetime, str]], in_use: Mapping[str, Sequence[str]]
) -> list[Day]:
    """The local days that these (series, hour, zone) reach into, each once.

    `in_use` are the zones of a tenant's farms: two zones can have the same day, and a device
    may have been in both.
    """
    found: set[Day] = set()
    for series, hour_at, zone in hours:
        for at in (hour_at, hour_at + HOUR - timedelta(microseconds=1)):
            starts_at, ends_at = local_day(at, zone)
            zones = tuple(
                other
                for other in sorted({zone, *in_use.get(series[0], ())})
                if local_day(starts_at, other) == (starts_at, ends_at)
            )
            found.add(Day(*series, starts_at, ends_at, zones))
    return sorted(found, key=lambda day: (day.tenant_id, day.device_id, day.metric_type,
                                          day.starts_at, day.ends_at))  # fmt: skip


def whole_hours(day: Day) -> tuple[datetime, datetime]:
    """The part of a day that full UTC hours make up; what is left at both ends is minutes."""
    first = at_minute(-(-minute(day.starts_at) // 60) * 60)
    return first, at_minute(minute(day.ends_at) // 60 * 60)


def suits(length: timedelta, *, series: int) -> Window:
    """The finest bucket of which a range of this length has at most about a thousand."""
    for window, bucket in LENGTHS.items():
        if max(series, 1) * -(-length // bucket) <= MOST_POINTS:
            return window
    return "1d"
