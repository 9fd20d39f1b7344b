"""The last release, as it was: its own tree and its own virtual environment, made once a commit.

It lies below FARMIQ_STATE_DIR, so that runs share it. Its environment begins as a copy of the one
that runs the tests, and pip replaces what the release pinned otherwise: a few packages, not all.
"""

import fcntl
import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support.engines import state_dir

ROOT = Path(__file__).parents[2]


def commit() -> str:
    return (ROOT / "deploy" / "last-release").read_text(encoding="utf-8").strip()


def sql(site: str, folder: Path) -> Path:
    """The site's SQL as the last release had it, in a folder of the test."""
    _unpack(folder / "released", f"farmiq/{site}/sql")
    return folder / "released" / "farmiq" / site / "sql"


def last() -> Path:
    """The whole tree of the last release, with its environment; `python(tree)` runs it."""
    tree = state_dir().absolute() / "releases" / commit()[:12]
    tree.parent.mkdir(parents=True, exist_ok=True)
    with tree.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = tree / ".venv" / "ready"
        if not ready.exists():
            shutil.rmtree(tree, ignore_errors=True)
            _unpack(tree)
            shutil.copytree(
                sys.prefix, ready.parent, symlinks=True, ignore=shutil.ignore_patterns(ready.name)
            )
            _install(tree, "--require-hashes", "-r", "requirements.lock")
            _install(tree, "--no-deps", "--no-build-isolation", "-e", ".")
            ready.touch()
    return tree


def python(tree: Path) -> str:
    return str(tree / ".venv" / "bin" / "python")


def _install(tree: Path, *what: str) -> None:
    subprocess.run(
        [python(tree), "-m", "pip", "install", "--disable-pip-version-check", *what],
        cwd=tree, check=True, capture_output=True, timeout=900,
    )  # fmt: skip


def _unpack(folder: Path, *paths: str) -> None:
    packed = subprocess.run(
        ["git", "archive", commit(), *paths], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
