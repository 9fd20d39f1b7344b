"""The notebook: what the code at scale and camera writes into. What a call returned is kept.

scale, camera --> [notebook] --> sessions, weights, images, events --> drain, uploads

Every call returns after the commit (SQLite, WAL, synchronous FULL) and the picture's fsync; power
may fail at any later moment. What cannot be an event is refused here, with a line in the log, and
nothing of it is kept or sent (WV-02).
"""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from farmiq import crash
from farmiq.device import dropping, store, validation
from farmiq.device.buffer import Buffer, DiskFullError
from farmiq.device.minting import order_us
from farmiq.device.owing import Owing
from farmiq.device.refusals import Full, Refused
from farmiq.device.store import Tx
from farmiq.device.writing import Writer
from farmiq.messages import weighvision
from farmiq.plumbing import ids, log

T = TypeVar("T")


__all__ = ["Full", "Health", "Notebook", "Picture", "Refused"]

# A disk that takes a row may still have no room for the work around it.
_MARGIN_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Picture:
    image_id: UUID
    session_id: UUID | None
    content_type: str
    data: bytes
    captured_at: datetime


@dataclass
class Health:
    """What scale and camera say of themselves; None: there is none, or it has said nothing yet."""

    scale_ok: bool | None = None
    camera_ok: bool | None = None


@dataclass
class Notebook:
    """`kept` is called after each commit: there may be something to send or to upload."""

    buffer: Buffer
    writer: Writer
    kept: Callable[[], None] = lambda: None
    health: Health = field(default_factory=Health)
    # Makes pictures smaller, in a thread; None: they stay as they are.
    scale: "Callable[[Picture], Picture] | None" = None
    # Why the last capture was refused for want of room; None as soon as there is room again.
    full: str | None = None
    # What open sessions still have to write when the disk takes it.
    owing: Owing = field(default_factory=Owing)
    _refused_bytes: int = 0

    async def open(
        self,
        session_id: UUID,
        *,
        batch_id: str | None,
        initial_weight_kg: float | None,
        picture: Picture | None,
        at: datetime,
    ) -> None:
        """A session begins: session.created is made. Raises Refused, and Full."""
        if initial_weight_kg is not None:
            self._check_weight(initial_weight_kg)
        if picture is not None:
            picture = await self._fit(replace(picture, session_id=session_id))
        trace_id = str(ids.new())
        gone: list[str] = []

        def work(tx: Tx) -> None:
            if store.session(tx, str(session_id)) is not None:
                raise Refused(f"session {session_id} exists already")
            self._require_room(tx, dropping.SESSION_ROOM)
            row = {
                "session_id": str(session_id),
                "batch_id": batch_id,
                "trace_id": trace_id,
                "boot_id": self.writer.boot_id,
                "opened_at": _text(at),
                "order_us": order_us(at, previous_us=None),
            }
            store.add_session(tx, row)
            self.writer.emit(
                tx,
                weighvision.SessionCreatedByDevice(
                    batch_id=batch_id, initial_weight_kg=initial_weight_kg
                ),
                event_type=weighvision.SESSION_CREATED,
                at=at,
                now_s=self.buffer.now_s(),
                trace_id=trace_id,
                session_id=str(session_id),
            )
            if picture is not None:
                gone.extend(self._keep_picture(tx, picture, trace_id))
            crash.here("agent.before_open_commit")

        await self._keep(work, picture)
        await self._forget_files(gone)
        crash.here("agent.after_open_commit")

    async def weigh(self, session_id: UUID, *, weight_kg: float, at: datetime) -> None:
        """A weight of an open session. Raises Refused."""
        self._check_weight(weight_kg)

        def work(tx: Tx) -> None:
            self._require_open(tx, session_id)
            store.add_weight(tx, str(session_id), weight_kg=weight_kg, at=_text(at))
            self.writer.settle_session(tx, str(session_id), now_s=self.buffer.now_s())
            crash.here("agent.before_weigh_commit")

        await self._keep(work)
        crash.here("agent.after_weigh_commit")

    async def photograph(self, picture: Picture) -> None:
        """A picture, of an open session or of none. Raises Refused, and Full."""
        picture = await self._fit(picture)
        gone: list[str] = []

        def work(tx: Tx) -> None:
            if picture.session_id is None:
                self._require_room(tx, 1)
                trace_id = str(ids.new())
            else:
                trace_id = self._require_open(tx, picture.session_id)["trace_id"]
            gone.extend(self._keep_picture(tx, picture, trace_id))
            crash.here("agent.before_photograph_commit")

        await self._keep(work, picture)
        await self._forget_files(gone)
        crash.here("agent.after_photograph_commit")

    async def close(self, session_id: UUID, *, final_weight_kg: float | None, at: datetime) -> None:
        """The session is complete; closing it twice changes nothing. Raises Refused."""
        if final_weight_kg is not None:
            self._check_weight(final_weight_kg)
        await self._end(session_id, state="closed", at=at, final_weight_kg=final_weight_kg)

    async def cancel(self, session_id: UUID, *, reason: str, at: datetime) -> None:
        """The session was given up (C-28); what was weighed in it is still sent."""
        await self._end(session_id, state="cancelled", at=at, reason=reason[:4096])

    async def cancel_left_open(self, *, at: datetime) -> int:
        """Sessions that an earlier run of the agent did not end: the animal has left the scale."""

        def work(tx: Tx) -> int:
            found = store.open_of_other_boots(tx, self.writer.boot_id, most=100)
            for session_id in found:
                store.set_session(
                    tx,
                    session_id,
                    state="cancelled",
                    ended_at=_text(at),
                    reason=_without_end(tx, session_id),
                )
                self.writer.settle_session(tx, session_id, now_s=self.buffer.now_s())
            return len(found)

        return await self._keep(work)

    async def _end(self, session_id: UUID, *, state: str, at: datetime, **columns: Any) -> None:
        def work(tx: Tx) -> None:
            session = store.session(tx, str(session_id))
            if session is None:
                raise Refused(f"there is no session {session_id}")
            if session["state"] != "open":
                return
            store.set_session(tx, str(session_id), state=state, ended_at=_text(at), **columns)
            self.writer.settle_session(tx, str(session_id), now_s=self.buffer.now_s())
            crash.here("agent.before_end_commit")

        await self._keep(work)
        crash.here("agent.after_end_commit")

    # --- steps

    async def _keep(self, work: Callable[[Tx], T], picture: Picture | None = None) -> T:
        try:
            done = await self.buffer.do(work)
        except (DiskFullError, OSError) as error:
            await self._forget_file(picture)
            self._note_full(str(error), picture)
            raise self._refusal(Full(str(error))) from error
        except Full as error:
            await self._forget_file(picture)
            self._note_full(str(error), picture)
            raise self._refusal(error) from None
        except Refused as error:
            raise self._refusal(error) from None
        self.full = None
        self.kept()
        return done

    def _note_full(self, why: str, picture: Picture | None) -> None:
        self.full = why
        self._refused_bytes = 0 if picture is None else len(picture.data)

    async def look_for_room(self) -> None:
        """Whether what was refused last would be taken by now; then we are not full any more."""
        if self.full is None:
            return

        def work(tx: Tx) -> None:
            self._require_room(tx, dropping.SESSION_ROOM)
            limits, need = self.writer.limits, self._refused_bytes
            if self.buffer.pictures.free_bytes() < limits.disk_reserve_bytes + need + _MARGIN_BYTES:
                raise Full("the disk has no room")
            waiting = store.tally(tx)["picture_bytes"]
            if waiting + need > limits.picture_bytes and store.image_to_drop(tx) is None:
                raise Full("pictures that wait take all that they may")
            # The disk has the last word.
            store.set_meta(tx, "ran_s", self.buffer.now_s())

        with contextlib.suppress(Full, DiskFullError, OSError):
            await self.buffer.do(work)
            self.full = None

    async def _forget_file(self, picture: Picture | None) -> None:
        """The row was rolled back: its file goes too."""
        if picture is not None:
            image_id = str(picture.image_id)

            def work(tx: Tx) -> None:
                if not store.knows_image(tx, image_id):
                    self.buffer.pictures.forget(image_id)

            try:
                await self.buffer.do(work)
            except (DiskFullError, OSError):
                return  # the sweep finds it

    async def _forget_files(self, image_ids: list[str]) -> None:
        """After the commit that dropped them: a row without its file must never be."""
        for image_id in image_ids:
            await asyncio.to_thread(self.buffer.pictures.forget, image_id)

    def _keep_picture(self, tx: Tx, picture: Picture, trace_id: str) -> list[str]:
        """The file first, then the row; returns what gave way, whose files are to go.

        A row without its file would be a promise not kept.
        """
        image_id = str(picture.image_id)
        if store.knows_image(tx, image_id):
            raise Refused(f"picture {image_id} is kept already")
        gone = self._make_picture_room(tx, len(picture.data))
        self.buffer.pictures.keep(image_id, picture.data)
        session_id = None if picture.session_id is None else str(picture.session_id)
        store.add_image(
            tx,
            {
                "image_id": image_id,
                "session_id": session_id,
                "trace_id": trace_id,
                "content_type": picture.content_type,
                "size_bytes": len(picture.data),
                "sha256": hashlib.sha256(picture.data).hexdigest(),
                "captured_at": _text(picture.captured_at),
                "kept_boot": self.writer.boot_id,
                "kept_s": self.buffer.now_s(),
            },
        )
        if session_id is not None:
            session = store.session(tx, session_id)
            if session is not None:
                store.set_session(tx, session_id, images=session["images"] + 1)
        return gone

    def _make_picture_room(self, tx: Tx, size_bytes: int) -> list[str]:
        limits = self.writer.limits
        if self.buffer.pictures.free_bytes() < limits.disk_reserve_bytes + size_bytes:
            raise Full("the disk has no room for a picture (AGENT_DISK_RESERVE_BYTES)")
        gone: list[str] = []
        while store.tally(tx)["picture_bytes"] + size_bytes > limits.picture_bytes:
            dropped = self.writer.drop_loose_picture(tx)
            if dropped is None:
                raise Full("pictures that wait take all that they may (AGENT_PICTURE_BYTES)")
            gone.append(dropped)
        return gone

    def _require_room(self, tx: Tx, need: int) -> None:
        if self.buffer.pictures.free_bytes() < self.writer.limits.disk_reserve_bytes:
            raise Full("the disk is nearly full (AGENT_DISK_RESERVE_BYTES)")
        if self.writer.room(tx, need=need).short:
            raise Full(
                "the buffer is full of events that must not be dropped (AGENT_BUFFER_EVENTS); "
                "it takes new sessions when the edge has taken some"
            )

    def _require_open(self, tx: Tx, session_id: UUID) -> dict[str, Any]:
        session = store.session(tx, str(session_id))
        if session is None:
            raise Refused(f"there is no session {session_id}")
        if session["state"] != "open":
            raise Refused(f"session {session_id} is {session['state']} already")
        return session

    def _check_weight(self, weight_kg: float) -> None:
        problem = validation.weight_problem(weight_kg, most_kg=self.writer.limits.most_weight_kg)
        if problem is not None:
            raise self._refusal(Refused(problem))

    async def _fit(self, picture: Picture) -> Picture:
        problem = validation.picture_problem(picture.data, picture.content_type)
        if problem is not None:
            raise self._refusal(Refused(problem))
        if self.scale is None:
            return picture
        try:
            return await asyncio.to_thread(self.scale, picture)
        except Refused as error:
            raise self._refusal(error) from None

    def _refusal(self, error: Refused) -> Refused:
        log.get("iot-weighvision-agent").warning("capture.refused", reason=str(error))
        return error


def _without_end(tx: Tx, session_id: str) -> str:
    """What is known: whether the animal had left by then, nobody wrote down."""
    session = store.session(tx, session_id) or {}
    weights, pictures = store.count_weights(tx, session_id), session.get("images", 0)
    return (
        "the station stopped before the end of the session was on its disk (a restart, or the disk "
        f"was full); kept of it: {weights} weights, {pictures} pictures"
    )


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()
