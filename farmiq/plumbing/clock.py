"""Whether the database's clock can be believed when something is to be deleted because it is old.

A clock that jumps ahead by days, and back, would make everything look old for a moment. It is
compared with one that never jumps: after a jump nothing is deleted by age until the clock is back,
or until it has gone on steadily for so long that the jump must have put it right.
"""

import time
from collections.abc import Awaitable, Callable
from datetime import datetime

from farmiq.plumbing import db, log

MAX_DRIFT_S = 3600.0
BELIEVED_AFTER_S = 23 * 3600.0

Do = Callable[[], Awaitable[dict[str, object]]]


class Steadiness:
    """`jump_s` says by how much the clock has jumped since it could last be believed."""

    def __init__(self) -> None:
        self._believed: float | None = None
        self._jumped_to, self._jumped_at = 0.0, 0.0

    def jump_s(self, now: datetime, *, mono_s: float) -> float:
        """0 while both clocks go alike; `mono_s` is the one that never jumps."""
        offset = now.timestamp() - mono_s
        if self._believed is None:
            self._believed = offset
        if abs(offset - self._believed) <= MAX_DRIFT_S:
            self._jumped_at = 0.0
            return 0.0
        if not self._jumped_at or abs(offset - self._jumped_to) > MAX_DRIFT_S:
            self._jumped_to, self._jumped_at = offset, mono_s
        if mono_s - self._jumped_at < BELIEVED_AFTER_S:
            return offset - self._believed
        self._believed = offset
        return 0.0


class AgeGuard:
    """Keeps a chore that deletes by age from running after the database's clock has jumped."""

    def __init__(self, pool: db.Pool, name: str) -> None:
        self._pool, self._name = pool, name
        self._steadiness = Steadiness()

    async def look(self) -> float:
        """By how many seconds the clock has jumped. The first look says what is believed."""
        async with self._pool.connection() as connection:
            now: datetime = await db.fetch_value(connection, "select fn_now()")
        return self._steadiness.jump_s(now, mono_s=time.monotonic())

    def keep(self, do: Do) -> Do:
        async def guarded() -> dict[str, object]:
            if jump_s := await self.look():
                log.get("chores").warning(
                    "chore.clock_jumped",
                    name=self._name,
                    reason=f"the database's clock has jumped by {jump_s:.0f} s: nothing is "
                    "deleted until it is back, or has gone on steadily for a day",
                )
                return {}
            return await do()

        return guarded
