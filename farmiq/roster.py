"""Pure: a list as CSV, read whole: its rows, or every problem with its line."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAX_LINES = 100_000
# An answer names so many problems, and says how many more there are.
MAX_SHOWN = 200

Row = tuple[int, Mapping[str, str]]


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    line: int
    field: str
    reason: str


class RosterError(Exception):
    """Nothing of the file was taken; `problems` names every line that must change."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(f"{len(problems)} problems")
        self.problems = sorted(problems)

    def shown(self) -> list[Problem]:
        """The first problems; the last one says how many more there are."""
        more = len(self.problems) - MAX_SHOWN
        if more <= 0:
            return self.problems
        line = self.problems[MAX_SHOWN].line
        return [*self.problems[:MAX_SHOWN], Problem(line, "", f"and {more} more problems")]


def rows(
    text: str,
    *,
    columns: Sequence[str],
    needed: Sequence[str],
    of: str,
    stops_at_header: bool = True,
) -> tuple[list[Row], list[Problem]]:
    """(line, cells by column) of every row that has all cells, and what is wrong with others.

    `of` is what a row stands for. If the header is wrong it raises RosterError, or else the rows
    have the columns that are known.
    """
    text = text.removeprefix("\ufeff")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    parsed: list[Row] = []
    problems: list[Problem] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        problems += [Problem(1, *why) for why in _header_problems(header, columns, needed, of)]
        if problems and stops_at_header:
            raise RosterError(problems)
        for row in reader:
            line = reader.line_num
            if not any(cell.strip() for cell in row):
                continue
            if line > MAX_LINES:
                problems.append(Problem(line, "", f"more than {MAX_LINES} lines"))
                break
            if len(row) != len(header):
                reason = f"has {len(row)} cells, the header {len(header)}"
                problems.append(Problem(line, "", reason))
                continue
            cells = zip(header, row, strict=True)
            parsed.append((line, {name: cell.strip() for name, cell in cells if name in columns}))
    except csv.Error as error:
        problems.append(Problem(reader.line_num, "", f"is not CSV: {error}"))
    if not parsed and not problems:
        problems.append(Problem(1, "", f"there is no {of} in the file"))
    return parsed, problems


def _delimiter(text: str) -> str:
    """A semicolon where spreadsheets write numbers with a comma."""
    header = text.partition("\n")[0]
    return ";" if ";" in header and "," not in header else ","


def _header_problems(
    header: Sequence[str], columns: Sequence[str], needed: Sequence[str], of: str
) -> list[tuple[str, str]]:
    problems = [(name, f"is not a column of a {of}") for name in header if name not in columns]
    problems += [(name, "is missing in the header") for name in needed if name not in header]
    problems += [
        (name, "stands twice in the header")
        for name in dict.fromkeys(header)
        if list(header).count(name) > 1
    ]
    return problems
