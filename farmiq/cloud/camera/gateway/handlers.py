"""Handle a batch of camera messages in one transaction, in the order in which they were sent.

messages of the log --> [BatchHandler] --fn_wake_…, camera_transfers, camera_chunks, quarantine-->

All of it or nothing, together with the cursor: every answer is made from the tables, so another
gateway goes on where this one stopped, in the middle of an image. Cameras do not depend on each
other, so what they have in common is written for all of them at once: the number of statements
grows with announcements, not with chunks.
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
from farmiq.cloud.camera.gateway.chunks import Pace, Transfer
from farmiq.cloud.camera.gateway.store import Camera, RejectedMessage, Row, Wake
from farmiq.cloud.camera.gateway.wire import (
    CameraTopic,
    Chunk,
    Hello,
    Metadata,
    RejectedMessageError,
    Sent,
)
from farmiq.plumbing import cursor, db
from farmiq.plumbing.cursor import CursorMovedError, Lane
from farmiq.plumbing.stream import Position

# Errors of fn_wake_ingestion_handler about the camera, not about the data.
_NOT_REGISTERED, _NOT_IN_USE = "FQ001", "FQ002"
TOO_MANY_OPEN = "TOO_MANY_OPEN"
OVERTAKEN = "OVERTAKEN"
MIXED = "MIXED"
CAMERA_ERROR = "CAMERA_ERROR"
# An image that is announced so soon after it was taken is this wake's own.
OWN_IMAGE = timedelta(seconds=60)
_NOT_YET = datetime.max.replace(tzinfo=UTC)
_WHOSE = (
    "a chunk without a name: nobody can tell whose it is if its announcement is not tried first"
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`noted` are messages that were taken, but not all of what they say.

    `failed` has why an image failed, for each that did. `greeted` are cameras that said HELLO and
    nothing since, with the way in which they write their address.
    """

    taken: int = 0
    rejected: tuple[RejectedMessage, ...] = ()
    noted: tuple[RejectedMessage, ...] = ()
    failed: tuple[str, ...] = ()
    greeted: tuple[tuple[UUID, str], ...] = ()

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            self.taken + other.taken,
            self.rejected + other.rejected,
            self.noted + other.noted,
            self.failed + other.failed,
            self.greeted + other.greeted,
        )


async def commit_bisecting(
    pool: db.Pool, sent: Sequence[Sent], pace: Pace, *, lane: Lane | None = None
) -> Outcome:
    """One transaction for all; if the data of one breaks it, each half gets its own (C-81).

    Also what nobody thought of: a message that ends the process comes again, and ends the next.
    """
    try:
        return await commit(pool, sent, pace, lane=lane)
    except Exception as error:
        if db.is_outage(error) or isinstance(error, CursorMovedError):
            raise
        if len(sent) == 1:
            return await _isolate_poison(pool, sent[0], error, lane)
    half = len(sent) // 2
    first = await commit_bisecting(pool, sent[:half], pace, lane=lane)
    return first + await commit_bisecting(pool, sent[half:], pace, lane=lane)


async def commit(
    pool: db.Pool, sent: Sequence[Sent], pace: Pace, *, lane: Lane | None = None
) -> Outcome:
    """Store messages and move the cursor of their lane in one transaction."""
    try:
        async with _transaction(pool, sent, lane) as tx, tx.pipeline():
            return await _store(tx, sent, pace)
    except psycopg.errors.PipelineAborted:
        # A statement failed and another one said so: one at a time, it says itself what is wrong.
        async with _transaction(pool, sent, lane) as tx:
            return await _store(tx, sent, pace)


async def _store(tx: db.Connection, sent: Sequence[Sent], pace: Pace) -> Outcome:
    outcome = await apply(tx, sent, pace)
    if outcome.rejected or outcome.noted:
        await store.quarantine(tx, outcome.rejected + outcome.noted)
    return outcome


@asynccontextmanager
async def _transaction(
    pool: db.Pool, sent: Sequence[Sent], lane: Lane | None
) -> AsyncIterator[db.Connection]:
    """The cursor moves first: of two gateways the second waits here, and then stores nothing."""
    last = sent[-1]
    async with db.transaction(pool) as tx:
        if lane is not None:
            await cursor.advance(tx, lane, seq=last.seq, stored_at_ns=last.stored_at_ns)
        yield tx
        crash.here("camera.before_commit")
    if lane is not None:
        lane.position = Position(lane.position.created, last.seq, last.stored_at_ns)


async def _isolate_poison(pool: db.Pool, one: Sent, error: Exception, lane: Lane | None) -> Outcome:
    reasons = [f"cannot be stored: {db.first_line(error)}"]
    rejected = RejectedMessage(one.topic, one.raw, "database", reasons)
    async with _transaction(pool, [one], lane) as tx:
        await store.quarantine(tx, [rejected])
        # Where it was an announcement, what follows is not of the image before.
        known, _ = await _known(tx, [one])
        for camera, place, _ in known:
            if wire.may_announce(place, one.raw):
                await store.lock(tx, [camera.device_id])
                current: dict[UUID, UUID | None] = {camera.device_id: store.NOTHING_KNOWN}
                await store.set_current_transfers(tx, current, redriven=False)
    return Outcome(rejected=(rejected,))


async def apply(
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
    known, rejected = await _known(tx, sent)
    seen = {camera.mac: (camera, place.spelling) for camera, place, _ in known}
    device_ids = [camera.device_id for camera, _ in seen.values()]
    await store.lock(tx, device_ids)
    if came_at is None and seen:
        await store.heard(tx, list(seen.values()))
    batch = BatchHandler(tx, pace, await store.now(tx), came_at=came_at, was_compared=was_compared)
    if seen:
        batch.add(await store.transfers_of(tx, device_ids, recent_s=pace.timeout_s))
        batch.asked = await commands.asked(tx, device_ids)
        if was_compared:
            batch.current = dict.fromkeys(device_ids, store.NOTHING_KNOWN)
        else:
            batch.current = await store.current_transfers(
                tx, device_ids, redriven=came_at is not None
            )
    parsed = [_parse(camera, place, one) for camera, place, one in known]
    await batch.greet_first(parsed)
    noted = []
    for said in parsed:
        one = said.sent
        try:
            if reasons := await batch.handle(said):
                noted.append(
                    RejectedMessage(
                        one.topic, one.raw, "limits", reasons, said.camera.mac, said.camera
                    )
                )
        except RejectedMessageError as wrong:
            why = (wrong.kind, wrong.reasons)
            rejected.append(RejectedMessage(one.topic, one.raw, *why, said.camera.mac, said.camera))
    rejected += await batch.finish()
    return Outcome(
        len(sent) - len(rejected),
        tuple(rejected),
        tuple(noted),
        tuple(batch.failed),
        tuple((device_id, spelling) for device_id, spelling in batch.greeted.items()),
    )


def _rejected(camera: Camera, sent: Sent, kind: str, reasons: list[str]) -> RejectedMessage:
    return RejectedMessage(sent.topic, sent.raw, kind, reasons, camera.mac, camera)


async def _known(
    tx: db.Connection, sent: Sequence[Sent]
) -> tuple[list[tuple[Camera, CameraTopic, Sent]], list[RejectedMessage]]:
    """Messages of registered cameras, and those of nobody we know."""
    rejected: list[RejectedMessage] = []
    placed: list[tuple[CameraTopic, Sent]] = []
    for one in sent:
        try:
            placed.append((wire.parse_topic(one.topic), one))
        except RejectedMessageError as wrong:
            rejected.append(RejectedMessage(one.topic, one.raw, wrong.kind, wrong.reasons))
    found = await store.by_mac(tx, sorted({place.mac for place, _ in placed}))
    known = []
    for place, one in placed:
        camera = found.get(place.mac)
        if camera is None:
            why = f"no camera {place.mac} is registered: register it, or take it off the network"
            rejected.append(RejectedMessage(one.topic, one.raw, "unknown", [why], place.mac))
        else:
            known.append((camera, place, one))
    return known, rejected


class Parsed(NamedTuple):
    """A message of a camera, read; or why it could not be."""

    camera: Camera
    place: CameraTopic
    sent: Sent
    message: wire.Message | RejectedMessageError


def _parse(camera: Camera, place: CameraTopic, sent: Sent) -> Parsed:
    message: wire.Message | RejectedMessageError
    try:
        dialect = dialects.dialect_of(place)
        message = dialects.READ[dialect](place, sent.raw)
    except RejectedMessageError as wrong:
        message, dialect = wrong, camera.dialect
    if dialect != camera.dialect:
        why = f"camera {camera.mac} is registered with the dialect {camera.dialect}: it speaks"
        message = RejectedMessageError([f"{why} {dialect}"], kind="dialect")
    return Parsed(camera, place, sent, message)


@dataclass(frozen=True, slots=True)
class Repeated:
    """A chunk that is here already; perhaps with other bytes."""

    row: Row
    camera: Camera
    sent: Sent
    chunk: Chunk
    was_whole: bool


@dataclass(slots=True)
class BatchHandler:
    """What one transaction knows and changes; `rows` are the transfers of its cameras.

    `asked` are cameras that were, or are to be, asked for an image. `current` says of each camera
    whose its chunks without a name are; for those in `turned` that has changed. `came_at` and
    `was_compared` are of what is tried again (apply).
    """

    tx: db.Connection
    pace: Pace
    now: datetime
    rows: dict[UUID, list[Row]] = field(default_factory=dict)
    new_chunks: list[tuple[UUID, UUID, int, bytes]] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    pending: dict[UUID, int] = field(default_factory=dict)
    came_at: datetime | None = None
    was_compared: bool = False
    asked: set[UUID] = field(default_factory=set)
    current: dict[UUID, UUID | None] = field(default_factory=dict)
    turned: set[UUID] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    greeted: dict[UUID, str] = field(default_factory=dict)
    greeted_first: set[int] = field(default_factory=set)
    own_images: set[UUID] = field(default_factory=set)

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.rows.setdefault(row.device_id, []).append(row)

    def _of(self, camera: Camera) -> list[Row]:
        return self.rows.setdefault(camera.device_id, [])

    async def greet_first(self, parsed: Sequence[Parsed]) -> None:
        """HELLOs that are the first message of their camera in this batch, all at once."""
        if self.came_at is not None:
            return
        first: dict[UUID, Parsed] = {}
        for said in parsed:
            first.setdefault(said.camera.device_id, said)
        hellos = [
            (said.camera, said.message)
            for said in first.values()
            if isinstance(said.message, Hello)
        ]
        self.greeted_first = {id(hello) for _, hello in hellos}
        await self._greet(hellos)
        if hellos:
            greeted = [camera.device_id for camera, _ in hellos]
            self.asked -= {*greeted}
            self.asked |= await commands.asked(self.tx, greeted)

    async def handle(self, said: Parsed) -> list[str]:
        """What was not stored of it, and why. Raises RejectedMessageError."""
        camera, place, one, message = said
        self.greeted.pop(camera.device_id, None)
        try:
            match message:
                case Hello():
                    await self._on_hello(camera, place, message)
                    return list(message.noted)
                case Metadata():
                    await self._on_metadata(camera, place, message)
                    return list(message.noted)
                case Chunk():
                    await self._on_chunk(camera, place, message, one)
                case RejectedMessageError():
                    raise message
        except RejectedMessageError:
            if wire.may_announce(place, one.raw):
                self._set_current(camera, store.NOTHING_KNOWN)
            raise
        return []

    def _set_current(self, camera: Camera, transfer_id: UUID | None) -> None:
        if self.current.get(camera.device_id) != transfer_id:
            self.current[camera.device_id] = transfer_id
            self.turned.add(camera.device_id)

    async def _greet(self, hellos: Sequence[tuple[Camera, Hello]]) -> None:
        if hellos:
            await store.greeted(self.tx, hellos)
            placed = [(camera, hello) for camera, hello in hellos if camera.has_site]
            await commands.after_hellos(self.tx, placed)

    async def _on_hello(self, camera: Camera, place: CameraTopic, hello: Hello) -> None:
        self._set_current(camera, None)
        if self.came_at is not None:
            return
        # Whose these are would have been said in the wake before; names are used twice.
        for row in self._open(camera):
            if not row.transfer.is_announced:
                await self._remove(row)
        self.pending[camera.device_id] = hello.pending_count
        self._cancel_acks(camera)
        if id(hello) not in self.greeted_first:
            await self._greet([(camera, hello)])
            self.asked.add(camera.device_id)
        if camera.has_site and hello.pending_count and camera.dialect == dialects.ESP32CAM:
            self.greeted[camera.device_id] = place.spelling

    async def finish(self) -> list[RejectedMessage]:
        """Write what has changed; what contradicts chunks that are here is rejected."""
        await self._write()
        again = [(r.row.transfer_id, r.chunk.number, r.chunk.data) for r in self.repeated]
        others = [self.repeated[place] for place in await store.differing(self.tx, again)]
        for other in others:
            await self._mixed(other)
        if others:
            await self._write()
        if self.turned:
            turned = {device_id: self.current[device_id] for device_id in sorted(self.turned)}
            await store.set_current_transfers(self.tx, turned, redriven=self.came_at is not None)
        await commands.note_own_images(self.tx, sorted(self.own_images))
        return [
            _rejected(other.camera, other.sent, "conflict", [
                f"chunk {other.chunk.number} of {other.row.image_name} is here with other bytes"])
            for other in others
        ]  # fmt: skip

    async def _write(self) -> None:
        rows = [row for each in self.rows.values() for row in each]
        changed = [row for row in rows if row.is_changed]
        progressed = [row for row in rows if row.has_progress and not row.is_changed]
        await store.save(self.tx, changed)
        await store.save_progress(self.tx, progressed)
        for row in (*changed, *progressed):
            row.is_changed = row.is_new = row.has_progress = False
        await store.store_chunks(self.tx, self.new_chunks)
        self.new_chunks = []

    async def _mixed(self, other: Repeated) -> None:
        """Without a name, other bytes are of another image, whose announcement was lost.

        Nobody knows of which of the two each chunk is that is here: the image comes from nothing
        when it is announced again. One that was whole before has nothing of the other.
        """
        if other.chunk.image_name is not None or self.came_at is not None:
            return
        row = other.row
        current = self.current.get(other.camera.device_id)
        if current == row.transfer_id or not row.transfer.is_announced:
            self._set_current(other.camera, store.NOTHING_KNOWN)
        if other.was_whole:
            return
        if row in self._open(other.camera):
            await self._give_up(row, MIXED, f"chunk {other.chunk.number} came with other bytes")
        if row.transfer.state == "failed":
            await self._drop(row)

    # --- announcements

    async def _on_metadata(self, camera: Camera, place: CameraTopic, said: Metadata) -> None:
        if repeat := self._other_chunks_of(camera, said):
            repeat.transfer = chunks.announced(repeat.transfer, said, now=self.now)
            self._set_current(camera, repeat.transfer_id)
            if repeat.image_id is not None:
                await self._answered(camera, repeat.image_id, said)
            self._schedule_ack(camera, place, repeat)
            return
        if self.came_at is not None and said.captured_at is None:
            said = replace(said, captured_at=self.came_at)
        pending = self.pending.get(camera.device_id, camera.pending_count) or self.came_at
        waited = bool(pending) and wire.is_suspect(said.captured_at, self.now)
        wake = await self._record(camera, said, waited=waited)
        image_id = wake.image_id
        row = await self._row_of(camera, place, said, wake)
        self._set_current(camera, row.transfer_id)
        await self._answered(camera, image_id, said)
        if row.transfer.state == "complete":
            row.transfer = chunks.announced(row.transfer, said, now=self.now)
            self._schedule_ack(camera, place, row)
            return
        self._cancel_acks(camera, said.image_name)
        if chunks.starts_over(row.transfer, said):
            await self._drop_chunks(row)
        adopted = not row.transfer.is_announced and row.transfer.received_count > 0
        row.transfer = chunks.announced(row.transfer, said, now=self.now)
        row.image_id, row.image_name = image_id, said.image_name
        row.dialect, row.spelling = camera.dialect, place.spelling
        row.announced_at, row.ended_at, row.reason = self.now, None, None
        if adopted:
            await self._adopt(row)
        # A camera of this dialect may wait to be asked for its chunks (C-117).
        waits = camera.dialect == dialects.ESP32CAM and row.transfer.received_count == 0
        soon = self.now if row.transfer.is_whole or waits else self.now + self.pace.round
        self._change(row, due_at=soon)
        if camera.dialect == dialects.ESP32CAM and self.came_at is None:
            self._note_own_image(camera, said, is_new=not wake.has_transfer)
        if said.error is not None:
            await self._give_up(row, CAMERA_ERROR, f"the camera says error {said.error}")

    def _note_own_image(self, camera: Camera, said: Metadata, *, is_new: bool) -> None:
        """Perhaps the camera took this image unasked (C-117); what it held for longer is none."""
        pending = self.pending.get(camera.device_id, camera.pending_count)
        at = said.captured_at
        fresh = at is not None and abs(self.now - at) <= OWN_IMAGE
        if is_new and (not pending or fresh):
            self.own_images.add(camera.device_id)

    async def _answered(self, camera: Camera, image_id: UUID, said: Metadata) -> None:
        """Perhaps this is the image that it was asked for."""
        if camera.device_id in self.asked:
            await commands.answered_with(self.tx, camera, image_id, said.image_name)

    def _other_chunks_of(self, camera: Camera, said: Metadata) -> Row | None:
        """The image just stored that comes again in other chunks.

        By name and time the database knows it; with a clock that nobody believes it does not, since
        the number of chunks is part of what tells such images apart (C-59).
        """
        if said.image_size is None or not wire.is_suspect(said.captured_at, self.now):
            return None
        for row in self._stored(camera, said.image_name):
            known = row.transfer
            alike = known.image_size == said.image_size and said.sha256 in {None, known.sha256}
            if alike and known.total_chunks != said.total_chunks:
                return row
        return None

    async def _record(self, camera: Camera, said: Metadata, *, waited: bool) -> Wake:
        """Refusals are undone by themselves: the rest of the transaction stands."""
        await self.tx.execute("savepoint wake")
        try:
            wake = await store.announce(self.tx, camera, said, waited=waited)
        except psycopg.Error as error:
            await self._undo(error)
            if error.sqlstate in {_NOT_REGISTERED, _NOT_IN_USE}:
                why = db.first_line(error)
                await store.alert_unassigned(self.tx, camera, why)
                raise RejectedMessageError([why], kind="unassigned") from None
            if db.is_data_error(error):
                raise RejectedMessageError([db.first_line(error)], kind="database") from None
            raise
        try:
            self._check_contradiction(camera, wake, said)
        except RejectedMessageError:
            await self._roll_back()
            raise
        await self.tx.execute("release savepoint wake")
        return wake

    def _check_contradiction(self, camera: Camera, wake: Wake, said: Metadata) -> None:
        """The first word about an image on its way holds: what is rejected must not change it."""
        for row in self._of(camera):
            if row.image_id == wake.image_id and row.transfer.state == "receiving":
                chunks.announced(row.transfer, said, now=self.now)

    async def _undo(self, error: psycopg.Error) -> None:
        """Back to the savepoint. There is none if it was a statement before it that failed."""
        try:
            # After an error the server listens again when a pipeline ends.
            async with self.tx.pipeline():
                pass
            await self._roll_back()
        except psycopg.Error:
            raise error from None

    async def _roll_back(self) -> None:
        """Back to the savepoint, in two steps.

        When psycopg hears of a rollback it gives up its prepared statements, with whatever it sends
        next: were that one which it prepares, it would believe in it and the server not know it.
        """
        async with self.tx.pipeline():
            await self.tx.execute("rollback to savepoint wake")
        await self.tx.execute("release savepoint wake")

    async def _row_of(self, camera: Camera, place: CameraTopic, said: Metadata, wake: Wake) -> Row:
        """The image's transfer: known, waiting for this announcement, or new."""
        image_id = wake.image_id
        known = next((row for row in self._of(camera) if row.image_id == image_id), None)
        if known is None and wake.has_transfer:
            known = await store.transfer_of_image(self.tx, image_id)
        are_of_next = self._are_of_next(camera)
        await self._overtake(camera, said.image_name, image_id, orphans=known is not None)
        if known is not None:
            if known not in self._of(camera):
                self._of(camera).append(known)
            if known.transfer.state == "failed":
                await self._make_room(camera)
            return known
        orphan = next(iter(self._unannounced(camera, said.image_name)), None)
        if orphan is not None:
            named = orphan.image_name or None
            if (named or are_of_next) and not self._stored(camera, named):
                return orphan
            # Perhaps they are of the image before: what is really missing is asked for.
            await self._remove(orphan)
        await self._make_room(camera)
        row = store.opened(camera, name=said.image_name, spelling=place.spelling, at=self.now)
        if wake.is_complete:
            # Its transfer was forgotten long ago; the camera has not heard that it is safe.
            row.image_id, row.ended_at = image_id, self.now
            row.transfer = chunks.announced(row.transfer, said, now=self.now)
            row.transfer = replace(row.transfer, state="complete")
        self._of(camera).append(row)
        return row

    def _unannounced(self, camera: Camera, name: str) -> list[Row]:
        """Chunks that came before their announcement, of this name or of none."""
        return [
            row
            for row in self._open(camera)
            if row.image_name == name and not row.transfer.is_announced
        ] + self._nameless(camera)

    def _are_of_next(self, camera: Camera) -> bool:
        """Whether chunks without a name are surely of the image that is announced next.

        They may be the rest of one that is open: some cameras greet when they come back in
        mid-image, and go on with it without another announcement.
        """
        is_at_none = self.current.get(camera.device_id) is None
        return is_at_none and not any(
            row.transfer.is_announced and not row.transfer.is_whole for row in self._open(camera)
        )

    async def _overtake(self, camera: Camera, name: str, image_id: UUID, *, orphans: bool) -> None:
        """Another image of this name ends with this one: its chunks could not be told apart.

        One of which all chunks are here needs no more: it will be stored.
        """
        for row in self._open(camera):
            if row.image_name != name or row.image_id == image_id or row.transfer.is_whole:
                continue
            if row.transfer.is_announced:
                await self._give_up(row, OVERTAKEN, f"the camera took another image as {name}")
            elif orphans:
                await self._remove(row)

    async def _adopt(self, row: Row) -> None:
        """Chunks that came before the announcement: those that fit it count."""
        misfits = []
        await self._flush(row)
        for number, size in await store.sizes(self.tx, row.transfer_id):
            try:
                after = chunks.took(row.transfer, number, size, now=self.now)
            except RejectedMessageError:
                misfits.append(number)
            else:
                row.transfer = after or row.transfer
        if misfits:
            await store.drop_chunks(self.tx, [row.transfer_id], numbers=misfits)

    async def _flush(self, row: Row) -> None:
        """Chunks of this row that are not written yet: what follows looks at the table."""
        mine = [each for each in self.new_chunks if each[0] == row.transfer_id]
        self._unwrite(row)
        if row.is_new:
            await store.save(self.tx, [row])
            row.is_new = False
        await store.store_chunks(self.tx, mine)

    async def _drop_chunks(self, row: Row) -> None:
        """Of a row that is not written no chunk is."""
        self._unwrite(row)
        if not row.is_new:
            await store.drop_chunks(self.tx, [row.transfer_id])

    def _unwrite(self, row: Row) -> None:
        self.new_chunks = [each for each in self.new_chunks if each[0] != row.transfer_id]

    def _open(self, camera: Camera) -> list[Row]:
        """A camera's open images, the one announced first coming first."""
        found = [row for row in self._of(camera) if row.transfer.state == "receiving"]
        if len(found) > 1:
            found.sort(key=lambda row: row.announced_at or row.transfer.heard_at)
        return found

    async def _make_room(self, camera: Camera) -> None:
        """One image more: of those that are open the oldest give way (C-78)."""
        parts = [row for row in self._open(camera) if not row.transfer.is_whole]
        whole = [row for row in self._open(camera) if row.transfer.is_whole]
        for row in parts[: max(0, len(parts) - chunks.MAX_OPEN + 1)]:
            await self._give_up(
                row, TOO_MANY_OPEN, f"the camera began more than {chunks.MAX_OPEN} images at once"
            )
        for row in whole[: max(0, len(whole) - chunks.MAX_WHOLE + 1)]:
            await self._give_up(
                row, TOO_MANY_OPEN, f"more than {chunks.MAX_WHOLE} images waited to be stored"
            )
        failed = [
            row
            for row in self._of(camera)
            if row.transfer.state == "failed" and row.due_at is not None
        ]
        failed.sort(key=lambda row: row.transfer.heard_at)
        for row in failed[: max(0, len(failed) - (chunks.MAX_KEPT - chunks.MAX_OPEN))]:
            await self._drop(row)

    async def _give_up(self, row: Row, code: str, message: str) -> None:
        if row.image_id is None:
            await self._remove(row)
            return
        await store.fail(self.tx, row.image_id, code=code, message=message)
        if row.device_id in self.asked:
            await commands.ended(self.tx, [row.image_id], state="failed")
        self.failed.append(code)
        row.transfer = replace(row.transfer, state="failed")
        row.reason, row.ended_at = f"{code}: {message}", self.now
        self._change(row, due_at=self.now + timedelta(days=self.pace.resume_days))

    async def _drop(self, row: Row) -> None:
        """Its bytes are not kept any longer; it can come again from nothing."""
        await self._drop_chunks(row)
        row.transfer = chunks.bare(row.transfer)
        self._change(row, due_at=None)

    async def _remove(self, row: Row) -> None:
        self._unwrite(row)
        self.rows[row.device_id].remove(row)
        if not row.is_new:
            await store.remove(self.tx, row.transfer_id)

    # --- chunks

    async def _on_chunk(self, camera: Camera, place: CameraTopic, chunk: Chunk, one: Sent) -> None:
        row = self._belongs_to(camera, chunk)
        if self._is_repeat(camera, place, chunk, row):
            return
        if row is None:
            if self.came_at is not None and chunk.image_name is None:
                raise RejectedMessageError(
                    [_WHOSE], kind="conflict" if self.was_compared else "format"
                )
            await self._make_room(camera)
            name = chunk.image_name or ""
            row = store.opened(camera, name=name, spelling=place.spelling, at=self.now)
            self._of(camera).append(row)
        after = chunks.took(row.transfer, chunk.number, len(chunk.data), now=self.now)
        if after is None:
            self.repeated.append(Repeated(row, camera, one, chunk, row.transfer.is_whole))
            return
        if one.stored_at_ns:
            self.pace.saw_chunk(row.transfer_id, one.stored_at_ns)
        row.transfer, row.spelling = after, place.spelling
        self.new_chunks.append((row.transfer_id, row.company_id, chunk.number, chunk.data))
        row.has_progress = True
        if after.is_announced and after.is_whole:
            row.due_at = self.now
        elif row.due_at is None or row.due_at <= self.now:
            # Who looks earlier waits: moving it with every chunk would cost an index entry each.
            row.due_at = self.now + self.pace.round

    def _belongs_to(self, camera: Camera, chunk: Chunk) -> Row | None:
        """Of a camera's open images with this name the one announced last; nameless, its current.

        One that has failed takes no chunk before it is announced again: cameras use names twice.
        """
        if chunk.image_name is None:
            return self._current(camera) or next(iter(self._nameless(camera)), None)
        fitting = [row for row in self._open(camera) if chunk.image_name == row.image_name]
        if len(fitting) <= 1:
            return fitting[0] if fitting else None
        # Two may be announced in one transaction: the first one is whole then, and needs no more.
        return max(
            reversed(fitting),
            key=lambda row: (row.announced_at or _NOT_YET, not row.transfer.is_whole),
        )

    def _current(self, camera: Camera) -> Row | None:
        """What the camera announced last, if it is on its way."""
        current = self.current.get(camera.device_id)
        return next((row for row in self._open(camera) if row.transfer_id == current), None)

    def _nameless(self, camera: Camera) -> list[Row]:
        """Chunks without a name or an announcement."""
        if self.came_at is not None:
            return []
        return [row for row in self._open(camera) if not row.image_name]

    def _is_repeat(self, camera: Camera, place: CameraTopic, chunk: Chunk, row: Row | None) -> bool:
        """A chunk of an image that was just stored: its camera did not hear so.

        While another image is on its way the camera hears nothing of it: an answer that some
        firmware takes for the other image would delete that.
        """
        for stored in self._stored(camera, chunk.image_name):
            said = (stored.digests, stored.transfer, chunk.number, chunk.data)
            if row is not None and row.transfer.is_announced:
                # Both may have this chunk; if this one has, it comes again when it is asked for.
                if row.transfer.rounds == 0 and chunks.is_same(*said):
                    return True
            elif self._is_again(camera, stored, said):
                self._schedule_ack(camera, place, stored)
                return True
        return False

    def _is_again(
        self, camera: Camera, stored: Row, said: tuple[bytes, Transfer, int, bytes]
    ) -> bool:
        """Whether a chunk is surely of this stored image; what a camera announced it sends."""
        announced = self.current.get(camera.device_id) == stored.transfer_id
        return chunks.is_same(*said) if announced else chunks.is_repeat(*said)

    def _stored(self, camera: Camera, name: str | None) -> list[Row]:
        """A camera's images of this name, or of any, that were stored or heard of just now."""
        return [
            row
            for row in self._of(camera)
            if row.transfer.state == "complete" and name in {None, row.image_name}
        ]

    def _schedule_ack(self, camera: Camera, place: CameraTopic, row: Row) -> None:
        """ACK_OK once more, where the camera listens now; what came long ago asks for none."""
        if self.came_at is not None:
            return
        row.dialect, row.spelling = camera.dialect, place.spelling
        self._cancel_acks(camera, row.image_name)
        row.transfer = replace(row.transfer, heard_at=self.now)
        due_at = chunks.acknowledgement_due(row.acknowledged_count, now=self.now, pace=self.pace)
        self._change(row, due_at=due_at)

    def _cancel_acks(self, camera: Camera, name: str | None = None) -> None:
        """The camera is at another image now: no ACK_OK that is still due is meant for it."""
        for row in self._stored(camera, name):
            if row.due_at is not None:
                self._change(row, due_at=None)

    def _change(self, row: Row, *, due_at: datetime | None) -> None:
        row.due_at, row.is_changed = due_at, True
