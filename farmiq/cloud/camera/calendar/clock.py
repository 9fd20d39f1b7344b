"""What the calendar knows of the database's clock: days must not open or lock by one that is wrong.

A clock that jumps ahead while the calendar runs is put right in the database (fn_calendar_now)
until it is back, edges agree with it, or it has gone on steadily for a day. After a start nobody
can tell a wrong clock from a cloud that was off: days open by it, since a day that opened early is
removed again, and none is locked before the clock is believed (farmiq.plumbing.clock).
"""

import time
from collections.abc import Callable
from datetime import timedelta

from farmiq.cloud.camera.calendar import store
from farmiq.plumbing import db, log
from farmiq.plumbing.clock import AgeGuard, Do, Steadiness

NAME = "calendar.clock"
# What another replica, or we before a start, saw so shortly ago still holds.
LATELY = timedelta(minutes=30)


class CalendarClock:
    """Compares the database's clock with one that never jumps and writes down what it finds."""

    def __init__(self, pool: db.Pool, *, mono_s: Callable[[], float] = time.monotonic) -> None:
        self._pool, self._mono_s = pool, mono_s
        self._steadiness = Steadiness()
        self._believed = AgeGuard(pool, "calendar.lock")
        self._warned: set[str] = set()

    async def look(self) -> dict[str, object]:
        """Write down by how much the clock has jumped ahead."""
        await self._look()
        return {}

    def seen(self, do: Do) -> Do:
        """Look at the clock first."""

        async def looked() -> dict[str, object]:
            await self._look()
            return await do()

        return looked

    def steady(self, do: Do) -> Do:
        """Not while the clock is known to be ahead: everything would look old."""

        async def waited() -> dict[str, object]:
            return {} if await self._look() else await do()

        return waited

    def believed(self, do: Do) -> Do:
        """Only while the clock is believed: what cannot be undone if it was wrong."""

        async def guarded() -> dict[str, object]:
            await self._look()
            jump_s = await self._believed.look(store.edges_agree)
            self._warn(
                "calendar.clock_not_believed",
                jump_s,
                "no day of cameras is locked until it is back, edges agree with it, or it has "
                "gone on steadily for a day",
            )
            return {} if jump_s else await do()

        return guarded

    async def _look(self) -> timedelta:
        async with db.transaction(self._pool) as tx:
            seen = await store.clock_seen(tx)
            lately = seen.looked_at is not None and abs(seen.now - seen.looked_at) <= LATELY
            jump_s = self._steadiness.jump_s(
                seen.now, mono_s=self._mono_s(), kept=seen.now - seen.ahead if lately else None
            )
            if jump_s and await store.edges_agree(tx):
                self._steadiness.believe(seen.now, mono_s=self._mono_s())
                jump_s = 0.0
            # A clock that is behind opens and locks nothing early.
            ahead = timedelta(seconds=max(jump_s, 0.0))
            await store.saw_clock(tx, seen.now, ahead)
        self._warn(
            "calendar.clock_jumped",
            ahead.total_seconds(),
            "days of cameras go by the time before it until the clock is back, edges agree with "
            "it, or it has gone on steadily for a day",
        )
        return ahead

    def _warn(self, event: str, jump_s: float, effect: str) -> None:
        """Once, until it is over."""
        if jump_s and event not in self._warned:
            reason = f"the database's clock has jumped by {jump_s:.0f} s: {effect}"
            log.get(NAME).warning(event, reason=reason)
        if jump_s:
            self._warned.add(event)
        else:
            self._warned.discard(event)
