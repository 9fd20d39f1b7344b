"""Pure: the page of a sensor, and several beside each other: a stretch of time as points.

A point has the mean, the lowest and the highest reading of its time. Where nothing came there is a
gap, also when it was our own server that was down.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import urlencode
from uuid import UUID

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.telemetry.view import PAGE, Barn, Row, address, late_from
from farmiq.cloud.series import CloudBucket
from farmiq.farm import points
from farmiq.farm.alerts.rules import without_value
from farmiq.farm.points import Step
from farmiq.ui import sentences, words
from farmiq.ui.charts import Column
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext

RangeName = Literal["6h", "24h", "7d", "30d", "90d"]
SPANS: dict[RangeName, timedelta] = {
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
    "90d": timedelta(days=90),
}
DEFAULT: RangeName = "24h"
MIN_SPAN, MAX_SPAN = timedelta(minutes=10), timedelta(days=731)
# Points of a chart, and of a file.
BUDGET, FILE_BUDGET = 600, 5000
MAX_COMPARED = 4
# Longer than this many expected intervals without a reading is a gap.
GAP_INTERVALS = 2.5


@dataclass(frozen=True, slots=True, order=True)
class Sensor:
    device_id: str
    metric_type: str

    @property
    def text(self) -> str:
        return f"{self.device_id}/{self.metric_type}"

    @property
    def href(self) -> str:
        return address(self.device_id, self.metric_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorAlert:
    episode_id: UUID
    severity: str
    state: str
    message: str
    opened_at: datetime
    resolved_at: datetime | None


@dataclass(frozen=True, slots=True)
class Range:
    """`name` is None where a person chose the times."""

    begin: datetime
    end: datetime
    name: RangeName | None

    @property
    def span(self) -> timedelta:
        return self.end - self.begin

    @property
    def query(self) -> dict[str, str]:
        if self.name is not None:
            return {"range": self.name}
        return self.fixed

    @property
    def fixed(self) -> dict[str, str]:
        """The times themselves, whatever they are called."""
        return {"from": words.utc(self.begin), "to": words.utc(self.end)}


def chosen(
    name: RangeName | None, begin: datetime | None, end: datetime | None, *, now: datetime
) -> Range:
    """The range of a URL. Raises ValueError with what is wrong with it."""
    if begin is None and end is None:
        wanted = name or DEFAULT
        return Range(now - SPANS[wanted], now, wanted)
    if begin is None or end is None:
        raise ValueError("give both from and to, or only range")
    if begin >= end:
        raise ValueError("to is not after from")
    if end - begin > MAX_SPAN:
        raise ValueError(f"from and to are more than {MAX_SPAN.days} days apart")
    missing = max(timedelta(0), MIN_SPAN - (end - begin))
    return Range(begin - missing / 2, end + missing / 2, None)


def step(span: timedelta, *, window: str | None, budget: int = BUDGET) -> Step:
    """How long a point is, so that all of them are within the budget."""
    finest = points.finest(span, series=1, budget=budget)
    assert finest is not None, span  # noqa: S101 - MAX_SPAN has room
    return points.at_least(finest, window)  # type: ignore[arg-type]


def step_words(step: Step) -> str:
    """How long a point is: 5 minutes."""
    texts = {
        "1m": ngettext("%(num)s minute", "%(num)s minutes", step.count),
        "1h": ngettext("%(num)s hour", "%(num)s hours", step.count),
        "1d": ngettext("%(num)s day", "%(num)s days", step.count),
    }
    return texts[step.window] % {"num": step.count}


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of the chart; a gap has none of the numbers."""

    at: datetime
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    count: int = 0

    @property
    def is_gap(self) -> bool:
        return self.mean is None


def dots(
    buckets: Sequence[CloudBucket],
    *,
    shown: Range,
    step_s: float,
    interval_s: float,
    now: datetime,
) -> list[Dot]:
    """The points of a range, and one without numbers where a gap begins and where it never ends."""
    max_gap = timedelta(seconds=max(step_s, GAP_INTERVALS * interval_s))
    end = min(shown.end, now)
    return list(_with_gaps(buckets, shown.begin, end, max_gap))


def _with_gaps(
    buckets: Sequence[CloudBucket], begin: datetime, end: datetime, max_gap: timedelta
) -> Iterator[Dot]:
    came_until = begin
    for bucket in buckets:
        if bucket.bucket_start_at - came_until > max_gap:
            yield Dot(came_until)
        yield Dot(
            bucket.bucket_start_at,
            bucket.avg_value,
            bucket.min_value,
            bucket.max_value,
            bucket.count,
        )
        came_until = bucket.bucket_end_at
    if end - came_until > max_gap or not buckets:
        yield Dot(came_until)
        yield Dot(end)


@dataclass(frozen=True, slots=True)
class Summary:
    """What the points of a range come to."""

    low: float
    mean: float
    high: float
    count: int


def summary(drawn: Iterable[Dot]) -> Summary | None:
    came = [dot for dot in drawn if dot.mean is not None]
    count = sum(dot.count for dot in came)
    if not count:
        return None
    return Summary(
        low=min(dot.low for dot in came if dot.low is not None),
        mean=sum((dot.mean or 0.0) * dot.count for dot in came) / count,
        high=max(dot.high for dot in came if dot.high is not None),
        count=count,
    )


def gap_count(drawn: Sequence[Dot]) -> int:
    """Stretches without a reading, those at the ends of the range included."""
    return sum(
        dot.is_gap and (number == 0 or not drawn[number - 1].is_gap)
        for number, dot in enumerate(drawn[:-1])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One sensor in the range."""

    sensor: Sensor
    row: Row
    barn: Barn
    device_label: str
    dots: tuple[Dot, ...]
    step: str
    step_s: float
    alerts: tuple[SensorAlert, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.row.metric.label} · {self.device_label}"

    @property
    def columns(self) -> tuple[Column, ...]:
        return Column(_("Mean"), "line"), Column(_("Lowest"), "low"), Column(_("Highest"), "high")

    @property
    def rows(self) -> tuple[tuple[datetime, float | None, float | None, float | None], ...]:
        """For the chart and its table; none if nothing came."""
        if not any(dot.count for dot in self.dots):
            return ()
        return tuple((dot.at, dot.mean, dot.low, dot.high) for dot in self.dots)

    @property
    def marks(self) -> tuple[tuple[datetime, str], ...]:
        return tuple(
            (alert.opened_at, sentences.shown(without_value(alert.message)))
            for alert in self.alerts
        )

    @property
    def decimals(self) -> int:
        """One more than on the list: a mean is finer than a reading."""
        known = self.row.metric.decimals
        return 2 if known is None else known + 1

    @property
    def summary(self) -> Summary | None:
        return summary(self.dots)

    @property
    def has_implausible(self) -> bool:
        """Whether the company's catalogue says that a reading here cannot be right."""
        shown, row = self.summary, self.row
        return shown is not None and row.metric.has_implausible(
            shown.low, shown.high, row.reading.unit
        )

    @property
    def gaps(self) -> int:
        return gap_count(self.dots)


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorView:
    company: Company
    zone: str
    now: datetime
    range: Range
    chart: Chart
    page: str = PAGE

    @property
    def problems(self) -> int:
        return int(self.chart.row.is_problem)

    @property
    def name(self) -> str:
        return self.chart.name

    @property
    def title(self) -> str:
        return words.title(self.name, problems=self.problems)

    @property
    def tabs(self) -> list[tuple[str, str, str]]:
        return tabs(self.chart.sensor.href)

    @property
    def refresh_at(self) -> datetime | None:
        """When the sensor turns late, if nothing arrives."""
        return late_from([self.chart.row])

    @property
    def source(self) -> str:
        """The part of the page that live updates fetch."""
        return f"{self.chart.sensor.href}/now?{urlencode(self.range.query)}"

    @property
    def permalink(self) -> str:
        """The same time tomorrow too."""
        return f"{self.chart.sensor.href}?{urlencode(self.range.fixed)}"

    @property
    def compare(self) -> str:
        return compare_address([self.chart.sensor], **self.range.query)

    @property
    def csv(self) -> str:
        return f"{self.chart.sensor.href}.csv?{urlencode(self.range.query)}"

    @property
    def parquet(self) -> str:
        return f"{self.chart.sensor.href}.parquet?{urlencode(self.range.query)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareView:
    """`choices`: sensors that can be added, as (value, label)."""

    company: Company
    zone: str
    now: datetime
    range: Range
    charts: tuple[Chart, ...]
    choices: tuple[tuple[str, str], ...]
    page: str = PAGE

    @property
    def name(self) -> str:
        return _("Compare sensors")

    @property
    def title(self) -> str:
        return self.name

    @property
    def address(self) -> str:
        """Without the time: a chart that is dragged over adds it."""
        return compare_address([chart.sensor for chart in self.charts])

    @property
    def is_full(self) -> bool:
        return len(self.charts) >= MAX_COMPARED

    @property
    def tabs(self) -> list[tuple[str, str, str]]:
        return tabs(self.address)

    def without(self, sensor: Sensor) -> str:
        rest = [chart.sensor for chart in self.charts if chart.sensor != sensor]
        return compare_address(rest, **self.range.query)


def compare_address(sensors: Iterable[Sensor], **query: str) -> str:
    pairs = [("s", sensor.text) for sensor in sensors]
    return f"/telemetry/compare?{urlencode([*pairs, *query.items()])}"


def tabs(href: str) -> list[tuple[str, str, str]]:
    """The ranges to choose from, as (key, label, address)."""
    joint = "&" if "?" in href else "?"
    labels: dict[RangeName, str] = {
        "6h": _("6 hours"),
        "24h": _("24 hours"),
        "7d": _("7 days"),
        "30d": _("30 days"),
        "90d": _("90 days"),
    }
    return [(name, label, f"{href}{joint}range={name}") for name, label in labels.items()]


def parse_sensor(text: str) -> Sensor | None:
    """Of `device/metric`."""
    device_id, slash, metric_type = text.partition("/")
    return Sensor(device_id, metric_type) if slash and device_id and metric_type else None
