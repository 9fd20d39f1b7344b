"""The documents as tests read them: their code blocks, run as they are printed.

The words behind the language of a block say how it is run; readers do not see them:

    ```sh                    at the edge (or where there is only one place)
    ```sh cloud              in the cloud
    ```sh keeps-running      it does not end by itself
    ```sh not-run            it cannot be run by a test; tests/house lists these

What a page leaves open is filled in by who follows it: a value with … in it (`KEY=…`,
`--code 7QKXM-…`) or in angle brackets (`<event_id>`).
"""

import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from farmiq.lab.stack import mosquitto
from tests.support.engines import state_dir

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
# Pages whose commands tests/flow/test_documents.py runs, after those of docs/tutorial/install.md.
FOLLOWED = (
    "README.md",
    "docs/integrate/plain-client.md",
    "docs/operate/devices.md",
    "docs/operate/telemetry.md",
    "docs/operate/feed.md",
    "docs/operate/masterdata.md",
    "docs/operate/quarantine.md",
    "docs/operate/outbox.md",
    "docs/operate/enrolment.md",
    "docs/integrate/camera-api.md",
    "docs/operate/bus.md",
    "docs/operate/notifications.md",
    "docs/operate/alerts.md",
    "docs/operate/upgrade.md",
    "docs/operate/records.md",
    "docs/operate/edge-console.md",
)

_BLOCK = re.compile(r"(?ms)^(?P<indent> *)```(?P<info>\S[^\n]*)\n(?P<text>.*?)^(?P=indent)```")
_OPEN = re.compile(r"(?P<name>\b[A-Z_]+=|--[a-z-]+ )(?P<value>[\w:/.-]*…)|<(?P<word>[a-z_]+)>")
# Exit code 3 means that something needs attention: the command itself worked.
_ATTENTION = 3
_TYPED = """
set -a
shopt -s expand_aliases
[ ! -e "$SHELL_STATE" ] || . "$SHELL_STATE"
trap 'code=$?; [ $code = {attention} ] || {{ echo "exit code $code: $BASH_COMMAND" >&2; exit $code; }}' ERR
{text}
trap - ERR
{{ export -p; alias -p; }} > "$SHELL_STATE"
"""  # noqa: E501


@dataclass(frozen=True, kw_only=True)
class Block:
    """A fenced block: where it stands, its language, the words behind it, and its text."""

    page: str
    line: int
    heading: str
    language: str
    words: frozenset[str]
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def filled(self, values: Mapping[str, str]) -> str:
        """The text with a value for everything that it leaves open."""

        def fill(found: re.Match[str]) -> str:
            name = found["word"] or found["name"].strip(" =")
            assert name in values, f"{self.place}: nobody says what {name} is"
            return f"{found['name'] or ''}{shlex.quote(values[name])}"

        return _OPEN.sub(fill, self.text)


def blocks(page: str) -> list[Block]:
    """The blocks of a page, by its path from the top of the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        before = text[: match.start()]
        language, *words = match["info"].split()
        headings = re.findall(r"(?m)^#+ (.*)$", _BLOCK.sub("", before))
        found.append(
            Block(
                page=page,
                line=before.count("\n") + 1,
                heading=headings[-1] if headings else "",
                language=language,
                words=frozenset(words),
                text=textwrap.dedent(match["text"]),
            )
        )
    return found


def block(page: str, heading: str, language: str = "sh") -> Block:
    """The first block of a language below a heading."""
    for each in blocks(page):
        if each.heading == heading and each.language == language:
            return each
    raise AssertionError(f"no {language} below {heading!r} in {page}")


@dataclass(frozen=True)
class Shell:
    """A terminal in a folder: what is set in one block is set in the next."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    # Commands that go before those of the environment that we run in.
    programs: Path = Path(sys.executable).parent

    def run(self, text: str) -> "subprocess.CompletedProcess[str]":
        """Run lines as they would be typed; the first that fails ends it."""
        return subprocess.run(
            self.command(text),
            cwd=self.folder,
            env=self.settings(),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    def command(self, text: str) -> list[str]:
        return ["bash", "-c", _TYPED.format(text=text, attention=_ATTENTION)]

    def settings(self) -> dict[str, str]:
        """Nothing of ours but what was given: what a page needs it has to say."""
        clients = mosquitto.find(state_dir() / "engines")
        plain = clients.environment(self.folder)
        installed = str(Path(sys.executable).parent)
        path = (str(self.programs), installed, str(clients.publisher.parent), plain["PATH"])
        return {
            **plain,
            "PATH": os.pathsep.join(path),
            "LC_ALL": "C.UTF-8",
            "SHELL_STATE": str(self.folder / ".shell-state"),
            **self.environment,
        }
