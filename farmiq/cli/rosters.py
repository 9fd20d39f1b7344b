"""What the commands that register a whole list share: reading it, its problems, secret answers."""

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.plumbing import db
    from farmiq.roster import RosterError

File = Annotated[Path, typer.Argument(help="CSV, UTF-8, with a header; - reads standard input.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what is wrong.")]


def register(
    file: Path,
    work: "Callable[[db.Connection, str], Awaitable[Sequence[Any]]]",
    *,
    out: Path | None,
    dry_run: bool,
    database: str,
    logins: Callable[[Sequence[Any]], str],
    what: str,
) -> int:
    """Register all rows of a file, or none: `work` reads the text, or raises RosterError.

    `logins` is the text that holds the secrets. It goes to `out` before the commit: a secret that
    nobody could write down would be lost.
    """
    from farmiq.roster import RosterError

    async def once(tx: "db.Connection") -> Sequence[Any]:
        made = await work(tx, given)
        if out is not None and not dry_run:
            write_private(out, logins(made))
        return made

    if out is not None and out.exists():
        terminal.fail(f"{out} exists; logins are never written over. Choose another file.", code=2)
    given = text(file)
    try:
        made = terminal.in_transaction(once, database)
    except RosterError as unusable:
        print_problems(unusable)
        return 1
    if dry_run:
        terminal.print_result({"problems": []}, "nothing is wrong")
    elif out is None:
        typer.echo(logins(made), nl=False)
    else:
        terminal.print_result(
            {"registered": len(made), "file": str(out)},
            f"registered {len(made)} {what}; their logins are in {out}, and nowhere else",
        )
    return 0


def text(file: Path) -> str:
    if str(file) == "-":
        return typer.get_text_stream("stdin").read()
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        terminal.fail(f"{file} is not UTF-8", code=2)


def write_private(file: Path, text: str) -> None:
    """Fail if it cannot be written, so that the caller commits nothing."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as opened:
            opened.write(text)
    except OSError as error:
        terminal.fail(f"{file} cannot be written ({error.strerror}); nothing was registered")


def print_problems(unusable: "RosterError") -> None:
    from dataclasses import asdict

    problems = unusable.shown()
    if terminal.wants_json():
        terminal.print_json({"problems": [asdict(problem) for problem in problems]})
        return
    for problem in problems:
        field = f"{problem.field} " if problem.field else ""
        typer.secho(f"line {problem.line}: {field}{problem.reason}", err=True, fg=typer.colors.RED)
    typer.secho(f"{len(unusable.problems)} problems; nothing was registered", err=True)
