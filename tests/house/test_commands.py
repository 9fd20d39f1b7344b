"""The `farmiq` command as a whole: results for scripts too, and help by what a person wants."""

import builtins
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

import farmiq
from farmiq import __version__, cli
from farmiq.cli import app, terminal

# They run until they are stopped, or print a file of another program or a contract.
WITHOUT = {
    "run", "agent run", "backup stream", "demo", "config", "asyncapi", "openapi", "metrics",
    "device permissions",
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


def test_every_command_stands_in_the_help_under_what_a_person_wants() -> None:
    panels = [cli.RUN, cli.LOOK, cli.MEND, cli.SET_UP, cli.DEVELOP]
    named = {
        name: command.rich_help_panel
        for name, command in typer.main.get_command(app).commands.items()  # type: ignore[attr-defined]
    }

    assert {name for name, panel in named.items() if panel not in panels} == set()
    assert list(dict.fromkeys(named.values())) == panels


def test_errors_with_an_exit_code_are_each_one_class_of_ours() -> None:
    """They are listed by name, so a renamed class would lose its exit code in silence."""
    classes = Counter(
        name
        for file in Path(farmiq.__file__).parent.rglob("*.py")
        for name in re.findall(r"^class (\w+Error)\(", file.read_text("utf-8"), re.MULTILINE)
    )
    assert {
        name: classes[name]
        for name in terminal.EXIT_CODES
        if classes[name] != 1 and not hasattr(builtins, name)
    } == {}


def test_version_option_prints_the_version() -> None:
    result = CliRunner().invoke(app, ["--version"])

    assert (result.exit_code, result.stdout.strip()) == (0, __version__)
