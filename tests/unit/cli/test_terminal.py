"""How commands print lists and moments, and what they do when nobody reads on."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from farmiq.cli import terminal
from farmiq.config import SettingsError
from farmiq.plumbing import log

AT = datetime(2026, 3, 1, 13, 0, 0, 5000, tzinfo=timezone(timedelta(hours=7)))
ROWS = [{"name": "a", "at": AT}, {"name": "longer", "at": AT}]


def cells(row: dict[str, object]) -> tuple[str, ...]:
    return str(row["name"]), "second\n    below"


def printed(work: Callable[[], object], *words: str) -> Result:
    app = terminal.Group("One command.")
    app.command("it")(work)
    app.callback()(lambda: None)
    return CliRunner().invoke(app, ["it", *words])


def test_list_for_people_is_aligned_and_says_how_many_more() -> None:
    result = printed(
        lambda: terminal.print_list(ROWS, cells, more=16_676, hint="--limit shows more")
    )
    assert result.stdout.splitlines() == [
        "a       second", "    below", "longer  second", "    below",
        "and 16,676 more; --limit shows more",
    ]  # fmt: skip


def test_list_for_scripts_is_one_document_with_moments_in_utc() -> None:
    result = printed(lambda: terminal.print_list(ROWS, cells, more=None), "--json")
    assert json.loads(result.stdout)[0] == {"name": "a", "at": "2026-03-01T06:00:00.005000Z"}
    assert result.stderr == "and more\n"


@pytest.mark.parametrize(("empty", "line"), [("", "nothing\n"), ("add one", "nothing; add one\n")])
def test_list_without_rows_says_nothing_and_why(empty: str, line: str) -> None:
    assert printed(lambda: terminal.print_list([], cells, empty=empty)).stdout == line


@pytest.mark.parametrize(("code", "exit_code"), [(None, 0), (0, 0), (3, 3)])
def test_command_that_returns_a_code_exits_with_it(code: int | None, exit_code: int) -> None:
    assert printed(lambda: code).exit_code == exit_code


def test_command_that_raises_an_error_for_people_prints_it_and_exits_1() -> None:
    def unwell() -> None:
        raise SettingsError("FARMIQ_X is odd")

    result = printed(unwell)
    assert (result.exit_code, result.stderr) == (1, "FARMIQ_X is odd\n")


def test_command_that_raises_our_own_mistake_lets_it_through() -> None:
    def broken() -> None:
        raise ZeroDivisionError

    assert isinstance(printed(broken).exception, ZeroDivisionError)


def test_moment_for_people_is_of_this_machine_with_its_zone() -> None:
    expected = f"{AT.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    assert terminal.local(AT) == terminal.local(AT.astimezone(UTC)) == expected
    assert terminal.local(AT.isoformat()) == expected
    assert (terminal.local(None), terminal.local("yesterday")) == ("never", "yesterday")


_ENDLESS = """
import asyncio, itertools
import typer
from farmiq import cli

async def say() -> None:
    for number in itertools.count():
        typer.echo("x" * 1000)
        await asyncio.sleep(0)

async def together() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(say())

@cli.app.command("endless")
def endless() -> None:
    asyncio.run({work}())

cli.main()
"""


@pytest.mark.parametrize("work", ["say", "together"])
def test_closed_pipe_ends_a_command_without_a_traceback(work: str) -> None:
    command = [sys.executable, "-c", _ENDLESS.replace("{work}", work), "endless"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        assert (process.wait(timeout=60), said) == (1, b"")


def test_service_works_on_when_nobody_reads_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with Path(os.devnull).open("w") as nothing, os.fdopen(writes, "w", buffering=1) as nobody:
        monkeypatch.setattr(sys, "stderr", nobody)
        log.configure("info")
        try:
            log.get("test").info("said", count=1)
        finally:
            monkeypatch.undo()
            log.configure("warning")
        os.dup2(nothing.fileno(), writes)  # to close it, all must be flushed
