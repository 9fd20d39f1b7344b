"""Pure: which rollup buckets readings fall into.

Minutes and hours are those of UTC, days those of the farm (C-40).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from farmiq.messages import bus, ids, telemetry
from farmiq.messages.bus import BusEvent

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

Series = tuple[str, str, str]  # tenant, device, metric


class DirtyRange(NamedTuple):
    """The first and the last time of new readings of one series in one hour.

    `pending`: the readings were not sent on, so somebody waits for the buckets.
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
class Bucket:
    """What the readings of a series come to in one window."""

    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    metric_type: str
    window: Window
    bucket_start_at: datetime
    bucket_end_at: datetime
    unit: str
    avg_value: float
    min_value: float
    max_value: float
    count: int

    def event(
        self, *, version: int, by_cloud: bool = False, trace_id: str | None = None
    ) -> BusEvent:
        """The same state of a bucket always has the same id, another `version` another one."""
        payload = telemetry.TelemetryAggregated(
            metric_type=self.metric_type,
            aggregation_window=self.window,
            avg_value=self.avg_value,
            min_value=self.min_value,
            max_value=self.max_value,
            unit=self.unit,
            count=self.count,
            bucket_start_at=self.bucket_start_at,
            bucket_end_at=self.bucket_end_at,
            made_by="cloud" if by_cloud else msgspec.UNSET,
        )
        event_id = ids.derived(
            self.bucket_start_at,
            *(("cloud",) if by_cloud else ()),
            telemetry.AGGREGATED,
            self.tenant_id,
            self.device_id,
            self.metric_type,
            self.window,
            self.bucket_start_at.isoformat(),
            str(version),
        )
        return bus.own_event(
            telemetry.AGGREGATED,
            self,
            payload,
            event_id=event_id,
            occurred_at=self.bucket_start_at,
            trace_id=trace_id or f"telemetry-agg-{event_id}",
        )


@dataclass(frozen=True, slots=True)
class LocalDay:
    """A local day of a series. `zones` are those in which it starts and ends at these times."""

    tenant_id: str
    device_id: str
    metric_type: str
    starts_at: datetime
    ends_at: datetime
    zones: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Zones:
    """The time zones of farms; `default` is that of farms without one of their own."""

    of_farms: Mapping[tuple[str, str], str]
    default: str

    def of(self, tenant_id: str, farm_id: str) -> str:
        return self.of_farms.get((tenant_id, farm_id), self.default)

    def in_use(self) -> dict[str, list[str]]:
        zones: dict[str, list[str]] = {}
        for (tenant_id, _), zone in self.of_farms.items():
            zones.setdefault(tenant_id, [self.default]).append(zone)
        return zones


def minute_number(at: datetime) -> int:
    """Minutes since 1970 in UTC."""
    return (at - EPOCH) // MINUTE


def has_bucket(at: datetime, *, now: datetime, raw_from: datetime) -> bool:
    """Whether a reading of this time that arrives `now` is counted in buckets (D-55)."""
    return EPOCH + (at - EPOCH) // HOUR * HOUR >= raw_from and at <= now + MAX_AHEAD


def dirty_ranges(readings: Iterable[tuple[Series, datetime]]) -> list[DirtyRange]:
    """What a batch of readings changes, by series and hour, sorted."""
    times: dict[tuple[Series, int], list[datetime]] = {}
    for series, at in readings:
        times.setdefault((series, (at - EPOCH) // HOUR), []).append(at)
    return [DirtyRange(*series, min(ats), max(ats)) for (series, _), ats in sorted(times.items())]


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
