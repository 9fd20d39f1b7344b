"""Crash points: nothing when unset, death when armed, and every one of them is somewhere."""

import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import farmiq
from farmiq import crash


def run(setting: str, passes: int) -> int:
    program = (
        "from farmiq import crash\n"
        f"crash.arm({setting!r})\n"
        f"for _ in range({passes}):\n"
        "    crash.here('sync.after_claim')\n"
        "    crash.here('sync.after_answer')\n"
    )
    return subprocess.run([sys.executable, "-c", program], check=False).returncode


@pytest.mark.parametrize(
    ("setting", "passes", "dies"),
    [
        ("", 5, False),
        ("sync.after_claim", 1, True),
        ("sync.after_claim:3", 2, False),
        ("sync.after_claim:3", 3, True),
        ("ingress.after_commit", 5, False),
    ],
)
def test_a_process_dies_where_it_was_told_to(setting: str, passes: int, *, dies: bool) -> None:
    assert run(setting, passes) == (-signal.SIGKILL if dies else 0)


def test_an_unknown_point_is_refused_with_the_choices() -> None:
    with pytest.raises(crash.UnknownPointError, match=r"ingress\.after_commit"):
        crash.arm("ingress.after_lunch")
    crash.arm(None)


@pytest.mark.parametrize("count", ["abc", "0", "-1", "1.5", " 2", "\u0663"])
def test_a_count_that_is_none_is_refused_in_a_sentence(count: str) -> None:
    with pytest.raises(crash.UnknownPointError, match="which time to die there, 1 or more"):
        crash.arm(f"ingress.after_commit:{count}")
    crash.arm(None)


def test_every_declared_point_stands_in_the_code_once_and_no_other_does() -> None:
    folder = Path(farmiq.__file__).parent
    found = Counter(
        name
        for file in folder.rglob("*.py")
        for name in re.findall(r'crash\.here\("([^"]+)"\)', file.read_text())
    )
    assert found == Counter(dict.fromkeys(crash.POINTS, 1))
