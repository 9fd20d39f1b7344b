"""Pure: how often an action is allowed. Time comes in as an argument."""

from dataclasses import dataclass, field


@dataclass
class Allowance:
    """`per_minute` for each, also all at once; what is used comes back evenly over a minute."""

    per_minute: float
    # By whom: what is left, and when that was so.
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, who: str, *, now: float) -> float:
        """Takes one and returns 0, or takes none and returns the seconds until there is one."""
        left, then = self._left.get(who, (self.per_minute, now))
        left = min(self.per_minute, left + (now - then) * self.per_minute / 60)
        if left < 1:
            self._left[who] = (left, now)
            return (1 - left) * 60 / self.per_minute
        self._left[who] = (left - 1, now)
        return 0.0
