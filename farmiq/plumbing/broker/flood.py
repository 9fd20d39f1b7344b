"""Pure: who sends more than it may, and for how long it is held back. Time comes in as an argument.

A bucket for each sender: `burst` at once, and what is used comes back at `per_second`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from farmiq.plumbing import retry

FIRST_PAUSE_S = 10.0
MAX_PAUSE_S = 60.0
# Whoever was calm for so long begins again with the shortest pause.
CALM_S = 600.0
# Whoever comes back from a pause may send what so many seconds allow, and no whole burst: each
# burst is time that the others wait.
RETURN_S = 5.0


@dataclass(frozen=True, slots=True)
class Pause:
    """Until when a sender is held back; `in_a_row` counts it and those before it."""

    until_at: datetime
    in_a_row: int = 1


def following(before: Pause | None, *, now: datetime) -> Pause:
    """The next pause: twice as long as the last, up to a bound, unless that is long ago."""
    recent = before is not None and now - before.until_at < timedelta(seconds=CALM_S)
    in_a_row = before.in_a_row + 1 if before is not None and recent else 1
    lasts_s = retry.fixed_delay_s(in_a_row - 1, base_s=FIRST_PAUSE_S, cap_s=MAX_PAUSE_S)
    return Pause(now + timedelta(seconds=lasts_s), in_a_row)


def describe(flow: "Flow", pause: Pause | None) -> str:
    """What people read of a sender; without a pause it could not be held back."""
    held = "cannot be paused here, the others wait"
    if pause is not None:
        held = f"is paused until {pause.until_at:%H:%M:%S}Z, pause {pause.in_a_row} in a row"
    return (
        f"it sends more than {flow.per_second:,.10g} {flow.what} a second, and has used up its "
        f"burst of {flow.burst:,.10g}: its login at the broker {held}. What it has sent is taken; "
        "the rest it can send later"
    )


@dataclass
class Flow:
    """How much each sender may send; `per_second` of 0 means no limit."""

    per_second: float
    burst: float
    what: str = "messages"
    # By sender: what is left, and when that was so; a moment to come is the end of a pause.
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)
    _looked_at: float | None = None

    def beyond(self, counts: Mapping[str, int], *, now: float) -> list[str]:
        """Takes what came since the last call; who sent more than was left, in order.

        Whoever is paused is not counted.
        """
        if not self.per_second:
            return []
        senders = [who for who, count in counts.items() if not self._take(who, count, now)]
        self._remove_idle(now)
        self._looked_at = now
        return sorted(senders)

    def pause(self, who: str, *, lasts_s: float, now: float) -> None:
        self._left[who] = (min(self.burst, self.per_second * RETURN_S), now + lasts_s)

    def _take(self, who: str, count: int, now: float) -> bool:
        """What comes back between two looks counts before the bucket is full.

        Looks may be far apart, and what was sent meanwhile was not sent at once.
        """
        began = now if self._looked_at is None else self._looked_at
        left, then = self._left.get(who, (self.burst, began))
        if now < then:
            return True
        left += (now - then) * self.per_second - count
        self._left[who] = (min(self.burst, max(0.0, left)), now)
        return left >= 0

    def _remove_idle(self, now: float) -> None:
        """Who has all of it again needs no entry: what is kept does not grow with names."""
        for who, (left, then) in list(self._left.items()):
            if now >= then and left + (now - then) * self.per_second >= self.burst:
                del self._left[who]
