"""Whether cameras may have said more than has been received, so that an answer may come too late.

So it is after a start, while not all can be received or kept, and after the process was frozen;
and from then on until as much was taken as waited when it had been free to take for a while.
"""

import asyncio
import time
from collections.abc import Callable

LOOK_S = 0.5
# No look for so long: the process did not run, or hardly.
FROZEN_S = 3.0


class Lag:
    """`hindered` says whether messages cannot be taken.

    `waiting` is how many are not taken yet, `taken` how many were taken so far.
    """

    def __init__(
        self,
        *,
        hindered: Callable[[], bool],
        waiting: Callable[[], int],
        taken: Callable[[], int],
        lasts_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hindered, self._waiting, self._taken = hindered, waiting, taken
        self._lasts_s, self._clock = lasts_s, clock
        self._looked_at = self._since = clock()
        self._behind = True
        # All that waited is dealt with when so many were taken.
        self._due: int | None = None

    def is_behind(self) -> bool:
        return self._behind or self._was_away()

    def _was_away(self) -> bool:
        return self._hindered() or self._clock() - self._looked_at > FROZEN_S

    def look(self) -> None:
        if self._was_away():
            self._behind, self._since, self._due = True, self._clock(), None
        elif self._behind and self._clock() - self._since >= self._lasts_s:
            if self._due is None:
                self._due = self._taken() + self._waiting()
            # What proves to be a copy waits, and is never taken.
            self._behind = self._waiting() > 0 and self._taken() < self._due
        self._looked_at = self._clock()

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)
