"""Batches as people read them: problems first, differences in words, charts and calendar."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest

from farmiq.cloud.console.batches import calendar, detail
from farmiq.cloud.console.batches import view as batches
from farmiq.cloud.console.batches.calendar import Alert, Losses
from farmiq.cloud.console.batches.view import Batch, Figure, Outlook
from farmiq.cloud.console.company.view import Company
from farmiq.farm.standards import StandardRow

TODAY = date(2026, 4, 1)
NOW = datetime(2026, 4, 1, 6, tzinfo=UTC)
PLACED_ON = date(2026, 3, 2)
COMPANY = Company(
    company_id=UUID(int=1), name="Farm", tenant_id="t", timezone="UTC", email="a@b", role="admin"
)
STANDARD = [StandardRow(0, 0.04, None, None, 0.0), StandardRow(60, 4.04, None, None, 4.0)]


def figure(kpi_type: str, value: float, expected: float | None = None, **more: Any) -> Figure:
    given: dict[str, Any] = {
        "batch_id": "b", "kpi_type": kpi_type, "kpi_date": TODAY, "value": value, "unit": "kg",
        "source_event_count": 9, "expected_value": expected,
        "difference": None if expected is None else value - expected,
    }  # fmt: skip
    return Figure(**{**given, **more})


def batch(*figures: Figure, **changes: Any) -> Batch:
    given: dict[str, Any] = {
        "batch_id": "b", "farm_id": "f", "farm_name": "Farm", "barn_id": "1", "barn_name": "Barn 1",
        "timezone": "UTC", "species": "broiler", "breed": "Ross 308", "sex": "mixed",
        "placed_count": 1000, "placed_on": PLACED_ON, "closed_on": None, "target_weight_kg": 2.5,
        "target_on": None, "today": TODAY, "age_days": 30, "is_age_known": True,
        "head_count": 980.0, "dead": 20.0,
        "culled": 0.0, "weighed_count": 100, "outlier_count": 0, "safe_to_sell_from": None,
        "figures": {shown.kpi_type: shown for shown in figures},
    }  # fmt: skip
    return Batch(**{**given, **changes})


@pytest.mark.parametrize(
    ("value", "against", "text"),
    [(1.92, "below", "4"), (2.12, "above", "6"), (2.01, "on", "0.5"), (1.0, "below", "50")],
)
def test_difference_to_the_standard_is_said_in_words(value: float, against: str, text: str) -> None:
    weight = figure("weight_mean", value, 2.0)
    assert (weight.against, weight.difference_text) == (against, text)


def test_figure_without_a_standard_has_no_difference() -> None:
    weight = figure("weight_mean", 2.0)
    assert (weight.against, weight.difference_text, weight.expected_text) == ("", "", "")


@pytest.mark.parametrize(
    ("kpi_type", "value", "text"),
    [
        ("weight_mean", 0.0421, "0.042"), ("weight_mean", 2.314, "2.31"),
        ("weight_mean", 115.26, "115.3"), ("fcr", 1.536, "1.54"), ("head_count", 4705.0, "4,705"),
        ("mortality_pct", 5.023, "5.02"), ("water_per_head", 0.2314, "0.231"),
    ],
)  # fmt: skip
def test_figures_have_the_decimals_of_their_kind(kpi_type: str, value: float, text: str) -> None:
    assert batches.amount(kpi_type, value) == text


def test_problems_name_what_is_wrong() -> None:
    assert batch(figure("weight_mean", 1.9, 2.0)).problems == []
    assert batch(figure("weight_mean", 1.79, 2.0)).problems == ["behind"]
    assert batch(figure("mortality_pct", 3.1, 2.0)).problems == ["mortality"]
    assert batch(figure("mortality_pct", 3.0, 2.0)).problems == []
    assert batch(safe_to_sell_from=TODAY + timedelta(days=1)).problems == ["withdrawal"]
    assert batch(safe_to_sell_from=TODAY).problems == []
    assert batch(open_alerts=2).problems == ["alerts"]


def test_closed_batch_has_no_problem_but_a_withdrawal() -> None:
    bad = figure("weight_mean", 1.0, 2.0)
    closed = batch(bad, closed_on=TODAY - timedelta(days=1), open_alerts=1)
    assert (closed.status, closed.problems) == ("closed", [])
    treated = replace(closed, safe_to_sell_from=TODAY + timedelta(days=3))
    assert treated.problems == ["withdrawal"]


def test_weight_of_an_older_day_is_old() -> None:
    yesterday = figure("weight_mean", 2.0, kpi_date=TODAY - timedelta(days=1))
    before = figure("weight_mean", 2.0, kpi_date=TODAY - timedelta(days=2))
    assert not batch(yesterday).weight_is_old
    assert batch(before).weight_is_old
    # A batch that left was weighed on its last days; that is as new as it can be.
    assert not batch(before, closed_on=TODAY - timedelta(days=1)).weight_is_old


def test_list_shows_problems_first_and_counts_them() -> None:
    fine = batch(batch_id="fine", barn_name="A")
    behind = replace(batch(figure("weight_mean", 1.0, 2.0)), batch_id="behind", barn_name="Z")
    gone = batch(batch_id="gone", closed_on=TODAY - timedelta(days=2))
    planned = batch(batch_id="planned", placed_on=TODAY + timedelta(days=5))
    shown = batches.view(
        COMPANY, [fine, gone, behind, planned], closed_count=1, page_number=1, has_barns=True,
        now=NOW,
    )  # fmt: skip
    assert [one.batch_id for one in shown.running] == ["behind", "fine"]
    assert [one.batch_id for one in shown.planned] == ["planned"]
    assert [one.batch_id for one in shown.closed] == ["gone"]
    assert (shown.problems, shown.title, shown.older) == (1, "(1) Batches", "")


def test_list_offers_older_closed_batches() -> None:
    shown = batches.view(COMPANY, [], closed_count=21, page_number=1, has_barns=True, now=NOW)
    assert shown.older == "/batches?page=2"
    assert not shown.is_empty


def test_days_to_target_are_never_negative() -> None:
    outlook = Outlook(target_kg=2.5, reached_on=TODAY - timedelta(days=2))
    assert batch(outlook=outlook).days_to_target == 0
    assert batch(outlook=replace(outlook, reached_on=None)).days_to_target is None


def series(*figures: Figure) -> dict[str, dict[date, Figure]]:
    return detail.by_type(figures)


def test_growth_chart_has_the_mean_the_standard_and_the_forecast() -> None:
    tomorrow = TODAY + timedelta(days=1)
    outlook = Outlook(target_kg=2.5, path=[(TODAY, 2.0, 1.9, 2.1), (tomorrow, 2.1, 1.9, 2.3)])
    weighed = figure("weight_mean", 2.0)
    chart = detail.growth(batch(weighed, outlook=outlook), series(weighed), STANDARD)
    assert [column.role for column in chart.columns] == [
        "expected", "expected_low", "expected_high", "line", "low", "high",
        "forecast", "forecast_low", "forecast_high",
    ]  # fmt: skip
    assert [row[0] for row in chart.rows] == [float(age) for age in range(32)]
    age, kg, low, high, mean, p10, *_, forecast, _, _ = chart.rows[30]
    assert (age, mean, p10, forecast) == (30.0, 2.0, None, 2.0)
    assert kg == pytest.approx(0.04 + 4 * 30 / 60)
    assert (low, high) == (pytest.approx(0.9 * kg), pytest.approx(1.1 * kg))  # type: ignore[operator]
    # A day without a weighing is a gap, and the last row is the forecast alone.
    assert chart.rows[29][4] is None
    assert chart.rows[31][4:] == (None, None, None, 2.1, 1.9, 2.3)


def test_chart_without_a_measured_value_is_left_out() -> None:
    found = {one.key: one for one in detail.charts(batch(), series(), STANDARD)}
    assert all(one.is_empty for one in found.values())
    early = figure("fcr", 6.0, kpi_date=PLACED_ON + timedelta(days=1))
    found = {one.key: one for one in detail.charts(batch(), series(early), STANDARD)}
    assert found["conversion"].is_empty, "a week after placing it says something"


def test_charts_of_an_old_batch_show_its_newest_days() -> None:
    old = batch(placed_on=TODAY - timedelta(days=900), age_days=900)
    chart = detail.growth(old, series(), [])
    assert len(chart.rows) == detail.MAX_DAYS
    assert chart.rows[-1][0] == 900.0


def test_table_shows_the_day_that_is_asked_for() -> None:
    yesterday = TODAY - timedelta(days=1)
    figures = [
        figure("fcr", 1.5),
        figure("weight_mean", 2.0),
        figure("fcr", 1.4, kpi_date=yesterday),
    ]

    def shown(day: date | None) -> detail.Detail:
        return detail.detail(
            COMPANY, batch(), figures, STANDARD, calendar=[], day=day, computed_at=None,
            entered=None, now=NOW,
        )  # fmt: skip

    newest = shown(None)
    assert [one.kpi_type for one in newest.figures] == ["weight_mean", "fcr"]
    assert (newest.day, newest.before, newest.after) == (TODAY, yesterday, None)
    assert newest.fragment == "/batches/b/parts"
    earlier = shown(yesterday)
    assert [one.value for one in earlier.figures] == [1.4]
    assert (earlier.before, earlier.after) == (None, TODAY)
    assert earlier.fragment == f"/batches/b/parts?day={yesterday}"
    assert shown(date(2020, 1, 1)).day == TODAY


def losses(*dead: float) -> list[Losses]:
    return [Losses(PLACED_ON + timedelta(days=n), each, 0.0) for n, each in enumerate(dead)]


def test_deaths_above_the_usual_are_events() -> None:
    usual = [2.0] * 7
    found = calendar.unusual_deaths("b", losses(*usual, 6.0))
    assert [(event.value, event.key) for event in found] == [(6.0, "b|2026-03-09")]
    assert not calendar.unusual_deaths("b", losses(*usual, 5.0))
    assert not calendar.unusual_deaths("b", losses(*[0.0] * 7, 2.0)), "one or two are no outbreak"
    assert not calendar.unusual_deaths("b", losses(9.0, 9.0, 90.0)), "no week to compare with"


def test_calendar_tells_what_happened_newest_first() -> None:
    zone = ZoneInfo("Asia/Bangkok")
    given_at = datetime(2026, 3, 20, 20, tzinfo=UTC)  # the 21st in Bangkok
    record = {
        "record_id": "r", "record_type": "treatment", "value": 980, "product": "Doxy",
        "withdrawal_days": 5, "occurred_at": given_at,
    }  # fmt: skip
    note = {**record, "record_id": "n", "record_type": "note", "value": "loud"}
    water = {**record, "record_id": "w", "record_type": "water"}
    lot = {"event_id": uuid4(), "feed_lot_id": "L-1", "quantity_kg": 900.0, "occurred_at": given_at}
    alert = Alert(
        episode_id=uuid4(), severity="critical", message="too hot", state="active",
        opened_at=given_at,
    )  # fmt: skip
    again = replace(
        alert, episode_id=uuid4(), state="resolved", opened_at=given_at + timedelta(hours=1)
    )
    days = calendar.calendar(
        batch(safe_to_sell_from=date(2026, 3, 26)), records=[record, note, water], lots=[lot],
        alerts=[alert, again], losses=[], zone=zone,
    )  # fmt: skip
    assert [(day.on.day, [event.kind for event in day.events]) for day in days] == [
        (26, ["safe"]),
        (21, ["alert", "treatment", "note", "lot"]),
        (2, ["placed"]),
    ]
    both, medicine, *_ = days[1].events
    assert (both.value, both.tone, both.key) == (2.0, "bad", str(again.episode_id))
    assert (medicine.until, medicine.name) == (date(2026, 3, 26), "Doxy")
    assert days[1].age_days == 19
