"""Steps of an installation: each knows whether it is done, does it, and can be undone.

What was made is noted in a file on the machine, so that undoing removes that and nothing else.
Data, keys and passwords stay until `--purge`: without them a second installation could not read
the database of the first.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

NOTES = Path("/var/lib/farmiq")


class InstallError(Exception):
    """The machine cannot be installed like this; the text says what to do."""


class Made(msgspec.Struct, frozen=True):
    """One thing that an installation made. `digest` tells whether somebody changed it since."""

    kind: str
    name: str
    digest: str = ""


class Note(msgspec.Struct, frozen=True):
    """What stands on a machine of one installation."""

    site: str
    version: str
    answers: dict[str, str]
    made: list[Made]
    # The code that each service was started with, at the last run.
    code: dict[str, str] = {}


@dataclass(frozen=True)
class Target:
    """The machine that is installed: this one, or the one whose files lie below `root`."""

    root: Path = Path("/")

    def at(self, path: Path) -> Path:
        return self.root / path.relative_to("/")

    @property
    def is_live(self) -> bool:
        """Whether its systemd runs, and can be told."""
        return self.root == Path("/") and Path("/run/systemd/system").is_dir()

    def number(self, name: str, file: str) -> int | None:
        """Of a user (passwd) or a group (group), as the files of that machine say."""
        try:
            text = self.at(Path("/etc") / file).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InstallError(
                f"{self.root} has no /etc/{file}: --root names the folder of a whole system"
            ) from None
        rows = (line.split(":") for line in text.splitlines())
        return next((int(row[2]) for row in rows if row[0] == name), None)

    def own(self, path: Path, owner: str, group: str, mode: int) -> None:
        uid, gid = self.number(owner, "passwd"), self.number(group, "group")
        if uid is None or gid is None:
            raise InstallError(
                f"{path} is to belong to {owner}:{group}, and one of them is not there"
            )
        os.chown(path, uid, gid)
        path.chmod(mode)

    def is_owned(self, path: Path, owner: str, group: str, mode: int) -> bool:
        status = path.stat()
        wanted = (self.number(owner, "passwd"), self.number(group, "group"), mode)
        return (status.st_uid, status.st_gid, status.st_mode & 0o7777) == wanted


class Step(Protocol):
    """One thing that is to be there."""

    def describe(self) -> str: ...
    def is_done(self, target: Target) -> bool: ...
    def do(self, target: Target) -> list[Made]:
        """Make it; returns what was not there before."""


@dataclass(frozen=True, kw_only=True)
class Account:
    """A user without a password and without a shell, and a group of its name."""

    name: str
    home: Path

    def describe(self) -> str:
        return f"user {self.name}"

    def is_done(self, target: Target) -> bool:
        return target.number(self.name, "passwd") is not None

    def do(self, target: Target) -> list[Made]:
        wanted = ("--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin")
        _run(target, "useradd", *wanted, "--home-dir", str(self.home), self.name)
        return [Made("user", self.name)]


@dataclass(frozen=True, kw_only=True)
class Folder:
    path: Path
    owner: str = "root"
    group: str = "root"
    mode: int = 0o755

    def describe(self) -> str:
        return f"folder {self.path}"

    def is_done(self, target: Target) -> bool:
        path = target.at(self.path)
        return path.is_dir() and target.is_owned(path, self.owner, self.group, self.mode)

    def do(self, target: Target) -> list[Made]:
        path = target.at(self.path)
        is_new = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        target.own(path, self.owner, self.group, self.mode)
        return [Made("folder", str(self.path))] if is_new else []


@dataclass(frozen=True, kw_only=True)
class File:
    """A file with this text, or made by a function.

    One that is `made_once` is never written over, whatever is in it. One that `stays` is removed
    by a purge alone, and so is one that is made once.
    """

    path: Path
    text: str | Callable[[Path], None]
    owner: str = "root"
    group: str = "root"
    mode: int = 0o644
    made_once: bool = False
    stays: bool = False

    def describe(self) -> str:
        return f"file {self.path}"

    def is_done(self, target: Target) -> bool:
        path = target.at(self.path)
        if not path.is_file() or not target.is_owned(path, self.owner, self.group, self.mode):
            return False
        return self.made_once or path.read_text(encoding="utf-8") == self.text

    def do(self, target: Target) -> list[Made]:
        path = target.at(self.path)
        if not (self.made_once and path.exists()):
            draft = path.with_name(f".{path.name}.new")
            draft.unlink(missing_ok=True)
            if callable(self.text):
                self.text(draft)
            else:
                descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
                    opened.write(self.text)
            draft.replace(path)
        target.own(path, self.owner, self.group, self.mode)
        kind = "secret" if self.made_once or self.stays else "file"
        return [Made(kind, str(self.path), _digest(path))]


@dataclass(frozen=True, kw_only=True)
class Link:
    path: Path
    to: str

    def describe(self) -> str:
        return f"link {self.path}"

    def is_done(self, target: Target) -> bool:
        path = target.at(self.path)
        return path.is_symlink() and str(path.readlink()) == self.to

    def do(self, target: Target) -> list[Made]:
        path = target.at(self.path)
        path.unlink(missing_ok=True)
        path.symlink_to(self.to)
        return [Made("link", str(self.path))]


def lacking(steps: Iterable[Step], target: Target) -> list[Step]:
    return [step for step in steps if not step.is_done(target)]


def apply(
    steps: Sequence[Step],
    target: Target,
    *,
    site: str,
    version: str,
    answers: dict[str, str],
    code: dict[str, str],
) -> list[str]:
    """Do what is lacking; returns that in words. Noted after each step: none is made unnoticed."""
    earlier = read(target, site)
    made = {(item.kind, item.name): item for item in earlier.made} if earlier else {}
    done = []
    for step in steps:
        if not step.is_done(target):
            made |= {(item.kind, item.name): item for item in step.do(target)}
            done.append(step.describe())
            _write(target, Note(site, version, answers, list(made.values()), code))
    note = Note(site, version, answers, list(made.values()), code)
    if note != earlier:
        _write(target, note)
    return done


def read(target: Target, site: str) -> Note | None:
    file = target.at(NOTES / f"{site}.json")
    return msgspec.json.decode(file.read_bytes(), type=Note) if file.exists() else None


def undo(target: Target, note: Note, *, purge: bool) -> tuple[list[str], list[str]]:
    """Remove what was made, the last first; returns what is gone and what stays."""
    gone: list[str] = []
    left: list[Made] = []
    for item in reversed(note.made):
        (
            gone.append(f"{item.kind} {item.name}")
            if _remove(target, item, purge)
            else left.append(item)
        )
    file = target.at(NOTES / f"{note.site}.json")
    if left:
        _write(target, msgspec.structs.replace(note, made=left[::-1]))
    else:
        file.unlink(missing_ok=True)
        if file.parent.is_dir() and not any(file.parent.iterdir()):
            file.parent.rmdir()
    return gone, [f"{item.kind} {item.name}" for item in left]


def _remove(target: Target, item: Made, purge: bool) -> bool:  # noqa: FBT001
    if item.kind == "user":
        if purge:
            _run(target, "userdel", item.name)
        return purge
    path = target.at(Path(item.name))
    if not path.exists() and not path.is_symlink():
        return True
    if item.kind == "folder":
        if not purge and any(path.iterdir()):
            return False
        shutil.rmtree(path)
        return True
    untouched = item.kind == "link" or _digest(path) == item.digest
    if not purge and (item.kind == "secret" or not untouched):
        return False
    path.unlink()
    return True


def _write(target: Target, note: Note) -> None:
    folder = target.at(NOTES)
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{note.site}.json"
    draft.touch(mode=0o600)
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(note), indent=1))
    draft.replace(folder / f"{note.site}.json")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _run(target: Target, program: str, *arguments: str) -> None:
    """Run one of the programs that change users, on the files of that machine."""
    path = shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin")
    if path is None:
        raise InstallError(f"{program} is not there: install Debian's package passwd")
    where = () if target.root == Path("/") else ("--prefix", str(target.root))
    done = subprocess.run(  # noqa: S603 - a list, never a shell
        [path, *where, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise InstallError(f"{program} {arguments[-1]}: {done.stderr.strip()}")
