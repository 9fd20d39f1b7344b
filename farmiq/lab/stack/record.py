"""What a stack remembers in its folder: passwords, ports, and which processes are its own."""

import contextlib
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from farmiq import config
from farmiq.lab.stack import files, processes
from farmiq.lab.stack.engine import StackError, new_password
from farmiq.lab.stack.processes import Process

T = TypeVar("T")


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """An engine in use. One that was given by address has no processes."""

    name: str
    version: str
    host: str
    port: int
    urls: dict[str, str]
    stop_signal: int = 0
    helpers: tuple[Process, ...] = ()
    process: Process | None = None
    litter: tuple[str, ...] = ()

    @property
    def alive(self) -> bool:
        return self.process is not None and processes.alive(self.process)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a stack; without an owner it was left running on purpose."""

    owner: Process | None
    engines: tuple[Running, ...]

    @property
    def owned(self) -> bool:
        return self.owner is not None and processes.alive(self.owner)

    @property
    def alive(self) -> bool:
        return self.owned or any(engine.alive for engine in self.engines)

    @property
    def environment(self) -> dict[str, str]:
        return {name: url for engine in self.engines for name, url in engine.urls.items()}


def read_run(root: Path) -> Run | None:
    """Return the last run that was not stopped in good order, whether alive or not."""
    return _read(root / "run.json", Run)


def write_run(root: Path, run: Run) -> None:
    files.write_private(root / "run.json", msgspec.json.encode(run).decode())


def remove_run(root: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        (root / "run.json").unlink()


def announce(root: Path) -> None:
    """Note that a stack runs in `root`, so that commands find it from any folder."""
    folder = config.running_stacks_dir()
    note = folder / hashlib.sha256(str(root).encode()).hexdigest()[:16]
    # A home that cannot be written to only makes the stack harder to find.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        files.write_private(note, str(root))


def announced() -> list[Path]:
    """Return the folders of this user's running stacks; notes of those that ended are removed."""
    roots = []
    for note in sorted(config.running_stacks_dir().glob("[0-9a-f]*")):
        try:
            root = Path(note.read_text(encoding="utf-8"))
            run = read_run(root)
        except (OSError, StackError):
            run = None
        if run is not None and run.alive:
            roots.append(root)
        else:
            note.unlink(missing_ok=True)
    return roots


def passwords(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the stack's passwords; those it has not are made and kept."""
    known = _read(root / "passwords.json", dict[str, str]) or {}
    lacking = {name: new_password() for name in names if name not in known}
    if lacking:
        files.write_private(root / "passwords.json", json.dumps({**known, **lacking}, indent=2))
    return {**known, **lacking}


def has_passwords(root: Path) -> bool:
    return (root / "passwords.json").exists()


def port_base(root: Path) -> int | None:
    return _read(root / "ports.json", int)


def write_port_base(root: Path, base: int) -> None:
    files.write_private(root / "ports.json", str(base))


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as problem:
        raise StackError(
            f"{path} cannot be read ({problem}): remove it, then start the stack again."
        ) from problem
