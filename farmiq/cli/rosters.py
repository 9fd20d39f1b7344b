"""What the commands that register a whole list share: reading it, its problems, secret answers."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.roster import Problem


def text(file: Path) -> str:
    """`-` is standard input."""
    if str(file) == "-":
        return typer.get_text_stream("stdin").read()
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        terminal.fail(f"{file} is not UTF-8", code=2)


def check_is_new(out: Path | None) -> None:
    if out is not None and out.exists():
        terminal.fail(f"{out} exists; logins are never written over. Choose another file.", code=2)


def write_private(file: Path, text: str) -> None:
    """Fail if it cannot be written, so that the caller commits nothing."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as opened:
            opened.write(text)
    except OSError as error:
        terminal.fail(f"{file} cannot be written ({error.strerror}); nothing was registered")


def print_problems(problems: "Sequence[Problem]", *, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        terminal.print_json({"problems": [asdict(problem) for problem in problems]})
        return
    for problem in problems:
        field = f"{problem.field} " if problem.field else ""
        typer.secho(f"line {problem.line}: {field}{problem.reason}", err=True, fg=typer.colors.RED)
    typer.secho(f"{len(problems)} problems; nothing was registered", err=True)
