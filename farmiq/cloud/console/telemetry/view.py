"""Pure: the page Latest readings, from the stored rows and the time.

A sensor is one metric of one device. Its state is decided only here: the sentence, the title, the
table and the JSON all come from the same rows.
"""

import hashlib
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.telemetry import sparkline
from farmiq.cloud.console.telemetry.sparkline import Point
from farmiq.messages import instants
from farmiq.ui import words

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
MEANS = {"1m": "mean of a minute", "1h": "mean of an hour", "1d": "mean of a day"}


class State(StrEnum):
    CURRENT = "current"
    LATE = "late"
    AHEAD = "ahead"
    REVOKED = "revoked"


# Problems first, revoked devices last.
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
    again: bool
    state: State
    interval_s: float
    late_at: datetime
    age: str
    value: str
    mean: str
    captured: str
    captured_utc: str
    arrived: str
    spark: sparkline.Drawing


@dataclass(frozen=True, slots=True, kw_only=True)
class Barn:
    key: str
    farm_id: str
    barn_id: str
    rows: tuple[Row, ...]

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
            return "Every sensor was revoked"
        barns = sum(barn.sensors > 0 for barn in self.barns)
        return sentence(sensors=self.sensors, barns=barns, late=self.late, ahead=self.ahead)

    @property
    def title(self) -> str:
        return words.title("Latest readings", problems=self.problems)


def view(company: Company, readings: Sequence[Reading], *, now: datetime) -> View:
    zone = words.zone(company.timezone)
    ordered = sorted(readings, key=_place)
    barns = [
        _barn(farm_id, barn_id, list(group), now=now, zone=zone)
        for (farm_id, barn_id), group in itertools.groupby(ordered, key=_barn_of)
    ]
    return View(
        company=company,
        zone=words.zone_name(zone, now),
        now=now,
        as_of=now.astimezone(zone).strftime("%H:%M:%S"),
        barns=tuple(sorted(barns, key=lambda barn: barn.problems == 0)),
    )


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
    interval_s = expected_interval_s([point.at for point in reading.history])
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


def sentence(*, sensors: int, barns: int, late: int, ahead: int) -> str:
    if sensors == 0:
        return "No sensor has reported yet"
    if late == ahead == 0:
        reports = "reports; it is current" if sensors == 1 else "report; all current"
        return f"{words.count(sensors, 'sensor')} in {words.count(barns, 'barn')} {reports}"
    late_part = f"{_share(late, sensors)} late" if late else ""
    if not ahead:
        return late_part
    clocks = "a clock that runs" if ahead == 1 else "clocks that run"
    if not late:
        return f"{_share(ahead, sensors, verb=('has', 'have'))} {clocks} ahead"
    return f"{late_part}; {ahead} {'has' if ahead == 1 else 'have'} {clocks} ahead"


def _share(count: int, total: int, *, verb: tuple[str, str] = ("is", "are")) -> str:
    singular, plural = verb
    if count == total:
        return f"The only sensor {singular}" if count == 1 else f"All {count} sensors {plural}"
    return f"{count} of {total} sensors {singular if count == 1 else plural}"


def _place(reading: Reading) -> tuple[str, str, str, str]:
    return (reading.farm_id, reading.barn_id, reading.device_id, reading.metric_type)


def _barn_of(reading: Reading) -> tuple[str, str]:
    return (reading.farm_id, reading.barn_id)


def _barn(
    farm_id: str, barn_id: str, readings: Sequence[Reading], *, now: datetime, zone: ZoneInfo
) -> Barn:
    states = [(reading, _state(reading, now=now)) for reading in readings]
    states.sort(key=lambda item: _RANK[item[1]])
    before = [None, *(reading.device_id for reading, _ in states)]
    rows = tuple(
        _row(reading, state, again=reading.device_id == above, now=now, zone=zone)
        for (reading, state), above in zip(states, before, strict=False)
    )
    return Barn(key=_key("b", farm_id, barn_id), farm_id=farm_id, barn_id=barn_id, rows=rows)


def _state(reading: Reading, *, now: datetime) -> State:
    if reading.revoked:
        return State.REVOKED
    return state(reading.captured_at, interval_s=_interval_s(reading), now=now)


def _row(reading: Reading, state: State, *, again: bool, now: datetime, zone: ZoneInfo) -> Row:
    interval_s = _interval_s(reading)
    return Row(
        reading=reading,
        key=_key("s", reading.device_id, reading.metric_type),
        again=again,
        state=state,
        interval_s=interval_s,
        late_at=min(reading.captured_at, now) + timedelta(seconds=2 * interval_s),
        age=_age(state, (now - reading.captured_at).total_seconds()),
        value=words.number(reading.value),
        mean=MEANS.get(reading.window or "", ""),
        captured=words.instant(reading.captured_at, now=now, zone=zone),
        captured_utc=f"{reading.captured_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
        arrived=_arrived(reading, now=now, zone=zone),
        spark=sparkline.draw(reading.history, interval_s=interval_s, now=now),
    )


def _age(state: State, age_s: float) -> str:
    if state is State.AHEAD:
        return f"clock {words.duration(-age_s)} ahead"
    ago = words.ago(age_s)
    return ago if state is State.CURRENT else f"last reading {ago}"


def _arrived(reading: Reading, *, now: datetime, zone: ZoneInfo) -> str:
    waited_s = (reading.arrived_at - reading.captured_at).total_seconds()
    if waited_s < WORTH_SAYING_S:
        return ""
    return f"arrived {words.instant(reading.arrived_at, now=now, zone=zone)}"


def _key(kind: str, *parts: str) -> str:
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
