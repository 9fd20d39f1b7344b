"""Whether the database's clock can be believed when something is to be deleted because it is old.

A clock that jumps ahead by days, and back, would make everything look old for a moment. It is
compared with one that never jumps: after a jump nothing is deleted by age until the clock is back,
or until it has gone on steadily for so long that the jump must have put it right. What was believed
last is kept in the database: after a start, a clock that is far from it has jumped, be it that the
machine was off or that its clock is wrong. Deleting a day late harms nobody.
"""

import time
from collections.abc import Awaitable, Callable
from datetime import datetime

from psycopg import sql

from farmiq.plumbing import db, log

MAX_DRIFT_S = 3600.0
BELIEVED_AFTER_S = 23 * 3600.0
# Nothing of ours is put off for as long as this.
MAX_AHEAD_S = 3600.0
# More days than anything is old: nothing is removed by its age, other limits still hold.
NO_AGE_DAYS = 36_500.0

Do = Callable[[], Awaitable[dict[str, object]]]
Witness = Callable[[db.Connection], Awaitable[bool]]


class Steadiness:
    """`jump_s` says by how much the clock has jumped since it could last be believed."""

    def __init__(self) -> None:
        self._believed: float | None = None
        self._jumped_to, self._jumped_at = 0.0, 0.0

    def jump_s(self, now: datetime, *, mono_s: float, believed_at: datetime | None = None) -> float:
        """0 while both clocks go alike; `mono_s` is the one that never jumps.

        `believed_at` is the time that was last believed, by us before the start or by another.
        """
        offset = now.timestamp() - mono_s
        believed_offset = None if believed_at is None else believed_at.timestamp() - mono_s
        if self._believed is None:
            self._believed = offset if believed_offset is None else believed_offset
        elif believed_offset is not None and abs(offset - believed_offset) <= MAX_DRIFT_S:
            self._believed = believed_offset
        if abs(offset - self._believed) <= MAX_DRIFT_S:
            self._jumped_at = 0.0
            return 0.0
        if not self._jumped_at or abs(offset - self._jumped_to) > MAX_DRIFT_S:
            self._jumped_to, self._jumped_at = offset, mono_s
        if mono_s - self._jumped_at < BELIEVED_AFTER_S:
            return offset - self._believed
        self._believed = offset
        return 0.0

    def believe(self, now: datetime, *, mono_s: float) -> None:
        """A witness agrees with the clock as it goes now."""
        self._believed, self._jumped_at = now.timestamp() - mono_s, 0.0


class AgeGuard:
    """Keeps a job that goes by age or date from running after the database's clock has jumped."""

    def __init__(self, pool: db.Pool, name: str) -> None:
        self._pool, self._name = pool, name
        self._steadiness = Steadiness()

    async def look(self, agrees: Witness | None = None) -> float:
        """By how many seconds the clock has jumped; a database's first look is believed.

        `agrees`: whether somebody else's clock says the same, asked only if ours has jumped.
        """
        async with db.transaction(self._pool) as tx:
            [(now, believed_at)] = await db.fetch_all(
                tx, "select fn_now(), (select believed_at from believed_clock)"
            )
            jump_s = self._steadiness.jump_s(now, mono_s=time.monotonic(), believed_at=believed_at)
            if jump_s and agrees is not None and await agrees(tx):
                self._steadiness.believe(now, mono_s=time.monotonic())
                jump_s = 0.0
            if not jump_s:
                await tx.execute(
                    "insert into believed_clock (believed_at) values (%s) "
                    "on conflict on constraint believed_clock_pkey do update set "
                    "believed_at = excluded.believed_at",
                    (now,),
                )
        return jump_s

    def guard(self, do: Do, otherwise: Do | None = None, *, agrees: Witness | None = None) -> Do:
        """`otherwise` is done while the clock is not believed: what age has no part in."""

        async def guarded() -> dict[str, object]:
            if jump_s := await self.look(agrees):
                log.get("jobs").warning(
                    "job.clock_jumped",
                    name=self._name,
                    reason=f"the database's clock is {jump_s:.0f} s from where it was believed "
                    "last: what goes by age or date waits until it is back, or has gone on "
                    "steadily for a day",
                )
                return await otherwise() if otherwise else {}
            return await do()

        return guarded


async def reset_far_future(
    pool: db.Pool, *waits: tuple[str, str], max_ahead_s: float = MAX_AHEAD_S
) -> dict[str, object]:
    """What waits for a moment further ahead than any delay is due now: a clock was ahead.

    `waits` are tables and the columns that say when a row is due.
    """
    count = 0
    async with db.transaction(pool) as tx:
        for table, column in waits:
            update = sql.SQL(
                "update {table} set {column} = fn_now() "
                "where {column} > (select fn_now()) + %s * interval '1 second'"
            ).format(table=sql.Identifier(table), column=sql.Identifier(column))
            count += (await tx.execute(update, (max_ahead_s,))).rowcount
    return {"count": count}
