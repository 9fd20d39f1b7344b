"""The number of the contract between sites grows with the messages (D-581)."""

import json
import re
import subprocess

from farmiq.messages.contract import CONTRACT, FIRST
from tests.support import release

FILE = "farmiq/messages/contract.py"
DOCUMENT = "docs/asyncapi.json"


def _released(path: str) -> str | None:
    shown = subprocess.run(
        ["git", "show", f"{release.commit()}:{path}"],
        cwd=release.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return shown.stdout if shown.returncode == 0 else None


def test_the_number_is_higher_than_that_of_the_release_if_messages_differ() -> None:
    before = _released(FILE)
    number = re.search(r"(?m)^CONTRACT = (\d+)$", before or "")
    released = int(number[1]) if number else FIRST
    old = json.loads(_released(DOCUMENT) or "{}")
    new = json.loads((release.ROOT / DOCUMENT).read_text(encoding="utf-8"))
    changed = old.get("components") != new["components"]
    assert released + changed == CONTRACT, f"set CONTRACT in {FILE}"
