"""Attempts of a loop: the wait before the next one, and whether the last one worked.

retry.py has the formula of the wait.
"""

import asyncio
import random
import time
from dataclasses import dataclass, field
from types import TracebackType

from farmiq.plumbing.retry import RetryPolicy


def chance() -> float:
    """A random number for the jitter of a policy."""
    return random.random()  # noqa: S311 - jitter, not a secret


@dataclass
class Backoff:
    """Waits longer after each failure; starts over only after a while without one (peers 24)."""

    base_s: float = 0.2
    cap_s: float = 10.0
    stable_s: float = 60.0
    _attempt: int = 0
    _last_failure_at: float = field(default=float("-inf"))

    def next_s(self) -> float:
        now = time.monotonic()
        if now - self._last_failure_at > self.stable_s:
            self._attempt = 0
        self._last_failure_at = now
        delay_s = RetryPolicy(self.base_s, self.cap_s).delay_s(self._attempt, chance=chance())
        self._attempt += 1
        return delay_s

    async def wait(self) -> None:
        await asyncio.sleep(self.next_s())


class Attempts:
    """`with attempts:` is one attempt; `problem` follows from the last one alone (D-197).

    So an attempt that finds nothing to do clears it as well as any other.
    """

    def __init__(self, what_waits: str, *, problem: str | None = None) -> None:
        """`what_waits` says in words what an attempt that fails leaves undone."""
        self._what_waits = what_waits
        self.problem = problem

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _tb: TracebackType | None,
    ) -> None:
        if error is None:
            self.problem = None
        elif isinstance(error, Exception):  # a cancelled attempt does not count
            why = (str(error).splitlines() or [type(error).__name__])[0]
            self.problem = f"{self._what_waits}: {why}"


def cancelled_so_far() -> int:
    """How often this task was cancelled: a task group that ended may leave one behind (3.11)."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def end_if_cancelled(*, beyond: int = 0) -> None:
    """Raises CancelledError if a library lost one while it handled an error of its own.

    Else a loop that tries again would go on, and the task that ends it would never return: a group
    cancels its tasks once. `beyond` is what cancelled_so_far() said when the loop began.
    """
    if cancelled_so_far() > beyond:
        raise asyncio.CancelledError
