"""How long to wait before trying again: growing, capped, never in step with others."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_RETRY_AFTER_S = 86_400.0


def delay_s(attempt: int, *, base_s: float, cap_s: float, chance: float) -> float:
    """Full jitter: between half and the whole of base·2^attempt, at most cap."""
    whole = min(base_s * 2.0 ** min(attempt, 32), cap_s)
    return whole * (0.5 + chance / 2)


def retry_after_s(header: str | None, *, now: datetime) -> float | None:
    """Retry-After in either of its forms, seconds or a date; between 0 and MAX_RETRY_AFTER_S.

    None if it says neither.
    """
    if not header:
        return None
    if header.isdecimal():
        return min(float(header[:9]), MAX_RETRY_AFTER_S)
    try:
        until = parsedate_to_datetime(header)
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
    # Subtracted as it stands: in another zone a date at the calendar's end may not exist.
    at = until if until.tzinfo else until.replace(tzinfo=UTC)
    return min(max(0.0, (at - now).total_seconds()), MAX_RETRY_AFTER_S)


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
        wait = delay_s(
            self._attempt,
            base_s=self.base_s,
            cap_s=self.cap_s,
            chance=random.random(),  # noqa: S311 - jitter, not a secret
        )
        self._attempt += 1
        return wait

    async def wait(self) -> None:
        await asyncio.sleep(self.next_s())


def cancelled_so_far() -> int:
    """How often this task was cancelled: a task group that ended may leave one behind (3.11)."""
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


def end_if_cancelled(*, beyond: int = 0) -> None:
    """Raises CancelledError if a library lost one while it handled an error of its own.

    Else a loop that tries again would go on, and whoever ends it would wait for ever: a task group
    cancels its tasks once. `beyond` is what cancelled_so_far() said when the loop began.
    """
    if cancelled_so_far() > beyond:
        raise asyncio.CancelledError
