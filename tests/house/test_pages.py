"""Every `farmiq …` in the documents is a command that exists, with options that exist."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from farmiq.cli import app
from tests.support import pages

# What no test runs, and why.
NOT_RUN = {
    "docs/tutorial/install.md": ["pip install ."],  # the tests run what is installed already
}
# Pages whose commands are only looked up in the tree of commands, and why.
LOOKED_UP = {
    "docs/operate/agent.md",  # systemd and a weigh station of one's own
    "docs/operate/deploy.md",  # root, and systemd; tools/prove-install runs them
    "docs/operate/backup.md",  # a second machine; test_backup.py runs them
    "docs/operate/cameras.md",  # a camera's login and messages
    "docs/operate/deletion.md",  # a company that may go; test_deletion.py runs them
    "docs/operate/hardware.md",  # serial ports and cameras
    "docs/operate/vision.md",  # a folder of images with weights
    "docs/operate/weighvision.md",  # a weighing
}
# The whole tree, made once: it takes a while.
TREE: Any = typer.main.get_command(app)
_COMMAND = re.compile(r"(?<![\w./$-])(?:\.venv/bin/)?farmiq (?P<words>[a-z].*?)(?= >|[|;)#\n]|$)")
# Around what may be left out.
BRACKETS = str.maketrans("[]", "  ")
_SPAN = re.compile(r"`([^`]+)`")
_FENCED = re.compile(r"(?ms)^ *```.*?^ *```")
_PATH = re.compile(r"[\w.-]+(/[\w.-]+)+/?")
DOCUMENTS = (*sorted(pages.ROOT.glob("*.md")), *sorted((pages.ROOT / "docs").rglob("*.md")))
# What these say of a file was true when it was written.
HISTORY = {"CHANGELOG.md", "DECISIONS.md"}
# Not what the Makefile's targets make: `make sbom` leaves a folder that a page names.
FOLDERS = {
    folder.name for top in (pages.ROOT, pages.ROOT / "farmiq") for folder in top.iterdir()
    if folder.is_dir()
} - {"artefacts", "dist"}  # fmt: skip


def written(page: str) -> Iterator[str]:
    """What stands behind `farmiq` in the blocks of a page and in its text."""
    text = (pages.ROOT / page).read_text(encoding="utf-8")
    for block in pages.blocks(page):
        text = text.replace(block.text, "")
        if block.language == "sh":
            yield from _commands(block.text.replace("\\\n", " "))
    prose = _FENCED.sub("", text)
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

    assert with_commands == {
        *pages.FOLLOWED,
        "docs/tutorial/install.md",
        "docs/integrate/psql.md",
        *LOOKED_UP,
    }


def test_tests_that_the_security_page_names_exist() -> None:
    operate = pages.ROOT / "docs" / "operate"
    page = "".join(
        (operate / name).read_text(encoding="utf-8") for name in ("security.md", "threats.md")
    )
    file, missing, named = "", [], 0
    for given, name in re.findall(r"`([\w/.…]+)::(\w+)`", page):
        file = file if given == "…" else given
        source = (pages.ROOT / "tests" / file).read_text(encoding="utf-8")
        named += 1
        if f"def {name}(" not in source:
            missing.append(f"{file}::{name}")

    assert missing == []
    assert named > 50


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    broken = []
    for page in DOCUMENTS:
        for target, _, anchor in (link.partition("#") for link in _links(page)):
            file = page.parent / target if target else page
            if not file.exists() or (anchor and anchor not in _anchors(file)):
                broken.append(f"{page.relative_to(pages.ROOT)}: {target}#{anchor}")

    assert broken == []


def test_every_path_in_the_documents_exists() -> None:
    missing, named = [], 0
    for page in DOCUMENTS:
        if page.name in HISTORY:
            continue
        for path in _paths(page.read_text(encoding="utf-8")):
            named += 1
            if not any((top / path).exists() for top in (pages.ROOT, pages.ROOT / "farmiq")):
                missing.append(f"{page.relative_to(pages.ROOT)}: {path}")

    assert missing == []
    assert named > 60


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("read `edge/nowhere` first", ["edge/nowhere"]),
        ("`farmiq/edge/outbox.py: write`", ["farmiq/edge/outbox.py"]),
        ("see docs/nowhere.md.", ["docs/nowhere.md"]),
        ("a page (docs/nowhere.md), a [link](docs/other.md)", ["docs/nowhere.md"]),
        ("the topic `device/{mac}/data`, `iot/ack/…` and `tests/sql`", ["tests/sql"]),
    ],
)
def test_path_in_a_document_is_found(text: str, expected: list[str]) -> None:
    assert _paths(text) == expected


def test_every_page_is_in_the_index() -> None:
    index = pages.ROOT / "docs" / "index.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in _links(index)}

    assert {page for page in pages.PAGES if index.parent in page.parents} - linked == {index}


def test_every_folder_of_the_code_is_in_the_architecture() -> None:
    text = (pages.ROOT / "ARCHITECTURE.md").read_text()

    named = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert named == {file.parent.name for file in (pages.ROOT / "farmiq").glob("*/__init__.py")}


def test_every_rule_in_the_architecture_is_in_the_file_beside_it() -> None:
    text = (pages.ROOT / "ARCHITECTURE.md").read_text()
    section = text.partition("## Where a rule is")[2].partition("\n## ")[0]
    rows = [re.findall(r"`([^`]+)`", row) for row in section.splitlines() if "`farmiq/" in row]

    assert len(rows) > 5
    for row in rows:
        code = "".join((pages.ROOT / name).read_text() for name in row if name.endswith(".py"))
        names = [name for name in row if not name.endswith(".py")]
        assert names
        assert [name for name in names if not re.search(rf"(?m)^(\w+ )*{name}\b", code)] == []


def test_every_module_of_test_support_is_in_its_readme() -> None:
    support = pages.ROOT / "tests" / "support"
    named = set(re.findall(r"^\| `(\w+\.py)`", (support / "README.md").read_text(), re.MULTILINE))

    assert named == {file.name for file in support.glob("*.py")} - {"__init__.py"}


def _links(page: Path) -> list[str]:
    prose = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose) if "://" not in link]


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"(?m)^#+ (.*)$", page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _paths(text: str) -> list[str]:
    """The files and folders of ours that a text names: in code spans, or below docs/."""
    prose = _FENCED.sub("", text)
    spans = (span.partition(":")[0] for span in _SPAN.findall(prose))
    plain = re.findall(r"(?<![\w/.`-])(?<!\]\()docs/[\w./-]+\.md\b", prose)
    return [
        *(span for span in spans if _PATH.fullmatch(span) and span.split("/")[0] in FOLDERS),
        *plain,
    ]


def _commands(text: str) -> Iterator[str]:
    return (found["words"].strip() for found in _COMMAND.finditer(text))


def _names() -> list[str]:
    return [str(page.relative_to(pages.ROOT)) for page in pages.PAGES]
