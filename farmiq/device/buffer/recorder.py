"""The recorder: the code at scale and camera records captures here; a call that returned is stored.

scale, camera --> [recorder] --> sessions, weights, images, events --> drain, uploads

Every call returns after the commit (SQLite, WAL, synchronous FULL) and the picture's fsync; power
may fail at any later moment. What cannot be an event is rejected here, with a line in the log, and
nothing of it is stored or sent (WV-02).
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from farmiq import crash
from farmiq.device.buffer import rules, store
from farmiq.device.buffer.database import Buffer, DiskFullError
from farmiq.device.buffer.store import Tx
from farmiq.device.buffer.writer import Writer
from farmiq.messages import weighvision
from farmiq.plumbing import ids, log

T = TypeVar("T")
Write = Callable[[], Awaitable[None]]

# A disk that accepts a row may still have no room for the work around it.
_MARGIN_BYTES = 65_536
_LOG = "iot-weighvision-agent"


class RejectedError(Exception):
    """The capture cannot be stored, and nothing of it was; the text says why."""


class BufferFullError(RejectedError):
    """There is room for nothing but what is critical (C-31), or the disk is full."""


@dataclass(frozen=True, slots=True)
class Picture:
    image_id: UUID
    session_id: UUID | None
    content_type: str
    data: bytes
    captured_at: datetime


@dataclass
class Health:
    """The state of scale and camera; None: there is none, or nothing is known yet."""

    scale_ok: bool | None = None
    camera_ok: bool | None = None


@dataclass
class PendingWrites:
    """Weights and ends of open sessions that a full disk did not accept, in their order.

    They are written later, with the time they had. Only memory holds them: after a power cut the
    session has no end (Recorder.cancel_left_open). New sessions need room, so there are never more
    of them here than scales.
    """

    _pending: dict[UUID, list[Write]] = field(default_factory=dict)

    async def write(self, session_id: UUID, write: Write) -> None:
        """Now if possible; else later, behind what is pending already of this session."""
        if session_id in self._pending:
            self._pending[session_id].append(write)
            return
        try:
            await write()
        except BufferFullError:
            self._pending[session_id] = [write]
            log.get(_LOG).warning("session.owed", session_id=str(session_id))
        except RejectedError:
            return  # it cannot be an event; the recorder has logged why

    async def flush(self) -> int:
        """Write what the disk accepts by now; returns how many sessions are complete by it."""
        flushed = 0
        for session_id, writes in [*self._pending.items()]:
            # Others may append while we wait.
            while writes:
                try:
                    await writes[0]()
                except BufferFullError:
                    return flushed
                except RejectedError:
                    pass
                del writes[0]
            del self._pending[session_id]
            flushed += 1
            log.get(_LOG).info("session.paid", session_id=str(session_id))
        return flushed


@dataclass
class Recorder:
    """`on_commit` is called after each commit: there may be something to send or to upload."""

    buffer: Buffer
    writer: Writer
    on_commit: Callable[[], None] = lambda: None
    health: Health = field(default_factory=Health)
    # Makes pictures smaller, in a thread; None: they stay as they are.
    scale: "Callable[[Picture], Picture] | None" = None
    # Why the last capture was rejected for want of room; None as soon as there is room again.
    full: str | None = None
    pending: PendingWrites = field(default_factory=PendingWrites)
    _rejected_bytes: int = 0

    async def open(
        self,
        session_id: UUID,
        *,
        batch_id: str | None,
        initial_weight_kg: float | None,
        picture: Picture | None,
        at: datetime,
    ) -> None:
        """Begin a session: session.created is made. Raises RejectedError, and BufferFullError."""
        if initial_weight_kg is not None:
            self._check_weight(initial_weight_kg)
        if picture is not None:
            picture = await self._checked(replace(picture, session_id=session_id))
        trace_id = str(ids.new())
        dropped: list[str] = []

        def work(tx: Tx) -> None:
            if store.session(tx, str(session_id)) is not None:
                raise RejectedError(f"session {session_id} exists already")
            self._require_room(tx, rules.SESSION_ROOM)
            store.insert(
                tx,
                "sessions",
                session_id=str(session_id),
                batch_id=batch_id,
                trace_id=trace_id,
                boot_id=self.buffer.boot_id,
                opened_at=_text(at),
                state="open",
                order_us=rules.order_us(at, previous_us=None),
            )
            self.writer.emit(
                tx,
                weighvision.SessionCreatedByDevice(
                    batch_id=batch_id, initial_weight_kg=initial_weight_kg
                ),
                at=at,
                trace_id=trace_id,
                session_id=str(session_id),
            )
            if picture is not None:
                dropped.extend(self._store_picture(tx, picture, trace_id))
            crash.here("agent.before_open_commit")

        await self._commit(work, picture)
        await self._delete_files(dropped)
        crash.here("agent.after_open_commit")

    async def weigh(self, session_id: UUID, *, weight_kg: float, at: datetime) -> None:
        """Record a weight of an open session. Raises RejectedError."""
        self._check_weight(weight_kg)

        def work(tx: Tx) -> None:
            self._require_open(tx, session_id)
            row = {"session_id": str(session_id), "weight_kg": weight_kg, "weighed_at": _text(at)}
            store.insert(tx, "weights", **row)
            self.writer.settle_session(tx, str(session_id))
            crash.here("agent.before_weigh_commit")

        await self._commit(work)
        crash.here("agent.after_weigh_commit")

    async def photograph(self, picture: Picture, *, of_empty_scale: bool = False) -> None:
        """Record a picture, of an open session or of none. Raises as `open` does."""
        picture = await self._checked(picture)
        dropped: list[str] = []

        def work(tx: Tx) -> None:
            if picture.session_id is None:
                self._require_room(tx, 1)
                trace_id = str(ids.new())
            else:
                trace_id = self._require_open(tx, picture.session_id)["trace_id"]
            dropped.extend(self._store_picture(tx, picture, trace_id))
            if of_empty_scale:
                store.note_empty_scale(tx, str(picture.image_id))
            crash.here("agent.before_photograph_commit")

        await self._commit(work, picture)
        await self._delete_files(dropped)
        crash.here("agent.after_photograph_commit")

    async def close(self, session_id: UUID, *, final_weight_kg: float | None, at: datetime) -> None:
        """Complete the session; closing it twice changes nothing. Raises RejectedError."""
        if final_weight_kg is not None:
            self._check_weight(final_weight_kg)
        await self._end(session_id, state="closed", at=at, final_weight_kg=final_weight_kg)

    async def cancel(self, session_id: UUID, *, reason: str, at: datetime) -> None:
        """Give the session up (C-28); what was weighed in it is still sent."""
        await self._end(session_id, state="cancelled", at=at, reason=reason[:4096])

    async def cancel_left_open(self, *, at: datetime) -> int:
        """Cancel sessions that an earlier run did not end: the animal has left the scale."""

        def work(tx: Tx) -> int:
            session_ids = store.open_of_other_boots(tx, self.buffer.boot_id, limit=100)
            for session_id in session_ids:
                session = store.session(tx, session_id) or {}
                reason = (
                    "the station stopped before the end of the session was on its disk (a restart, "
                    "or the disk was full); kept of it: "
                    f"{store.count_weights(tx, session_id)} weights, "
                    f"{session.get('images', 0)} pictures"
                )
                store.set_session(
                    tx, session_id, state="cancelled", ended_at=_text(at), reason=reason
                )
                self.writer.settle_session(tx, session_id)
            return len(session_ids)

        return await self._commit(work)

    async def _end(self, session_id: UUID, *, state: str, at: datetime, **columns: Any) -> None:
        def work(tx: Tx) -> None:
            session = store.session(tx, str(session_id))
            if session is None:
                raise RejectedError(f"there is no session {session_id}")
            if session["state"] != "open":
                return
            store.set_session(tx, str(session_id), state=state, ended_at=_text(at), **columns)
            self.writer.settle_session(tx, str(session_id))
            crash.here("agent.before_end_commit")

        await self._commit(work)
        crash.here("agent.after_end_commit")

    # --- steps

    async def _commit(self, work: Callable[[Tx], T], picture: Picture | None = None) -> T:
        try:
            result = await self.buffer.do(work)
        except (DiskFullError, OSError, BufferFullError) as error:
            await self._delete_rolled_back(picture)
            self.full = str(error)
            self._rejected_bytes = 0 if picture is None else len(picture.data)
            raise _logged(BufferFullError(str(error))) from error
        except RejectedError as error:
            raise _logged(error) from None
        self.full = None
        self.on_commit()
        return result

    async def check_room(self) -> None:
        """Whether the capture that was rejected last would be accepted by now; clears `full`."""
        if self.full is None:
            return

        def work(tx: Tx) -> None:
            self._require_room(tx, rules.SESSION_ROOM)
            limits, need = self.writer.limits, self._rejected_bytes
            if self.buffer.pictures.free_bytes() < limits.disk_reserve_bytes + need + _MARGIN_BYTES:
                raise BufferFullError("the disk has no room")
            used = store.tally(tx)["picture_bytes"]
            if used + need > limits.picture_bytes and store.image_to_drop(tx) is None:
                raise BufferFullError("pictures that wait take all that they may")
            # The disk has the last word.
            store.set_meta(tx, "ran_s", self.buffer.now_s())

        with contextlib.suppress(BufferFullError, DiskFullError, OSError):
            await self.buffer.do(work)
            self.full = None

    async def _delete_rolled_back(self, picture: Picture | None) -> None:
        """The row was rolled back: its file goes too."""
        if picture is None:
            return
        # If the disk refuses even that, the sweep at the next start finds the file.
        with contextlib.suppress(DiskFullError, OSError):
            await self.buffer.do(lambda tx: self.delete_if_unknown(tx, str(picture.image_id)))

    def delete_if_unknown(self, tx: Tx, image_id: str) -> None:
        """Delete the file of a picture that has no row."""
        if not store.has_image(tx, image_id):
            self.buffer.pictures.delete(image_id)

    async def _delete_files(self, image_ids: list[str]) -> None:
        """After the commit that dropped them: a row must never be without its file."""
        for image_id in image_ids:
            await asyncio.to_thread(self.buffer.pictures.delete, image_id)

    def _store_picture(self, tx: Tx, picture: Picture, trace_id: str) -> list[str]:
        """The file first, then the row; returns what was dropped, whose files are to go."""
        image_id = str(picture.image_id)
        if store.has_image(tx, image_id):
            raise RejectedError(f"picture {image_id} is kept already")
        dropped = self._make_picture_room(tx, len(picture.data))
        self.buffer.pictures.store(image_id, picture.data)
        session_id = None if picture.session_id is None else str(picture.session_id)
        store.insert(
            tx,
            "images",
            image_id=image_id,
            session_id=session_id,
            trace_id=trace_id,
            content_type=picture.content_type,
            size_bytes=len(picture.data),
            sha256=hashlib.sha256(picture.data).hexdigest(),
            captured_at=_text(picture.captured_at),
            kept_boot=self.buffer.boot_id,
            kept_s=self.buffer.now_s(),
            state="waiting",
        )
        if session_id is not None and (session := store.session(tx, session_id)) is not None:
            store.set_session(tx, session_id, images=session["images"] + 1)
        return dropped

    def _make_picture_room(self, tx: Tx, size_bytes: int) -> list[str]:
        limits = self.writer.limits
        if self.buffer.pictures.free_bytes() < limits.disk_reserve_bytes + size_bytes:
            raise BufferFullError("the disk has no room for a picture (AGENT_DISK_RESERVE_BYTES)")
        dropped: list[str] = []
        while store.tally(tx)["picture_bytes"] + size_bytes > limits.picture_bytes:
            image_id = self.writer.drop_loose_picture(tx)
            if image_id is None:
                raise BufferFullError(
                    "pictures that wait take all that they may (AGENT_PICTURE_BYTES)"
                )
            dropped.append(image_id)
        return dropped

    def _require_room(self, tx: Tx, need: int) -> None:
        if self.buffer.pictures.free_bytes() < self.writer.limits.disk_reserve_bytes:
            raise BufferFullError("the disk is nearly full (AGENT_DISK_RESERVE_BYTES)")
        if self.writer.room(tx, need=need).short:
            raise BufferFullError(
                "the buffer is full of events that must not be dropped (AGENT_BUFFER_EVENTS); "
                "it takes new sessions when the edge has taken some"
            )

    def _require_open(self, tx: Tx, session_id: UUID) -> dict[str, Any]:
        session = store.session(tx, str(session_id))
        if session is None:
            raise RejectedError(f"there is no session {session_id}")
        if session["state"] != "open":
            raise RejectedError(f"session {session_id} is {session['state']} already")
        return session

    def _check_weight(self, weight_kg: float) -> None:
        problem = rules.weight_problem(weight_kg, max_kg=self.writer.limits.max_weight_kg)
        if problem is not None:
            raise _logged(RejectedError(problem))

    async def _checked(self, picture: Picture) -> Picture:
        """The picture as it is stored: whole, and scaled down if the settings ask for it."""
        problem = rules.picture_problem(picture.data, picture.content_type)
        if problem is not None:
            raise _logged(RejectedError(problem))
        if self.scale is None:
            return picture
        try:
            return await asyncio.to_thread(self.scale, picture)
        except RejectedError as error:
            raise _logged(error) from None


def _logged(error: RejectedError) -> RejectedError:
    log.get(_LOG).warning("capture.refused", reason=str(error))
    return error


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
