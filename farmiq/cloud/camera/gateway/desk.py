"""What one camera's message does: images announced, chunks kept, repeats answered, limits held.

Everything of one transaction passes one desk, in the order in which it came; what has changed is
written at its end.
"""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg

from farmiq.cloud.camera.gateway import cameras, chunks, commands, dialects, store, wire
from farmiq.cloud.camera.gateway.cameras import Camera, Wake
from farmiq.cloud.camera.gateway.chunks import Pace, Transfer
from farmiq.cloud.camera.gateway.quarantine import Refused
from farmiq.cloud.camera.gateway.store import Row
from farmiq.cloud.camera.gateway.wire import Chunk, Hello, Metadata, Place, Sent, Wrong
from farmiq.plumbing import db

# Errors of fn_wake_ingestion_handler about the camera, not about the data.
_NOT_REGISTERED, _NOT_IN_USE = "FQ001", "FQ002"
TOO_MANY_OPEN = "TOO_MANY_OPEN"
OVERTAKEN = "OVERTAKEN"
MIXED = "MIXED"
CAMERA_ERROR = "CAMERA_ERROR"
_NOT_YET = datetime.max.replace(tzinfo=UTC)
_WHOSE = (
    "a chunk without a name: nobody can tell whose it is if its announcement is not tried first"
)


@dataclass(frozen=True, slots=True)
class Repeated:
    """A chunk that is here already; perhaps with other bytes."""

    row: Row
    camera: Camera
    one: Sent
    chunk: Chunk
    was_whole: bool


@dataclass(slots=True)
class Desk:
    """What one transaction knows and changes; `rows` are the transfers of its cameras.

    `asked` are cameras that were, or are to be, asked for an image. `subjects` says of each camera
    whose its chunks without a name are; for those in `turned` that has changed. `came_at` and
    `was_compared` are of what is tried again (intake.effect).
    """

    tx: db.Connection
    pace: Pace
    now: datetime
    rows: list[Row] = field(default_factory=list)
    new_chunks: list[tuple[UUID, UUID, int, bytes]] = field(default_factory=list)
    repeated: list[Repeated] = field(default_factory=list)
    waiting: dict[UUID, int] = field(default_factory=dict)
    digests: dict[UUID, bytes] = field(default_factory=dict)
    came_at: datetime | None = None
    was_compared: bool = False
    asked: set[UUID] = field(default_factory=set)
    subjects: dict[UUID, UUID | None] = field(default_factory=dict)
    turned: set[UUID] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)

    async def take(self, camera: Camera, place: Place, one: Sent) -> list[str]:
        """What was not kept of it, and why. Raises Wrong for what cannot be taken at all."""
        dialect = dialects.dialect_of(place)
        if dialect != camera.dialect:
            why = f"camera {camera.mac} is registered with the dialect {camera.dialect}: it speaks"
            raise Wrong([f"{why} {dialect}"], kind="dialect")
        try:
            match dialects.READ[dialect](place, one.raw):
                case Hello() as hello:
                    await self._greeted(camera, hello)
                    return list(hello.noted)
                case Metadata() as said:
                    await self._announced(camera, place, said)
                    return list(said.noted)
                case Chunk() as chunk:
                    await self._chunk(camera, place, chunk, one)
        except Wrong:
            if wire.may_announce(place, one.raw):
                self._speaks_of(camera, cameras.NOTHING_KNOWN)
            raise
        return []

    def _speaks_of(self, camera: Camera, subject: UUID | None) -> None:
        if self.subjects.get(camera.device_id) != subject:
            self.subjects[camera.device_id] = subject
            self.turned.add(camera.device_id)

    async def _greeted(self, camera: Camera, hello: Hello) -> None:
        self._speaks_of(camera, None)
        if self.came_at is not None:
            return
        # Whose these are would have been said in the wake before; names are used twice.
        for row in self._open(camera):
            if not row.transfer.is_announced:
                await self._remove(row)
        self.waiting[camera.device_id] = hello.pending_count
        self._withhold(camera)
        await cameras.greeted(self.tx, camera, hello)
        if camera.has_site:
            await commands.after_hello(self.tx, camera, hello.pending_count)
            self.asked.add(camera.device_id)

    async def finish(self) -> list[Refused]:
        """Write what has changed; what contradicts chunks that are here is refused."""
        await self._write()
        again = [(r.row.transfer_id, r.chunk.number, r.chunk.data) for r in self.repeated]
        others = [self.repeated[place] for place in await store.differing(self.tx, again)]
        for other in others:
            await self._mixed(other)
        await self._write()
        if self.turned:
            turned = {device_id: self.subjects[device_id] for device_id in sorted(self.turned)}
            await cameras.speak_of(self.tx, turned, again=self.came_at is not None)
        return [
            Refused(
                other.one.topic, other.one.raw, "conflict",
                [f"chunk {other.chunk.number} of {other.row.image_name} is here with other bytes"],
                other.camera.mac, other.camera,
            )
            for other in others
        ]  # fmt: skip

    async def _write(self) -> None:
        for row in self.rows:
            if row.is_changed:
                await store.keep(self.tx, row)
                row.is_changed = row.is_new = False
        await store.keep_chunks(self.tx, self.new_chunks)
        self.new_chunks = []

    async def _mixed(self, other: Repeated) -> None:
        """Without a name, other bytes are of another image, whose announcement was lost.

        Nobody knows of which of the two each chunk is that is here: the image comes from nothing
        when it is announced again. One that was whole before has nothing of the other.
        """
        if other.chunk.image_name is not None or self.came_at is not None:
            return
        row = other.row
        subject = self.subjects.get(other.camera.device_id)
        if subject == row.transfer_id or not row.transfer.is_announced:
            self._speaks_of(other.camera, cameras.NOTHING_KNOWN)
        if other.was_whole:
            return
        if row in self._open(other.camera):
            await self._give_up(row, MIXED, f"chunk {other.chunk.number} came with other bytes")
        if row.transfer.state == "failed":
            await self._drop(row)

    # --- announcements

    async def _announced(self, camera: Camera, place: Place, said: Metadata) -> None:
        if repeat := self._other_chunks_of(camera, said):
            repeat.transfer = chunks.announced(repeat.transfer, said, now=self.now)
            self._speaks_of(camera, repeat.transfer_id)
            if repeat.image_id is not None:
                await self._answered(camera, repeat.image_id, said)
            self._owe(camera, place, repeat)
            return
        if self.came_at is not None and said.captured_at is None:
            said = replace(said, captured_at=self.came_at)
        pending = self.waiting.get(camera.device_id, camera.pending_count) or self.came_at
        waited = bool(pending) and wire.is_suspect(said.captured_at, self.now)
        wake = await self._record(camera, said, waited=waited)
        image_id = wake.image_id
        row = await self._row_of(camera, place, said, wake)
        self._speaks_of(camera, row.transfer_id)
        await self._answered(camera, image_id, said)
        if row.transfer.state == "complete":
            row.transfer = chunks.announced(row.transfer, said, now=self.now)
            self._owe(camera, place, row)
            return
        self._withhold(camera, said.image_name)
        if chunks.starts_over(row.transfer, said):
            await self._drop_chunks(row)
        adopted = not row.transfer.is_announced and row.transfer.received_count > 0
        row.transfer = chunks.announced(row.transfer, said, now=self.now)
        row.image_id, row.image_name = image_id, said.image_name
        row.dialect, row.spelling = camera.dialect, place.spelling
        row.announced_at, row.ended_at, row.reason = self.now, None, None
        if adopted:
            await self._adopt(row)
        self._change(row, due_at=self.now if row.transfer.is_whole else self.now + self.pace.round)
        if said.error is not None:
            await self._give_up(row, CAMERA_ERROR, f"the camera says error {said.error}")

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
            wake = await cameras.announce(self.tx, camera, said, waited=waited)
        except psycopg.Error as error:
            await self._undo(error)
            if error.sqlstate in {_NOT_REGISTERED, _NOT_IN_USE}:
                why = db.first_line(error)
                await cameras.alert_unassigned(self.tx, camera, why)
                raise Wrong([why], kind="unassigned") from None
            if db.is_data_error(error):
                raise Wrong([db.first_line(error)], kind="database") from None
            raise
        try:
            self._check_contradiction(wake, said)
        except Wrong:
            await self._roll_back()
            raise
        await self.tx.execute("release savepoint wake")
        return wake

    def _check_contradiction(self, wake: Wake, said: Metadata) -> None:
        """The first word about an image on its way holds: what is refused must not change it."""
        for row in self.rows:
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

    async def _row_of(self, camera: Camera, place: Place, said: Metadata, wake: Wake) -> Row:
        """The image's transfer: known, waiting for this announcement, or new."""
        image_id = wake.image_id
        known = next((row for row in self.rows if row.image_id == image_id), None)
        if known is None and wake.has_transfer:
            known = await store.transfer_of_image(self.tx, image_id)
        are_of_next = self._are_of_next(camera)
        await self._overtake(camera, said.image_name, image_id, orphans=known is not None)
        if known is not None:
            if known not in self.rows:
                self.rows.append(known)
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
        self.rows.append(row)
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

        They may be the rest of one that is open: after a pause of the gateway the broker brings a
        HELLO before chunks that were sent long before it.
        """
        is_at_none = self.subjects.get(camera.device_id) is None
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
            except Wrong:
                misfits.append(number)
            else:
                row.transfer = after or row.transfer
        if misfits:
            await store.drop_chunks(self.tx, row.transfer_id, numbers=misfits)

    async def _flush(self, row: Row) -> None:
        """Chunks of this row that are not written yet: what follows looks at the table."""
        mine = [each for each in self.new_chunks if each[0] == row.transfer_id]
        self._unwrite(row)
        if row.is_new:
            await store.keep(self.tx, row)
            row.is_new = False
        await store.keep_chunks(self.tx, mine)

    async def _drop_chunks(self, row: Row) -> None:
        """Of a row that is not written no chunk is."""
        self._unwrite(row)
        if not row.is_new:
            await store.drop_chunks(self.tx, row.transfer_id)

    def _unwrite(self, row: Row) -> None:
        self.new_chunks = [each for each in self.new_chunks if each[0] != row.transfer_id]

    def _open(self, camera: Camera) -> list[Row]:
        """A camera's open images, the one announced first coming first."""
        found = [
            row
            for row in self.rows
            if row.device_id == camera.device_id and row.transfer.state == "receiving"
        ]
        return sorted(found, key=lambda row: row.announced_at or row.transfer.heard_at)

    async def _make_room(self, camera: Camera) -> None:
        """One image more: of those that are open the oldest give way (C-78)."""
        parts = [row for row in self._open(camera) if not row.transfer.is_whole]
        whole = [row for row in self._open(camera) if row.transfer.is_whole]
        for row in parts[: max(0, len(parts) - chunks.MOST_OPEN + 1)]:
            await self._give_up(
                row, TOO_MANY_OPEN, f"the camera began more than {chunks.MOST_OPEN} images at once"
            )
        for row in whole[: max(0, len(whole) - chunks.MOST_WHOLE + 1)]:
            await self._give_up(
                row, TOO_MANY_OPEN, f"more than {chunks.MOST_WHOLE} images waited to be stored"
            )
        failed = [
            row
            for row in self.rows
            if row.device_id == camera.device_id
            and row.transfer.state == "failed"
            and row.due_at is not None
        ]
        failed.sort(key=lambda row: row.transfer.heard_at)
        for row in failed[: max(0, len(failed) - (chunks.MOST_KEPT - chunks.MOST_OPEN))]:
            await self._drop(row)

    async def _give_up(self, row: Row, code: str, message: str) -> None:
        if row.image_id is None:
            await self._remove(row)
            return
        await store.fail(self.tx, row.image_id, code=code, message=message)
        if row.device_id in self.asked:
            await commands.ended(self.tx, row.image_id, state="failed")
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
        self.rows.remove(row)
        if not row.is_new:
            await store.remove(self.tx, row.transfer_id)

    # --- chunks

    async def _chunk(self, camera: Camera, place: Place, chunk: Chunk, one: Sent) -> None:
        row = self._belongs_to(camera, chunk)
        if await self._is_repeat(camera, place, chunk, row, repeated=one.repeated):
            return
        if one.repeated and await self._is_copy(camera, chunk, row):
            return
        if row is None:
            if self.came_at is not None and chunk.image_name is None:
                raise Wrong([_WHOSE], kind="conflict" if self.was_compared else "format")
            await self._make_room(camera)
            name = chunk.image_name or ""
            row = store.opened(camera, name=name, spelling=place.spelling, at=self.now)
            self.rows.append(row)
        after = chunks.took(row.transfer, chunk.number, len(chunk.data), now=self.now)
        if after is None:
            self.repeated.append(Repeated(row, camera, one, chunk, row.transfer.is_whole))
            return
        row.transfer, row.spelling = after, place.spelling
        self.new_chunks.append((row.transfer_id, row.company_id, chunk.number, chunk.data))
        whole = after.is_announced and after.is_whole
        self._change(row, due_at=self.now if whole else self.now + self.pace.round)

    def _belongs_to(self, camera: Camera, chunk: Chunk) -> Row | None:
        """Of a camera's open images with this name the one announced last; nameless, what it is at.

        One that has failed takes no chunk before it is announced again: cameras use names twice.
        """
        if chunk.image_name is None:
            return self._subject(camera) or next(iter(self._nameless(camera)), None)
        fitting = [row for row in self._open(camera) if chunk.image_name == row.image_name]
        # Two may be announced in one transaction: the first one is whole then, and needs no more.
        return max(
            reversed(fitting),
            key=lambda row: (row.announced_at or _NOT_YET, not row.transfer.is_whole),
            default=None,
        )

    def _subject(self, camera: Camera) -> Row | None:
        """What the camera announced last, if it is on its way."""
        subject = self.subjects.get(camera.device_id)
        return next((row for row in self._open(camera) if row.transfer_id == subject), None)

    def _nameless(self, camera: Camera) -> list[Row]:
        """Chunks without a name or an announcement."""
        if self.came_at is not None:
            return []
        return [row for row in self._open(camera) if not row.image_name]

    async def _is_repeat(
        self, camera: Camera, place: Place, chunk: Chunk, row: Row | None, *, repeated: bool
    ) -> bool:
        """A chunk of an image that was just stored: its camera did not hear so, or the broker.

        While another image is on its way the camera hears nothing of it: an answer that some
        firmware takes for the other image would delete that. Nor of what the broker brings again.
        """
        for stored in self._stored(camera, chunk.image_name):
            known = await self._digests_of(stored)
            said = (known, stored.transfer, chunk.number, chunk.data)
            if repeated and chunks.is_same(*said):
                return True
            if row is not None and row.transfer.is_announced:
                # Both may have this chunk; if this one has, it comes again when it is asked for.
                if row.transfer.rounds == 0 and chunks.is_same(*said):
                    return True
            elif self._is_again(camera, stored, said):
                self._owe(camera, place, stored)
                return True
        return False

    async def _is_copy(self, camera: Camera, chunk: Chunk, row: Row | None) -> bool:
        """Whether the broker brings again what was kept before the camera went on to this image."""
        if chunk.image_name is not None:
            return False
        others = [
            other.transfer_id
            for other in self.rows
            if other.device_id == camera.device_id and other is not row
        ]
        return await store.is_here(self.tx, others, chunk.number, chunk.data)

    def _is_again(
        self, camera: Camera, stored: Row, said: tuple[bytes, Transfer, int, bytes]
    ) -> bool:
        """Whether a chunk is surely of this stored image; what a camera announced it sends."""
        announced = self.subjects.get(camera.device_id) == stored.transfer_id
        return chunks.is_same(*said) if announced else chunks.is_repeat(*said)

    def _stored(self, camera: Camera, name: str | None) -> list[Row]:
        """A camera's images of this name, or of any, that were stored or heard of just now."""
        return [
            row
            for row in self.rows
            if row.device_id == camera.device_id
            and row.transfer.state == "complete"
            and name in {None, row.image_name}
        ]

    async def _digests_of(self, row: Row) -> bytes:
        if row.transfer_id not in self.digests:
            self.digests[row.transfer_id] = await store.digests(self.tx, row.transfer_id)
        return self.digests[row.transfer_id]

    def _owe(self, camera: Camera, place: Place, row: Row) -> None:
        """ACK_OK once more, where the camera listens now; what came long ago asks for none."""
        if self.came_at is not None:
            return
        row.dialect, row.spelling = camera.dialect, place.spelling
        self._withhold(camera, row.image_name)
        row.transfer = replace(row.transfer, heard_at=self.now)
        due_at = chunks.acknowledgement_due(row.told, now=self.now, pace=self.pace)
        self._change(row, due_at=due_at)

    def _withhold(self, camera: Camera, name: str | None = None) -> None:
        """The camera is at another image now: no ACK_OK that is still owed is meant for it."""
        for row in self._stored(camera, name):
            if row.due_at is not None:
                self._change(row, due_at=None)

    def _change(self, row: Row, *, due_at: datetime | None) -> None:
        row.due_at, row.is_changed = due_at, True
