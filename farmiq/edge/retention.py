"""Deleting what is over its time, a portion at a time: short transactions that nobody feels."""

from collections.abc import Awaitable, Callable

from farmiq.plumbing import db

PORTION = 5_000

# Deletes at most so many rows, oldest first; returns how many.
Forget = Callable[[db.Connection, int], Awaitable[int]]


async def all_of(pool: db.Pool, forget: Forget) -> int:
    """Until nothing is left to forget; returns how many rows went."""
    gone = 0
    while True:
        async with db.transaction(pool) as tx:
            part = await forget(tx, PORTION)
        gone += part
        if part < PORTION:
            return gone
