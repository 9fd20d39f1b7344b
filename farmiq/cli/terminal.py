"""What the commands share: --stack and --json, settings, databases, printing, errors.

A command is a function in a `Group`. It prints through this module, which knows whether JSON is
wanted, and returns its exit code: 0 good, 1 failed, 2 asked wrongly, 3 works but needs attention.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar
from uuid import UUID

import typer

from farmiq.messages import instants

if TYPE_CHECKING:
    import psycopg

    from farmiq.api import Filter
    from farmiq.plumbing import db

T = TypeVar("T")
F = TypeVar("F", bound="Filter")
Function = TypeVar("Function", bound=Callable[..., Any])
# The type of an option and its default, by the name of the parameter.
Options = Mapping[str, tuple[Any, Any]]

EDGE, CLOUD, CLOUD_OWNER = "FARMIQ_EDGE_DB_URL", "FARMIQ_CLOUD_DB_URL", "FARMIQ_CLOUD_DB_ADMIN_URL"
JSON: Options = {
    "as_json": (Annotated[bool, typer.Option("--json", help="Print JSON for a script.")], False)
}
STACK: Options = {
    "stack": (
        Annotated[
            str | None,
            typer.Option(
                "--stack",
                help="Take settings that the environment lacks from this local stack "
                "(default: the demo's, or the only one that is running).",
            ),
        ],
        None,
    )
}
STACK_AND_JSON: Options = {**STACK, **JSON}
NO_OPTIONS: Options = {}
# Errors whose text is for the person who asked, with their exit code. By name: a command imports
# the modules that raise them only when it needs them.
EXIT_CODES = {
    "ApiError": 1,
    "BackupError": 1,
    "CameraError": 1,
    "CutOffError": 1,
    "DemoError": 1,
    "DeviceExistsError": 1,
    "EnrolmentError": 1,
    "InstallError": 1,
    "InvalidDeviceError": 2,
    "NoCameraError": 1,
    "NotAllowedError": 1,
    "NotQueuedError": 1,
    "NotStartableError": 1,
    "OSError": 1,
    "ProvisionError": 1,
    "RepositoryError": 1,
    "SealError": 1,
    "SettingsError": 1,
    "StackError": 1,
    "StoppedError": 1,
    "UnknownDeviceError": 1,
    "UnknownPointError": 2,
    "UnreachableError": 1,
    "UnsealError": 1,
    "ValueError": 1,
    "WorkerGoneError": 1,
}


@dataclass(frozen=True, slots=True)
class Shared:
    """What was given for the options that commands share."""

    stack: str | None = None
    as_json: bool = False


_shared: ContextVar[Shared] = ContextVar("shared", default=Shared())  # noqa: B039 - frozen


class Group(typer.Typer):
    """Commands that share options, return their exit code, and explain their errors."""

    def __init__(
        self, text: str | None, *, shared: Options = STACK_AND_JSON, **settings: Any
    ) -> None:
        self._shared = shared
        super().__init__(
            **{"no_args_is_help": True, **({"help": text} if text else {}), **settings}
        )

    def command(
        self,
        name: str | None = None,
        *,
        options: Options = NO_OPTIONS,
        shared: Options | None = None,
        value_error: int = 1,
        **settings: Any,
    ) -> Callable[[Function], Function]:
        """Add a command with the function's own parameters, then `options`, then the shared ones.

        Those of the group, if `shared` names no others.

        `value_error` is the exit code of a ValueError or a SettingsError: 2 where it says what was
        asked wrongly.
        """
        register = super().command

        def add(work: Function) -> Function:
            given = self._shared if shared is None else shared
            register(name, **settings)(_runnable(work, options, given, value_error))
            return work

        return add

    def callback(
        self, *, shared: Options = NO_OPTIONS, **settings: Any
    ) -> Callable[[Function], Function]:
        register = super().callback

        def add(work: Function) -> Function:
            register(**settings)(_runnable(work, NO_OPTIONS, shared, 1))
            return work

        return add


def _runnable(
    work: Callable[..., Any], options: Options, shared: Options, value_error: int
) -> Callable[..., None]:
    def run(**given: Any) -> None:
        _shared.set(replace(_shared.get(), **{name: given.pop(name) for name in shared}))
        try:
            code = work(**given)
        except Exception as error:
            explained = _exit_code(error, value_error)
            if explained is None:
                raise
            fail(_text(error), code=explained)
        if code:
            raise typer.Exit(code)

    own = inspect.signature(work).parameters.values()
    added = [
        inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for option, (kind, default) in {**options, **shared}.items()
    ]
    named = [p for p in own if p.kind is not p.VAR_KEYWORD and p.name not in options]
    run.__signature__ = inspect.Signature([*named, *added])  # type: ignore[attr-defined]
    run.__doc__, run.__name__ = work.__doc__, work.__name__
    return run


def _exit_code(error: Exception, value_error: int) -> int | None:
    """None: a bug, or nobody reads the output any more; main() handles both."""
    if isinstance(error, BrokenPipeError):
        return None
    if type(error).__module__.partition(".")[0] == "psycopg":
        return 1
    named = (EXIT_CODES.get(kind.__name__) for kind in type(error).__mro__)
    code = next((code for code in named if code is not None), None)
    odd = isinstance(error, ValueError) or type(error).__name__ == "SettingsError"
    return value_error if odd and code == 1 else code


def _text(error: Exception) -> str:
    text = (str(error) or type(error).__name__).strip()
    if type(error).__name__ == "InvalidDeviceError":
        reasons = getattr(error, "reasons", ())
        text = "\n".join(f"{field} {why}" for field, why in reasons)
    if type(error).__name__ in {"UndefinedTable", "UndefinedColumn", "UndefinedFunction"}:
        text += "\nThe database is older than this program: `farmiq migrate` brings it up to date."
    return text


def reset_shared() -> None:
    """Begin a command line: nothing of another one in this process counts."""
    _shared.set(Shared())


def wants_json() -> bool:
    return _shared.get().as_json


# --- settings and databases


def environment(stack: str | None = None) -> dict[str, str]:
    """Ours, with what it lacks taken from a local stack and the site provisioned on it."""
    from farmiq import config as settings

    stack = stack or _shared.get().stack
    # A service of a real site starts sooner without all that runs stacks.
    here = (state_dir() / "stacks" / "demo").exists()
    elsewhere = settings.running_stacks_dir().exists() and not settings.given_urls()
    if stack is None and not here and not elsewhere:
        return settings.environment()
    from farmiq.lab import stack as stacks
    from farmiq.lab.demo import provision

    root = stacks.find(stack)
    if root is None and stack is None:
        return settings.environment()
    root = root or state_dir() / "stacks" / str(stack)
    local = stacks.attach(root)
    site = provision.read(root)
    return settings.environment(under={**local, **(site.environment if site else {})})


def state_dir() -> Path:
    from farmiq import config as settings

    return settings.state_dir()


def needed(name: str, among: Mapping[str, str] | None = None) -> str:
    """A setting without which the command can do nothing."""
    value = (environment() if among is None else among).get(name)
    if not value:
        fail(f"{name} is not set, and no local stack is running (`farmiq demo` starts one)")
    return value


def in_transaction(work: "Callable[[db.Connection], Awaitable[T]]", database: str = EDGE) -> T:
    """`work` in one transaction with the database that this setting names."""
    import asyncio

    import psycopg

    url = needed(database)

    async def once() -> T:
        async with await psycopg.AsyncConnection.connect(url, application_name="farmiq") as tx:
            return await work(tx)

    return asyncio.run(once())


def connect(database: str, **options: Any) -> "psycopg.Connection[Any]":
    """One transaction with the database that this setting names, for `with`."""
    import psycopg

    return psycopg.connect(needed(database), application_name="farmiq", **options)


def rows(database: str, query: str) -> list[dict[str, Any]]:
    from psycopg.rows import dict_row

    with connect(database, row_factory=dict_row) as connection:
        return connection.execute(query.encode()).fetchall()


def actor() -> str:
    """Who the audit log says did it."""
    import getpass

    try:
        return f"cli {getpass.getuser()}"
    except (KeyError, OSError):
        return "cli"


# --- what a person gave


def check_id(text: str) -> None:
    """Fails for what cannot be the id of a tenant, farm, device or metric."""
    import re

    from farmiq.messages.ids import ID_PATTERN

    if not re.match(ID_PATTERN, text):
        fail(f"{text!r} cannot be an id: letters, digits and . _ : -, at most 128", code=2)


def check_known(value: str | None, known: Sequence[str], text: str) -> None:
    """Fails with `text` and what there is to choose from; None is no choice."""
    if value is not None and value not in known:
        fail(f"{text} {', '.join(known)}", code=2)


def check_uuid(text: str, problem: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        fail(f"{text!r} {problem}", code=2)


# --- printing


def progress() -> Callable[[str], None]:
    """Return what says how far a command is, on stderr: stdout is for its result alone."""

    def say(line: str) -> None:
        typer.echo(line, err=True)

    return (lambda _: None) if wants_json() else say


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


def print_result(document: Any, *lines: str) -> None:
    """What a command did: lines for a person, or one document for a script."""
    if wants_json():
        print_json(document)
    for line in () if wants_json() else lines:
        typer.echo(line)


def fields(row: Mapping[str, Any], *, indent: str = "") -> list[str]:
    """One object, a line for each field."""
    known = {name: value for name, value in row.items() if value is not None}
    width = max(map(len, known), default=0)
    return [
        f"{indent}{name:<{width}}  {local(value) if isinstance(value, datetime) else value}"
        for name, value in known.items()
    ]


def print_list(
    rows: Sequence[T],
    cells: Callable[[T], Sequence[str]],
    *,
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
    if wants_json():
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
        typer.echo(f"and {count}more" + (f"; {hint}" if hint else ""), err=wants_json())


def print_page(
    rows: Sequence[T], limit: int, cells: Callable[[T], Sequence[str]], **options: Any
) -> Sequence[T]:
    """A list that was read one row beyond `limit`, to know whether there are more."""
    shown = rows[:limit]
    more = None if len(rows) > limit else 0
    print_list(shown, cells, **{"more": more, "hint": "--limit shows more", **options})
    return shown


def print_cursor_page(
    rows: Sequence[T],
    following: str | None,
    cells: Callable[[T], Sequence[str]],
    *,
    name: str,
    shown: Callable[[T], Any] = lambda row: row,
    empty: str,
) -> None:
    """A list that goes on at the cursor `following`; `shown` makes a row of the JSON."""
    print_list(
        rows,
        cells,
        document={name: [shown(row) for row in rows], "next_cursor": following},
        more=None if following else 0,
        hint=f"--cursor {following}",
        empty=empty,
    )


def end_quietly() -> NoReturn:
    """Nobody reads on, as behind `| head -1`: leave without a word about it."""
    import os
    import sys

    # What is still buffered is flushed at the end, and must not fail then.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(1)


def query(kind: "type[F]", **given: Any) -> "F":
    """The filter of a list; exits with code 2 if an option is not valid."""
    from pydantic import ValidationError

    from farmiq.api import problems

    try:
        return kind.model_validate({name: str(value) for name, value in given.items() if value})
    except ValidationError as error:
        reasons = (f"--{field} {reason}" for field, reason in problems(error))
        fail("\n".join(reasons), code=2)


def fail(message: str, *, code: int = 1) -> NoReturn:
    typer.secho(message, err=True, fg=typer.colors.RED)
    raise typer.Exit(code)
