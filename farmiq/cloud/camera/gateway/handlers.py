"""Handle the messages of one camera in a batch, in the order in which they were sent.

A CameraHandler is pure: it reads its camera's messages and changes its rows in memory. Where the
database decides (a HELLO, an announcement) it yields a query, which batches.py answers.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from farmiq.cloud.camera.gateway import camera_store, chunks, commands, store
from farmiq.cloud.camera.gateway.camera_store import Camera, Wake, WakeRequest
from farmiq.cloud.camera.gateway.chunks import Timing, Transfer
from farmiq.cloud.camera.gateway.store import RejectedMessage, Row
from farmiq.cloud.camera.protocol import dialects, wire
from farmiq.cloud.camera.protocol.wire import (
    Announcement,
    CameraTopic,
    Chunk,
    Hello,
    RawMessage,
    RejectedMessageError,
)
from farmiq.plumbing import db, ids

# Errors of fn_try_wake about the camera, not about the data.
_NOT_REGISTERED, _NOT_IN_USE, _CONTRADICTION = "FQ001", "FQ002", "FQ003"
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
# A HELLO is answered by whether the camera has a send_image, a WakeRequest by a Wake.
Query = Hello | WakeRequest
Statement = Callable[[db.Connection], Awaitable[object]]


class Repeated(NamedTuple):
    """A chunk that was received before, perhaps with other bytes."""

    handler: "CameraHandler"
    row: Row
    message: RawMessage
    chunk: Chunk
    was_whole: bool


@dataclass(slots=True)
class Batch:
    """What the cameras of one transaction share; see batches.apply for the first four.

    `statements` are due before the next query, and before rows are written.
    """

    timing: Timing
    now: datetime
    received_at: datetime | None = None
    was_compared: bool = False
    rejected: list[RejectedMessage] = field(default_factory=list)
    noted: list[RejectedMessage] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)

    async def execute(self, tx: db.Connection) -> None:
        for statement in self.statements:
            await statement(tx)
        self.statements = []


def _parse(
    camera: Camera, topic: CameraTopic, message: RawMessage
) -> wire.Message | RejectedMessageError:
    """The error if it cannot be parsed."""
    try:
        dialect = dialects.dialect_of(topic)
        content = dialects.parse(dialect, topic, message.raw)
    except RejectedMessageError as error:
        return error
    if dialect != camera.dialect:
        registered = f"camera {camera.mac} is registered with the dialect {camera.dialect}"
        return RejectedMessageError([f"{registered}: it speaks {dialect}"], kind="dialect")
    return content


class CameraHandler:
    """Pure: the messages of one camera in a batch, and its transfers that they may belong to.

    `current` is the transfer that chunks without a name belong to. `greeted_as` is set while
    nothing was sent after HELLO (C-117).
    """

    def __init__(
        self, batch: Batch, camera: Camera, sent: Sequence[tuple[CameraTopic, RawMessage]]
    ) -> None:
        self.batch, self.camera, self.now = batch, camera, batch.now
        self.is_redriven = batch.received_at is not None
        self.messages = [(topic, raw, _parse(camera, topic, raw)) for topic, raw in sent]
        self.rows: list[Row] = []
        self.has_requests = camera.has_requests
        self.took_own_image = self.current_changed = False
        self.current = camera.spoke_of if self.is_redriven else camera.speaks_of
        if batch.was_compared:
            self.current = camera_store.NOTHING_KNOWN
        self.pending_count = camera.pending_count
        self.greeted_as: str | None = None

    @property
    def hello(self) -> Hello | None:
        """What all HELLOs of the batch say together."""
        merged: Hello | None = None
        for _, _, content in self.messages:
            if isinstance(content, Hello):
                merged = content if merged is None else merged.then(content)
        return merged

    def run(self) -> Generator[Query, Any, None]:
        for topic, message, content in self.messages:
            self.greeted_as = None
            try:
                match content:
                    case Chunk():
                        self._on_chunk(topic, content, message)
                    case Hello():
                        yield from self._on_hello(topic, content)
                        self._note(message, content.noted)
                    case Announcement():
                        misfits = yield from self.on_announcement(topic, content)
                        self._note(message, [*content.noted, *misfits])
                    case RejectedMessageError():
                        raise content
            except RejectedMessageError as error:
                if wire.may_announce(topic, message.raw):
                    self._set_current(camera_store.NOTHING_KNOWN)
                self.batch.rejected.append(self._rejected(message, error.kind, error.reasons))

    def _note(self, message: RawMessage, reasons: Sequence[str]) -> None:
        if reasons:
            self.batch.noted.append(self._rejected(message, "limits", list(reasons)))

    def _rejected(self, message: RawMessage, kind: str, reasons: list[str]) -> RejectedMessage:
        camera = self.camera
        return RejectedMessage(message.topic, message.raw, kind, reasons, camera.mac, camera)

    def _set_current(self, transfer_id: UUID | None) -> None:
        if self.current != transfer_id:
            self.current, self.current_changed = transfer_id, True

    def _on_hello(self, topic: CameraTopic, hello: Hello) -> Generator[Query, bool, None]:
        self._set_current(None)
        if self.is_redriven:
            return
        # Chunks of an earlier wake, without an announcement; names may be used again.
        for row in self._open():
            if not row.transfer.is_announced:
                self._remove(row)
        self.pending_count = hello.pending_count
        self._cancel_acks()
        self.has_requests = yield hello
        camera = self.camera
        if camera.has_site and hello.pending_count and camera.dialect == dialects.ESP32CAM:
            self.greeted_as = topic.spelling

    def on_conflict(self, repeat: Repeated) -> None:
        """A chunk without a name and with other bytes is of an image whose announcement was lost.

        The stored chunks may be of either image, so this one starts again when it is announced
        again. One that was complete before has no chunks of the other.
        """
        row, chunk = repeat.row, repeat.chunk
        reason = f"chunk {chunk.number} of {row.image_name} is here with other bytes"
        self.batch.rejected.append(self._rejected(repeat.message, "conflict", [reason]))
        if chunk.image_name is not None or self.is_redriven:
            return
        if self.current == row.transfer_id or not row.transfer.is_announced:
            self._set_current(camera_store.NOTHING_KNOWN)
        if repeat.was_whole:
            return
        if row in self._open():
            self._fail(row, MIXED, f"chunk {chunk.number} came with other bytes")
        if row.transfer.state == "failed":
            self._drop(row)

    # --- announcements

    def on_announcement(
        self, topic: CameraTopic, announcement: Announcement
    ) -> Generator[Query, Wake, list[str]]:
        """Returns why chunks that were received before it are dropped."""
        if repeat := self._stored_in_other_chunks(announcement):
            repeat.transfer = chunks.after_announcement(repeat.transfer, announcement, now=self.now)
            self._set_current(repeat.transfer_id)
            if repeat.image_id is not None:
                self._match_request(repeat.image_id, announcement)
            self._schedule_ack(topic, repeat)
            return []
        received_at = self.batch.received_at
        if received_at is not None and announcement.captured_at is None:
            announcement = replace(announcement, captured_at=received_at)
        wake = yield from self._record(announcement)
        row = self._row_of(topic, announcement, wake)
        self._set_current(row.transfer_id)
        self._match_request(wake.image_id, announcement)
        if row.transfer.state == "complete":
            row.transfer = chunks.after_announcement(row.transfer, announcement, now=self.now)
            self._schedule_ack(topic, row)
            return []
        self._cancel_acks(announcement.image_name)
        if chunks.starts_over(row.transfer, announcement):
            self._drop_chunks(row)
        is_adopted = not row.transfer.is_announced and row.transfer.received_count > 0
        row.transfer = chunks.after_announcement(row.transfer, announcement, now=self.now)
        row.image_id, row.image_name = wake.image_id, announcement.image_name
        row.dialect, row.spelling = self.camera.dialect, topic.spelling
        row.announced_at, row.ended_at, row.reason = self.now, None, None
        misfits = self._adopt(row) if is_adopted else []
        # A camera of this dialect may wait for a request before it sends chunks (C-117).
        may_wait = self.camera.dialect == dialects.ESP32CAM
        is_due = row.transfer.is_whole or (may_wait and row.transfer.received_count == 0)
        self._change(row, due_at=self.now if is_due else self.now + self.batch.timing.round)
        if may_wait and not self.is_redriven and not wake.has_transfer:
            self._note_own_image(announcement)
        if announcement.error is not None:
            self._fail(row, CAMERA_ERROR, f"the camera says error {announcement.error}")
        return misfits

    def _record(self, announcement: Announcement) -> Generator[Query, Wake, Wake]:
        is_late = bool(self.pending_count or self.is_redriven)
        waited = is_late and wire.is_suspect(announcement.captured_at, self.now)
        # The first announcement of an open image counts: a rejected one must not change it.
        contradicted = {
            row.image_id: differences
            for row in self._open()
            if row.image_id and (differences := chunks.differences(row.transfer, announcement))
        }
        wake = yield WakeRequest(self.camera.device_id, announcement, waited, list(contradicted))
        reason = wake.message or ""
        if wake.problem == _CONTRADICTION:
            raise RejectedMessageError(contradicted[wake.image_id], kind="conflict")
        if wake.problem in {_NOT_REGISTERED, _NOT_IN_USE}:
            self._do(partial(camera_store.alert_unassigned, camera=self.camera, reason=reason))
            raise RejectedMessageError([reason], kind="unassigned")
        if wake.problem is not None:
            raise RejectedMessageError([reason], kind="database")
        return wake

    def _note_own_image(self, announcement: Announcement) -> None:
        """Perhaps the camera took this image without a command (C-117); not an older image."""
        taken_at = announcement.captured_at
        is_fresh = taken_at is not None and abs(self.now - taken_at) <= OWN_IMAGE
        if not self.pending_count or is_fresh:
            self.took_own_image = True

    def _match_request(self, image_id: UUID, announcement: Announcement) -> None:
        if self.has_requests:
            match = partial(commands.match_announcement, camera=self.camera)
            self._do(partial(match, image_id=image_id, image_name=announcement.image_name))

    def _stored_in_other_chunks(self, announcement: Announcement) -> Row | None:
        """The image just stored that is announced again in other chunks.

        The database identifies images by name and time; with a suspect clock it uses the number of
        chunks (C-59), so it would not recognize this one.
        """
        if announcement.image_size is None or not wire.is_suspect(
            announcement.captured_at, self.now
        ):
            return None
        for row in self._stored(announcement.image_name):
            known = row.transfer
            is_same = known.image_size == announcement.image_size and announcement.sha256 in {
                None,
                known.sha256,
            }
            if is_same and known.total_chunks != announcement.total_chunks:
                return row
        return None

    def _row_of(self, topic: CameraTopic, announcement: Announcement, wake: Wake) -> Row:
        """The transfer of an image: known, without an announcement so far, or new."""
        name, image_id = announcement.image_name, wake.image_id
        known = next((row for row in self.rows if row.image_id == image_id), None)
        are_of_next = self._are_of_next()
        self._overtake(name, image_id, orphans=known is not None)
        if known is not None:
            if known.transfer.state == "failed":
                self._make_room()
            return known
        orphans = [
            row for row in self._open() if row.image_name == name and not row.transfer.is_announced
        ]
        orphan = next(iter(orphans + self._nameless()), None)
        if orphan is not None:
            orphan_name = orphan.image_name or None
            if (orphan_name or are_of_next) and not self._stored(orphan_name):
                return orphan
            # Perhaps its chunks are of the image before; missing ones will be requested.
            self._remove(orphan)
        self._make_room()
        row = self._add_row(topic, name)
        if wake.is_complete:
            # Its transfer was purged long ago, and the camera has not received ACK_OK.
            row.image_id, row.ended_at = image_id, self.now
            row.transfer = chunks.after_announcement(row.transfer, announcement, now=self.now)
            row.transfer = replace(row.transfer, state="complete")
        return row

    def _add_row(self, topic: CameraTopic, name: str) -> Row:
        row = Row(
            transfer_id=ids.new(),
            company_id=self.camera.company_id,
            device_id=self.camera.device_id,
            image_name=name,
            dialect=self.camera.dialect,
            spelling=topic.spelling,
            transfer=Transfer(heard_at=self.now),
            is_new=True,
            is_changed=True,
        )
        self.rows.append(row)
        return row

    def _are_of_next(self) -> bool:
        """Whether chunks without a name are certainly of the image that is announced next.

        They may be of an open image: some cameras send HELLO when they reconnect during an image
        and continue without another announcement.
        """
        return self.current is None and not any(
            row.transfer.is_announced and not row.transfer.is_whole for row in self._open()
        )

    def _overtake(self, name: str, image_id: UUID, *, orphans: bool) -> None:
        """Fail other open images of this name: their chunks could not be told apart.

        Not those with all chunks: they will be stored.
        """
        for row in self._open():
            if row.image_name != name or row.image_id == image_id or row.transfer.is_whole:
                continue
            if row.transfer.is_announced:
                self._fail(row, OVERTAKEN, f"the camera took another image as {name}")
            elif orphans:
                self._remove(row)

    def _adopt(self, row: Row) -> list[str]:
        """Count the chunks that were received before the announcement, if they fit it.

        Returns why the others are dropped, for the announcement's entry in quarantine.
        """
        sizes = dict(row.sizes)
        sizes |= {number: len(data) for number, data in row.new_chunks.items()}
        misfits: dict[int, str] = {}
        for number, size in sorted(sizes.items()):
            try:
                after = chunks.after_chunk(row.transfer, number, size, now=self.now)
            except RejectedMessageError as error:
                row.new_chunks.pop(number, None)
                misfits[number] = error.reasons[0]
            else:
                row.transfer = after or row.transfer
        if misfits and not row.is_new:
            drop = partial(store.drop_chunks, transfer_ids=[row.transfer_id], numbers=[*misfits])
            self._do(drop)
        return [f"received before this announcement: {reason}" for reason in misfits.values()]

    def _do(self, statement: Statement) -> None:
        self.batch.statements.append(statement)

    def _drop_chunks(self, row: Row) -> None:
        row.new_chunks = {}
        if not row.is_new:
            self._do(partial(store.drop_chunks, transfer_ids=[row.transfer_id]))

    def _open(self) -> list[Row]:
        """Open images of the camera, in the order of their announcements."""
        rows = [row for row in self.rows if row.transfer.state == "receiving"]
        if len(rows) > 1:
            rows.sort(key=lambda row: row.announced_at or row.transfer.heard_at)
        return rows

    def _make_room(self) -> None:
        """Fail or drop the oldest images, so that one more can be received (C-78)."""
        parts = [row for row in self._open() if not row.transfer.is_whole]
        whole = [row for row in self._open() if row.transfer.is_whole]
        for row in parts[: max(0, len(parts) - chunks.MAX_OPEN + 1)]:
            reason = f"the camera began more than {chunks.MAX_OPEN} images at once"
            self._fail(row, TOO_MANY_OPEN, reason)
        for row in whole[: max(0, len(whole) - chunks.MAX_WHOLE + 1)]:
            reason = f"more than {chunks.MAX_WHOLE} images waited to be stored"
            self._fail(row, TOO_MANY_OPEN, reason)
        failed = [row for row in self.rows if row.transfer.state == "failed" and row.due_at]
        failed.sort(key=lambda row: row.transfer.heard_at)
        for row in failed[: max(0, len(failed) - (chunks.MAX_WITH_CHUNKS - chunks.MAX_OPEN))]:
            self._drop(row)

    def _fail(self, row: Row, code: str, message: str) -> None:
        if row.image_id is None:
            self._remove(row)
            return
        self._do(partial(store.fail, image_id=row.image_id, code=code, message=message))
        if self.has_requests:
            self._do(partial(commands.end_requests, image_ids=[row.image_id], state="failed"))
        self.batch.failed.append(code)
        row.transfer = replace(row.transfer, state="failed")
        row.reason, row.ended_at = f"{code}: {message}", self.now
        self._change(row, due_at=self.now + timedelta(days=self.batch.timing.resume_days))

    def _drop(self, row: Row) -> None:
        """Delete the chunks of a failed image; it can be sent again from the start."""
        self._drop_chunks(row)
        row.transfer = chunks.without_chunks(row.transfer)
        self._change(row, due_at=None)

    def _remove(self, row: Row) -> None:
        row.new_chunks = {}
        self.rows.remove(row)
        if not row.is_new:
            self._do(partial(store.remove, transfer_id=row.transfer_id))

    # --- chunks

    def _on_chunk(self, topic: CameraTopic, chunk: Chunk, message: RawMessage) -> None:
        row = self._belongs_to(chunk)
        if self._is_repeat(topic, chunk, row):
            return
        if row is None:
            if self.is_redriven and chunk.image_name is None:
                kind: wire.RejectionKind = "conflict" if self.batch.was_compared else "format"
                raise RejectedMessageError([_NO_TRANSFER], kind=kind)
            self._make_room()
            row = self._add_row(topic, chunk.image_name or "")
        after = chunks.after_chunk(row.transfer, chunk.number, len(chunk.data), now=self.now)
        if after is None:
            was_whole = row.transfer.is_whole
            self.batch.repeated.append(Repeated(self, row, message, chunk, was_whole))
            return
        timing = self.batch.timing
        if message.stored_at_ns:
            timing.note_chunk(row.transfer_id, message.stored_at_ns)
        row.transfer, row.spelling = after, topic.spelling
        row.new_chunks[chunk.number] = chunk.data
        if after.is_announced and after.is_whole:
            row.due_at = self.now
        elif row.due_at is None or row.due_at <= self.now:
            # Not moved with every chunk: each change would cost an index entry.
            row.due_at = self.now + timing.round

    def _belongs_to(self, chunk: Chunk) -> Row | None:
        """The open image of this name that was announced last; without a name, the current one.

        Not a failed one, before it is announced again: cameras use names again.
        """
        if chunk.image_name is None:
            current = [row for row in self._open() if row.transfer_id == self.current]
            return next(iter(current + self._nameless()), None)
        fitting = [row for row in self._open() if chunk.image_name == row.image_name]
        if len(fitting) <= 1:
            return fitting[0] if fitting else None
        # If two were announced in one transaction, the first one has all its chunks.
        return max(
            reversed(fitting),
            key=lambda row: (row.announced_at or _NOT_YET, not row.transfer.is_whole),
        )

    def _nameless(self) -> list[Row]:
        """The transfer of chunks without a name or an announcement."""
        return [] if self.is_redriven else [row for row in self._open() if not row.image_name]

    def _is_repeat(self, topic: CameraTopic, chunk: Chunk, row: Row | None) -> bool:
        """Whether a chunk is of an image just stored: its camera did not receive ACK_OK.

        No ACK_OK while another image is open: some firmware would delete that one.
        """
        for stored in self._stored(chunk.image_name):
            compared = (stored.digests, stored.transfer, chunk.number, chunk.data)
            if row is not None and row.transfer.is_announced:
                # Both images may have this chunk; if so, it will be requested for this one.
                if row.transfer.rounds == 0 and chunks.is_same(*compared):
                    return True
                continue
            is_current = self.current == stored.transfer_id
            if chunks.is_same(*compared) if is_current else chunks.is_repeat(*compared):
                self._schedule_ack(topic, stored)
                return True
        return False

    def _stored(self, name: str | None) -> list[Row]:
        """Images of this name, or of any, that were stored or repeated just now."""
        return [
            row
            for row in self.rows
            if row.transfer.state == "complete" and name in {None, row.image_name}
        ]

    def _schedule_ack(self, topic: CameraTopic, row: Row) -> None:
        """Repeat ACK_OK in the camera's spelling of now; not for redriven messages."""
        if self.is_redriven:
            return
        row.dialect, row.spelling = self.camera.dialect, topic.spelling
        self._cancel_acks(row.image_name)
        row.transfer = replace(row.transfer, heard_at=self.now)
        due_at = chunks.acknowledgement_due(
            row.acknowledged_count, now=self.now, timing=self.batch.timing
        )
        self._change(row, due_at=due_at)

    def _cancel_acks(self, name: str | None = None) -> None:
        """The camera sends another image now: a pending ACK_OK could delete that."""
        for row in self._stored(name):
            if row.due_at is not None:
                self._change(row, due_at=None)

    def _change(self, row: Row, *, due_at: datetime | None) -> None:
        row.due_at, row.is_changed = due_at, True
