"""What the commands share: their settings, how they print, how they fail."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from farmiq.messages import instants

if TYPE_CHECKING:
    from farmiq.plumbing import db

T = TypeVar("T")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
StackName = Annotated[
    str | None,
    typer.Option(
        "--stack",
        help="Take settings that the environment lacks from this local stack "
        "(default: the demo's, or the only one that is running).",
    ),
]


def environment(stack: str | None) -> dict[str, str]:
    """Ours, with what it lacks taken from a local stack and the site provisioned on it."""
    from farmiq import config as settings

    # A service of a real site starts sooner without all that runs stacks.
    here = (state_dir() / "stacks" / "demo").exists()
    elsewhere = settings.running_stacks_dir().exists() and not settings.given_urls()
    if stack is None and not here and not elsewhere:
        return settings.environment()
    from farmiq.lab import stack as stacks
    from farmiq.lab.demo import provision

    try:
        root = stacks.find(stack)
        if root is None and stack is None:
            return settings.environment()
        root = root or state_dir() / "stacks" / str(stack)
        local = stacks.attach(root)
    except stacks.StackError as error:
        fail(str(error))
    site = provision.read(root)
    return settings.environment(under={**local, **(site.environment if site else {})})


def state_dir() -> Path:
    from farmiq import config as settings

    return settings.state_dir()


def needed(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        fail(f"{name} is not set, and no local stack is running (`farmiq demo` starts one)")
    return value


def in_transaction(
    environment: Mapping[str, str], work: "Callable[[db.Connection], Awaitable[T]]"
) -> T:
    """`work` in one transaction with the edge's database."""
    import asyncio

    import psycopg

    url = needed(environment, "FARMIQ_EDGE_DB_URL")

    async def once() -> T:
        async with await psycopg.AsyncConnection.connect(url, application_name="farmiq") as tx:
            return await work(tx)

    return asyncio.run(once())


def progress(*, quiet: bool = False) -> Callable[[str], None]:
    """Return what says how far a command is, on stderr: stdout is for its result alone."""

    def say(line: str) -> None:
        if not quiet:
            typer.echo(line, err=True)

    return say


def actor() -> str:
    """Who the audit log says did it."""
    import getpass

    try:
        return f"cli {getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"


def check_id(text: str) -> None:
    """Fails for what cannot be the id of a tenant, farm, device or metric."""
    import re

    from farmiq.messages.ids import ID_PATTERN

    if not re.match(ID_PATTERN, text):
        fail(f"{text!r} cannot be an id: letters, digits and . _ : -, at most 128", code=2)


def print_json(value: Any) -> None:
    """One document; moments in it are RFC 3339 in UTC with Z."""
    typer.echo(json.dumps(value, indent=2, default=_plain))


def _plain(value: Any) -> str:
    return instants.rfc3339(value) if isinstance(value, datetime) else str(value)


def local(at: datetime | str | None, *, absent: str = "never") -> str:
    """A moment for people: the time of this machine, with its zone."""
    try:
        moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        return str(at)
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}" if moment else absent


def print_fields(row: Mapping[str, Any], *, indent: str = "") -> None:
    """All that is known of one thing, a line each."""
    known = {name: value for name, value in row.items() if value is not None}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        shown = local(value) if isinstance(value, datetime) else value
        typer.echo(f"{indent}{name:<{width}}  {shown}")


def print_list(
    rows: Sequence[T],
    cells: Callable[[T], Sequence[str]],
    *,
    as_json: bool,
    document: Any = None,
    more: int | None = 0,
    hint: str = "",
    empty: str = "",
) -> None:
    """What every list command prints: JSON for scripts, aligned columns for people.

    The JSON is the rows, or the `document` that holds them. `more` is how many fit and are not
    shown (None: some), `hint` how to see them: with JSON it goes to stderr, so that a script reads
    one document. `empty` says why there may be nothing. The last cell may have lines of its own.
    """
    if as_json:
        print_json(rows if document is None else document)
    elif not rows:
        typer.echo("nothing" + (f"; {empty}" if empty else ""))
    else:
        lines = [list(cells(row)) for row in rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)][:-1]
        for *first, last in lines:
            padded = [cell.ljust(width) for cell, width in zip(first, widths, strict=True)]
            typer.echo("  ".join([*padded, last]).rstrip())
    if more != 0:
        count = "" if more is None else f"{more:,} "
        typer.echo(f"and {count}more" + (f"; {hint}" if hint else ""), err=as_json)


def print_result(result: Mapping[str, Any], line: str, *, as_json: bool) -> None:
    """What a command did: a line for a person, or the same for a script."""
    print_json(result) if as_json else typer.echo(line)


def end_quietly() -> NoReturn:
    """Nobody reads on, as behind `| head -1`: leave without a word about it."""
    import os
    import sys

    # What is still buffered is flushed at the end, and must not fail then.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)


def fail(message: str, *, code: int = 1) -> NoReturn:
    typer.secho(message, err=True, fg=typer.colors.RED)
    raise typer.Exit(code)
