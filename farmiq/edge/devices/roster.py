"""Pure: a list of devices as CSV, read whole: the devices, or every problem with its line."""

import csv
import io
from dataclasses import dataclass

from farmiq.edge.devices import entry
from farmiq.edge.devices.entry import Device

MOST_LINES = 100_000


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    line: int
    field: str
    reason: str


class Unusable(Exception):  # noqa: N818 - what a person wrote, not a mistake of ours
    """Nothing of the file was taken; `problems` names every line that must change."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(f"{len(problems)} problems")
        self.problems = sorted(problems)


def read(text: str) -> list[tuple[int, Device]]:
    """(line, device) of every row. Raises Unusable."""
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    problems: list[Problem] = []
    devices: list[tuple[int, Device]] = []
    try:
        header = [name.strip() for name in next(rows, [])]
        if wrong := _header_problems(header):
            raise Unusable([Problem(1, *each) for each in wrong])
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            if rows.line_num > MOST_LINES:
                problems.append(Problem(rows.line_num, "", f"more than {MOST_LINES} lines"))
                break
            _read_row(header, row, rows.line_num, devices, problems)
    except csv.Error as error:
        problems.append(Problem(rows.line_num, "", f"is not CSV: {error}"))
    problems += [Problem(*each) for each in entry.twice(devices)]
    if not devices and not problems:
        problems.append(Problem(1, "", "there is no device in the file"))
    if problems:
        raise Unusable(problems)
    return devices


def _read_row(
    header: list[str],
    row: list[str],
    line: int,
    devices: list[tuple[int, Device]],
    problems: list[Problem],
) -> None:
    if len(row) != len(header):
        problems.append(Problem(line, "", f"has {len(row)} cells, the header {len(header)}"))
        return
    cells = {name: cell.strip() for name, cell in zip(header, row, strict=True)}
    try:
        devices.append((line, entry.read(cells)))
    except entry.Wrong as wrong:
        problems += [Problem(line, *reason) for reason in wrong.reasons]


def _header_problems(header: list[str]) -> list[tuple[str, str]]:
    wrong = [(name, "is not a column of a device") for name in header if name not in entry.COLUMNS]
    wrong += [(name, "is missing in the header") for name in entry.NEEDED if name not in header]
    wrong += [
        (name, "stands twice in the header")
        for name in dict.fromkeys(header)
        if header.count(name) > 1
    ]
    return wrong
