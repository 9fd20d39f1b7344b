"""How often a name may be tried: pure, the clock comes in as an argument."""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from math import ceil


@dataclass
class Attempts:
    """At most `most` tries per name in `window_s`; remembers no more than `names` names."""

    most: int = 5
    window_s: float = 15 * 60
    names: int = 10_000
    _tries: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def begin(self, name: str, now_s: float) -> int | None:
        """Count a try and allow it (None), or say in how many seconds the next one is allowed.

        A try counts from its beginning, so that many at once do not slip through together.
        """
        tries = self._tries.setdefault(name, deque(maxlen=self.most))
        self._tries.move_to_end(name)
        while len(self._tries) > self.names:
            self._tries.popitem(last=False)
        if len(tries) == self.most and now_s - tries[0] < self.window_s:
            return ceil(self.window_s - (now_s - tries[0]))
        tries.append(now_s)
        return None

    def forget(self, name: str) -> None:
        """The name was proven: its failures no longer count."""
        self._tries.pop(name, None)
