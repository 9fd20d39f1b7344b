"""Every command that prints a result prints it for scripts too."""

from collections.abc import Iterator
from typing import Any

import typer

from farmiq.cli import app

# They run until they are stopped, or print a file of another program or a contract.
WITHOUT = {
    "run", "agent run", "demo", "config", "asyncapi", "openapi", "device permissions",
}  # fmt: skip


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_every_command_with_a_result_takes_json() -> None:
    all_of_them = dict(commands(typer.main.get_command(app)))
    assert set(all_of_them) >= WITHOUT
    for name, command in all_of_them.items():
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--json" in options) == (name not in WITHOUT), name
