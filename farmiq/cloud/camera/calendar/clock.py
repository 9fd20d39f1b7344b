"""The calendar's check of the database's clock: a wrong clock must not open or lock days.

A clock that jumps ahead while the calendar runs is corrected in the database (fn_calendar_now)
until it is back, edges agree with it, or it has run steadily for a day. After a start a wrong clock
looks like a cloud that was off: days open by it, since a day that opened early is removed again,
and none is locked before the clock is believed (farmiq.plumbing.runtime.clock).
"""

import time
from collections.abc import Callable
from datetime import timedelta

from farmiq.cloud.clocks import edges_agree
from farmiq.plumbing import db, log
from farmiq.plumbing.runtime.clock import AgeGuard, Do, Steadiness

NAME = "calendar.clock"
# A check of another replica, or before a restart, counts for so long.
RECENT = timedelta(minutes=30)
_UNTIL = "until it is back, edges agree with it, or it has gone on steadily for a day"


class CalendarClock:
    """Compares the database's clock with one that never jumps, and stores the difference."""

    def __init__(self, pool: db.Pool, *, mono_s: Callable[[], float] = time.monotonic) -> None:
        self._pool, self._mono_s = pool, mono_s
        self._steadiness = Steadiness()
        self._guard = AgeGuard(pool, "calendar.lock")
        self._warned: set[str] = set()

    async def check(self) -> dict[str, object]:
        await self._check()
        return {}

    def after_check(self, do: Do) -> Do:
        """Check the clock first."""

        async def checked() -> dict[str, object]:
            await self._check()
            return await do()

        return checked

    def if_steady(self, do: Do) -> Do:
        """Not while the clock is known to be ahead: everything would look old."""

        async def checked() -> dict[str, object]:
            return {} if await self._check() else await do()

        return checked

    def if_believed(self, do: Do) -> Do:
        """Only while the clock is believed: for what cannot be undone."""

        async def checked() -> dict[str, object]:
            await self._check()
            jump_s = await self._guard.look(edges_agree)
            self._warn("calendar.clock_not_believed", jump_s, "no day of cameras is locked")
            return {} if jump_s else await do()

        return checked

    async def _check(self) -> timedelta:
        """By how much the clock is ahead."""
        async with db.transaction(self._pool) as tx:
            [(now, seen_at, seen_ahead)] = await db.fetch_all(
                tx,
                "select fn_now(), c.looked_at, coalesce(c.ahead, interval '0') "
                "from (values (true)) v(only_row) left join calendar_clock c using (only_row)",
            )
            is_recent = seen_at is not None and abs(now - seen_at) <= RECENT
            jump_s = self._steadiness.jump_s(
                now, mono_s=self._mono_s(), believed_at=now - seen_ahead if is_recent else None
            )
            if jump_s and await edges_agree(tx):
                self._steadiness.believe(now, mono_s=self._mono_s())
                jump_s = 0.0
            # A clock that is behind opens and locks nothing early.
            ahead = timedelta(seconds=max(jump_s, 0.0))
            await tx.execute(
                "insert into calendar_clock (looked_at, ahead) values (%s, %s) "
                "on conflict on constraint calendar_clock_pkey do update set "
                "looked_at = excluded.looked_at, ahead = excluded.ahead",
                (now, ahead),
            )
        effect = "days of cameras go by the time before it"
        self._warn("calendar.clock_jumped", ahead.total_seconds(), effect)
        return ahead

    def _warn(self, event: str, jump_s: float, effect: str) -> None:
        """Log once, until it is over."""
        if not jump_s:
            self._warned.discard(event)
        elif event not in self._warned:
            self._warned.add(event)
            reason = f"the database's clock has jumped by {jump_s:.0f} s: {effect} {_UNTIL}"
            log.get(NAME).warning(event, reason=reason)
