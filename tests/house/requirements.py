"""Requirements: which test shows which promise.

docs/develop/requirements.md --ids--> [requirements] <--@pytest.mark.req-- tests

Run from the root of the repository: `python -m tests.house.requirements [--json]`.
Leaves with 1 when a test names an id the list does not hold or a module cannot be collected.
An id that no test shows is reported, not refused.
"""

import argparse
import contextlib
import dataclasses
import io
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "docs" / "develop" / "requirements.md"

WELL_FORMED = re.compile(r"[A-Z]{2}\d?-\d{2}")
BEYOND = "BY"
BESIDE_NAMES = 13  # columns taken by the id and the frame of a table

COLLECT_ONLY = ("--collect-only", "-qq", "-p", "no:xdist", "-p", "no:cacheprovider")
COLLECTED = {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}


class CollectionFailedError(Exception):
    """pytest could not read every test; the message is what pytest said."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One test naming one requirement."""

    requirement: str
    test: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """What is shown and what is not.

    A planned id (`BY-…`) counts only once a test shows it; until then it stands in `beyond`.
    """

    shown: Mapping[str, Sequence[str]]
    missing: Sequence[str]
    beyond: Sequence[str]
    unknown: Mapping[str, Sequence[str]]

    @property
    def shown_count(self) -> int:
        return len(self.shown)

    @property
    def total(self) -> int:
        return len(self.shown) + len(self.missing)

    @property
    def summary(self) -> str:
        return f"{self.shown_count} of {self.total} shown"


@dataclass(frozen=True)
class Recorder:
    """pytest plugin: writes down the marks of every test found, before any is deselected."""

    marks: list[Mark] = field(default_factory=list)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.marks.extend(
            Mark(requirement=requirement, test=item.nodeid)
            for item in items
            for marker in item.iter_markers("req")
            for requirement in marker.args
        )


def main(arguments: Sequence[str] | None = None) -> int:
    wants_json = parse_arguments(arguments).json
    try:
        marks = collect_marks()
    except CollectionFailedError as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    report = fold(parse_ids(LIST.read_text(encoding="utf-8")), marks)
    show = print_json if wants_json else print_tables
    show(report)
    sys.stderr.write("".join(f"{line}\n" for line in complaints(report)))
    return 1 if report.unknown else 0


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="requirements", description="Which test shows what.")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser.parse_args(arguments)


def collect_marks() -> list[Mark]:
    """Let pytest find all tests, run none, and return what they name."""
    os.environ.pop("PYTEST_ADDOPTS", None)
    recorder = Recorder()
    said = io.StringIO()
    with contextlib.chdir(ROOT), redirected(said):
        outcome = pytest.main([*COLLECT_ONLY, "tests"], plugins=[recorder])
    if outcome not in COLLECTED:
        raise CollectionFailedError(said.getvalue())
    return recorder.marks


@contextlib.contextmanager
def redirected(target: io.StringIO) -> Iterator[None]:
    with contextlib.redirect_stdout(target), contextlib.redirect_stderr(target):
        yield


def parse_ids(text: str) -> list[str]:
    """First cell of every table row, in order; header and rule rows are not requirements."""
    rows = (line for line in text.splitlines() if line.startswith("|"))
    cells = (row.split("|")[1].strip() for row in rows)
    return [cell for cell in cells if cell != "id" and cell.strip(":-")]


def family(requirement: str) -> str:
    return requirement.rpartition("-")[0]


def fold(ids: Sequence[str], marks: Iterable[Mark]) -> Report:
    """Set the marks against the list; the list gives the order."""
    tests = tests_by_requirement(marks)
    bare = [each for each in ids if each not in tests]
    return Report(
        shown={each: tests[each] for each in ids if each in tests},
        missing=[each for each in bare if family(each) != BEYOND],
        beyond=[each for each in bare if family(each) == BEYOND],
        unknown={each: tests[each] for each in sorted(tests.keys() - set(ids))},
    )


def tests_by_requirement(marks: Iterable[Mark]) -> dict[str, list[str]]:
    tests: dict[str, set[str]] = {}
    for mark in marks:
        tests.setdefault(mark.requirement, set()).add(without_parameters(mark.test))
    return {requirement: sorted(names) for requirement, names in tests.items()}


def without_parameters(test: str) -> str:
    return test.partition("[")[0]


def complaints(report: Report) -> list[str]:
    return [
        f"{requirement} is not in {LIST.relative_to(ROOT)} but is named by {', '.join(tests)}"
        for requirement, tests in report.unknown.items()
    ]


def as_json(report: Report) -> str:
    counts = {"total": report.total, "shown_count": report.shown_count}
    return json.dumps(dataclasses.asdict(report) | counts, indent=2)


def print_json(report: Report) -> None:
    sys.stdout.write(f"{as_json(report)}\n")


def print_tables(report: Report) -> None:
    console = Console(highlight=False)
    width = console.width - BESIDE_NAMES
    for name, ids in by_family(report.shown).items():
        shown = {each: shorten_all(report.shown[each], width=width) for each in ids}
        console.print(shown_table(name, shown))
    print_bare(console, "Without a test", report.missing)
    print_bare(console, "Beyond the contract, not yet shown", report.beyond)
    console.print(report.summary, style="bold")


def by_family(ids: Iterable[str]) -> dict[str, list[str]]:
    """Families in the order of the list, each with its ids."""
    return {name: list(members) for name, members in itertools.groupby(ids, key=family)}


def shown_table(name: str, shown: Mapping[str, Sequence[str]]) -> Table:
    table = Table(title=name, title_justify="left", title_style="bold", expand=True)
    table.add_column("id", no_wrap=True)
    table.add_column("shown by", ratio=1)
    for requirement, tests in shown.items():
        table.add_row(requirement, Text("\n".join(tests)))
    return table


def shorten_all(tests: Iterable[str], *, width: int) -> list[str]:
    return [shorten(test, width=width) for test in tests]


def shorten(test: str, *, width: int) -> str:
    """Keep the end of a long name: the function says more than the folder."""
    name = test.removeprefix("tests/")
    return name if len(name) <= width else f"…{name[1 - width :]}"


def print_bare(console: Console, title: str, ids: Sequence[str]) -> None:
    if not ids:
        return
    console.print(f"{title}: {len(ids)}", style="bold")
    for members in by_family(ids).values():
        console.print(Padding(Text(" ".join(members)), (0, 0, 0, 2), expand=False))


if __name__ == "__main__":
    sys.exit(main())
