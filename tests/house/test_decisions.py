"""Every decision that code or documents cite can be looked up in DECISIONS.md."""

import re
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
DECISIONS = ROOT / "DECISIONS.md"
CITED = re.compile(r"(?<![\w-])[CD]-\d{2,3}(?![\w-])")
WRITTEN = re.compile(r"^(?:- )?\*\*(?P<number>[CD]-\d{2,3})\b", re.MULTILINE)


def written() -> Counter[str]:
    return Counter(WRITTEN.findall(DECISIONS.read_text(encoding="utf-8")))


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    names = [name for name in listed.split("\0") if name]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def test_every_cited_decision_is_written_down() -> None:
    known = written()
    unknown: dict[str, list[str]] = {}
    for file in tracked():
        text = file.read_text(encoding="utf-8", errors="ignore")
        for number in sorted(set(CITED.findall(text)) - known.keys()):
            unknown.setdefault(number, []).append(str(file.relative_to(ROOT)))
    assert unknown == {}


def test_every_decision_is_written_down_once() -> None:
    assert [number for number, count in written().items() if count > 1] == []


def test_index_names_every_decision_in_its_area() -> None:
    text = DECISIONS.read_text(encoding="utf-8")
    areas = dict(re.findall(r"(?ms)^## ([^\n]+)\n(.*?)(?=^## |\Z)", text))
    rows = re.findall(r"(?m)^\| \[([^\]]+)\]\([^)]+\) \| [^|]+ \| ([^|]+) \|$", text)

    assert {area: indexed(numbers) for area, numbers in rows} == {
        area: set(WRITTEN.findall(entries)) for area, entries in areas.items()
    }


def indexed(numbers: str) -> set[str]:
    """`C-03 to 05, D-20` is C-03, C-04, C-05 and D-20."""
    ranges = re.findall(r"([CD])-(\d+)(?: to (\d+))?", numbers)
    return {
        f"{kind}-{number:02}"
        for kind, first, last in ranges
        for number in range(int(first), int(last or first) + 1)
    }
