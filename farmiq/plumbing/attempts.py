"""Pure: how many sign-in attempts are allowed, and what they count for. Time is an argument."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

QUARTER_HOUR_S = 15 * 60


@dataclass(frozen=True, slots=True)
class Bound:
    """At most `max_tries` in a window; `forgiven`: a successful one resets the count."""

    key: str
    max_tries: int
    window_s: float = QUARTER_HOUR_S
    forgiven: bool = True


def bounds_of_browser(browser_id: str) -> list[Bound]:
    """A browser that signed in before has a limit of its own, which others cannot use up."""
    return [Bound(f"browser {browser_id}", 10)]


def bounds_of_network(email: str, network: str) -> list[Bound]:
    """An unknown browser: by network. The limit of an account is only reached by many networks."""
    return [
        Bound(f"pair {network} {email}", 5),
        Bound(f"network {network}", 60, forgiven=False),
        Bound(f"account {email}", 1000, window_s=3600, forgiven=False),
    ]


def bounds_of_code(user_id: str, network: str) -> list[Bound]:
    """Codes of a second factor: who gives them knows the password."""
    return [
        Bound(f"code {network} {user_id}", 5),
        Bound(f"codes {user_id}", 30, window_s=3600, forgiven=False),
    ]


def bounds_of_password(user_id: str) -> list[Bound]:
    """The current password, given by somebody who is signed in."""
    return [Bound(f"current password {user_id}", 10)]


@dataclass
class Attempts:
    """The attempts of at most `max_keys` keys."""

    max_keys: int = 10_000
    _tries: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def begin(self, bounds: Sequence[Bound], now_s: float) -> int | None:
        """Count an attempt and allow it (None), or return after how many seconds one is allowed.

        It counts from its start, so that many at the same time do not all pass.
        """
        waits_s = [self._wait_s(bound, now_s) for bound in bounds]
        if wait_s := max(waits_s):
            return ceil(wait_s)
        for bound in bounds:
            tries = self._tries.setdefault(bound.key, deque(maxlen=bound.max_tries))
            tries.append(now_s)
            self._tries.move_to_end(bound.key)
        while len(self._tries) > self.max_keys:
            self._tries.popitem(last=False)
        return None

    def succeed(self, bounds: Sequence[Bound], began_s: float) -> None:
        """The attempt that started then was right: remove it, and reset what is `forgiven`."""
        self.withdraw(bounds, began_s)
        for bound in bounds:
            if bound.forgiven:
                self._tries.pop(bound.key, None)

    def withdraw(self, bounds: Sequence[Bound], began_s: float) -> None:
        """The attempt that started then was not checked: remove it."""
        for bound in bounds:
            tries = self._tries.get(bound.key, deque[float]())
            if began_s in tries:
                tries.remove(began_s)
            if not tries:
                self._tries.pop(bound.key, None)

    def _wait_s(self, bound: Bound, now_s: float) -> float:
        tries = self._tries.get(bound.key, deque[float]())
        if len(tries) < bound.max_tries:
            return 0.0
        return max(0.0, bound.window_s - (now_s - tries[0]))
