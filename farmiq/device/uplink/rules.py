"""Pure: when to send, when to send again, and when sending has stalled.

Live events and the backlog share one queue and one limit (C-32). Time and chance are arguments.
"""

from collections import deque
from dataclasses import dataclass, field

from farmiq.plumbing import retry

# A second as the receiver measures it: packets may arrive a little closer than they left.
_SECOND_S = 1.02
JITTER_S = retry.REPLAY.cap_s
MAX_RECEIPT_WAIT_S = 600.0
MAX_STALL_FACTOR = 8


@dataclass
class RateLimiter:
    """At most `per_second` in any second, evenly spread, so that nothing comes in bursts."""

    per_second: int
    _slot: float = float("-inf")
    _sent: deque[float] = field(default_factory=deque)

    def next_at(self, now: float, *, chance: float | None = None) -> float:
        """When the next may leave. With `chance` (0 to 1) it is a replay, which gets a jitter.

        The jitter moves an event within its slot and never before the one ahead of it; the slots
        keep their rate, so a backlog is not slower for it.
        """
        following = self._slot + 1 / self.per_second
        # Late by no more than a jitter is not late: the slots keep their rate.
        self._slot = following if following > now - JITTER_S else now
        jitter_s = 0.0 if chance is None else retry.REPLAY.delay_s(0, chance=chance)
        at = max(now, self._slot + jitter_s)
        if self._sent:
            at = max(at, self._sent[-1])
        if len(self._sent) >= self.per_second:
            at = max(at, self._sent[-self.per_second] + _SECOND_S)
        return at

    def sent(self, at: float) -> None:
        self._sent.append(at)
        while len(self._sent) > self.per_second:
            self._sent.popleft()


def receipt_wait_s(attempts: int, *, base_s: float) -> float:
    """How long to wait for the receipt of an event that was sent so many times."""
    cap_s = max(MAX_RECEIPT_WAIT_S, base_s)
    return retry.fixed_delay_s(attempts - 1, base_s=base_s, cap_s=cap_s)


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the drain: since when it is connected, when an event was last settled, what is left."""

    connected_at: float | None
    settled_at: float
    left: int
    stalls: int


def is_stalled(progress: Progress, now: float, *, limit_s: float) -> bool:
    """Connected, something to send, and nothing settled for too long; longer after each stall."""
    if progress.connected_at is None or progress.left == 0:
        return False
    quiet_s = now - max(progress.connected_at, progress.settled_at)
    cap_s = limit_s * MAX_STALL_FACTOR
    return quiet_s > retry.fixed_delay_s(progress.stalls, base_s=limit_s, cap_s=cap_s)
