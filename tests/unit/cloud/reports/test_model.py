"""What a report says is what kpi_daily and batch_days say, and nothing else."""

from dataclasses import replace
from datetime import date, timedelta
from math import fsum

from farmiq.cloud.reports import model, wording
from farmiq.cloud.reports.periods import parse
from farmiq.ui import i18n
from tests.unit.cloud.reports.facts import BATCH, PLACED_ON, WEEK, facts, farm_facts


def test_key_figures_are_the_rows_of_kpi_daily() -> None:
    given = facts()
    report = model.batch_report(given, WEEK)

    assert set(report.latest.values()) == set(given.latest)
    assert report.latest["head_count"].value == 1000 - 32
    assert report.age_days == 32


def test_totals_are_sums_over_the_days_of_the_period() -> None:
    given = facts()
    report = model.batch_report(given, WEEK)
    assert report.before is not None
    for totals, period in ((report.now, WEEK), (report.before, WEEK.before())):
        feed = [
            row.value
            for row in given.figures
            if row.kpi_type == "intake_kg" and period.first <= row.kpi_date <= period.last
        ]
        days = [day for day in given.days if period.first <= day.kpi_date <= period.last]
        assert totals.feed_kg == fsum(feed)
        assert (totals.dead, totals.weighed) == (
            fsum(day.dead for day in days),
            sum(day.weighed_count for day in days),
        )


def test_day_without_readings_counts_as_nothing_measured() -> None:
    report = model.batch_report(facts(), WEEK)

    assert report.now.coverage_pct == 600 / 7
    assert [line.coverage_pct for line in report.lines].count(None) == 1


def test_lines_have_every_day_on_which_the_animals_were_there() -> None:
    late = replace(BATCH, placed_on=WEEK.first + timedelta(days=2))
    gone = replace(BATCH, closed_on=WEEK.first + timedelta(days=1))

    assert [line.on for line in model.batch_report(facts(), WEEK).lines] == WEEK.days
    assert [line.on for line in model.batch_report(facts(late), WEEK).lines] == WEEK.days[2:]
    assert [line.on for line in model.batch_report(facts(gone), WEEK).lines] == WEEK.days[:2]
    assert model.batch_report(facts(late), WEEK).before is None


def test_forecast_goes_on_from_the_last_weighing_and_names_the_day_of_the_target() -> None:
    report = model.batch_report(facts(), WEEK)

    ages = [age for age, _estimate in report.forecast.by_age]
    assert ages[0] == report.weighed[-1].age_days
    assert report.forecast.reaches_target_on is not None
    assert report.forecast.reaches_target_on > WEEK.last
    closed = replace(BATCH, closed_on=WEEK.last)
    assert model.batch_report(facts(closed), WEEK).forecast.by_age == ()


def test_batch_without_weighings_says_so() -> None:
    given = replace(facts(), weights=[], figures=[], latest=[], days=[])
    report = model.batch_report(given, WEEK)

    assert report.forecast.reason == "there are no weighings yet"
    assert wording.batch_headline(report).startswith("No animal of this batch was weighed yet.")


def test_headline_compares_the_weight_with_the_standard() -> None:
    report = model.batch_report(facts(), WEEK)
    headline = wording.batch_headline(report)

    assert f"weigh {report.latest['weight_mean'].value:.2f} kg at 32 days" in headline
    assert "10\u00a0% below the standard" in headline
    with i18n.use("de"):
        assert f"{report.latest['weight_mean'].value:.2f}".replace(".", ",") in (
            wording.batch_headline(report)
        )


def test_weight_of_an_earlier_period_is_told_with_its_day() -> None:
    later = parse("2026-W47")
    given = replace(facts(), figures=[])
    report = model.batch_report(given, later)

    assert report.is_old(report.latest["weight_mean"])
    assert "No animal was weighed in this period" in wording.batch_headline(report)


def test_farm_names_the_barns_that_are_behind() -> None:
    report = model.farm_report(farm_facts(facts()), WEEK)

    assert wording.farm_headline(report).startswith(
        "1 of 1 batches is more than 5 % below its standard: Barn 1."
    )
    assert wording.farm_headline(model.farm_report(farm_facts(), WEEK)) == (
        "There were no animals on this farm in this period."
    )


def test_age_counts_from_placing() -> None:
    assert BATCH.age(PLACED_ON) == 0
    assert replace(BATCH, age_at_placing_days=28).age(date(2026, 10, 15)) == 29
