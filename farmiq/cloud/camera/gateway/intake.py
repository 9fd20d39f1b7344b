"""What cameras send, in one transaction: chunks and announcements kept, the rest in quarantine.

All of it or nothing: what is acknowledged to the broker is in the database, and every answer is
made from there. So another gateway goes on where this one stopped, in the middle of an image.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import psycopg

from farmiq import crash
from farmiq.cloud.camera.gateway import cameras, commands, quarantine, store, wire
from farmiq.cloud.camera.gateway.cameras import Camera
from farmiq.cloud.camera.gateway.chunks import Pace
from farmiq.cloud.camera.gateway.desk import Desk
from farmiq.cloud.camera.gateway.quarantine import Refused
from farmiq.cloud.camera.gateway.wire import Place, Sent, Wrong
from farmiq.plumbing import db

Effect = Callable[[db.Connection, Sequence[Sent], Pace], Awaitable["Outcome"]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`noted` are messages that were taken, but not all of what they say.

    `failed` has why an image failed, for each that did.
    """

    taken: int = 0
    refused: tuple[Refused, ...] = ()
    noted: tuple[Refused, ...] = ()
    failed: tuple[str, ...] = ()

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.taken + other.taken,
            self.refused + other.refused,
            self.noted + other.noted,
            self.failed + other.failed,
        )


async def keep_in_halves(pool: db.Pool, sent: Sequence[Sent], pace: Pace) -> Outcome:
    """One transaction for all; if the data of one breaks it, each half gets its own (C-81).

    Also what nobody thought of: a message that ends the process comes again, and ends the next.
    """
    try:
        return await keep(pool, sent, pace)
    except Exception as error:
        if db.is_outage(error):
            raise
        if len(sent) == 1:
            return await _set_aside(pool, sent[0], error)
    half = len(sent) // 2
    first = await keep_in_halves(pool, sent[:half], pace)
    return first + await keep_in_halves(pool, sent[half:], pace)


async def keep(pool: db.Pool, sent: Sequence[Sent], pace: Pace) -> Outcome:
    try:
        return await _keep(pool, sent, pace, _piped)
    except psycopg.errors.PipelineAborted:
        # A statement failed and another one said so: one at a time, it says itself what is wrong.
        return await _keep(pool, sent, pace, effect)


async def _keep(pool: db.Pool, sent: Sequence[Sent], pace: Pace, take: Effect) -> Outcome:
    async with db.transaction(pool) as tx:
        outcome = await take(tx, sent, pace)
        if outcome.refused or outcome.noted:
            await quarantine.keep(tx, outcome.refused + outcome.noted)
        crash.here("camera.before_commit")
    return outcome


async def _set_aside(pool: db.Pool, one: Sent, error: Exception) -> Outcome:
    refused = Refused(one.topic, one.raw, "database", [f"cannot be kept: {db.first_line(error)}"])
    async with db.transaction(pool) as tx:
        await quarantine.keep(tx, [refused])
        # Where it was an announcement, what follows is not of the image before.
        known, _ = await _known(tx, [one])
        for camera, place, _ in known:
            if wire.may_announce(place, one.raw):
                await cameras.lock(tx, [camera.device_id])
                subject = {camera.device_id: cameras.NOTHING_KNOWN}
                await cameras.speak_of(tx, subject, again=False)
    return Outcome(refused=(refused,))


async def _piped(tx: db.Connection, sent: Sequence[Sent], pace: Pace) -> Outcome:
    """The same, and what is only written is not waited for: a later statement raises its error."""
    async with tx.pipeline():
        return await effect(tx, sent, pace)


async def effect(
    tx: db.Connection,
    sent: Sequence[Sent],
    pace: Pace,
    *,
    came_at: datetime | None = None,
    was_compared: bool = False,
) -> Outcome:
    """What messages do, in the order in which they came.

    `came_at` is given for what came long ago and is tried once more: it tells nothing of how its
    camera is now. `was_compared`: it did not fit an image that was on its way then.
    """
    known, refused = await _known(tx, sent)
    spoken = {camera.mac: (camera, place.spelling) for camera, place, _ in known}
    await cameras.lock(tx, [camera.device_id for camera, _ in spoken.values()])
    if came_at is None:
        await cameras.heard(tx, list(spoken.values()))
    device_ids = [camera.device_id for camera, _ in spoken.values()]
    desk = Desk(tx, pace, await store.now(tx), came_at=came_at, was_compared=was_compared)
    desk.rows = await store.transfers_of(tx, device_ids, recent_s=pace.timeout_s)
    desk.asked = await commands.asked(tx, device_ids)
    if was_compared:
        desk.subjects = dict.fromkeys(device_ids, cameras.NOTHING_KNOWN)
    else:
        desk.subjects = await cameras.speaking_of(tx, device_ids, again=came_at is not None)
    noted = []
    for camera, place, one in known:
        try:
            if reasons := await desk.take(camera, place, one):
                noted.append(Refused(one.topic, one.raw, "limits", reasons, camera.mac, camera))
        except Wrong as wrong:
            why = (wrong.kind, wrong.reasons)
            refused.append(Refused(one.topic, one.raw, *why, camera.mac, camera))
    refused += await desk.finish()
    return Outcome(len(sent) - len(refused), tuple(refused), tuple(noted), tuple(desk.failed))


async def _known(
    tx: db.Connection, sent: Sequence[Sent]
) -> tuple[list[tuple[Camera, Place, Sent]], list[Refused]]:
    """Messages of registered cameras, and those of nobody we know."""
    refused: list[Refused] = []
    placed: list[tuple[Place, Sent]] = []
    for one in sent:
        try:
            placed.append((wire.place(one.topic), one))
        except Wrong as wrong:
            refused.append(Refused(one.topic, one.raw, wrong.kind, wrong.reasons))
    found = await cameras.by_mac(tx, sorted({place.mac for place, _ in placed}))
    known = []
    for place, one in placed:
        camera = found.get(place.mac)
        if camera is None:
            why = f"no camera {place.mac} is registered: register it, or take it off the network"
            refused.append(Refused(one.topic, one.raw, "unknown", [why], place.mac))
        else:
            known.append((camera, place, one))
    return known, refused
