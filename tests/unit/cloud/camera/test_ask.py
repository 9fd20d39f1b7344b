"""Questions about cameras' accounts: everything that is wrong is said, and days are days."""

from datetime import UTC, date, datetime
from uuid import UUID

import pytest
from pydantic import ValidationError

from farmiq import api
from farmiq.cloud.camera.accounts.kinds import CameraFilter, DeviceFilter, FiguresFilter

KEY = UUID(int=7)


def test_only_what_was_given_filters() -> None:
    found = DeviceFilter.model_validate({"active": "false", "site": str(KEY), "mac": ""})
    assert found.filters == {"active": False, "site": KEY}
    assert (found.limit, found.company, found.after_at) == (100, None, None)


def test_everything_that_is_wrong_is_said() -> None:
    given = {"site": "x", "mac": "zz", "active": "maybe", "limit": "501", "colour": "red"}
    with pytest.raises(ValidationError) as wrong:
        DeviceFilter.model_validate(given)
    fields = sorted(field for field, _ in api.problems(wrong.value))
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
    found = FiguresFilter.model_validate({"from": begin, "to": end}).span()
    assert (found["from"], found["to"]) == span


def test_a_span_has_an_end() -> None:
    FiguresFilter.model_validate({"from": "2026-01-01", "to": "2027-01-01"})
    with pytest.raises(ValidationError) as wrong:
        FiguresFilter.model_validate({"from": "2026-01-01", "to": "2027-01-02"})
    assert [field for field, _ in api.problems(wrong.value)] == ["to"]


def test_a_cursor_of_a_day_is_its_midnight() -> None:
    moment = datetime(2026, 3, 1, 5, tzinfo=UTC)
    for at, parsed in ((date(2026, 3, 1), datetime(2026, 3, 1, tzinfo=UTC)), (moment, moment)):
        found = CameraFilter.model_validate({"cursor": api.cursor(at, KEY)})
        assert (found.after_at, found.after_id) == (parsed, KEY)
