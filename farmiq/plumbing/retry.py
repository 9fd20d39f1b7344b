"""Pure: how long to wait before the next attempt. Every retry of the product uses this policy.

SQL that puts a row off uses fn_retry_delay, which is the same formula without jitter.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_RETRY_AFTER_S = 86_400.0
_MAX_DOUBLINGS = 64


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The delay doubles with every attempt up to `cap_s`, and has two kinds of jitter.

    `spread` is the share of the delay that is random: 0.5 gives half to all of it, 0 a fixed delay.
    `jitter_s` is added before the cap, as the documents do. What a server asks for (Retry-After)
    counts up to `max_retry_after_s`, which is the cap if it is not given.
    """

    base_s: float
    cap_s: float
    spread: float = 0.5
    jitter_s: float = 0.0
    max_retry_after_s: float | None = None

    def delay_s(self, attempt: int, *, chance: float, retry_after_s: float | None = None) -> float:
        """Seconds to wait after this many failures; `chance` is a random number from 0 to 1."""
        delay_s = self.base_s * 2.0 ** min(attempt, _MAX_DOUBLINGS) + self.jitter_s * chance
        delay_s = min(delay_s, self.cap_s) * (1 - self.spread + self.spread * chance)
        limit_s = self.cap_s if self.max_retry_after_s is None else self.max_retry_after_s
        return max(delay_s, min(retry_after_s or 0.0, limit_s))


def fixed_delay_s(attempt: int, *, base_s: float, cap_s: float) -> float:
    """The delay of a policy without jitter."""
    return RetryPolicy(base_s, cap_s, spread=0.0).delay_s(attempt, chance=0.0)


def documented(*, base_s: float, cap_s: float) -> RetryPolicy:
    """OB-13 to the letter: min(2^attempt · base · 1000 + jitter(0..1 s), cap · 1000) in ms."""
    return RetryPolicy(base_s, cap_s, spread=0.0, jitter_s=1.0)


# WV-22: a replayed event leaves 0 to 200 ms later than it could.
REPLAY = RetryPolicy(base_s=0.0, cap_s=0.2, spread=0.0, jitter_s=0.2)


def retry_after_s(header: str | None, *, now: datetime) -> float | None:
    """Retry-After in either of its forms, seconds or a date; between 0 and MAX_RETRY_AFTER_S.

    None if it is neither.
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
