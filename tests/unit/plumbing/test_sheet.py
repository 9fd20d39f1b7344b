"""No cell is a formula, and a number stays a number."""

from datetime import UTC, datetime
from typing import Any

import pytest

from farmiq.plumbing import sheet


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("=1+1", "'=1+1"), ("+1", "'+1"), ("-1", "'-1"), ("@x", "'@x"), ("\tx", "'\tx"),
        ("\rx", "'\rx"), ("  =x", "'  =x"), ("a=b", "a=b"), ("", ""), (None, ""), (-1.5, "-1.5"),
        (-3, "-3"), (True, "true"), (datetime(2025, 1, 2, tzinfo=UTC), "2025-01-02T00:00:00Z"),
    ],
)  # fmt: skip
def test_cell_of_each_type_is_written_for_a_spreadsheet(value: Any, text: str) -> None:
    assert sheet.cell(value) == text


def test_lines_are_quoted_as_csv_asks() -> None:
    assert sheet.lines([["a", "b"], ['x, "y"', 1.0]]) == 'a,b\r\n"x, ""y""",1.0\r\n'
