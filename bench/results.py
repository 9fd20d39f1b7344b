"""Measured values and their targets: bench/results.json, a table, docs/develop/bench.md."""

import json
import operator
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parent.parent / "docs" / "develop" / "bench.md"
_COMPARE = {">=": operator.ge, "<": operator.lt, "<=": operator.le}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One target. `target` reads like `>= 0.3`; `ok` follows from it and the value.

    A value is not `sound` if what was measured did not do its work: then none is good enough.
    """

    id: str
    what: str
    value: float
    target: str
    runs: list[float]
    detail: dict[str, Any] = field(default_factory=dict)
    sound: bool = True

    @property
    def ok(self) -> bool:
        sign, bound = self.target.split()
        return self.sound and bool(_COMPARE[sign](self.value, float(bound)))

    def entry(self) -> dict[str, Any]:
        whole = asdict(self)
        return {key: whole[key] for key in ("id", "what", "value", "target")} | {
            "ok": self.ok,
            "runs": self.runs,
            "detail": self.detail,
            **({} if self.sound else {"sound": False}),
        }


def of_runs(
    target_id: str, what: str, runs: Sequence[float], *, target: str, detail: dict[str, Any]
) -> Result:
    """The median of the rounds is what counts."""
    return Result(
        id=target_id,
        what=what,
        value=round(statistics.median(runs), 3),
        target=target,
        runs=[round(run, 3) for run in runs],
        detail=detail,
    )


def _order(target_id: str) -> tuple[int, str]:
    """P2 before P10, P1 before P1b."""
    number = re.match(r"P(\d+)", target_id)
    return (int(number[1]) if number else 0, target_id)


def save(results: Sequence[Result], *, machine: dict[str, Any]) -> None:
    """Put these entries into the file; those of other targets stay as they are."""
    stamp = {"at": f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z", "machine": machine}
    new = {one.id: one.entry() | stamp for one in results}
    kept = {one["id"]: one for one in load()} | new
    in_order = sorted(kept.values(), key=lambda one: _order(one["id"]))
    FILE.write_text(json.dumps(in_order, indent=2) + "\n", encoding="utf-8")
    PAGE.write_text(page(in_order), encoding="utf-8")


def load() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(FILE.read_text()) if FILE.exists() else []
    return found


def table(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """Rows for a person: id, what, value, target, verdict, rounds."""
    return [
        (
            one.id,
            one.what,
            f"{one.value:g}",
            one.target,
            "pass" if one.ok else "short",
            " ".join(f"{run:g}" for run in one.runs),
        )
        for one in results
    ]


def page(entries: Sequence[dict[str, Any]]) -> str:
    """docs/develop/bench.md."""
    parts = [_HEAD]
    for entry in entries:
        verdict = "pass" if entry["ok"] else "**short**"
        rounds = ", ".join(f"{run:g}" for run in entry["runs"])
        cells = (
            entry["id"],
            entry["what"],
            f"{entry['value']:g}",
            entry["target"],
            verdict,
            rounds,
        )
        parts.append("| " + " | ".join(str(cell) for cell in cells) + " |\n")
    parts.append("\n## What stands behind each figure\n")
    for entry in entries:
        machine = entry["machine"]
        parts.append(
            f"\n**{entry['id']}**, {entry['at']}, {machine['cpu']}, {machine['cores']} cores, "
            f"{machine['memory_gb']:g} GB, Linux {machine['kernel']}, Python {machine['python']}, "
            f"load before {machine['load_before']:g}, "
            f"disk that flushes a page in {machine.get('flush_ms', 'an unknown number of')} ms:\n\n"
        )
        parts += [f"- {line}\n" for line in details(entry["detail"])]
    return "".join(parts)


def details(detail: dict[str, Any]) -> list[str]:
    """What stands behind a figure, a line each."""
    return [f"{name}: {_words(value)}" for name, value in detail.items()]


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(each)}" for name, each in value.items())
    return f"{value:,}" if isinstance(value, int) else str(value)


_HEAD = """\
# Bench

`make bench` runs each `farmiq bench …` in turn: ours beside a ceiling or a peer in the same run.
It prints the ratios and the rounds behind each; absolute rates of a shared machine mean little.
This page is written by it from `bench/results.json`.

| target | what | value | aim | | rounds |
|---|---|---|---|---|---|
"""
