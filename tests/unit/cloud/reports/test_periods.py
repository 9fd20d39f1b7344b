"""Weeks and months of farms: their dates, the instants of them, and when reports are due."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from farmiq.cloud.reports import periods

BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
# Its clocks change by half an hour.
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("zone", "week", "hours"),
    [
        (BERLIN, "2026-W13", 7 * 24 - 1),
        (BERLIN, "2026-W43", 7 * 24 + 1),
        (BERLIN, "2026-W20", 7 * 24),
        (NEW_YORK, "2026-W10", 7 * 24 - 1),
        (NEW_YORK, "2026-W44", 7 * 24 + 1),
        (LORD_HOWE, "2026-W14", 7 * 24 + 0.5),
        (LORD_HOWE, "2026-W40", 7 * 24 - 0.5),
    ],
)
def test_week_of_a_farm_has_the_hours_that_its_clocks_say(
    zone: ZoneInfo, week: str, hours: float
) -> None:
    begin, end = periods.parse(week).bounds(zone)

    assert (end - begin) / timedelta(hours=1) == hours
    assert begin.astimezone(zone).hour == end.astimezone(zone).hour == 0


@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE])
@pytest.mark.parametrize("kind", periods.KINDS)
def test_report_is_due_at_six_on_the_day_after_and_not_before(
    zone: ZoneInfo, kind: periods.Kind
) -> None:
    period = periods.containing(kind, date(2026, 1, 1))
    for _ in range(60):
        due = period.due_at(zone)
        assert due.astimezone(zone).timetuple()[:5] == (
            *(period.last + timedelta(days=1)).timetuple()[:3], 6, 0,
        )  # fmt: skip
        just_before = due - timedelta(seconds=1)
        assert periods.latest_due(kind, now=due, zone=zone) == period
        assert periods.latest_due(kind, now=just_before, zone=zone) == period.before()
        period = periods.containing(kind, period.last + timedelta(days=1))


def test_periods_follow_each_other_without_gap_and_names_lead_back() -> None:
    for kind in periods.KINDS:
        period = periods.containing(kind, date(2024, 12, 30))
        for _ in range(70):
            assert periods.parse(period.name) == period
            assert period.before().last + timedelta(days=1) == period.first
            assert len(period.days) in ((7,) if kind == "week" else (28, 29, 30, 31))
            period = periods.containing(kind, period.last + timedelta(days=1))


def test_last_week_of_a_year_is_named_by_the_iso_calendar() -> None:
    assert periods.containing("week", date(2027, 1, 1)).name == "2026-W53"
    assert periods.parse("2026-W53").first == date(2026, 12, 28)


@pytest.mark.parametrize(
    "text",
    [
        "", "2026", "2025-W53", "2026-W00", "2026-13", "x",
        # The ends of the calendar: what is before or after them is no date.
        "0000-01", "0001-01", "0001-W01", "9999-12", "9999-W52",
    ],
)  # fmt: skip
def test_what_is_no_period_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match=r"2026-W46|fewer"):
        periods.parse(text)


def test_due_in_utc_is_the_morning_of_the_farm() -> None:
    assert periods.parse("2026-W46").due_at(ZoneInfo("Asia/Bangkok")) == utc("2026-11-15T23:00")
