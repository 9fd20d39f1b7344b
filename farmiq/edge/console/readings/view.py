"""Pure: the latest readings by barn, problems first, and a sensor with its chart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from statistics import median
from typing import Literal
from urllib.parse import quote

from farmiq.edge.console.readings.queries import Bucket, Series
from farmiq.edge.console.tenant import PageView, Tenant
from farmiq.edge.telemetry.queries import TelemetryReading
from farmiq.farm.buckets import Window
from farmiq.ui import sparkline, words
from farmiq.ui.charts import Column
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext
from farmiq.ui.metrics import Catalogue, device_label
from farmiq.ui.sparkline import Point

State = Literal["current", "late", "ahead", "revoked"]
_TONES: dict[State, str] = {"current": "good", "late": "warn", "ahead": "bad", "revoked": "muted"}
# A reading is late after so many of the expected intervals (C-120).
LATE_AFTER = 2
_ORDER: tuple[State, ...] = ("ahead", "late", "current", "revoked")
_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A span that the chart of a sensor can show: from which rollups, in which steps."""

    key: str
    lasts: timedelta
    window: Window
    step: timedelta


RANGES = (
    Range(key="6h", lasts=timedelta(hours=6), window="1m", step=timedelta(minutes=2)),
    Range(key="24h", lasts=timedelta(hours=24), window="1m", step=timedelta(minutes=10)),
    Range(key="7d", lasts=timedelta(days=7), window="1h", step=timedelta(hours=1)),
    Range(key="30d", lasts=timedelta(days=30), window="1h", step=timedelta(hours=4)),
)


def interval_s(points: Sequence[Point], heartbeat_s: float) -> float:
    """How often a reading is to be expected: as often as they came, at least every heartbeat."""
    gaps = [(after.at - before.at).total_seconds() for before, after in pairwise(points)]
    return max(heartbeat_s, median(gaps) if gaps else 0.0, _MINUTE)


def state(
    reading: TelemetryReading, *, interval_s: float, is_revoked: bool, now: datetime
) -> State:
    if is_revoked:
        return "revoked"
    if reading.clock_suspect:
        return "ahead"
    age_s = (now - reading.occurred_at).total_seconds()
    return "late" if age_s > LATE_AFTER * interval_s else "current"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingRow:
    reading: TelemetryReading
    key: str
    state: State
    tone: str
    word: str
    label: str
    device: str
    value: str
    decimals: int
    spark: sparkline.Drawing
    href: str
    at: datetime
    late_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BarnCard:
    barn_id: str
    farm_id: str
    rows: Sequence[ReadingRow]
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingsView(PageView):
    sentence: str
    tone: str
    sensors: int
    problems: int
    barns: Sequence[BarnCard]
    refresh_at: datetime | None


def state_word(of: State) -> str:
    return {
        "current": _("Current"),
        "late": _("Late"),
        "ahead": _("Clock wrong"),
        "revoked": _("Revoked"),
    }[of]


def row(
    reading: TelemetryReading,
    points: Sequence[Point],
    heartbeat_s: float | None,
    *,
    catalogue: Catalogue,
    now: datetime,
) -> ReadingRow:
    expected_s = interval_s(points, heartbeat_s or 0.0)
    current_state = state(reading, interval_s=expected_s, is_revoked=heartbeat_s is None, now=now)
    metric = catalogue.of(reading.metric_type)
    at = reading.ingested_at if reading.clock_suspect else reading.occurred_at
    return ReadingRow(
        reading=reading,
        key=f"{reading.device_id}/{reading.metric_type}",
        state=current_state,
        tone=_TONES[current_state],
        word=state_word(current_state),
        label=metric.label,
        device=device_label(reading.device_id, reading.barn_id),
        value=metric.text(reading.metric_value),
        decimals=2 if metric.decimals is None else metric.decimals,
        spark=sparkline.draw(
            points,
            interval_s=expected_s,
            now=now,
            min_span=metric.span([point.value for point in points]),
        ),
        href=f"/readings/{quote(reading.device_id, safe='')}/{quote(reading.metric_type, safe='')}",
        at=at,
        late_at=reading.occurred_at + timedelta(seconds=LATE_AFTER * expected_s),
    )


def view(
    tenant: Tenant,
    readings: Sequence[TelemetryReading],
    *,
    lines: Mapping[Series, Sequence[Point]],
    heartbeats: Mapping[str, float],
    now: datetime,
) -> ReadingsView:
    catalogue = Catalogue()
    rows = [
        row(
            reading,
            lines.get((reading.device_id, reading.metric_type), ()),
            heartbeats.get(reading.device_id),
            catalogue=catalogue,
            now=now,
        )
        for reading in readings
    ]
    sensors = sum(row.state != "revoked" for row in rows)
    problems = sum(row.state in ("late", "ahead") for row in rows)
    late_moments = [row.late_at for row in rows if row.state == "current"]
    return ReadingsView(
        company=tenant,
        now=now,
        title=words.title(_("Readings"), problems=problems),
        page="readings",
        sentence=_sentence(sensors, problems),
        tone="muted" if not sensors else "warn" if problems else "good",
        sensors=sensors,
        problems=problems,
        barns=sorted(_barns(rows), key=lambda barn: (not barn.late, barn.farm_id, barn.barn_id)),
        refresh_at=min(late_moments, default=None),
    )


def _barns(rows: Sequence[ReadingRow]) -> list[BarnCard]:
    def place(row: ReadingRow) -> tuple[str, str]:
        return row.reading.farm_id, row.reading.barn_id

    return [
        BarnCard(
            barn_id=barn_id,
            farm_id=farm_id,
            rows=(in_barn := sorted(group, key=lambda row: (_ORDER.index(row.state), row.key))),
            late=sum(row.state in ("late", "ahead") for row in in_barn),
        )
        for (farm_id, barn_id), group in groupby(sorted(rows, key=place), key=place)
    ]


def _sentence(sensors: int, problems: int) -> str:
    if not sensors:
        return _("No sensor reports yet")
    if not problems:
        text = ngettext("The only sensor is current", "All %(num)s sensors are current", sensors)
        return text % {"num": words.number(sensors)}
    text = ngettext(
        "%(count)s of %(total)s sensors is late or has a wrong clock",
        "%(count)s of %(total)s sensors are late or have a wrong clock",
        problems,
    )
    return text % {"count": words.number(problems), "total": words.number(sensors)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorView(PageView):
    row: ReadingRow
    range: Range
    tabs: Sequence[tuple[str, str, str]]
    columns: Sequence[Column]
    points: Sequence[tuple[object, ...]]
    note: str
    fragment: str


def sensor_view(
    tenant: Tenant,
    shown: ReadingRow,
    buckets: Sequence[Bucket],
    *,
    wanted: Range,
    now: datetime,
) -> SensorView:
    address = shown.href
    return SensorView(
        company=tenant,
        now=now,
        title=words.title(shown.label, problems=int(shown.state in ("late", "ahead"))),
        page="readings",
        row=shown,
        range=wanted,
        tabs=[(known.key, known.key, f"{address}?range={known.key}") for known in RANGES],
        columns=[
            Column(_("Lowest"), "low"),
            Column(_("Highest"), "high"),
            Column(_("Mean"), "line"),
        ],
        points=with_gaps(buckets, step=wanted.step),
        note=_("each point is %(time)s") % {"time": words.duration(wanted.step.total_seconds())},
        fragment=f"{address}/parts?range={wanted.key}",
    )


def with_gaps(buckets: Sequence[Bucket], *, step: timedelta) -> list[tuple[object, ...]]:
    """Rows of the chart; a row without values where a step or more is missing: gaps are gaps."""
    rows: list[tuple[object, ...]] = []
    for before, bucket in zip([None, *buckets], buckets, strict=False):
        if before is not None and bucket.at - before.at > step:
            rows.append((before.at + step, None, None, None))
        rows.append((bucket.at, bucket.low, bucket.high, bucket.mean))
    return rows
