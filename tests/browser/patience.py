"""Wait for a condition, never for a time."""

import time
from collections.abc import Callable


def until(true: Callable[[], bool], what: str, *, within_s: float = 60) -> None:
    ends_at = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < ends_at, f"waited {within_s} s in vain: {what}"
        time.sleep(0.05)
