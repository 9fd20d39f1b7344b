"""Which code a unit starts: after an upgrade its file is the same, and what runs is the old code.

The mark of a program of ours is that of all packages beside it (the RECORD of each has the hash of
every file), that of an engine is of its own file.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from farmiq.install.steps import File, Step, Target


def marks(steps: Iterable[Step], target: Target) -> dict[str, str]:
    """By the name of each service; one whose program is not there has none."""
    marks: dict[str, str] = {}
    by_program: dict[Path, str] = {}
    for step in steps:
        if isinstance(step, File) and step.path.suffix == ".service":
            program = _program(str(step.text))
            file = target.at(program).resolve() if program else None
            if file is not None and file.is_file():
                if file not in by_program:
                    by_program[file] = _mark(file)
                marks[step.path.name] = by_program[file]
    return marks


def _program(unit: str) -> Path | None:
    lines = (line.partition("=")[2] for line in unit.splitlines() if line.startswith("ExecStart="))
    first = next(lines, "").lstrip("-+!@:")
    return Path(first.split()[0]) if first.startswith("/") else None


def _mark(program: Path) -> str:
    digest = hashlib.sha256()
    records = (
        sorted(program.parents[1].glob("lib/python*/site-packages/*.dist-info/RECORD"))
        if program.name == "farmiq"
        else []
    )
    for file in (*records, program):
        digest.update(file.parent.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
