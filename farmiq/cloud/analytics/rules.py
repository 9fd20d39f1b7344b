"""Pure: the figures of a batch from its standard and the facts of its days.

docs/integrate/figures.md has the formulas with worked examples.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property
from itertools import accumulate, islice
from math import fsum

from farmiq.farm.standards import StandardRow, expected
from farmiq.messages.kpi import KpiType

UNITS: Mapping[KpiType, str] = {
    "head_count": "head",
    "weight_mean": "kg",
    "weight_median": "kg",
    "weight_p10": "kg",
    "weight_p90": "kg",
    "weight_cv": "%",
    "weight_uniformity": "%",
    "adg": "g/d",
    "adg_7d": "g/d",
    "adg_30d": "g/d",
    "fcr": "kg/kg",
    "intake_kg": "kg",
    "intake_per_head": "g/head",
    "water_per_head": "l/head",
    "water_to_feed": "l/kg",
    "mortality_day_pct": "%",
    "mortality_pct": "%",
    "epef": "1",
    "thi_hours": "h",
    "data_coverage": "%",
    "vision_residual": "%",
}
# Column of the breed standard with which a figure is compared.
EXPECTED: Mapping[str, str] = {
    "weight_mean": "weight_kg",
    "adg_7d": "daily_gain_g",
    "fcr": "feed_conversion",
    "mortality_pct": "mortality_pct",
}
# From which temperature-humidity index an hour is too hot for grown animals; by how much more for
# those of their first day, and from which age on they count as grown, as in the alert rules that
# ship. Chicks and piglets are kept warm.
THI_LIMIT = (72.0, 0.0, 1)
THI_LIMITS: Mapping[str, tuple[float, float, int]] = {
    "pig": (74.0, 6.0, 70),
    **dict.fromkeys(("broiler", "layer", "duck", "turkey", "chicken"), (78.0, 8.0, 28)),
}
# How many days before a gain's reference lies: the latest weighed day among these.
GAINS: Mapping[KpiType, tuple[int, int]] = {"adg_7d": (7, 10), "adg_30d": (30, 35)}


def thi_limit(species: str, age: int | None) -> float:
    """Animals whose age nobody knows count as grown."""
    grown, more, until = THI_LIMITS.get(species.casefold(), THI_LIMIT)
    return grown if age is None else grown + more * max(0.0, 1 - age / until)


@dataclass(frozen=True, slots=True)
class Batch:
    tenant_id: str
    batch_id: str
    farm_id: str
    barn_id: str
    timezone: str
    species: str
    breed: str | None
    sex: str
    placed_count: int
    placed_on: date
    age_at_placing_days: int | None
    closed_on: date | None

    def age(self, on: date) -> int | None:
        """None if nobody knows it."""
        known = self.age_at_placing_days
        return None if known is None else known + (on - self.placed_on).days

    def has(self, on: date) -> bool:
        """Whether the animals are there on this date."""
        return self.placed_on <= on and (self.closed_on is None or on <= self.closed_on)


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """The facts of one local date: a row of batch_days."""

    kpi_date: date
    weighed_count: int = 0
    outlier_count: int = 0
    weight_mean_kg: float | None = None
    weight_median_kg: float | None = None
    weight_p10_kg: float | None = None
    weight_p90_kg: float | None = None
    weight_cv_pct: float | None = None
    weight_uniformity_pct: float | None = None
    estimated_count: int = 0
    vision_residual_pct: float | None = None
    feed_kg: float | None = None
    intake_count: int = 0
    water_l: float | None = None
    water_count: int = 0
    dead: float = 0.0
    dead_count: int = 0
    culled: float = 0.0
    cull_count: int = 0
    counted_head: float | None = None
    head_record_count: int = 0
    hours: int = 24
    covered_hours: int = 0
    reading_count: int = 0
    thi_hours: int | None = None
    climate_reading_count: int = 0

    @property
    def is_empty(self) -> bool:
        return not (
            self.weighed_count
            or self.intake_count
            or self.water_count
            or self.dead_count
            or self.cull_count
            or self.head_record_count
            or self.covered_hours
        )

    @property
    def weighed(self) -> tuple[object, ...]:
        """What gains of later days are made of."""
        return self.weighed_count, self.weight_mean_kg

    @property
    def running(self) -> tuple[object, ...]:
        """What later days are made of too: feed, deaths and counts."""
        return (
            self.feed_kg, self.intake_count, self.dead, self.dead_count, self.culled,
            self.cull_count, self.counted_head, self.head_record_count,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    kpi_date: date
    kpi_type: KpiType
    value: float
    source_event_count: int
    expected_value: float | None = None

    @property
    def unit(self) -> str:
        return UNITS[self.kpi_type]

    @property
    def difference(self) -> float | None:
        return None if self.expected_value is None else self.value - self.expected_value


@dataclass(frozen=True, slots=True)
class Totals:
    dead: float = 0.0
    death_records: int = 0
    records: int = 0


def _add(total: Totals, day: Day) -> Totals:
    return Totals(
        total.dead + day.dead,
        total.death_records + day.dead_count,
        total.records + day.dead_count + day.cull_count + day.head_record_count,
    )


@dataclass(frozen=True)
class History:
    """A batch, its standard and the facts of all its days, with what runs through them."""

    batch: Batch
    standard: Sequence[StandardRow]
    days: Sequence[Day]  # in the order of their dates

    @cached_property
    def by_date(self) -> Mapping[date, Day]:
        return {day.kpi_date: day for day in self.days}

    @cached_property
    def _heads(self) -> tuple[list[date], list[float]]:
        """Animals at the end of each day; below 0 only by mistakes in records, so shown as 0."""
        heads, head = [], float(self.batch.placed_count)
        for day in self.days:
            head -= day.dead + day.culled
            if day.counted_head is not None:
                head = day.counted_head
            heads.append(head)
        return [day.kpi_date for day in self.days], heads

    def head(self, on: date) -> float:
        """Animals at the end of this date."""
        dates, heads = self._heads
        at = bisect_left(dates, on + timedelta(days=1))
        return max(0.0, heads[at - 1]) if at else float(self.batch.placed_count)

    def head_start(self, on: date) -> float:
        return self.head(on - timedelta(days=1))

    @cached_property
    def placing_weight_kg(self) -> float | None:
        return expected(self.standard, "weight_kg", self.batch.age_at_placing_days)

    @cached_property
    def first_weighed(self) -> Day | None:
        return next((day for day in self.days if day.weight_mean_kg is not None), None)

    @cached_property
    def totals(self) -> Mapping[date, Totals]:
        """What was recorded from the placing up to each day."""
        running = accumulate(self.days, _add, initial=Totals())
        return dict(zip(self.by_date, islice(running, 1, None), strict=True))

    def weighed_between(self, first: date, last: date) -> Day | None:
        """The latest weighed day of these dates."""
        for back in range((last - first).days + 1):
            day = self.by_date.get(last - timedelta(days=back))
            if day is not None and day.weight_mean_kg is not None:
                return day
        return None


def figures(history: History, on: Iterable[date]) -> Iterator[Figure]:
    """The figures of these dates; a date without facts has none."""
    for day_date in sorted(set(on)):
        day = history.by_date.get(day_date)
        if day is None or not history.batch.has(day_date):
            continue
        for figure in _of_day(history, day):
            yield _compared(history, figure)


def _compared(history: History, figure: Figure) -> Figure:
    column = EXPECTED.get(figure.kpi_type)
    if column is None:
        return figure
    age = history.batch.age(figure.kpi_date)
    value = expected(history.standard, column, age)
    return Figure(figure.kpi_date, figure.kpi_type, figure.value, figure.source_event_count, value)


def _of_day(history: History, day: Day) -> Iterator[Figure]:
    yield from _heads(history, day)
    yield from _weights(day)
    yield from _growth(history, day)
    yield from _intake(history, day)
    yield from _climate(day)


def _heads(history: History, day: Day) -> Iterator[Figure]:
    on, start = day.kpi_date, history.head_start(day.kpi_date)
    total = history.totals[on]
    yield Figure(on, "head_count", history.head(on), total.records)
    if start > 0:
        yield Figure(on, "mortality_day_pct", 100 * day.dead / start, day.dead_count)
    share = 100 * total.dead / history.batch.placed_count
    yield Figure(on, "mortality_pct", share, total.death_records)


def _weights(day: Day) -> Iterator[Figure]:
    values: Mapping[KpiType, float | None] = {
        "weight_mean": day.weight_mean_kg,
        "weight_median": day.weight_median_kg,
        "weight_p10": day.weight_p10_kg,
        "weight_p90": day.weight_p90_kg,
        "weight_cv": day.weight_cv_pct,
        "weight_uniformity": day.weight_uniformity_pct,
    }
    for kpi_type, value in values.items():
        if value is not None:
            yield Figure(day.kpi_date, kpi_type, value, day.weighed_count)
    if day.vision_residual_pct is not None:
        yield Figure(day.kpi_date, "vision_residual", day.vision_residual_pct, day.estimated_count)


def _growth(history: History, day: Day) -> Iterator[Figure]:
    """Gains, feed conversion and the production factor of a day with weighings."""
    on, mean = day.kpi_date, day.weight_mean_kg
    if mean is None:
        return
    start = _start(history)
    if start is not None and on > start.on:
        gain = 1000 * (mean - start.weight_kg) / (on - start.on).days
        yield Figure(on, "adg", gain, day.weighed_count + start.weighings)
    for kpi_type, (nearest, farthest) in GAINS.items():
        before = history.weighed_between(
            on - timedelta(days=farthest), on - timedelta(days=nearest)
        )
        if before is not None and before.weight_mean_kg is not None:
            gain = 1000 * (mean - before.weight_mean_kg) / (on - before.kpi_date).days
            yield Figure(on, kpi_type, gain, day.weighed_count + before.weighed_count)
    if start is not None:
        yield from _conversion(history, day, mean, start)


@dataclass(frozen=True, slots=True)
class _Start:
    """From where a batch's growth counts: its placing by the standard, or its first weighing."""

    on: date
    weight_kg: float
    heads: float
    first_feed_on: date
    weighings: int


def _start(history: History) -> _Start | None:
    batch, weight_kg, first = history.batch, history.placing_weight_kg, history.first_weighed
    if weight_kg is not None:
        return _Start(batch.placed_on, weight_kg, batch.placed_count, batch.placed_on, 0)
    if first is None or first.weight_mean_kg is None:
        return None
    on = first.kpi_date
    after = on + timedelta(days=1)
    return _Start(on, first.weight_mean_kg, history.head(on), after, first.weighed_count)


def _conversion(history: History, day: Day, mean: float, start: _Start) -> Iterator[Figure]:
    on, batch, heads = day.kpi_date, history.batch, history.head(day.kpi_date)
    fed = [
        earlier
        for earlier in history.days
        if start.first_feed_on <= earlier.kpi_date <= on and earlier.feed_kg is not None
    ]
    feed_kg = fsum(earlier.feed_kg for earlier in fed if earlier.feed_kg is not None)
    gained_kg = mean * heads - start.weight_kg * start.heads
    if feed_kg <= 0 or gained_kg <= 0:
        return
    fcr = feed_kg / gained_kg
    count = sum(earlier.intake_count for earlier in fed) + day.weighed_count + start.weighings
    yield Figure(on, "fcr", fcr, count)
    age = batch.age(on)
    if batch.species.casefold() == "broiler" and age:
        livability = 100 * heads / batch.placed_count
        yield Figure(on, "epef", livability * mean / (age * fcr) * 100, count)


def _intake(history: History, day: Day) -> Iterator[Figure]:
    on, start = day.kpi_date, history.head_start(day.kpi_date)
    if day.feed_kg is not None:
        yield Figure(on, "intake_kg", day.feed_kg, day.intake_count)
        if start > 0:
            yield Figure(on, "intake_per_head", 1000 * day.feed_kg / start, day.intake_count)
    if day.water_l is not None:
        if start > 0:
            yield Figure(on, "water_per_head", day.water_l / start, day.water_count)
        if day.feed_kg:
            count = day.water_count + day.intake_count
            yield Figure(on, "water_to_feed", day.water_l / day.feed_kg, count)


def _climate(day: Day) -> Iterator[Figure]:
    if day.thi_hours is not None:
        yield Figure(day.kpi_date, "thi_hours", day.thi_hours, day.climate_reading_count)
    if day.covered_hours and day.hours:
        share = 100 * day.covered_hours / day.hours
        yield Figure(day.kpi_date, "data_coverage", share, day.reading_count)


def touched(before: History, after: History, changed: Iterable[date]) -> set[date]:
    """The dates whose figures may differ because the facts of the `changed` dates do (C-112)."""
    dates = {*before.by_date, *after.by_date}
    reached: set[date] = set()
    for on in changed:
        old, new = before.by_date.get(on), after.by_date.get(on)
        reached.add(on)
        blank = Day(kpi_date=on)
        if (old or blank).running != (new or blank).running:
            reached |= {other for other in dates if other > on}
        if (old or blank).weighed != (new or blank).weighed:
            offsets = [
                n for nearest, farthest in GAINS.values() for n in range(nearest, farthest + 1)
            ]
            reached |= {on + timedelta(days=n) for n in offsets} & dates
            if after.placing_weight_kg is None and _is_first(before, on) | _is_first(after, on):
                reached |= {other for other in dates if other > on}
    return reached


def _is_first(history: History, on: date) -> bool:
    first = history.first_weighed
    return first is None or on <= first.kpi_date
