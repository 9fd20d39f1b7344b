"""Redrive: quarantined messages go through the door once more, after whatever was wrong is mended.

It is the door's own transaction: what is accepted leaves quarantine in the transaction of its
effect, what is refused stays with the reasons of today. A crash at any line leaves either.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

import psycopg

from farmiq import crash
from farmiq.edge import audit, losses
from farmiq.edge.arrival import Arrival
from farmiq.edge.ingress import quarantine, refusals
from farmiq.edge.ingress.quarantine import Held, Which
from farmiq.edge.ingress.store import Refused
from farmiq.plumbing import db
from farmiq.plumbing.backoff import Backoff

# Rows in one transaction: enough to be quick, few enough that nobody waits long for their locks.
PORTION = 100
MOST_AT_ONCE = 100_000
_ATTEMPTS = 5
# The outbox knows the id, nobody knows any more with which content: it must not just vanish.
_TAKEN = "EVENT_ID_CONFLICT: this event_id was taken long ago, perhaps with another content"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the `chosen` rows.

    `truncated` ones cannot be redriven, since their bytes were cut, nor can `conflicts`: their id
    is taken by another content, and would be in the cloud too.
    """

    chosen: int
    truncated: int = 0
    conflicts: int = 0
    accepted: int = 0
    refused: int = 0
    gone: int = 0
    dry_run: bool = False


class Effected(Protocol):
    @property
    def refused(self) -> Sequence[Refused]: ...
    @property
    def absorbed(self) -> Sequence[Arrival]: ...


# The door's own `effect`: messages and when each was first received.
Effect = Callable[
    [db.Connection, Sequence[tuple[str, bytes]], Sequence[datetime]], Awaitable[Effected]
]


@dataclass(frozen=True, slots=True)
class Redriver:
    """Who redrives, and through which door."""

    pool: db.Pool
    effect: Effect
    actor: str


async def redrive(by: Redriver, which: Which, *, most: int, dry_run: bool = False) -> Result:
    """Try the rows again, oldest first. Raises db.UNAVAILABLE if the database stays away."""
    async with by.pool.connection() as connection:
        meant = await quarantine.chosen(connection, which, most=most)
        whole, truncated, conflicts = await quarantine.fit(connection, meant)
    if dry_run:
        return Result(len(meant), truncated, conflicts, dry_run=True)
    accepted = refused = 0
    for start in range(0, len(whole), PORTION):
        taken, left = await _patiently(by, whole[start : start + PORTION])
        accepted, refused = accepted + taken, refused + left
    gone = len(whole) - accepted - refused
    return Result(len(meant), truncated, conflicts, accepted, refused, gone)


async def discard(
    pool: db.Pool, which: Which, *, actor: str, reason: str, most: int, dry_run: bool = False
) -> Result:
    """Give the rows up for good, oldest first; they go to the loss ledger."""
    async with pool.connection() as connection:
        meant = await quarantine.chosen(connection, which, most=most)
    if dry_run:
        return Result(len(meant), dry_run=True)
    gone = 0
    for start in range(0, len(meant), PORTION):
        async with db.transaction(pool) as tx:
            topics = await quarantine.drop(tx, meant[start : start + PORTION])
            await losses.of_quarantine(tx, map(refusals.place, topics), reason=reason)
            await audit.note(
                tx,
                actor=actor,
                action="quarantine.discard",
                subject=f"{len(topics)} messages",
                ids=meant[start : start + PORTION],
                reason=reason,
            )
        gone += len(topics)
    return Result(len(meant), gone=gone)


async def _patiently(by: Redriver, wanted: Sequence[UUID]) -> tuple[int, int]:
    """A deadlock with the gateway, or a moment without the database, is tried again."""
    backoff = Backoff(cap_s=2.0)
    for _ in range(_ATTEMPTS - 1):
        try:
            return await _portion(by, wanted)
        except db.UNAVAILABLE:
            await backoff.wait()
    return await _portion(by, wanted)


async def _portion(by: Redriver, wanted: Sequence[UUID]) -> tuple[int, int]:
    """(accepted, refused) of these rows, in one transaction if their data allow it (C-81)."""
    try:
        return await _once(by, wanted)
    except psycopg.Error as error:
        if not db.is_data_error(error):
            raise
        if len(wanted) == 1:
            async with db.transaction(by.pool) as tx:
                why = f"the database refused it: {db.first_line(error)}"
                await quarantine.still(tx, wanted[0], [why])
            return 0, 1
    accepted = refused = 0
    for one in wanted:
        taken, left = await _portion(by, [one])
        accepted, refused = accepted + taken, refused + left
    return accepted, refused


async def _once(by: Redriver, wanted: Sequence[UUID]) -> tuple[int, int]:
    async with db.transaction(by.pool) as tx:
        held = await quarantine.hold(tx, wanted)
        outcome = await by.effect(
            tx, [(one.topic, one.raw) for one in held], [one.received_at for one in held]
        )
        why = {
            **{(one.topic, one.raw): [_TAKEN] for one in outcome.absorbed},
            **{(one.topic, one.raw): one.reasons for one in outcome.refused},
        }
        refused = [one for one in held if (one.topic, one.raw) in why]
        accepted = [one for one in held if (one.topic, one.raw) not in why]
        await quarantine.drop(tx, [one.quarantine_id for one in accepted])
        for one in refused:
            await quarantine.still(tx, one.quarantine_id, why[one.topic, one.raw])
        await _note(tx, by.actor, accepted=accepted, refused=refused)
        crash.here("quarantine.in_redrive")
    return len(accepted), len(refused)


async def _note(
    tx: db.Connection, actor: str, *, accepted: Sequence[Held], refused: Sequence[Held]
) -> None:
    if accepted or refused:
        await audit.note(
            tx,
            actor=actor,
            action="quarantine.redrive",
            subject=f"{len(accepted) + len(refused)} messages",
            accepted=[one.quarantine_id for one in accepted],
            refused=[one.quarantine_id for one in refused],
        )
