"""Pure: the page Telemetry, from the stored rows and the time.

A sensor is one metric of one device. Its state is decided only here: the sentence, the title, the
table and the JSON all come from the same rows.
"""

import hashlib
import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from urllib.parse import quote
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.messages import instants
from farmiq.ui import metrics, sparkline, words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext
from farmiq.ui.metrics import Catalogue, Metric
from farmiq.ui.sparkline import Point

MIN_INTERVAL_S = 10.0
MAX_INTERVAL_S = 366 * 86_400.0
UNKNOWN_INTERVAL_S = 120.0
# A clock may be ahead by this much.
CLOCK_TOLERANCE_S = 60.0
# From this delay on, the time of arrival is shown too.
WORTH_SAYING_S = 120.0
# A bucket is sent some time after its end (TELEMETRY_AGG_SETTLE_SECONDS at the edge).
SETTLES_S = 30.0
WINDOW_S = {"1m": 60.0, "1h": 3600.0, "1d": 86400.0}
# The expected interval is the usual one of so many readings: a page needs no more to say "late".
INTERVAL_READINGS = 9
# A page refreshes itself this much after a sensor turns late.
REFRESH_AFTER_S = 0.5
PAGE = "telemetry"


class State(StrEnum):
    CURRENT = "current"
    LATE = "late"
    AHEAD = "ahead"
    REVOKED = "revoked"


# Problems first, revoked devices last.
PROBLEMS = frozenset({State.LATE, State.AHEAD})
_RANK = {State.LATE: 0, State.AHEAD: 0, State.CURRENT: 1, State.REVOKED: 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The newest reading of a sensor, and the last few before it (oldest first).

    With a `window` all of them are buckets of that length, each by its mean.
    """

    event_id: UUID
    farm_id: str
    barn_id: str
    device_id: str
    metric_type: str
    value: float
    unit: str
    captured_at: datetime
    arrived_at: datetime
    count: int
    window: str | None = None
    revoked: bool = False
    history: tuple[Point, ...]
    clock_suspect: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    reading: Reading
    key: str
    href: str
    metric: Metric
    state: State
    interval_s: float
    late_at: datetime
    value: str
    low: str
    high: str
    mean: str
    arrived: str
    spark: sparkline.Drawing

    @property
    def is_problem(self) -> bool:
        return self.state in PROBLEMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    device_id: str
    label: str
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Barn:
    key: str
    farm_id: str
    barn_id: str
    name: str
    farm_name: str
    devices: tuple[Device, ...]

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for device in self.devices for row in device.rows)

    @property
    def sensors(self) -> int:
        """Those that are expected to report."""
        return sum(row.state is not State.REVOKED for row in self.rows)

    @property
    def late(self) -> int:
        return sum(row.state is State.LATE for row in self.rows)

    @property
    def ahead(self) -> int:
        return sum(row.state is State.AHEAD for row in self.rows)

    @property
    def problems(self) -> int:
        return self.late + self.ahead


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    zone: str
    now: datetime
    as_of: str
    barns: tuple[Barn, ...]
    page: str = PAGE

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for barn in self.barns for row in barn.rows)

    @property
    def sensors(self) -> int:
        return sum(barn.sensors for barn in self.barns)

    @property
    def late(self) -> int:
        return sum(barn.late for barn in self.barns)

    @property
    def ahead(self) -> int:
        return sum(barn.ahead for barn in self.barns)

    @property
    def problems(self) -> int:
        return self.late + self.ahead

    @property
    def sentence(self) -> str:
        if self.rows and not self.sensors:
            return _("Every sensor was revoked")
        return sentence(sensors=self.sensors, late=self.late, ahead=self.ahead)

    @property
    def name(self) -> str:
        return _("Telemetry")

    @property
    def title(self) -> str:
        return words.title(self.name, problems=self.problems)

    @property
    def refresh_at(self) -> datetime | None:
        """When the next sensor turns late, if nothing arrives."""
        return late_from(self.rows)


def view(
    company: Company,
    readings: Sequence[Reading],
    *,
    now: datetime,
    catalogue: Catalogue | None = None,
    names: Mapping[tuple[str, str], tuple[str, str]] | None = None,
) -> View:
    """`names`: of barns that are registered, by farm_id and barn_id: the barn's and the farm's."""
    known = catalogue or Catalogue()
    zone = words.zone(company.timezone)
    ordered = sorted(readings, key=_place)
    barns = [
        _barn(place, list(group), (names or {}).get(place), known, now=now, zone=zone)
        for place, group in itertools.groupby(ordered, key=_barn_of)
    ]
    return View(
        company=company,
        zone=words.zone_name(zone, now),
        now=now,
        as_of=f"{now.astimezone(zone):%H:%M:%S}",
        barns=tuple(sorted(barns, key=lambda barn: barn.problems == 0)),
    )


def late_from(rows: Iterable[Row]) -> datetime | None:
    current = [row.late_at for row in rows if row.state is State.CURRENT]
    return min(current) + timedelta(seconds=REFRESH_AFTER_S) if current else None


def address(device_id: str, metric_type: str) -> str:
    """The page of a sensor."""
    return f"/telemetry/{quote(device_id, safe='')}/{quote(metric_type, safe='')}"


def expected_interval_s(instants: Sequence[datetime]) -> float:
    """How often a sensor reports, by its last readings (oldest first)."""
    gaps = [
        gap
        for earlier, later in itertools.pairwise(instants)
        if (gap := (later - earlier).total_seconds()) > 0
    ]
    if not gaps:
        return UNKNOWN_INTERVAL_S
    return min(max(statistics.median(gaps), MIN_INTERVAL_S), MAX_INTERVAL_S)


def _interval_s(reading: Reading) -> float:
    """Buckets come at most once per window, and a little after their end."""
    newest = reading.history[-INTERVAL_READINGS:]
    interval_s = expected_interval_s([point.at for point in newest])
    if reading.window is None:
        return interval_s
    return max(interval_s, WINDOW_S[reading.window]) + SETTLES_S


def state(captured_at: datetime, *, interval_s: float, now: datetime) -> State:
    """A reading older than two expected intervals is late.

    A reading from the future is not current: it would stay so as long as the clock is wrong.
    """
    age_s = (now - captured_at).total_seconds()
    if age_s < -CLOCK_TOLERANCE_S:
        return State.AHEAD
    return State.LATE if age_s > 2 * interval_s else State.CURRENT


def sentence(*, sensors: int, late: int, ahead: int) -> str:
    if sensors == 0:
        return _("No sensor has reported yet")
    if late == ahead == 0:
        return ngettext(
            "The only sensor is current", "All %(num)s sensors are current", sensors
        ) % {"num": sensors}
    return "; ".join(text for text in (_late(late, sensors), _ahead(ahead, sensors)) if text)


def _late(late: int, sensors: int) -> str:
    if not late:
        return ""
    if late == sensors:
        return ngettext("The only sensor is late", "All %(num)s sensors are late", late) % {
            "num": late
        }
    return ngettext(
        "%(num)s of %(total)s sensors is late", "%(num)s of %(total)s sensors are late", late
    ) % {"num": late, "total": sensors}


def _ahead(ahead: int, sensors: int) -> str:
    if not ahead:
        return ""
    return ngettext(
        "%(num)s of %(total)s sensors has a clock that runs ahead",
        "%(num)s of %(total)s sensors have clocks that run ahead",
        ahead,
    ) % {"num": ahead, "total": sensors}


def _place(reading: Reading) -> tuple[str, str, str, str]:
    return (reading.farm_id, reading.barn_id, reading.device_id, reading.metric_type)


def _barn_of(reading: Reading) -> tuple[str, str]:
    return (reading.farm_id, reading.barn_id)


def _barn(
    place: tuple[str, str],
    readings: Sequence[Reading],
    names: tuple[str, str] | None,
    catalogue: Catalogue,
    *,
    now: datetime,
    zone: ZoneInfo,
) -> Barn:
    farm_id, barn_id = place
    devices = [
        _device(device_id, barn_id, list(group), catalogue, now=now, zone=zone)
        for device_id, group in itertools.groupby(readings, key=lambda reading: reading.device_id)
    ]
    return Barn(
        key=html_id("b", farm_id, barn_id),
        farm_id=farm_id,
        barn_id=barn_id,
        name=names[0] if names else barn_id,
        farm_name=names[1] if names else farm_id,
        devices=tuple(sorted(devices, key=lambda device: _RANK[device.rows[0].state])),
    )


def _device(
    device_id: str,
    barn_id: str,
    readings: Sequence[Reading],
    catalogue: Catalogue,
    *,
    now: datetime,
    zone: ZoneInfo,
) -> Device:
    rows = [_row(reading, catalogue, now=now, zone=zone) for reading in readings]
    return Device(
        device_id=device_id,
        label=metrics.device_label(device_id, barn_id),
        rows=tuple(sorted(rows, key=lambda row: _RANK[row.state])),
    )


def _state(reading: Reading, interval_s: float, *, now: datetime) -> State:
    if reading.revoked:
        return State.REVOKED
    return state(reading.captured_at, interval_s=interval_s, now=now)


def _row(reading: Reading, catalogue: Catalogue, *, now: datetime, zone: ZoneInfo) -> Row:
    interval_s = _interval_s(reading)
    metric = catalogue.of(reading.metric_type)
    span = metric.span(point.value for point in reading.history)
    spark = sparkline.draw(reading.history, interval_s=interval_s, now=now, min_span=span)
    return Row(
        reading=reading,
        key=html_id("s", reading.device_id, reading.metric_type),
        href=address(reading.device_id, reading.metric_type),
        metric=metric,
        state=_state(reading, interval_s, now=now),
        interval_s=interval_s,
        late_at=min(reading.captured_at, now) + timedelta(seconds=2 * interval_s),
        value=metric.text(reading.value),
        low=metric.text(spark.lowest),
        high=metric.text(spark.highest),
        mean=mean(reading.window),
        arrived=_arrived(reading, now=now, zone=zone),
        spark=spark,
    )


def mean(window: str | None) -> str:
    """What the value of an aggregate is."""
    texts = {"1m": _("mean of a minute"), "1h": _("mean of an hour"), "1d": _("mean of a day")}
    return texts.get(window or "", "")


def _arrived(reading: Reading, *, now: datetime, zone: ZoneInfo) -> str:
    waited_s = (reading.arrived_at - reading.captured_at).total_seconds()
    if waited_s < WORTH_SAYING_S:
        return ""
    return words.instant(reading.arrived_at, now=now, zone=zone)


def html_id(kind: str, *parts: str) -> str:
    """An id for HTML: names of devices may have any character, ids may not."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).hexdigest()
    return f"{kind}-{digest[:12]}"


def as_json(view: View) -> dict[str, object]:
    """The page as JSON: the same rows, the same states."""
    return {
        "company": view.company.name,
        "timezone": view.company.timezone,
        "as_of": instants.rfc3339(view.now),
        "summary": view.sentence,
        "problems": view.problems,
        "readings": [_row_as_json(row, now=view.now) for row in view.rows],
    }


def _row_as_json(row: Row, *, now: datetime) -> dict[str, object]:
    reading = row.reading
    return {
        "event_id": str(reading.event_id),
        "farm_id": reading.farm_id,
        "barn_id": reading.barn_id,
        "device_id": reading.device_id,
        "metric_type": reading.metric_type,
        "metric_value": reading.value if math.isfinite(reading.value) else None,
        "unit": reading.unit,
        "occurred_at": instants.rfc3339(reading.captured_at),
        "stored_at": instants.rfc3339(reading.arrived_at),
        "clock_suspect": reading.clock_suspect,
        "reading_count": reading.count,
        "aggregation_window": reading.window,
        "age_s": round((now - reading.captured_at).total_seconds(), 1),
        "expected_interval_s": round(row.interval_s, 1),
        "state": row.state.value,
    }
