"""Deleting what is over its time, a portion at a time: short transactions that nobody feels."""

from typing import Protocol

from farmiq.plumbing import db

PORTION = 5_000


class Forget(Protocol):
    """Deletes at most so many rows that are older than so many days; returns how many."""

    async def __call__(self, tx: db.Connection, *, days: float, most: int) -> int: ...


async def all_of(pool: db.Pool, forget: Forget, *, days: float) -> int:
    """Until nothing is left to forget; returns how many rows went."""
    gone = 0
    while True:
        async with db.transaction(pool) as tx:
            part = await forget(tx, days=days, most=PORTION)
        gone += part
        if part < PORTION:
            return gone
