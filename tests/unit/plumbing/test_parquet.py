"""Parquet files: what goes in comes out, and only what was asked for is read."""

import csv
import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from farmiq.plumbing import parquet
from farmiq.plumbing.parquet import Kind

COLUMNS: dict[str, Kind] = {
    "name": "text", "id": "id", "at": "moment", "value": "number", "is_odd": "flag",
}  # fmt: skip
TEXTS = ("", " ", "NA", "null", "NaN", "\u00e4\u2028", 'a "b", c', "two\nlines\r\n", "t", "1")
BEGIN = datetime(2026, 5, 1, tzinfo=UTC)


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "name": TEXTS[n * len(TEXTS) // count],
            "id": uuid4().bytes,
            "at": BEGIN + timedelta(seconds=n, microseconds=n),
            "value": n / 7 if n % 2 else -1.7976931348623157e308,
            "is_odd": bool(n % 2),
        }
        for n in range(count)
    ]


def table(made: list[dict[str, Any]]) -> Any:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in made:
        moment = (row["at"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        flag = "t" if row["is_odd"] else "f"
        writer.writerow([row["name"], row["id"].hex(), moment, repr(row["value"]), flag])
    return parquet.from_csv(text.getvalue().encode(), COLUMNS)


def test_any_text_moment_and_number_comes_back_as_it_was() -> None:
    made = rows(200)
    written = table(made)
    assert written.to_pylist() == made
    body = parquet.write(written)
    assert parquet.read_all(body).equals(written)
    assert parquet.write(written) == body, "the name of a file is its hash"


class Counting(io.BytesIO):
    """How many bytes were read."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data


def test_groups_of_rows_without_what_was_asked_for_are_not_read() -> None:
    made = rows(5 * parquet.ROW_GROUP)
    body = parquet.write(table(made))
    file = Counting(body)
    end = made[-1]["at"]
    found = parquet.read_some(
        file, column="name", values={made[-1]["name"]}, moment="at",
        begin=end - timedelta(seconds=60), end=end,
    )  # fmt: skip
    expected = [row for row in made if end - timedelta(seconds=60) <= row["at"] < end]
    assert found.to_pylist() == expected
    assert file.count < len(body) / 3


def test_columns_have_their_declared_type_for_any_rows_and_for_none() -> None:
    types = {
        "id": UUID, "value": float | str, "kg": float | None, "count": int | None,
        "on": date | None, "at": datetime, "is_odd": bool, "note": str | None,
    }  # fmt: skip
    made = [
        (UUID(int=1), 1, 2, 3, date(2026, 5, 1), BEGIN, True, None),
        (UUID(int=2), "two", Decimal("2.5"), None, None, BEGIN, False, None),
    ]
    read = parquet.read_all(parquet.write(parquet.from_rows(types, made)))
    assert [tuple(row.values()) for row in read.to_pylist()] == [
        (str(UUID(int=1)), "1", 2.0, 3, date(2026, 5, 1), BEGIN, True, None),
        (str(UUID(int=2)), "two", 2.5, None, None, BEGIN, False, None),
    ]
    empty = [(UUID(int=1), "x", None, None, None, BEGIN, False, None)]
    for rows_of in ([], empty, made):
        file = parquet.read_all(parquet.write(parquet.from_rows(types, rows_of)))
        assert [str(field.type) for field in file.schema] == [
            "string", "string", "double", "int64", "date32[day]", "timestamp[us, tz=UTC]", "bool",
            "string",
        ]  # fmt: skip
