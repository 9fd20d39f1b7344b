"""What `tools/environment` says while it installs packages."""

import subprocess
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "environment"


def shown(said_by_pip: str, *, total: int) -> list[str]:
    """What its function makes of pip's words, where there is no terminal."""
    text = TOOL.read_text(encoding="utf-8")
    function = text[
        text.index("show_progress() {") : text.index("\n}\n", text.index("show_pro")) + 3
    ]
    script = f'say() {{ echo "$*"; }}\n{function}\nshow_progress {total}'
    done = subprocess.run(
        ["bash", "-c", script], input=said_by_pip, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_packages_are_counted_while_they_come() -> None:
    lines = [f"Collecting package-{number}==1.0 (from -r all.lock)" for number in range(60)]
    lines += ["  Downloading package.whl (1 kB)", "Installing collected packages: a, b"]
    assert shown("\n".join(lines) + "\n", total=60) == [
        "package 25 of 60",
        "package 50 of 60",
        "unpacking the packages",
    ]


def test_environment_hands_pips_words_to_the_counter() -> None:
    assert '| show_progress "$count"' in TOOL.read_text(encoding="utf-8")
