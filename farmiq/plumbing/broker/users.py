"""A broker's users, written from a registry: a file replaced whole, then a SIGHUP to reload it.

The process to signal is named by a pid file and must be a broker; nothing else is ever signalled,
and no command is run. A reload cuts whoever may not be connected any more.
"""

import contextlib
import os
import secrets
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from farmiq.plumbing import db, log
from farmiq.plumbing.backoff import Attempts

# The program that a pid must run before it gets a signal: a pid file may be from before a reboot.
BROKERS = ("nats-server", "mosquitto")


class NotReloadedError(Exception):
    """The file is written, but the broker did not reload; the text says why and who must act."""


class Users:
    """Keeps the users file equal to the registry. `problem` says what is wrong, or None.

    `version` is another value whenever the registry has changed; `make` gives the file's text and
    how many devices it lets in.
    """

    def __init__(
        self,
        pool: db.Pool,
        file: Path,
        *,
        pid_file: Path | None,
        version: Callable[[db.Connection], Awaitable[Any]],
        make: Callable[[db.Connection], Awaitable[tuple[str, int]]],
    ) -> None:
        self._pool, self._file, self._pid_file = pool, file, pid_file
        self._read_version, self._make = version, make
        self._version: Any = None
        self._stamp: tuple[int, int] | None = None
        self._reload_pending = False
        self._attempts = Attempts(
            "devices are not admitted as registered",
            problem="the broker's users are not written yet",
        )

    @property
    def problem(self) -> str | None:
        return self._attempts.problem

    async def refresh(self) -> dict[str, object]:
        """One look: write and reload if the registry has changed, or the file."""
        wrote, before = 0, self.problem
        try:
            with self._attempts:
                async with db.transaction(self._pool) as tx:
                    version = await self._read_version(tx)
                    if version != self._version or self._stamp != _stamp(self._file):
                        text, wrote = await self._make(tx)
                        self._write(text)
                        self._version = version
                if self._reload_pending and self._pid_file is not None:
                    reload(self._pid_file)
        except (OSError, NotReloadedError):
            if self.problem != before:
                log.get("broker").error("broker.users_not_written", error=self.problem)
            return {}
        self._reload_pending = False
        return {"users": wrote}

    def _write(self, text: str) -> None:
        """Nothing is reloaded for a file that says the same already."""
        try:
            same = self._file.read_text(encoding="utf-8") == text
        except FileNotFoundError:
            same = False
        if not same:
            replace(self._file, text)
            self._reload_pending = True
        self._stamp = _stamp(self._file)


def replace(file: Path, text: str) -> None:
    """In one step, so that a broker never reads half a file; the group may read it."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(file)
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()


def reload(pid_file: Path) -> None:
    """Raises NotReloadedError if the file names no broker that runs."""
    try:
        pid = int(pid_file.read_text(encoding="ascii").strip())
        running = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise NotReloadedError(f"{pid_file} names no running broker ({error})") from None
    if running not in BROKERS:
        raise NotReloadedError(f"{pid_file} names pid {pid}, which is {running!r} and no broker")
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError as error:
        raise NotReloadedError(
            f"pid {pid} of {pid_file} cannot be signalled ({error.strerror}): run it as our user"
        ) from None


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        stat = file.stat()
    except FileNotFoundError:
        return None
    return stat.st_mtime_ns, stat.st_size
