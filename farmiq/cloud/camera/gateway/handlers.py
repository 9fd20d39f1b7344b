"""Handle a batch of camera messages in one transaction, in the order in which they were sent.

messages of the log --> [BatchHandler] --fn_wake_…, camera_transfers, camera_chunks, quarantine-->

The messages and the cursor are one transaction. All state is in the tables, so another gateway
continues where this one stopped, in the middle of an image. The number of statements grows with
announcements, not with chunks.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import psycopg

from farmiq import crash
from farmiq.cloud.camera.gateway import chunks, commands, dialects, store, wire
from farmiq.cloud.camera.gateway.chunks import Timing
from farmiq.cloud.camera.gateway.store import Camera, RejectedMessage, Row, Wake
from farmiq.cloud.camera.gateway.wire import (
    Announcement,
    CameraTopic,
    Chunk,
    Hello,
    RawMessage,
    RejectedMessageError,
)
from farmiq.plumbing import db
from farmiq.plumbing.messaging import cursor
from farmiq.plumbing.messaging.cursor import CursorMovedError, Lane
from farmiq.plumbing.messaging.stream import Position

# Errors of fn_wake_ingestion_handler about the camera, not about the data.
_NOT_REGISTERED, _NOT_IN_USE = "FQ001", "FQ002"
TOO_MANY_OPEN = "TOO_MANY_OPEN"
OVERTAKEN = "OVERTAKEN"
MIXED = "MIXED"
CAMERA_ERROR = "CAMERA_ERROR"
# An image that is announced so soon after it was taken belongs to this wake.
OWN_IMAGE = timedelta(seconds=60)
_NOT_YET = datetime.max.replace(tzinfo=UTC)
_NO_TRANSFER = (
    "a chunk without a name: nobody can tell whose it is if its announcement is not tried first"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`noted` are messages of which a part was not stored; `failed` the error codes of images.

    `greeted` are cameras that sent HELLO and nothing since, with the spelling of their address.
    """

    stored: int = 0
    rejected: tuple[RejectedMessage, ...] = ()
    noted: tuple[RejectedMessage, ...] = ()
    failed: tuple[str, ...] = ()
    greeted: tuple[tuple[UUID, str], ...] = ()

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.stored + other.stored,
            self.rejected + other.rejected,
            self.noted + other.noted,
            self.failed + other.failed,
            self.greeted + other.greeted,
        )


async def commit_bisecting(
    pool: db.Pool, messages: Sequence[RawMessage], timing: Timing, *, lane: Lane | None = None
) -> Outcome:
    """One transaction for all; if a message breaks it, commit halves until it is alone (C-81).

    Any exception counts: a message that ends the process would end the next one too.
    """
    try:
        return await commit(pool, messages, timing, lane=lane)
    except Exception as error:
        if db.is_outage(error) or isinstance(error, CursorMovedError):
            raise
        if len(messages) == 1:
            return await _isolate_poison(pool, messages[0], error, lane)
    half = len(messages) // 2
    first = await commit_bisecting(pool, messages[:half], timing, lane=lane)
    return first + await commit_bisecting(pool, messages[half:], timing, lane=lane)


async def commit(
    pool: db.Pool, messages: Sequence[RawMessage], timing: Timing, *, lane: Lane | None = None
) -> Outcome:
    """Store messages and advance the cursor in one transaction."""
    try:
        async with _transaction(pool, messages, lane) as tx, tx.pipeline():
            return await _store(tx, messages, timing)
    except psycopg.errors.PipelineAborted:
        # Without a pipeline the statement that failed raises its own error.
        async with _transaction(pool, messages, lane) as tx:
            return await _store(tx, messages, timing)


async def _store(tx: db.Connection, messages: Sequence[RawMessage], timing: Timing) -> Outcome:
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
        registered, _ = await _registered(tx, [message])
        for camera, topic, _ in registered:
            if wire.may_announce(topic, message.raw):
                await store.lock(tx, [camera.device_id])
                current: dict[UUID, UUID | None] = {camera.device_id: store.NOTHING_KNOWN}
                await store.set_current_transfers(tx, current, redriven=False)
    return Outcome(rejected=(rejected,))


async def apply(
    tx: db.Connection,
    messages: Sequence[RawMessage],
    timing: Timing,
    *,
    received_at: datetime | None = None,
    was_compared: bool = False,
) -> Outcome:
    """Handle messages in their order.

    `received_at` is given for redriven messages, which say nothing about the camera's state now.
    `was_compared`: the message did not fit the image that was open then.
    """
    registered, rejected = await _registered(tx, messages)
    seen = {camera.mac: (camera, topic.spelling) for camera, topic, _ in registered}
    device_ids = [camera.device_id for camera, _ in seen.values()]
    await store.lock(tx, device_ids)
    if received_at is None and seen:
        await store.note_heard(tx, list(seen.values()))
    batch = BatchHandler(
        tx, timing, await store.now(tx), received_at=received_at, was_compared=was_compared
    )
    if seen:
        batch.add(await store.transfers_of(tx, device_ids, recent_s=timing.timeout_s))
        batch.requested = await commands.cameras_with_requests(tx, device_ids)
        if was_compared:
            batch.current = dict.fromkeys(device_ids, store.NOTHING_KNOWN)
        else:
            batch.current = await store.current_transfers(
                tx, device_ids, redriven=received_at is not None
            )
    parsed_messages = [_parse(camera, topic, message) for camera, topic, message in registered]
    await batch.greet_first(parsed_messages)
    noted = []
    for parsed in parsed_messages:
        try:
            if reasons := await batch.handle(parsed):
                noted.append(_rejected(parsed.camera, parsed.message, "limits", reasons))
        except RejectedMessageError as error:
            rejected.append(_rejected(parsed.camera, parsed.message, error.kind, error.reasons))
    rejected += await batch.finish()
    return Outcome(
        len(messages) - len(rejected),
        tuple(rejected),
        tuple(noted),
        tuple(batch.failed),
        tuple(batch.greeted.items()),
    )


def _rejected(
    camera: Camera, message: RawMessage, kind: str, reasons: list[str]
) -> RejectedMessage:
    return RejectedMessage(message.topic, message.raw, kind, reasons, camera.mac, camera)


async def _registered(
    tx: db.Connection, messages: Sequence[RawMessage]
) -> tuple[list[tuple[Camera, CameraTopic, RawMessage]], list[RejectedMessage]]:
    """Messages of registered cameras, and those that are rejected by their topic."""
    rejected: list[RejectedMessage] = []
    with_topic: list[tuple[CameraTopic, RawMessage]] = []
    for message in messages:
        try:
            with_topic.append((wire.parse_topic(message.topic), message))
        except RejectedMessageError as error:
            rejected.append(RejectedMessage(message.topic, message.raw, error.kind, error.reasons))
    cameras = await store.by_mac(tx, sorted({topic.mac for topic, _ in with_topic}))
    registered = []
    for topic, message in with_topic:
        camera = cameras.get(topic.mac)
        if camera is None:
            reason = f"no camera {topic.mac} is registered: register it, or take it off the network"
            rejected.append(
                RejectedMessage(message.topic, message.raw, "unknown", [reason], topic.mac)
            )
        else:
            registered.append((camera, topic, message))
    return registered, rejected


class Parsed(NamedTuple):
    """A message of a registered camera; `content` is the error if it could not be parsed."""

    camera: Camera
    topic: CameraTopic
    message: RawMessage
    content: wire.Message | RejectedMessageError


def _parse(camera: Camera, topic: CameraTopic, message: RawMessage) -> Parsed:
    content: wire.Message | RejectedMessageError
    try:
        dialect = dialects.dialect_of(topic)
        content = dialects.parse(dialect, topic, message.raw)
    except RejectedMessageError as error:
        content, dialect = error, camera.dialect
    if dialect != camera.dialect:
        registered = f"camera {camera.mac} is registered with the dialect {camera.dialect}"
        content = RejectedMessageError([f"{registered}: it speaks {dialect}"], kind="dialect")
    return Parsed(camera, topic, message, content)


@dataclass(frozen=True, slots=True)
class Repeated:
    """A chunk that was received before, perhaps with other bytes."""

    row: Row
    camera: Camera
    message: RawMessage
    chunk: Chunk
    was_whole: bool


@dataclass(slots=True)
class BatchHandler:
    """State of one transaction; `rows` are the transfers of its cameras.

    `requested` are cameras with a send_image that is queued or not answered. `current` has the
    current transfer of each camera; those in `current_changed` are to be written. See apply() for
    `received_at` and `was_compared`.
    """

    tx: db.Connection
    timing: Timing
    now: datetime
    rows: dict[UUID, list[Row]] = field(default_factory=dict)
    new_chunks: list[tuple[UUID, UUID, int, bytes]] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    pending: dict[UUID, int] = field(default_factory=dict)
    received_at: datetime | None = None
    was_compared: bool = False
    requested: set[UUID] = field(default_factory=set)
    current: dict[UUID, UUID | None] = field(default_factory=dict)
    current_changed: set[UUID] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    greeted: dict[UUID, str] = field(default_factory=dict)
    greeted_first: set[int] = field(default_factory=set)
    own_images: set[UUID] = field(default_factory=set)

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.rows.setdefault(row.device_id, []).append(row)

    def _of(self, camera: Camera) -> list[Row]:
        return self.rows.setdefault(camera.device_id, [])

    async def greet_first(self, parsed_messages: Sequence[Parsed]) -> None:
        """Store all HELLOs that are the first message of their camera at once."""
        if self.received_at is not None:
            return
        first: dict[UUID, Parsed] = {}
        for parsed in parsed_messages:
            first.setdefault(parsed.camera.device_id, parsed)
        hellos = [
            (parsed.camera, parsed.content)
            for parsed in first.values()
            if isinstance(parsed.content, Hello)
        ]
        self.greeted_first = {id(hello) for _, hello in hellos}
        await self._greet(hellos)
        if hellos:
            greeted = [camera.device_id for camera, _ in hellos]
            self.requested -= {*greeted}
            self.requested |= await commands.cameras_with_requests(self.tx, greeted)

    async def handle(self, parsed: Parsed) -> list[str]:
        """Returns what was not stored, with reasons. Raises RejectedMessageError."""
        camera, topic, message, content = parsed
        self.greeted.pop(camera.device_id, None)
        try:
            match content:
                case Hello():
                    await self._on_hello(camera, topic, content)
                    return list(content.noted)
                case Announcement():
                    await self._on_announcement(camera, topic, content)
                    return list(content.noted)
                case Chunk():
                    await self._on_chunk(camera, topic, content, message)
                case RejectedMessageError():
                    raise content
        except RejectedMessageError:
            if wire.may_announce(topic, message.raw):
                self._set_current(camera, store.NOTHING_KNOWN)
            raise
        return []

    def _set_current(self, camera: Camera, transfer_id: UUID | None) -> None:
        if self.current.get(camera.device_id) != transfer_id:
            self.current[camera.device_id] = transfer_id
            self.current_changed.add(camera.device_id)

    async def _greet(self, hellos: Sequence[tuple[Camera, Hello]]) -> None:
        if hellos:
            await store.note_hellos(self.tx, hellos)
            with_site = [(camera, hello) for camera, hello in hellos if camera.has_site]
            await commands.after_hellos(self.tx, with_site)

    async def _on_hello(self, camera: Camera, topic: CameraTopic, hello: Hello) -> None:
        self._set_current(camera, None)
        if self.received_at is not None:
            return
        # Chunks of an earlier wake, without an announcement; names may be used again.
        for row in self._open(camera):
            if not row.transfer.is_announced:
                await self._remove(row)
        self.pending[camera.device_id] = hello.pending_count
        self._cancel_acks(camera)
        if id(hello) not in self.greeted_first:
            await self._greet([(camera, hello)])
            self.requested.add(camera.device_id)
        if camera.has_site and hello.pending_count and camera.dialect == dialects.ESP32CAM:
            self.greeted[camera.device_id] = topic.spelling

    async def finish(self) -> list[RejectedMessage]:
        """Write the changes; reject chunks that were received before with other bytes."""
        await self._write()
        repeated = [(r.row.transfer_id, r.chunk.number, r.chunk.data) for r in self.repeated]
        conflicts = [self.repeated[index] for index in await store.differing(self.tx, repeated)]
        for conflict in conflicts:
            await self._on_conflict(conflict)
        if conflicts:
            await self._write()
        if self.current_changed:
            current = {key: self.current[key] for key in sorted(self.current_changed)}
            await store.set_current_transfers(
                self.tx, current, redriven=self.received_at is not None
            )
        await commands.note_own_images(self.tx, sorted(self.own_images))
        return [
            _rejected(repeat.camera, repeat.message, "conflict", [
                f"chunk {repeat.chunk.number} of {repeat.row.image_name} is here with other bytes"])
            for repeat in conflicts
        ]  # fmt: skip

    async def _write(self) -> None:
        rows = [row for rows in self.rows.values() for row in rows]
        changed = [row for row in rows if row.is_changed]
        progressed = [row for row in rows if row.has_progress and not row.is_changed]
        await store.save(self.tx, changed)
        await store.save_progress(self.tx, progressed)
        for row in (*changed, *progressed):
            row.is_changed = row.is_new = row.has_progress = False
        await store.store_chunks(self.tx, self.new_chunks)
        self.new_chunks = []

    async def _on_conflict(self, repeat: Repeated) -> None:
        """A chunk without a name and with other bytes is of an image whose announcement was lost.

        The stored chunks may be of either image, so this one starts again when it is announced
        again. One that was complete before has no chunks of the other.
        """
        if repeat.chunk.image_name is not None or self.received_at is not None:
            return
        row = repeat.row
        current = self.current.get(repeat.camera.device_id)
        if current == row.transfer_id or not row.transfer.is_announced:
            self._set_current(repeat.camera, store.NOTHING_KNOWN)
        if repeat.was_whole:
            return
        if row in self._open(repeat.camera):
            await self._fail(row, MIXED, f"chunk {repeat.chunk.number} came with other bytes")
        if row.transfer.state == "failed":
            await self._drop(row)

    # --- announcements

    async def _on_announcement(
        self, camera: Camera, topic: CameraTopic, announcement: Announcement
    ) -> None:
        if repeat := self._stored_in_other_chunks(camera, announcement):
            repeat.transfer = chunks.after_announcement(repeat.transfer, announcement, now=self.now)
            self._set_current(camera, repeat.transfer_id)
            if repeat.image_id is not None:
                await self._match_request(camera, repeat.image_id, announcement)
            self._schedule_ack(camera, topic, repeat)
            return
        if self.received_at is not None and announcement.captured_at is None:
            announcement = replace(announcement, captured_at=self.received_at)
        pending = self.pending.get(camera.device_id, camera.pending_count) or self.received_at
        waited = bool(pending) and wire.is_suspect(announcement.captured_at, self.now)
        wake = await self._record(camera, announcement, waited=waited)
        image_id = wake.image_id
        row = await self._row_of(camera, topic, announcement, wake)
        self._set_current(camera, row.transfer_id)
        await self._match_request(camera, image_id, announcement)
        if row.transfer.state == "complete":
            row.transfer = chunks.after_announcement(row.transfer, announcement, now=self.now)
            self._schedule_ack(camera, topic, row)
            return
        self._cancel_acks(camera, announcement.image_name)
        if chunks.starts_over(row.transfer, announcement):
            await self._drop_chunks(row)
        adopted = not row.transfer.is_announced and row.transfer.received_count > 0
        row.transfer = chunks.after_announcement(row.transfer, announcement, now=self.now)
        row.image_id, row.image_name = image_id, announcement.image_name
        row.dialect, row.spelling = camera.dialect, topic.spelling
        row.announced_at, row.ended_at, row.reason = self.now, None, None
        if adopted:
            await self._adopt(row)
        # A camera of this dialect may wait for a request before it sends chunks (C-117).
        waits = camera.dialect == dialects.ESP32CAM and row.transfer.received_count == 0
        due_at = self.now if row.transfer.is_whole or waits else self.now + self.timing.round
        self._change(row, due_at=due_at)
        if camera.dialect == dialects.ESP32CAM and self.received_at is None:
            self._note_own_image(camera, announcement, is_new=not wake.has_transfer)
        if announcement.error is not None:
            await self._fail(row, CAMERA_ERROR, f"the camera says error {announcement.error}")

    def _note_own_image(self, camera: Camera, announcement: Announcement, *, is_new: bool) -> None:
        """Perhaps the camera took this image without a command (C-117); not an older image."""
        pending = self.pending.get(camera.device_id, camera.pending_count)
        taken_at = announcement.captured_at
        is_fresh = taken_at is not None and abs(self.now - taken_at) <= OWN_IMAGE
        if is_new and (not pending or is_fresh):
            self.own_images.add(camera.device_id)

    async def _match_request(
        self, camera: Camera, image_id: UUID, announcement: Announcement
    ) -> None:
        if camera.device_id in self.requested:
            await commands.match_announcement(self.tx, camera, image_id, announcement.image_name)

    def _stored_in_other_chunks(self, camera: Camera, announcement: Announcement) -> Row | None:
        """The image just stored that is announced again in other chunks.

        The database identifies images by name and time; with a suspect clock it uses the number of
        chunks (C-59), so it would not recognize this one.
        """
        if announcement.image_size is None or not wire.is_suspect(
            announcement.captured_at, self.now
        ):
            return None
        for row in self._stored(camera, announcement.image_name):
            known = row.transfer
            is_same = known.image_size == announcement.image_size and announcement.sha256 in {
                None,
                known.sha256,
            }
            if is_same and known.total_chunks != announcement.total_chunks:
                return row
        return None

    async def _record(self, camera: Camera, announcement: Announcement, *, waited: bool) -> Wake:
        """A rejection is rolled back to the savepoint; the rest of the transaction stays."""
        await self.tx.execute("savepoint wake")
        try:
            wake = await store.record_wake(self.tx, camera, announcement, waited=waited)
        except psycopg.Error as error:
            await self._undo(error)
            if error.sqlstate in {_NOT_REGISTERED, _NOT_IN_USE}:
                reason = db.first_line(error)
                await store.alert_unassigned(self.tx, camera, reason)
                raise RejectedMessageError([reason], kind="unassigned") from None
            if db.is_data_error(error):
                raise RejectedMessageError([db.first_line(error)], kind="database") from None
            raise
        try:
            # The first announcement of an open image counts: a rejected one must not change it.
            for row in self._of(camera):
                if row.image_id == wake.image_id and row.transfer.state == "receiving":
                    chunks.after_announcement(row.transfer, announcement, now=self.now)
        except RejectedMessageError:
            await self._roll_back()
            raise
        await self.tx.execute("release savepoint wake")
        return wake

    async def _undo(self, error: psycopg.Error) -> None:
        """Roll back to the savepoint. There is none if a statement before it failed."""
        try:
            # After an error the server accepts statements again when the pipeline ends.
            async with self.tx.pipeline():
                pass
            await self._roll_back()
        except psycopg.Error:
            raise error from None

    async def _roll_back(self) -> None:
        """Roll back to the savepoint, in two steps.

        After a rollback psycopg deallocates its prepared statements together with its next
        statement; if that one were being prepared, psycopg would use it and the server not know it.
        """
        async with self.tx.pipeline():
            await self.tx.execute("rollback to savepoint wake")
        await self.tx.execute("release savepoint wake")

    async def _row_of(
        self, camera: Camera, topic: CameraTopic, announcement: Announcement, wake: Wake
    ) -> Row:
        """The transfer of an image: known, without an announcement so far, or new."""
        image_id = wake.image_id
        known = next((row for row in self._of(camera) if row.image_id == image_id), None)
        if known is None and wake.has_transfer:
            known = await store.transfer_of_image(self.tx, image_id)
        are_of_next = self._are_of_next(camera)
        await self._overtake(camera, announcement.image_name, image_id, orphans=known is not None)
        if known is not None:
            if known not in self._of(camera):
                self._of(camera).append(known)
            if known.transfer.state == "failed":
                await self._make_room(camera)
            return known
        orphan = next(iter(self._unannounced(camera, announcement.image_name)), None)
        if orphan is not None:
            name = orphan.image_name or None
            if (name or are_of_next) and not self._stored(camera, name):
                return orphan
            # Perhaps its chunks are of the image before; missing ones will be requested.
            await self._remove(orphan)
        await self._make_room(camera)
        row = store.new_row(
            camera, name=announcement.image_name, spelling=topic.spelling, at=self.now
        )
        if wake.is_complete:
            # Its transfer was purged long ago, and the camera has not received ACK_OK.
            row.image_id, row.ended_at = image_id, self.now
            row.transfer = chunks.after_announcement(row.transfer, announcement, now=self.now)
            row.transfer = replace(row.transfer, state="complete")
        self._of(camera).append(row)
        return row

    def _unannounced(self, camera: Camera, name: str) -> list[Row]:
        """Transfers without an announcement, of this name or of none."""
        return [
            row
            for row in self._open(camera)
            if row.image_name == name and not row.transfer.is_announced
        ] + self._nameless(camera)

    def _are_of_next(self, camera: Camera) -> bool:
        """Whether chunks without a name are certainly of the image that is announced next.

        They may be of an open image: some cameras send HELLO when they reconnect during an image
        and continue without another announcement.
        """
        return self.current.get(camera.device_id) is None and not any(
            row.transfer.is_announced and not row.transfer.is_whole for row in self._open(camera)
        )

    async def _overtake(self, camera: Camera, name: str, image_id: UUID, *, orphans: bool) -> None:
        """Fail other open images of this name: their chunks could not be told apart.

        Not those with all chunks: they will be stored.
        """
        for row in self._open(camera):
            if row.image_name != name or row.image_id == image_id or row.transfer.is_whole:
                continue
            if row.transfer.is_announced:
                await self._fail(row, OVERTAKEN, f"the camera took another image as {name}")
            elif orphans:
                await self._remove(row)

    async def _adopt(self, row: Row) -> None:
        """Count the chunks that were received before the announcement, if they fit it."""
        misfits = []
        await self._flush(row)
        for number, size in await store.sizes(self.tx, row.transfer_id):
            try:
                after = chunks.after_chunk(row.transfer, number, size, now=self.now)
            except RejectedMessageError:
                misfits.append(number)
            else:
                row.transfer = after or row.transfer
        if misfits:
            await store.drop_chunks(self.tx, [row.transfer_id], numbers=misfits)

    async def _flush(self, row: Row) -> None:
        """Write new chunks of this row."""
        new_chunks = [chunk for chunk in self.new_chunks if chunk[0] == row.transfer_id]
        self._discard_new_chunks(row)
        if row.is_new:
            await store.save(self.tx, [row])
            row.is_new = False
        await store.store_chunks(self.tx, new_chunks)

    async def _drop_chunks(self, row: Row) -> None:
        self._discard_new_chunks(row)
        if not row.is_new:
            await store.drop_chunks(self.tx, [row.transfer_id])

    def _discard_new_chunks(self, row: Row) -> None:
        self.new_chunks = [chunk for chunk in self.new_chunks if chunk[0] != row.transfer_id]

    def _open(self, camera: Camera) -> list[Row]:
        """Open images of a camera, in the order of their announcements."""
        rows = [row for row in self._of(camera) if row.transfer.state == "receiving"]
        if len(rows) > 1:
            rows.sort(key=lambda row: row.announced_at or row.transfer.heard_at)
        return rows

    async def _make_room(self, camera: Camera) -> None:
        """Fail or drop the oldest images, so that one more can be received (C-78)."""
        parts = [row for row in self._open(camera) if not row.transfer.is_whole]
        whole = [row for row in self._open(camera) if row.transfer.is_whole]
        for row in parts[: max(0, len(parts) - chunks.MAX_OPEN + 1)]:
            await self._fail(
                row, TOO_MANY_OPEN, f"the camera began more than {chunks.MAX_OPEN} images at once"
            )
        for row in whole[: max(0, len(whole) - chunks.MAX_WHOLE + 1)]:
            await self._fail(
                row, TOO_MANY_OPEN, f"more than {chunks.MAX_WHOLE} images waited to be stored"
            )
        failed = [
            row
            for row in self._of(camera)
            if row.transfer.state == "failed" and row.due_at is not None
        ]
        failed.sort(key=lambda row: row.transfer.heard_at)
        for row in failed[: max(0, len(failed) - (chunks.MAX_WITH_CHUNKS - chunks.MAX_OPEN))]:
            await self._drop(row)

    async def _fail(self, row: Row, code: str, message: str) -> None:
        if row.image_id is None:
            await self._remove(row)
            return
        await store.fail(self.tx, row.image_id, code=code, message=message)
        if row.device_id in self.requested:
            await commands.end_requests(self.tx, [row.image_id], state="failed")
        self.failed.append(code)
        row.transfer = replace(row.transfer, state="failed")
        row.reason, row.ended_at = f"{code}: {message}", self.now
        self._change(row, due_at=self.now + timedelta(days=self.timing.resume_days))

    async def _drop(self, row: Row) -> None:
        """Delete the chunks of a failed image; it can be sent again from the start."""
        await self._drop_chunks(row)
        row.transfer = chunks.without_chunks(row.transfer)
        self._change(row, due_at=None)

    async def _remove(self, row: Row) -> None:
        self._discard_new_chunks(row)
        self.rows[row.device_id].remove(row)
        if not row.is_new:
            await store.remove(self.tx, row.transfer_id)

    # --- chunks

    async def _on_chunk(
        self, camera: Camera, topic: CameraTopic, chunk: Chunk, message: RawMessage
    ) -> None:
        row = self._belongs_to(camera, chunk)
        if self._is_repeat(camera, topic, chunk, row):
            return
        if row is None:
            if self.received_at is not None and chunk.image_name is None:
                raise RejectedMessageError(
                    [_NO_TRANSFER], kind="conflict" if self.was_compared else "format"
                )
            await self._make_room(camera)
            name = chunk.image_name or ""
            row = store.new_row(camera, name=name, spelling=topic.spelling, at=self.now)
            self._of(camera).append(row)
        after = chunks.after_chunk(row.transfer, chunk.number, len(chunk.data), now=self.now)
        if after is None:
            self.repeated.append(Repeated(row, camera, message, chunk, row.transfer.is_whole))
            return
        if message.stored_at_ns:
            self.timing.note_chunk(row.transfer_id, message.stored_at_ns)
        row.transfer, row.spelling = after, topic.spelling
        self.new_chunks.append((row.transfer_id, row.company_id, chunk.number, chunk.data))
        row.has_progress = True
        if after.is_announced and after.is_whole:
            row.due_at = self.now
        elif row.due_at is None or row.due_at <= self.now:
            # Not moved with every chunk: each change would cost an index entry.
            row.due_at = self.now + self.timing.round

    def _belongs_to(self, camera: Camera, chunk: Chunk) -> Row | None:
        """The open image of this name that was announced last; without a name, the current one.

        Not a failed one, before it is announced again: cameras use names again.
        """
        if chunk.image_name is None:
            return self._current(camera) or next(iter(self._nameless(camera)), None)
        fitting = [row for row in self._open(camera) if chunk.image_name == row.image_name]
        if len(fitting) <= 1:
            return fitting[0] if fitting else None
        # If two were announced in one transaction, the first one has all its chunks.
        return max(
            reversed(fitting),
            key=lambda row: (row.announced_at or _NOT_YET, not row.transfer.is_whole),
        )

    def _current(self, camera: Camera) -> Row | None:
        current = self.current.get(camera.device_id)
        return next((row for row in self._open(camera) if row.transfer_id == current), None)

    def _nameless(self, camera: Camera) -> list[Row]:
        """The transfer of chunks without a name or an announcement."""
        if self.received_at is not None:
            return []
        return [row for row in self._open(camera) if not row.image_name]

    def _is_repeat(self, camera: Camera, topic: CameraTopic, chunk: Chunk, row: Row | None) -> bool:
        """Whether a chunk is of an image just stored: its camera did not receive ACK_OK.

        No ACK_OK while another image is open: some firmware would delete that one.
        """
        for stored in self._stored(camera, chunk.image_name):
            compared = (stored.digests, stored.transfer, chunk.number, chunk.data)
            if row is not None and row.transfer.is_announced:
                # Both images may have this chunk; if so, it will be requested for this one.
                if row.transfer.rounds == 0 and chunks.is_same(*compared):
                    return True
                continue
            is_current = self.current.get(camera.device_id) == stored.transfer_id
            if chunks.is_same(*compared) if is_current else chunks.is_repeat(*compared):
                self._schedule_ack(camera, topic, stored)
                return True
        return False

    def _stored(self, camera: Camera, name: str | None) -> list[Row]:
        """Images of this name, or of any, that were stored or repeated just now."""
        return [
            row
            for row in self._of(camera)
            if row.transfer.state == "complete" and name in {None, row.image_name}
        ]

    def _schedule_ack(self, camera: Camera, topic: CameraTopic, row: Row) -> None:
        """Repeat ACK_OK in the camera's spelling of now; not for redriven messages."""
        if self.received_at is not None:
            return
        row.dialect, row.spelling = camera.dialect, topic.spelling
        self._cancel_acks(camera, row.image_name)
        row.transfer = replace(row.transfer, heard_at=self.now)
        due_at = chunks.acknowledgement_due(
            row.acknowledged_count, now=self.now, timing=self.timing
        )
        self._change(row, due_at=due_at)

    def _cancel_acks(self, camera: Camera, name: str | None = None) -> None:
        """The camera sends another image now: a pending ACK_OK could delete that."""
        for row in self._stored(camera, name):
            if row.due_at is not None:
                self._change(row, due_at=None)

    def _change(self, row: Row, *, due_at: datetime | None) -> None:
        row.due_at, row.is_changed = due_at, True
