"""Pure: what a report says, from the rows of the database. Nothing in it is rounded or text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from math import fsum

from farmiq.cloud.figures import forecast
from farmiq.cloud.reports.periods import Period
from farmiq.cloud.reports.queries import (
    Alert,
    Batch,
    BatchFacts,
    Day,
    Farm,
    FarmFacts,
    Figure,
    Listed,
    Note,
)
from farmiq.farm.growth import Estimate

# The figures that stand at the top of a report, in this order.
KEY_FIGURES = (
    "head_count", "weight_mean", "adg_7d", "weight_uniformity",
    "fcr", "intake_per_head", "mortality_pct", "data_coverage",
)  # fmt: skip
MAX_AHEAD_DAYS = 14


@dataclass(frozen=True, slots=True)
class Weighed:
    """The weights of a day, at the age of the batch."""

    on: date
    age_days: int
    mean_kg: float
    count: int
    p10_kg: float | None
    p90_kg: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Of the days of a period; None where nothing was recorded."""

    feed_kg: float | None
    dead: float
    culled: float
    weighed: int
    outliers: int
    # The share of the hours with readings, in %: a day without any counts as 0.
    coverage_pct: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DayLine:
    on: date
    age_days: int
    head_count: float | None
    dead: float | None
    feed_kg: float | None
    feed_per_head_g: float | None
    weight_kg: float | None
    weighed: int
    coverage_pct: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the batch will weigh: by age, and when it weighs its target; or why nobody can say."""

    by_age: Sequence[tuple[int, Estimate]] = ()
    reaches_target_on: date | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    batch: Batch
    period: Period
    # Days of the period on which the animals were there.
    days: Sequence[date]
    age_days: int
    latest: Mapping[str, Figure]
    weighed: Sequence[Weighed]
    standard: Sequence[tuple[int, float]]
    forecast: Forecast
    now: Totals
    before: Totals | None
    lines: Sequence[DayLine]
    alerts: Listed[Alert]
    notes: Listed[Note]

    def is_old(self, figure: Figure) -> bool:
        """Whether a figure is of a day before the period."""
        return figure.kpi_date < self.period.first


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmReport:
    company: str
    farm: Farm
    period: Period
    batches: Sequence[BatchReport]
    others: Sequence[str]
    alerts: Listed[Alert]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Whose report it is, and when it was made."""

    company: str
    made_at: datetime


def farm_report(facts: FarmFacts, period: Period) -> FarmReport:
    return FarmReport(
        company=facts.company,
        farm=facts.farm,
        period=period,
        batches=[batch_report(batch, period) for batch in facts.batches],
        others=facts.others,
        alerts=facts.alerts,
    )


def batch_report(facts: BatchFacts, period: Period) -> BatchReport:
    batch = facts.batch
    days = _present(batch, period)
    earlier = _present(batch, period.before())
    weighed = _weighed(batch, facts.weights)
    return BatchReport(
        batch=batch,
        period=period,
        days=days,
        age_days=batch.age(days[-1] if days else period.last),
        latest={figure.kpi_type: figure for figure in facts.latest},
        weighed=weighed,
        standard=facts.standard,
        forecast=_forecast(batch, facts.weights, period),
        now=_totals(days, facts.figures, facts.days),
        before=_totals(earlier, facts.figures, facts.days) if earlier else None,
        lines=_lines(batch, days, facts.figures, facts.days),
        alerts=facts.alerts,
        notes=facts.notes,
    )


def _present(batch: Batch, period: Period) -> list[date]:
    """The days of a period on which the animals were there."""
    last = batch.closed_on or period.last
    return [day for day in period.days if batch.placed_on <= day <= last]


def _weighed(batch: Batch, weights: Sequence[Figure]) -> list[Weighed]:
    values = _by_day(weights)
    return [
        Weighed(
            on=day,
            age_days=batch.age(day),
            mean_kg=figures["weight_mean"].value,
            count=figures["weight_mean"].source_event_count,
            p10_kg=_value(figures.get("weight_p10")),
            p90_kg=_value(figures.get("weight_p90")),
        )
        for day, figures in sorted(values.items())
        if "weight_mean" in figures
    ]


def _forecast(batch: Batch, weights: Sequence[Figure], period: Period) -> Forecast:
    """As pages and the API have it, of what was weighed up to the end of the period."""
    known = _known(batch, weights, period)
    if batch.closed_on is not None and batch.closed_on <= period.last:
        return Forecast()
    described = forecast.describe(known)
    if not known.days:
        return Forecast(reason=described.reason)
    ahead = forecast.path(known, until=known.days[0].kpi_date + timedelta(days=MAX_AHEAD_DAYS))
    return Forecast(
        by_age=[(batch.age(on), estimate) for on, estimate in ahead],
        reaches_target_on=described.target.reached_on if described.target else None,
        reason=described.reason,
    )


def _known(batch: Batch, weights: Sequence[Figure], period: Period) -> forecast.Weights:
    days = [
        forecast.WeighedDay(
            day,
            figures["weight_mean"].value,
            figures["weight_mean"].source_event_count,
            _value(figures.get("weight_cv")),
        )
        for day, figures in sorted(_by_day(weights).items(), reverse=True)
        if "weight_mean" in figures
    ]
    of = forecast.Batch(
        batch_id=batch.batch_id,
        placed_on=batch.placed_on,
        age_at_placing_days=batch.age_at_placing_days,
        closed_on=batch.closed_on,
        target_weight_kg=batch.target_weight_kg,
        target_on=batch.target_on,
        today=period.last,
    )
    return forecast.Weights(of, days[: forecast.MAX_DAYS])


def _totals(days: Sequence[date], figures: Sequence[Figure], rows: Sequence[Day]) -> Totals:
    wanted = set(days)
    there = [figure for figure in figures if figure.kpi_date in wanted]
    feed = [figure.value for figure in there if figure.kpi_type == "intake_kg"]
    covered = [figure.value for figure in there if figure.kpi_type == "data_coverage"]
    counted = [row for row in rows if row.kpi_date in wanted]
    return Totals(
        feed_kg=fsum(feed) if feed else None,
        dead=fsum(row.dead for row in counted),
        culled=fsum(row.culled for row in counted),
        weighed=sum(row.weighed_count for row in counted),
        outliers=sum(row.outlier_count for row in counted),
        coverage_pct=fsum(covered) / len(days) if days else 0.0,
    )


def _lines(
    batch: Batch, days: Sequence[date], figures: Sequence[Figure], rows: Sequence[Day]
) -> list[DayLine]:
    by_day = _by_day(figures)
    counted = {row.kpi_date: row for row in rows}
    return [
        DayLine(
            on=day,
            age_days=batch.age(day),
            head_count=_value(by_day.get(day, {}).get("head_count")),
            dead=counted[day].dead if day in counted else None,
            feed_kg=_value(by_day.get(day, {}).get("intake_kg")),
            feed_per_head_g=_value(by_day.get(day, {}).get("intake_per_head")),
            weight_kg=_value(by_day.get(day, {}).get("weight_mean")),
            weighed=counted[day].weighed_count if day in counted else 0,
            coverage_pct=_value(by_day.get(day, {}).get("data_coverage")),
        )
        for day in days
    ]


def _by_day(figures: Sequence[Figure]) -> dict[date, dict[str, Figure]]:
    days: dict[date, dict[str, Figure]] = {}
    for figure in figures:
        days.setdefault(figure.kpi_date, {})[figure.kpi_type] = figure
    return days


def _value(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value
