"""Redrive: what was refused of cameras goes through the door once more, after it was mended.

Each message in a transaction of its own: what is taken leaves quarantine together with its effect,
what is refused stays with the reasons of today. A crash at any line leaves either.
"""

from dataclasses import dataclass
from uuid import UUID

import psycopg

from farmiq.cloud.camera.gateway import handlers, quarantine, store
from farmiq.cloud.camera.gateway.chunks import Pace
from farmiq.cloud.camera.gateway.quarantine import Held, Which
from farmiq.cloud.camera.gateway.wire import Sent
from farmiq.plumbing import db
from farmiq.plumbing.backoff import Backoff

PORTION = 100
_ATTEMPTS = 5
# Chunks of these kinds were refused by the image that they came for: they are of no other.
_COMPARED = frozenset({"limits", "conflict"})


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the `chosen` rows; `truncated` ones cannot be tried: their bytes are cut."""

    chosen: int
    truncated: int = 0
    accepted: int = 0
    refused: int = 0
    gone: int = 0
    dry_run: bool = False


async def redrive(
    pool: db.Pool, which: Which, *, pace: Pace, actor: str, most: int, dry_run: bool = False
) -> Result:
    """Try the rows again, in the order in which they came.

    Raises db.UNAVAILABLE if the database stays away.
    """
    async with pool.connection() as connection:
        meant = await quarantine.chosen(connection, which, most=most)
    whole = [quarantine_id for quarantine_id, is_cut in meant if not is_cut]
    truncated = len(meant) - len(whole)
    if dry_run:
        return Result(len(meant), truncated, dry_run=True)
    async with db.transaction(pool) as tx:
        await store.reset_redriven(tx)
    done = [await _patiently(pool, each, pace=pace, actor=actor) for each in whole]
    accepted, refused = done.count("accepted"), done.count("refused")
    return Result(len(meant), truncated, accepted, refused, len(whole) - accepted - refused)


async def discard(
    pool: db.Pool, which: Which, *, actor: str, most: int, dry_run: bool = False
) -> Result:
    """Give the rows up for good; who did it and the bytes stand in dead_letter_actions."""
    async with pool.connection() as connection:
        meant = [each for each, _ in await quarantine.chosen(connection, which, most=most)]
    gone = 0
    for start in range(0, 0 if dry_run else len(meant), PORTION):
        portion = meant[start : start + PORTION]
        async with db.transaction(pool) as tx:
            await quarantine.note(tx, portion, actor=actor, action="discard", outcome="discarded")
            gone += await quarantine.drop(tx, portion)
    return Result(len(meant), gone=gone, dry_run=dry_run)


async def _patiently(pool: db.Pool, quarantine_id: UUID, *, pace: Pace, actor: str) -> str:
    """A deadlock with the gateway, or a moment without the database, is tried again."""
    backoff = Backoff(cap_s=2.0)
    for _ in range(_ATTEMPTS - 1):
        try:
            return await _one(pool, quarantine_id, pace=pace, actor=actor)
        except db.UNAVAILABLE:
            await backoff.wait()
    return await _one(pool, quarantine_id, pace=pace, actor=actor)


async def _one(pool: db.Pool, quarantine_id: UUID, *, pace: Pace, actor: str) -> str:
    async with db.transaction(pool) as tx:
        held = await quarantine.hold(tx, quarantine_id)
        if held is None:
            return "gone"
        kind, reasons = await _refusal(tx, held, pace)
        outcome = "refused" if reasons else "accepted"
        ids = [quarantine_id]
        await quarantine.note(tx, ids, actor=actor, action="redrive", outcome=outcome)
        if reasons:
            await quarantine.still(tx, quarantine_id, kind=kind, reasons=reasons)
        else:
            await quarantine.drop(tx, ids)
    return outcome


async def _refusal(tx: db.Connection, held: Held, pace: Pace) -> tuple[str, list[str]]:
    """Why the door does not take it, and of which kind that is; no reasons if it was taken."""
    try:
        async with tx.transaction():
            outcome = await handlers.apply(
                tx, [Sent(held.topic, held.raw)], pace, came_at=held.came_at,
                was_compared=held.kind in _COMPARED,
            )  # fmt: skip
    except psycopg.Error as error:
        if not db.is_data_error(error):
            raise
        return "database", [f"cannot be kept: {db.first_line(error)}"]
    return next(((one.kind, one.reasons) for one in outcome.refused), ("", []))
