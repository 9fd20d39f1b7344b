"""The sockets of this process."""

import contextlib
from pathlib import Path


def open_sockets() -> int:
    """How many this process has open."""
    count = 0
    for file in Path("/proc/self/fd").iterdir():
        # The one that lists is gone again.
        with contextlib.suppress(OSError):
            count += file.readlink().name.startswith("socket:")
    return count
