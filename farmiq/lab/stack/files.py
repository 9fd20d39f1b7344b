"""Files of a stack: written whole or not at all, closed to others, guarded by a lock."""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replace the file in one step; only its owner may read it."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


class Lock:
    """A lock that the kernel takes back when its holder dies, however it dies."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def take(self) -> bool:
        """Take it if it is free; say whether that worked."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def release(self) -> None:
        """Give it back; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock and hold it."""
    lock = Lock(path)
    try:
        lock.wait()
        yield
    finally:
        lock.release()


def last_lines(path: Path, count: int = 12) -> str:
    """Return the end of a log, or what to read in its stead when there is none."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return "(it wrote no log)"
    return "\n".join(lines[-count:]) or "(its log is empty)"
