"""What the commands share: their settings, how they print, how they fail."""

import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

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
    from farmiq import stack as stacks
    from farmiq.demo import provision

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
    typer.echo(json.dumps(value, indent=2, default=str))


def tell(result: Mapping[str, Any], line: str, *, as_json: bool) -> None:
    """What a command did: a line for a person, or the same for a script."""
    print_json(result) if as_json else typer.echo(line)


def fail(message: str, *, code: int = 1) -> NoReturn:
    typer.secho(message, err=True, fg=typer.colors.RED)
    raise typer.Exit(code)
