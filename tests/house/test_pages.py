"""Every `farmiq …` in the documents is a command that exists, with options that exist."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from farmiq.cli import app
from tests.support import pages

# What no test runs, and why.
NOT_RUN = {
    "docs/install.md": ["pip install ."],  # the tests run what is installed already
}
# Pages whose commands are only looked up in the tree of commands, and why.
LOOKED_UP = {
    "docs/agent.md",  # systemd and a weigh station of one's own
    "docs/cameras.md",  # a camera's login and messages
    "docs/hardware.md",  # serial ports and cameras
    "docs/weighvision.md",  # a weighing
}
# The whole tree, made once: it takes a while.
TREE: Any = typer.main.get_command(app)
_COMMAND = re.compile(r"(?<![\w./$-])(?:\.venv/bin/)?farmiq (?P<words>[a-z].*?)(?= >|[|;)#\n]|$)")
# Around what may be left out.
BRACKETS = str.maketrans("[]", "  ")
_SPAN = re.compile(r"`([^`]+)`")


def written(page: str) -> Iterator[str]:
    """What stands behind `farmiq` in the blocks of a page and in its text."""
    text = (pages.ROOT / page).read_text(encoding="utf-8")
    for block in pages.blocks(page):
        text = text.replace(block.text, "")
        if block.language == "sh":
            yield from _commands(block.text.replace("\\\n", " "))
    prose = re.sub(r"(?ms)^ *```.*?^ *```", "", text)
    for span in _SPAN.findall(prose):
        yield from _commands(" ".join(span.split()))


def problem(words: str) -> str | None:
    """Follow the words down the tree of commands; say where they leave it."""
    command, name = TREE, "farmiq"
    ahead = iter(re.sub(r"'[^']*'|\"[^\"]*\"", "TEXT", words).translate(BRACKETS).split())
    for word in ahead:
        if word.startswith("-"):
            option, _, value = word.partition("=")
            known = [each for each in command.params if option in each.opts]
            if not known:
                return f"`{name}` has no option {option}"
            if not value and not known[0].is_flag:
                next(ahead, None)
        elif hasattr(command, "commands"):
            if word not in command.commands:
                return f"`{name}` has no command {word}" if word.isalpha() else None
            command = command.commands[word]
            name = f"{name} {word}"
    return None


def test_every_command_in_the_documents_exists_with_its_options() -> None:
    found = {
        f"{page}: {wrong} (farmiq {words})"
        for page in _names()
        for words in written(page)
        if (wrong := problem(words))
    }

    assert found == set()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("device ad hillside", "`farmiq device` has no command ad"),
        ("outbox ls --state dlq", "`farmiq outbox ls` has no option --state"),
        ('outbox ls --reason "a b" --state', "`farmiq outbox ls` has no option --state"),
        ("camera --as you@hill.farm sight ls", "`farmiq camera` has no command sight"),
        ("outbox ls [--status dlq] --reason 'a b'", None),
    ],
)
def test_command_that_does_not_exist_is_found(words: str, expected: str | None) -> None:
    assert problem(words) == expected


def test_blocks_that_no_test_runs_are_listed_here() -> None:
    marked = {
        page: [line.partition("#")[0].strip() for line in block.text.splitlines()]
        for page in _names()
        for block in pages.blocks(page)
        if "not-run" in block.words
    }

    assert marked == NOT_RUN


def test_every_page_with_commands_is_run_by_a_test_or_listed_here() -> None:
    with_commands = {
        page for page in _names() if any(block.language == "sh" for block in pages.blocks(page))
    }

    assert with_commands == {*pages.FOLLOWED, "docs/install.md", "docs/psql.md", *LOOKED_UP}


def test_tests_that_the_security_page_names_exist() -> None:
    page = (pages.ROOT / "docs" / "operate" / "security.md").read_text(encoding="utf-8")
    file, missing, named = "", [], 0
    for given, name in re.findall(r"`([\w/.…]+)::(\w+)`", page):
        file = file if given == "…" else given
        source = (pages.ROOT / "tests" / file).read_text(encoding="utf-8")
        named += 1
        if f"def {name}(" not in source:
            missing.append(f"{file}::{name}")

    assert missing == []
    assert named > 50


def _commands(text: str) -> Iterator[str]:
    return (found["words"].strip() for found in _COMMAND.finditer(text))


def _names() -> list[str]:
    return [str(page.relative_to(pages.ROOT)) for page in pages.PAGES]
