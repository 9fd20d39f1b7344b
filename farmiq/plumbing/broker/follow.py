"""Follows a log that another program writes, rotates and truncates, in small parts."""

import os
from pathlib import Path
from typing import BinaryIO

MAX_BYTES = 1 * 2**20
# If more than this is unread, the older part is skipped and counted.
MAX_BEHIND = 64 * 2**20


class Follower:
    """Begins at the end of the file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._place: tuple[int, int] | None = None
        self._rest = b""

    def look(self) -> tuple[list[str], int]:
        """(new whole lines, bytes skipped); a file that is not there has none."""
        try:
            with self._file.open("rb") as opened:
                return self._read(opened)
        except (FileNotFoundError, PermissionError):
            self._place = self._place or (0, 0)
            return [], 0

    def _read(self, file: BinaryIO) -> tuple[list[str], int]:
        stat = os.fstat(file.fileno())
        if self._place is None:
            self._place = (stat.st_ino, stat.st_size)
            return [], 0
        inode, offset = self._place
        if inode != stat.st_ino or stat.st_size < offset:
            offset, self._rest = 0, b""
        skipped = max(0, stat.st_size - offset - MAX_BEHIND)
        file.seek(offset + skipped)
        data = self._rest * (not skipped) + file.read(MAX_BYTES)
        self._place = (stat.st_ino, file.tell())
        whole, _, rest = data.rpartition(b"\n")
        # A line longer than a whole look is no line of a log.
        self._rest = rest[:MAX_BYTES]
        return whole.decode("utf-8", "replace").splitlines(), skipped
