"""The page of the figures against the recount; the product is in tests/integration."""

from datetime import UTC, date, datetime

import pytest

from tests.support import recount, worked_examples
from tests.support.worked_examples import Example

KINDS = {
    "head_count", "weight_mean", "weight_median", "weight_p10", "weight_p90", "weight_cv",
    "weight_uniformity", "adg", "adg_7d", "adg_30d", "fcr", "intake_kg", "intake_per_head",
    "water_per_head", "water_to_feed", "mortality_day_pct", "mortality_pct", "epef", "thi_hours",
    "data_coverage", "vision_residual",
}  # fmt: skip
FIGURES = recount.recount(worked_examples.events(), worked_examples.master_data())


def test_page_has_an_example_of_every_figure() -> None:
    assert {example.kind for example in worked_examples.examples()} == KINDS
    assert {kind for _, _, _, kind in FIGURES} == KINDS


@pytest.mark.parametrize(
    "example", worked_examples.examples(), ids=lambda e: f"{e.batch_id}-{e.on}-{e.kind}"
)
def test_example_of_the_page_equals_the_recount(example: Example) -> None:
    figure = FIGURES[worked_examples.TENANT, example.batch_id, example.on, example.kind]
    counted = figure.difference if example.is_difference else figure.value
    assert counted == pytest.approx(example.value, rel=1e-9)
    assert example.printed == pytest.approx(example.value, rel=1e-9)
    assert figure.unit == example.unit


@pytest.mark.parametrize(
    ("on", "zone", "hours"),
    [
        (date(2026, 3, 29), "Europe/Berlin", 23),
        (date(2026, 10, 25), "Europe/Berlin", 25),
        (date(2026, 3, 8), "America/St_Johns", 23),
        (date(2026, 11, 1), "America/St_Johns", 25),
        # Half an hour of summer time: the hour that is cut in two begins on one of the days.
        (date(2026, 4, 5), "Australia/Lord_Howe", 25),
        (date(2026, 4, 6), "Australia/Lord_Howe", 24),
        (date(2026, 6, 1), "Asia/Bangkok", 24),
    ],
)
def test_hours_of_a_day_are_those_of_utc_that_begin_on_it(on: date, zone: str, hours: int) -> None:
    assert len(recount.hours_of_day(on, zone)) == hours


def test_value_at_a_limit_is_a_tie_and_decides_nothing() -> None:
    with pytest.raises(recount.TieError):
        recount.above(0.33 - 0.30, 0.1 * 0.30)
    assert recount.above(0.4, 0.3)


def test_local_date_is_the_farms() -> None:
    at = datetime(2026, 3, 29, 22, 30, tzinfo=UTC)
    assert recount.local_date(at, "Europe/Berlin") == date(2026, 3, 30)
