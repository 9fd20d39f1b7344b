"""How often a sign-in may be tried, and for whom it counts: pure, the clock is an argument."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

QUARTER_HOUR_S = 15 * 60


@dataclass(frozen=True, slots=True)
class Bound:
    """At most so many tries in a window of time; `forgiven` once one of them was right."""

    key: str
    most: int
    window_s: float = QUARTER_HOUR_S
    forgiven: bool = True


def bounds_of_browser(browser_id: str) -> list[Bound]:
    """A browser that signed in before answers for itself alone: strangers cannot use it up."""
    return [Bound(f"browser {browser_id}", 10)]


def bounds_of_stranger(email: str, network: str) -> list[Bound]:
    """Nobody's tries count for the whole account, but for those of thousands of networks."""
    return [
        Bound(f"pair {network} {email}", 5),
        Bound(f"network {network}", 60, forgiven=False),
        Bound(f"account {email}", 1000, window_s=3600, forgiven=False),
    ]


@dataclass
class Attempts:
    """The tries that count; remembers no more than `max_keys` keys."""

    max_keys: int = 10_000
    _tries: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def begin(self, bounds: Sequence[Bound], now_s: float) -> int | None:
        """Count a try and allow it (None), or say in how many seconds the next one is allowed.

        A try counts from its beginning, so that many at once do not slip through together.
        """
        waits_s = [self._wait_s(bound, now_s) for bound in bounds]
        if wait_s := max(waits_s):
            return ceil(wait_s)
        for bound in bounds:
            tries = self._tries.setdefault(bound.key, deque(maxlen=bound.most))
            tries.append(now_s)
            self._tries.move_to_end(bound.key)
        while len(self._tries) > self.max_keys:
            self._tries.popitem(last=False)
        return None

    def succeed(self, bounds: Sequence[Bound], began_s: float) -> None:
        """The try that began then was right: it counts no more, nor do those it makes up for."""
        self.withdraw(bounds, began_s)
        for bound in bounds:
            if bound.forgiven:
                self._tries.pop(bound.key, None)

    def withdraw(self, bounds: Sequence[Bound], began_s: float) -> None:
        """The try that began then was not looked at."""
        for bound in bounds:
            tries = self._tries.get(bound.key, deque[float]())
            if began_s in tries:
                tries.remove(began_s)
            if not tries:
                self._tries.pop(bound.key, None)

    def _wait_s(self, bound: Bound, now_s: float) -> float:
        tries = self._tries.get(bound.key, deque[float]())
        if len(tries) < bound.most:
            return 0.0
        return max(0.0, bound.window_s - (now_s - tries[0]))
