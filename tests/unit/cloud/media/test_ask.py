"""Which images somebody asks the cloud for."""

from datetime import UTC, date, datetime
from urllib.parse import urlencode
from uuid import UUID

import pytest
from fastapi import Request

from farmiq.api import Position, cursor, parse
from farmiq.cloud.media.api import CloudImageFilter, bounds
from farmiq.plumbing.http import HttpError


def asking(parameters: list[tuple[str, str]]) -> Request:
    query = urlencode(parameters).encode()
    return Request({"type": "http", "query_string": query, "headers": []})


AT = datetime(2026, 11, 15, 8, tzinfo=UTC)


def test_a_day_is_one_where_the_company_is() -> None:
    begin, end = bounds(date(2026, 3, 29), "Europe/Berlin")
    assert (begin, end) == (
        datetime(2026, 3, 28, 23, tzinfo=UTC),
        datetime(2026, 3, 29, 22, tzinfo=UTC),
    ), "it has 23 hours there"
    assert bounds(None, "UTC") == (None, None)


def test_everything_that_is_wrong_is_said() -> None:
    given = [
        ("day", "0001-01-01"), ("session", "x"), ("device", "../"), ("limit", "0"), ("cursor", "?"),
        ("company", "x"), ("colour", "red"), ("day", "2026-01-01"),
    ]  # fmt: skip
    with pytest.raises(HttpError) as wrong:
        parse(CloudImageFilter, asking(given))
    fields = [detail["field"] for detail in wrong.value.details or []]
    assert set(fields) == {"day", "session", "device", "limit", "cursor", "company", "colour"}


def test_a_page_goes_on_where_the_last_one_ended() -> None:
    found = parse(
        CloudImageFilter,
        asking([("cursor", cursor(AT, UUID(int=7))), ("day", "2026-11-15"), ("limit", "")]),
    )
    assert (found.cursor, found.limit) == (Position(AT, UUID(int=7)), 100)
    page = found.page()
    assert (page["after_at"], page["after_id"], page["limit"]) == (AT, UUID(int=7), 101)
    assert found.day == date(2026, 11, 15)
