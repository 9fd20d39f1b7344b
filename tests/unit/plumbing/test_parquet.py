"""Parquet files: what goes in comes out, and only what was asked for is read."""

import csv
import io
from datetime import UTC, datetime, timedelta
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


def test_values_of_many_kinds_in_a_column_are_text() -> None:
    made = [(UUID(int=1), 1, None), (UUID(int=2), "two", None)]
    read = parquet.read_all(parquet.write(parquet.from_rows(["id", "value", "none"], made)))
    assert read.to_pylist() == [
        {"id": str(UUID(int=1)), "value": "1", "none": None},
        {"id": str(UUID(int=2)), "value": "two", "none": None},
    ]
    assert parquet.read_all(parquet.write(parquet.from_rows(["a"], []))).num_rows == 0
