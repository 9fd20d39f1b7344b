"""Figures of a batch from the facts of its days: worked numbers."""

from dataclasses import replace
from datetime import date, timedelta
from typing import get_args

import pytest

from farmiq.cloud.analytics import rules
from farmiq.cloud.analytics.rules import Batch, Day, Figure, History
from farmiq.farm.standards import StandardRow
from farmiq.messages.kpi import KpiType

PLACED_ON = date(2026, 5, 1)
BATCH = Batch(
    "t", "b", "f", "1", "UTC", "broiler", "fast", "mixed", 1000, PLACED_ON, 1, None
)  # fmt: skip
STANDARD = (
    StandardRow(0, weight_kg=0.04, mortality_pct=0.0),
    StandardRow(10, weight_kg=0.34, daily_gain_g=45.0, feed_conversion=1.0, mortality_pct=1.0),
    StandardRow(20, weight_kg=0.94, daily_gain_g=75.0, feed_conversion=1.2, mortality_pct=1.5),
)


def on(day: int) -> date:
    return PLACED_ON + timedelta(days=day)


def weighed(day: int, mean_kg: float, count: int = 10, **others: float) -> Day:
    return Day(kpi_date=on(day), weighed_count=count, weight_mean_kg=mean_kg, **others)  # type: ignore[arg-type]


def figures(*days: Day, batch: Batch = BATCH, standard: object = STANDARD) -> dict[str, Figure]:
    """The figures of the last day, by type."""
    history = History(batch, standard, days)  # type: ignore[arg-type]
    return {figure.kpi_type: figure for figure in rules.figures(history, [days[-1].kpi_date])}


def test_gain_since_placing_counts_from_the_standards_weight() -> None:
    """Placed at age 1: 0.07 kg. On day 9, at age 10: (0.43 - 0.07) kg in 9 days are 40 g a day."""
    found = figures(weighed(9, 0.43))
    assert found["adg"].value == pytest.approx(40.0)
    assert found["adg"].source_event_count == 10
    assert found["weight_mean"].expected_value == pytest.approx(0.34)
    assert found["weight_mean"].difference == pytest.approx(0.09)


def test_gain_without_a_standard_counts_from_the_first_weighed_day() -> None:
    found = figures(weighed(2, 0.1, 4), weighed(12, 0.5), standard=())
    assert found["adg"].value == pytest.approx(40.0)
    assert found["adg"].source_event_count == 14
    assert found["adg"].expected_value is None
    assert "adg" not in figures(weighed(2, 0.1), standard=())


def test_batch_of_unknown_age_is_compared_with_nothing() -> None:
    unknown = replace(BATCH, age_at_placing_days=None)
    feed = Day(kpi_date=on(3), feed_kg=900.0, intake_count=1)
    days = weighed(2, 0.1), feed, weighed(12, 0.5)
    assert "epef" in figures(*days)
    found = figures(*days, batch=unknown)
    assert found["adg"].value == pytest.approx(40.0)
    assert found["fcr"].value == pytest.approx(900 / (0.4 * 1000))
    assert "epef" not in found
    assert {figure.expected_value for figure in found.values()} == {None}


@pytest.mark.parametrize(
    ("reference", "kind", "gain"),
    [(13, "adg_7d", 50.0), (10, "adg_7d", 35.0), (14, None, 0), (9, None, 0)],
)
def test_gain_of_7_days_counts_from_the_latest_day_7_to_10_days_ago(
    reference: int, kind: str | None, gain: float
) -> None:
    """0.35 kg more on day 20: in 7 days 50 g a day, in 10 days 35 g."""
    found = figures(weighed(reference, 0.25), weighed(20, 0.6))
    assert (found["adg_7d"].value if "adg_7d" in found else 0) == pytest.approx(gain)
    assert ("adg_7d" in found) is (kind is not None)


def test_gain_of_30_days_prefers_the_latest_reference() -> None:
    found = figures(weighed(5, 0.1), weighed(9, 0.2), weighed(40, 2.0))
    assert found["adg_30d"].value == pytest.approx(1000 * 1.8 / 31)


def test_conversion_is_all_feed_over_all_growth() -> None:
    """500 kg of feed; 990 animals of 0.5 kg were 1000 of 0.07 kg: 425 kg more."""
    days = (
        Day(kpi_date=on(0), feed_kg=100.0, intake_count=2),
        Day(kpi_date=on(5), feed_kg=300.0, intake_count=3, dead=10, dead_count=4),
        weighed(9, 0.5, feed_kg=100.0, intake_count=1),
    )
    found = figures(*days)
    assert found["fcr"].value == pytest.approx(500 / 425)
    assert found["fcr"].source_event_count == 16
    assert found["fcr"].expected_value == 1.0
    # 99 % alive, 0.5 kg, at age 10.
    assert found["epef"].value == pytest.approx(99 * 0.5 / (10 * 500 / 425) * 100)
    assert "epef" in figures(*days, batch=replace(BATCH, species="Broiler"))
    assert "epef" not in figures(*days, batch=replace(BATCH, species="layer"))
    # Without a standard the growth and the feed after the first weighing count.
    found = figures(weighed(1, 0.1, feed_kg=999.0, intake_count=9), *days[1:], standard=())
    assert found["fcr"].value == pytest.approx(400 / (0.5 * 990 - 0.1 * 1000))


def test_conversion_needs_growth_and_feed() -> None:
    assert "fcr" not in figures(weighed(9, 0.5))
    assert "fcr" not in figures(weighed(9, 0.01, feed_kg=5.0, intake_count=1))
    assert "fcr" not in figures(weighed(9, 0.5, feed_kg=0.0, intake_count=1))


def test_intake_and_water_count_for_the_animals_at_the_start_of_the_day() -> None:
    """990 animals at the start of day 2 ate 99 kg and drank 198 l."""
    days = (
        Day(kpi_date=on(1), dead=10, dead_count=1),
        Day(kpi_date=on(2), feed_kg=99.0, intake_count=2, water_l=198.0, water_count=3, dead=90),
    )
    found = figures(*days)
    assert found["intake_per_head"].value == pytest.approx(100.0)
    assert found["water_per_head"].value == pytest.approx(0.2)
    assert found["water_to_feed"].value == pytest.approx(2.0)
    assert found["water_to_feed"].source_event_count == 5
    assert found["head_count"].value == 900
    assert found["mortality_day_pct"].value == pytest.approx(100 * 90 / 990)
    assert found["mortality_pct"].value == pytest.approx(10.0)


def test_counted_animals_replace_what_was_reckoned() -> None:
    days = (
        Day(kpi_date=on(1), dead=10, dead_count=1),
        Day(kpi_date=on(3), dead=2, dead_count=1, counted_head=950, head_record_count=1),
        Day(kpi_date=on(5), culled=20, cull_count=1),
    )
    history = History(BATCH, (), days)
    assert [history.head(on(n)) for n in (-1, 0, 1, 2, 3, 4, 5, 6)] == [
        1000, 1000, 990, 990, 950, 950, 930, 930,
    ]  # fmt: skip
    assert figures(*days)["head_count"].source_event_count == 4


def test_animals_are_never_fewer_than_none() -> None:
    found = figures(Day(kpi_date=on(1), culled=1500, cull_count=1))
    assert found["head_count"].value == 0
    found = figures(
        Day(kpi_date=on(1), culled=1500, cull_count=1), Day(kpi_date=on(2), feed_kg=1.0)
    )
    assert {"intake_per_head", "mortality_day_pct"}.isdisjoint(found)


def test_climate_and_coverage_of_a_day_of_23_hours() -> None:
    found = figures(
        Day(
            kpi_date=on(1), hours=23, covered_hours=23, reading_count=90, thi_hours=0,
            climate_reading_count=40,
        )
    )  # fmt: skip
    assert (found["data_coverage"].value, found["data_coverage"].source_event_count) == (100.0, 90)
    assert (found["thi_hours"].value, found["thi_hours"].source_event_count) == (0, 40)
    assert "thi_hours" not in figures(Day(kpi_date=on(1), covered_hours=1))


def test_days_outside_of_the_batch_have_no_figures() -> None:
    batch = replace(BATCH, closed_on=on(3))
    history = History(batch, (), [Day(kpi_date=on(n), covered_hours=1) for n in (-1, 0, 3, 4)])
    dates = {figure.kpi_date for figure in rules.figures(history, history.by_date)}
    assert dates == {on(0), on(3)}


def test_change_touches_the_days_that_are_made_of_it() -> None:
    days = [weighed(n, 0.1 * n, feed_kg=1.0) for n in range(1, 50)]
    before = History(BATCH, STANDARD, days)

    def touched(day: int, standard: object = STANDARD, **changes: float) -> set[int]:
        other = [replace(d, **changes) if d.kpi_date == on(day) else d for d in days]  # type: ignore[arg-type]
        after = History(BATCH, standard, other)  # type: ignore[arg-type]
        old = History(BATCH, standard, days)  # type: ignore[arg-type]
        return {(d - PLACED_ON).days for d in rules.touched(old, after, [on(day)])}

    assert touched(5, covered_hours=3) == {5}
    assert touched(5, weight_mean_kg=9.0) == {5, *range(12, 16), *range(35, 41)}
    assert touched(5, feed_kg=9.0) == {*range(5, 50)}
    assert touched(5, standard=(), weight_mean_kg=9.0) == {5, *range(12, 16), *range(35, 41)}
    assert touched(1, standard=(), weight_mean_kg=9.0) == {*range(1, 50)}
    gone = History(BATCH, STANDARD, days[1:])
    assert rules.touched(before, gone, [on(1)]) == {on(n) for n in range(1, 50)}


def test_every_kind_of_figure_has_a_unit() -> None:
    assert set(rules.UNITS) == set(get_args(KpiType))


@pytest.mark.parametrize(
    ("species", "age", "limit"),
    [
        ("cow", 0, 72),
        ("pig", None, 74), ("pig", 0, 80), ("pig", 35, 77), ("pig", 70, 74), ("pig", 200, 74),
        ("layer", None, 78), ("layer", 0, 86), ("layer", 7, 84), ("layer", 28, 78),
        ("Layer", 99, 78),
    ],
)  # fmt: skip
def test_limit_of_heat_depends_on_species_and_age(
    species: str, age: int | None, limit: float
) -> None:
    assert rules.thi_limit(species, age) == pytest.approx(limit)
