"""CSV as spreadsheets take it: lines end in CR LF, and no cell is a formula."""

import csv
import io
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def lines(rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(
        [cell(value) for value in row] for row in rows
    )
    return text.getvalue()


def cell(value: Any) -> str:
    """Text that a spreadsheet would take for a formula is quoted; a number stays a number."""
    match value:
        case None:
            return ""
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case bool():
            return "true" if value else "false"
        case str() if value.lstrip(" ").startswith(_FORMULA):
            return f"'{value}"
        case float():
            return repr(value) if math.isfinite(value) else ""
        case _:
            return str(value)
