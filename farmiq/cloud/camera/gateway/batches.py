"""Commit a batch of camera messages in one transaction, with the cursor.

messages of the log --> [CameraHandler, one per camera] --> rows, statements --> tables, quarantine

The handlers of all cameras run side by side, each up to its next query, so one statement answers
all of them. The number of statements grows with the announcements of one camera, not with messages
or cameras.

The messages and the cursor are one transaction. All state is in the tables, so another gateway
continues where this one stopped, in the middle of an image.
"""

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from farmiq import crash
from farmiq.cloud.camera.gateway import camera_store, commands, store
from farmiq.cloud.camera.gateway.camera_store import Camera, Wake, WakeRequest
from farmiq.cloud.camera.gateway.chunks import Timing
from farmiq.cloud.camera.gateway.handlers import Batch, CameraHandler, Query
from farmiq.cloud.camera.gateway.store import RejectedMessage, Row
from farmiq.cloud.camera.protocol import wire
from farmiq.cloud.camera.protocol.wire import CameraTopic, Hello, RawMessage, RejectedMessageError
from farmiq.plumbing import db
from farmiq.plumbing.messaging import cursor
from farmiq.plumbing.messaging.cursor import Lane
from farmiq.plumbing.messaging.stream import Position


@dataclass(frozen=True, slots=True)
class Outcome:
    """`noted` are messages of which a part was not stored; `failed` the error codes of images.

    `greeted` are cameras that sent HELLO and nothing since, with the spelling of their address.
    `has_whole`: images have all their chunks now. The first answer is due in `due_in_s`.
    """

    stored: int = 0
    rejected: tuple[RejectedMessage, ...] = ()
    noted: tuple[RejectedMessage, ...] = ()
    failed: tuple[str, ...] = ()
    greeted: tuple[tuple[UUID, str], ...] = ()
    has_whole: bool = False
    due_in_s: float = math.inf


async def commit_bisecting(
    pool: db.Pool, messages: Sequence[RawMessage], timing: Timing, *, lane: Lane | None = None
) -> list[Outcome]:
    """Commit all in one transaction; if a message breaks it, commit each half alone (C-81)."""
    return await cursor.commit_bisecting(
        len(messages),
        lambda part: commit(pool, messages[part], timing, lane=lane),
        lambda index, error: _isolate_poison(pool, messages[index], error, lane),
    )


async def commit(
    pool: db.Pool, messages: Sequence[RawMessage], timing: Timing, *, lane: Lane | None = None
) -> Outcome:
    """Store messages and advance the cursor in one transaction."""
    async with _transaction(pool, messages, lane) as tx:
        outcome = await apply(tx, messages, timing)
        if outcome.rejected or outcome.noted:
            await store.quarantine(tx, outcome.rejected + outcome.noted)
        return outcome


@asynccontextmanager
async def _transaction(
    pool: db.Pool, messages: Sequence[RawMessage], lane: Lane | None
) -> AsyncIterator[db.Connection]:
    """The cursor advances first: of two gateways the second waits here, then stores nothing."""
    last = messages[-1]
    async with db.transaction(pool) as tx:
        if lane is not None:
            await cursor.advance(tx, lane, seq=last.seq, stored_at_ns=last.stored_at_ns)
        yield tx
        crash.here("camera.before_commit")
    if lane is not None:
        lane.position = Position(lane.position.created, last.seq, last.stored_at_ns)


async def _isolate_poison(
    pool: db.Pool, message: RawMessage, error: Exception, lane: Lane | None
) -> Outcome:
    reasons = [f"cannot be stored: {db.first_line(error)}"]
    rejected = RejectedMessage(message.topic, message.raw, "database", reasons)
    async with _transaction(pool, [message], lane) as tx:
        await store.quarantine(tx, [rejected])
        # If it was an announcement, the chunks that follow are not of the image before.
        by_camera, _ = await _by_camera(tx, [message])
        if any(wire.may_announce(topic, raw.raw) for ((topic, raw),) in by_camera.values()):
            current = {camera.device_id: camera_store.NOTHING_KNOWN for camera in by_camera}
            await camera_store.set_current_transfers(tx, current, redriven=False)
    return Outcome(rejected=(rejected,))


async def apply(
    tx: db.Connection,
    messages: Sequence[RawMessage],
    timing: Timing,
    *,
    received_at: datetime | None = None,
    was_compared: bool = False,
) -> Outcome:
    """Handle messages, those of each camera in their order.

    `received_at` is given for redriven messages, which say nothing about the camera's state now.
    `was_compared`: the message did not fit the image that was open then.
    """
    by_camera, rejected = await _by_camera(tx, messages)
    if not by_camera:
        return Outcome(rejected=tuple(rejected))
    batch = Batch(
        timing,
        await store.now(tx),
        received_at=received_at,
        was_compared=was_compared,
        rejected=rejected,
    )
    handlers = {
        camera.device_id: CameraHandler(batch, camera, sent) for camera, sent in by_camera.items()
    }
    if received_at is None:
        hellos = {key: handler.hello for key, handler in handlers.items() if handler.hello}
        spellings = [(camera, sent[-1][0].spelling) for camera, sent in by_camera.items()]
        await camera_store.note_heard(tx, spellings, hellos)
    for row in await store.transfers_of(tx, list(handlers), recent_s=timing.timeout_s):
        handlers[row.device_id].rows.append(row)
    await _run(tx, batch, list(handlers.values()))
    await _reject_conflicts(tx, batch)
    written = await _write(tx, batch, handlers)
    due_at = [row.due_at for row in written if row.due_at and not row.is_whole]
    return Outcome(
        len(messages) - len(rejected),
        tuple(rejected),
        tuple(batch.noted),
        tuple(batch.failed),
        tuple((key, h.greeted_as) for key, h in handlers.items() if h.greeted_as),
        any(row.is_whole for row in written),
        (min(due_at) - batch.now).total_seconds() if due_at else math.inf,
    )


async def _by_camera(
    tx: db.Connection, messages: Sequence[RawMessage]
) -> tuple[dict[Camera, list[tuple[CameraTopic, RawMessage]]], list[RejectedMessage]]:
    """Messages of registered cameras, which are locked, and those rejected by their topic."""
    rejected: list[RejectedMessage] = []
    by_mac: dict[str, list[tuple[CameraTopic, RawMessage]]] = {}
    for message in messages:
        try:
            topic = wire.parse_topic(message.topic)
        except RejectedMessageError as error:
            rejected.append(RejectedMessage(message.topic, message.raw, error.kind, error.reasons))
        else:
            by_mac.setdefault(topic.mac, []).append((topic, message))
    cameras = await camera_store.by_mac(tx, sorted(by_mac), lock=True)
    for mac in by_mac.keys() - cameras.keys():
        reason = f"no camera {mac} is registered: register it, or take it off the network"
        rejected += [
            RejectedMessage(message.topic, message.raw, "unknown", [reason], mac)
            for _, message in by_mac[mac]
        ]
    return {camera: by_mac[mac] for mac, camera in cameras.items()}, rejected


async def _run(tx: db.Connection, batch: Batch, handlers: Sequence[CameraHandler]) -> None:
    """Run all handlers side by side, each up to its next query; one statement answers all."""
    runs = {handler: handler.run() for handler in handlers}
    answers: Mapping[CameraHandler, Any] = dict.fromkeys(handlers)
    while answers:
        queries: dict[CameraHandler, Query] = {}
        for handler, answer in answers.items():
            with suppress(StopIteration):
                queries[handler] = runs[handler].send(answer)
        await batch.execute(tx)
        answers = {**await _greet(tx, queries), **await _record(tx, queries)}


async def _greet(
    tx: db.Connection, queries: Mapping[CameraHandler, Query]
) -> dict[CameraHandler, bool]:
    """Queue commands after HELLO; whether each camera has a send_image now."""
    hellos = {h.camera: hello for h, hello in queries.items() if isinstance(hello, Hello)}
    if not hellos:
        return {}
    await commands.after_hellos(tx, [item for item in hellos.items() if item[0].has_site])
    requested = await commands.cameras_with_requests(tx, [camera.device_id for camera in hellos])
    return {h: h.camera.device_id in requested for h in queries if h.camera in hellos}


async def _record(
    tx: db.Connection, queries: Mapping[CameraHandler, Query]
) -> dict[CameraHandler, Wake]:
    """Record wakes; a handler also gets the transfer of its image that was not loaded yet."""
    requests = {h: query for h, query in queries.items() if isinstance(query, WakeRequest)}
    if not requests:
        return {}
    recorded = await camera_store.record_wakes(tx, list(requests.values()))
    wakes = dict(zip(requests, recorded, strict=True))
    missing = {
        wake.image_id: handler
        for handler, wake in wakes.items()
        if wake.has_transfer and all(row.image_id != wake.image_id for row in handler.rows)
    }
    for row in await store.transfers_of_images(tx, list(missing)) if missing else []:
        if row.image_id is not None:
            missing[row.image_id].rows.append(row)
    return wakes


async def _reject_conflicts(tx: db.Connection, batch: Batch) -> None:
    """Reject chunks that were received before with other bytes."""
    stored = [
        repeat for repeat in batch.repeated if repeat.chunk.number not in repeat.row.new_chunks
    ]
    differing = await store.differing(
        tx, [(repeat.row.transfer_id, repeat.chunk.number, repeat.chunk.data) for repeat in stored]
    )
    conflicts = [stored[index] for index in differing] + [
        repeat
        for repeat in batch.repeated
        if repeat.row.new_chunks.get(repeat.chunk.number, repeat.chunk.data) != repeat.chunk.data
    ]
    for conflict in conflicts:
        conflict.handler.on_conflict(conflict)
    await batch.execute(tx)


async def _write(
    tx: db.Connection, batch: Batch, handlers: Mapping[UUID, CameraHandler]
) -> list[Row]:
    """Returns the rows that changed."""
    rows = [row for handler in handlers.values() for row in handler.rows]
    changed = [row for row in rows if row.is_changed]
    progressed = [row for row in rows if row.new_chunks and not row.is_changed]
    await store.save(tx, changed)
    await store.save_progress(tx, progressed)
    await store.store_chunks(tx, rows)
    current = {key: handler.current for key, handler in handlers.items() if handler.current_changed}
    if current:
        await camera_store.set_current_transfers(
            tx, current, redriven=batch.received_at is not None
        )
    own_images = [key for key, handler in handlers.items() if handler.took_own_image]
    await commands.note_own_images(tx, own_images)
    return changed + progressed
