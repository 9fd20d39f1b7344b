"""Whether cameras may have said more than has been received, so that an answer may come too late.

So it is after a start, while nothing can be received or kept, and after the process was frozen.
"""

import asyncio
import time
from collections.abc import Callable

LOOK_S = 0.5
# No look for so long: the process did not run, or hardly.
FROZEN_S = 3.0


class Lag:
    """`hindered` says whether messages cannot be taken, `waiting` how many are not taken yet."""

    def __init__(
        self,
        *,
        hindered: Callable[[], bool],
        waiting: Callable[[], int],
        lasts_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hindered, self._waiting, self._lasts_s = hindered, waiting, lasts_s
        self._clock = clock
        self._looked_at = self._since = clock()
        self._behind = True

    def is_behind(self) -> bool:
        return self._behind or self._was_away()

    def _was_away(self) -> bool:
        return self._hindered() or self._clock() - self._looked_at > FROZEN_S

    def look(self) -> None:
        """Behind until nothing has waited or stood in the way for long enough."""
        if self._was_away():
            self._behind, self._since = True, self._clock()
        elif self._waiting() == 0 and self._clock() - self._since >= self._lasts_s:
            self._behind = False
        self._looked_at = self._clock()

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)
