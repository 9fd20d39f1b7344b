"""Pure: the page of one batch: its headline, charts, the figures of a day, its calendar."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from urllib.parse import urlencode
from uuid import UUID

from farmiq.cloud.console.batches.calendar import CalendarDay
from farmiq.cloud.console.batches.view import LABELS, Batch, Figure, address
from farmiq.cloud.console.company.view import Company
from farmiq.farm.standards import StandardRow, expected
from farmiq.ui import words
from farmiq.ui.charts import Column
from farmiq.ui.entry.kinds import RECORD_KINDS
from farmiq.ui.i18n import gettext as _

# A chart shows so many days at most: of cattle, the newest.
MAX_DAYS = 400
# The standard's band, as the alert rule that ships: a tenth on either side.
BAND_SHARE = 0.1
# How far beyond today the growth chart goes if no target is in sight.
MIN_AHEAD_DAYS, MAX_AHEAD_DAYS = 7, 60
# Before, animals have gained too little for their feed conversion to say anything.
CONVERSION_FROM_DAYS = 7

Cell = float | None
Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart and the table that it is drawn from; the first cell of a row is the age in days."""

    key: str
    title: str
    unit: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    note: str = ""
    decimals: int = 2

    @property
    def is_empty(self) -> bool:
        return all(cell is None for row in self.rows for cell in row[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """What somebody has just entered, for the message at the top of the page."""

    event_id: UUID
    kind: str
    value: str
    posted_by: str

    @property
    def text(self) -> str:
        """What it was: Dead animals: 2."""
        kind = RECORD_KINDS.get(self.kind)
        label = _(kind.label) if kind else _("Feed taken in")
        return f"{label}: {words.cut(self.value, 80)}" if self.value else label


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    company: Company
    now: datetime
    zone: str
    batch: Batch
    growth: Chart
    charts: Sequence[Chart]
    day: date | None
    day_age: int
    figures: Sequence[Figure]
    before: date | None
    after: date | None
    calendar: Sequence[CalendarDay]
    computed_at: datetime | None
    entered: Entered | None
    page: str = "batches"

    @property
    def title(self) -> str:
        return words.title(self.batch.barn_name, problems=len(self.batch.problems))

    @property
    def fragment(self) -> str:
        # As the page was asked for, or its refresh would take back what an entry was answered.
        given = {
            "day": self.day if self.after else None,
            "entered": self.entered and self.entered.event_id,
        }
        query = urlencode({name: value for name, value in given.items() if value})
        return f"{address(self.batch.batch_id)}/parts" + (f"?{query}" if query else "")

    def on_day(self, day: date) -> str:
        return f"{self.batch.href}?day={day}#figures"


Series = Mapping[str, Mapping[date, Figure]]


def by_type(figures: Iterable[Figure]) -> dict[str, dict[date, Figure]]:
    series: dict[str, dict[date, Figure]] = {}
    for figure in figures:
        series.setdefault(figure.kpi_type, {})[figure.kpi_date] = figure
    return series


def detail(
    company: Company,
    batch: Batch,
    figures: Sequence[Figure],
    standard: Sequence[StandardRow],
    *,
    calendar: Sequence[CalendarDay],
    day: date | None,
    computed_at: datetime | None,
    entered: Entered | None,
    now: datetime,
) -> Detail:
    """`day` is the day of the table of figures: that date, else the newest that has some."""
    series = by_type(figures)
    dates = sorted({figure.kpi_date for figure in figures})
    shown = day if day in dates else dates[-1] if dates else None
    index = dates.index(shown) if shown else 0
    order = [*LABELS]
    return Detail(
        company=company,
        now=now,
        zone=words.zone_name(words.zone(batch.timezone), now),
        batch=batch,
        growth=growth(batch, series, standard),
        charts=[chart for chart in charts(batch, series, standard) if not chart.is_empty],
        day=shown,
        day_age=batch.age_on(shown) if shown else 0,
        figures=sorted(
            (figure for figure in figures if figure.kpi_date == shown),
            key=lambda figure: order.index(figure.kpi_type),
        ),
        before=dates[index - 1] if index else None,
        after=dates[index + 1] if index + 1 < len(dates) else None,
        calendar=calendar,
        computed_at=computed_at,
        entered=entered,
    )


def growth(batch: Batch, series: Series, standard: Sequence[StandardRow]) -> Chart:
    """The mean with its P10 to P90, the standard with its band, the forecast with its band."""
    outlook = {on: (kg, low, high) for on, kg, low, high in batch.outlook.path}
    last = max([*_dates(batch), *_ahead(batch, outlook)])
    name = batch.standard_name
    columns = [
        Column(name, "expected"),
        Column(_("%(standard)s less a tenth") % {"standard": name}, "expected_low"),
        Column(_("%(standard)s plus a tenth") % {"standard": name}, "expected_high"),
        Column(_("Mean weight"), "line"),
        Column(_("Lightest tenth below"), "low"),
        Column(_("Heaviest tenth above"), "high"),
        Column(_("Forecast"), "forecast"),
        Column(_("Forecast at least"), "forecast_low"),
        Column(_("Forecast at most"), "forecast_high"),
    ]
    rows = []
    for on in _span(batch, last):
        age = batch.age_on(on)
        kg = expected(standard, "weight_kg", age)
        band = (None, None) if kg is None else (kg * (1 - BAND_SHARE), kg * (1 + BAND_SHARE))
        weighed = [_value(series, kind, on) for kind in ("weight_mean", "weight_p10", "weight_p90")]
        rows.append((float(age), kg, *band, *weighed, *outlook.get(on, (None, None, None))))
    return Chart(
        key="growth", title=_("Growth"), unit="kg", columns=columns, rows=rows,
        note=_("The band of the standard is a tenth on either side; the band of the forecast "
               "contains the truth in eight of ten cases."),
    )  # fmt: skip


def charts(batch: Batch, series: Series, standard: Sequence[StandardRow]) -> list[Chart]:
    """The charts below the growth; those without any value are left out by the page."""
    name = batch.standard_name

    def of_standard(column: str) -> Callable[[date], Cell]:
        return lambda on: expected(standard, column, batch.age_on(on))

    def chart(
        key: str,
        title: str,
        unit: str,
        *lines: tuple[Column, str | Callable[[date], Cell]],
        note: str = "",
        decimals: int = 2,
        skipped_days: int = 0,
    ) -> Chart:
        columns, sources = zip(*lines, strict=True)
        rows = [
            (
                float(batch.age_on(on)),
                *(
                    _value(series, source, on) if isinstance(source, str) else source(on)
                    for source in sources
                ),
            )
            for on in _dates(batch)
            if (on - batch.placed_on).days >= skipped_days
        ]
        # A standard alone says nothing of this batch.
        measured = [at for at, source in enumerate(sources, 1) if isinstance(source, str)]
        has_values = any(row[at] is not None for row in rows for at in measured)
        return Chart(
            key=key, title=title, unit=unit, columns=columns, rows=rows if has_values else [],
            note=note, decimals=decimals,
        )  # fmt: skip

    unfinished = _("Today is not over yet.") if batch.status == "running" else ""
    return [
        chart(
            "gain", _("Daily gain"), _("g/day"),
            (Column(_("Gain of a week"), "line"), "adg_7d"),
            (Column(name, "expected"), of_standard("daily_gain_g")),
            decimals=0,
        ),
        chart(
            "conversion", _("Feed conversion"), _("kg feed per kg gain"),
            (Column(_("Feed conversion"), "line"), "fcr"),
            (Column(name, "expected"), of_standard("feed_conversion")),
            note=_("From a week after placing on."), skipped_days=CONVERSION_FROM_DAYS,
        ),
        chart(
            "mortality", _("Mortality"), "%",
            (Column(_("Of the day"), "bars"), "mortality_day_pct"),
            (Column(_("Since placing"), "line"), "mortality_pct"),
            (Column(name, "expected"), of_standard("mortality_pct")),
        ),
        chart(
            "intake", _("Feed per head"), "g",
            (Column(_("Feed per head"), "bars"), "intake_per_head"),
            note=unfinished, decimals=0,
        ),
        chart(
            "water", _("Water per head"), "l",
            (Column(_("Water per head"), "bars"), "water_per_head"),
            note=unfinished, decimals=3,
        ),
        chart(
            "uniformity", _("Uniformity"), "%",
            (Column(_("Within a tenth of the mean"), "line"), "weight_uniformity"),
        ),
    ]  # fmt: skip


def until(batch: Batch) -> date:
    """The last day for which the growth chart wants a forecast."""
    target = batch.outlook.latest_on or batch.outlook.reached_on or batch.target_on
    wanted = max(filter(None, (target, batch.today + timedelta(days=MIN_AHEAD_DAYS))))
    return min(wanted, batch.today + timedelta(days=MAX_AHEAD_DAYS))


def _value(series: Series, kpi_type: str, on: date) -> Cell:
    figure = series.get(kpi_type, {}).get(on)
    return figure.value if figure else None


def _dates(batch: Batch) -> list[date]:
    """From placing until today or the last day, at most MAX_DAYS."""
    last = min(batch.today, batch.closed_on or batch.today)
    return _span(batch, max(last, batch.placed_on))


def _span(batch: Batch, last: date) -> list[date]:
    first = max(batch.placed_on, last - timedelta(days=MAX_DAYS - 1))
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def _ahead(batch: Batch, outlook: Mapping[date, object]) -> list[date]:
    return [*outlook] if batch.status == "running" else []
