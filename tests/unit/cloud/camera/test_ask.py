"""Questions about cameras' accounts: everything that is wrong is said, and days are days."""

from datetime import UTC, date, datetime
from uuid import UUID

import pytest

from farmiq import asked
from farmiq.cloud.camera.accounts import ask

KEY = UUID(int=7)


def test_only_what_was_given_filters() -> None:
    found = ask.read([("active", "false"), ("site", str(KEY)), ("mac", "")], ask.CAMERAS)
    assert found.filters == {"active": False, "site": KEY}
    assert (found.limit, found.company, found.after_at) == (100, None, None)


def test_everything_that_is_wrong_is_said() -> None:
    given = [("site", "x"), ("mac", "zz"), ("active", "maybe"), ("limit", "501"), ("colour", "red")]
    with pytest.raises(asked.Wrong) as wrong:
        ask.read(given, ask.CAMERAS)
    fields = sorted(each["field"] for each in wrong.value.details)
    assert fields == ["active", "colour", "limit", "mac", "site"]


@pytest.mark.parametrize(
    ("begin", "end", "span"),
    [
        ("", "", (None, None)),
        ("2026-03-01", "", (date(2026, 3, 1), date(2027, 3, 1))),
        ("", "2026-03-31", (date(2026, 3, 1), date(2026, 3, 31))),
        ("2026-03-01", "2026-03-01", (date(2026, 3, 1), date(2026, 3, 1))),
    ],
)
def test_the_span_of_figures(begin: str, end: str, span: tuple[date | None, date | None]) -> None:
    found = ask.read([("from", begin), ("to", end)], ask.ROLLUP)
    assert (ask.span(found)["from"], ask.span(found)["to"]) == span


def test_a_span_has_an_end() -> None:
    def long(end: str) -> bool:
        return ask.too_long(ask.read([("from", "2026-01-01"), ("to", end)], ask.ROLLUP))

    assert not long("2027-01-01")
    assert long("2027-01-02")


def test_a_cursor_of_a_day_is_its_midnight() -> None:
    at, key = asked.place(ask.cursor(date(2026, 3, 1), KEY))
    assert (at, key) == (datetime(2026, 3, 1, tzinfo=UTC), KEY)
    moment = datetime(2026, 3, 1, 5, tzinfo=UTC)
    assert asked.place(ask.cursor(moment, KEY)) == (moment, KEY)
