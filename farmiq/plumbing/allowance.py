"""Pure: how often, or how much, is allowed. Time comes in as an argument."""

from dataclasses import dataclass, field

MINUTE_S, HOUR_S = 60.0, 3600.0


@dataclass
class Allowance:
    """`most` for each, also all at once; what is used comes back evenly over `over_s`."""

    most: float
    over_s: float = MINUTE_S
    # By whom: what is left, and when that was so.
    _left: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, who: str, *, now: float, amount: float = 1) -> float:
        """Takes it and returns 0, or takes nothing and returns the seconds until there is enough.

        Nobody may have more than `most` at once.
        """
        left, then = self._left.get(who, (self.most, now))
        left = min(self.most, left + (now - then) * self.most / self.over_s)
        if left < amount:
            self._left[who] = (left, now)
            return (amount - left) * self.over_s / self.most
        self._left[who] = (left - amount, now)
        return 0.0
