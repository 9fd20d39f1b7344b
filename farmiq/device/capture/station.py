"""The station's driver: scale and camera feed the pure machines, the recorder stores the results.

scale --Received--> stable --Arrived, Settled, …--> weighing --Begin, StorePicture, …--> recorder
                                         └--TakePicture--> camera --CameraImage--> weighing
clock or folder --> Station.photograph --of a session, with a weight, or alone--> recorder
empty scale --once a day--> camera --> recorder: what animals are told from

The camera works beside the scale: while a picture is taken, weights still come. A capture that the
recorder rejects is logged there, and the next animal is weighed.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from farmiq.device.buffer.recorder import Picture, Recorder, RejectedError
from farmiq.device.capture import stable, weighing
from farmiq.device.capture.camera import Camera, CameraError, CameraImage
from farmiq.device.capture.folder import Folder
from farmiq.device.capture.indicator import Reading
from farmiq.device.capture.scale import Received, Scale, is_worth_a_line
from farmiq.device.capture.weighing import (
    Action,
    Begin,
    Cancel,
    Finish,
    StorePicture,
    TakePicture,
    Weigh,
    Weighing,
)
from farmiq.plumbing import ids, log
from farmiq.plumbing.backoff import Backoff

_NAME = "iot-weighvision-agent"
# So long the scale is empty before and after its picture, or somebody may be in it;
CALM_S = 3.0
# and so long it is waited after one that did not succeed.
_EMPTY_AGAIN_S = 60.0


@dataclass
class Station:
    """What stands on the scale, and its session. `camera` is None where there is none."""

    recorder: Recorder
    camera: Camera | None
    limits: stable.Limits = field(default_factory=stable.Limits)
    rules: weighing.Rules = field(default_factory=weighing.Rules)
    batch_id: str | None = None
    # Phase 2 alone reads the weight and makes its own sessions.
    sessions: bool = True
    # Between pictures of the empty scale; None: there are none.
    empty_every_s: float | None = None
    watched: stable.State = field(default_factory=stable.State)
    current: Weighing = field(default_factory=Weighing)
    session_id: UUID | None = None
    finished: int = 0
    cancelled: int = 0
    _taking: "asyncio.Task[CameraImage] | None" = None
    _shot: CameraImage | None = None
    _empty: "asyncio.Task[CameraImage] | None" = None
    _empty_taken_at: float | None = None
    _empty_due_at: float = 0.0

    # --- phase 1: sessions of single animals

    async def weigh(self, scale: Scale) -> None:
        """Weigh animals for as long as the agent runs."""
        async with scale.listening() as receive:
            try:
                while True:
                    received = await receive()
                    self.recorder.health.scale_ok = (
                        scale.offline_reason is None and not self.watched.occupied_reported
                    )
                    await self.handle(received)
            except Exception:
                # We are restarted with an empty scale: this session would have no end.
                await self._end(Cancel("the weighing failed; the agent's log says why"))
                raise
            finally:
                await self._discard_picture()
                await self._discard_empty()

    async def handle(self, received: Received | None) -> None:
        """Process a line of the scale, None if nothing came; then the picture, if one is there."""
        at = received.at if received is not None else time.monotonic()
        rejected = self.watched.rejected
        self.watched, effects = stable.step(self.watched, _sample(received), at, self.limits)
        if self.watched.rejected > rejected and is_worth_a_line(self.watched.rejected):
            log.get(_NAME).warning(
                "scale.absurd", reason="a weight that is none", count=self.watched.rejected
            )
        for effect in effects:
            if isinstance(effect, stable.Occupied):
                reason = f"{effect.weight_kg:g} kg for long: clean the platform and zero the scale"
                log.get(_NAME).warning("scale.occupied", reason=reason)
            await self._apply(effect, at)
        if self._taking is not None and self._taking.done():
            await self._apply(self._taken(self._taking), at)
        if not effects:
            await self._apply(weighing.TimePassed(), at)
        if self.empty_every_s is not None:
            await self._watch_empty(at, self.empty_every_s)

    async def _apply(self, event: weighing.Event, at: float) -> None:
        if not self.sessions:
            return
        self.current, actions = weighing.step(self.current, event, at, self.rules)
        for action in actions:
            if not await self.act(action):
                self.current, _ = weighing.step(self.current, weighing.NotStored(), at, self.rules)
                self.session_id = None
                return
        if self.current.phase == "idle":
            await self._discard_picture()

    async def act(self, action: Action) -> bool:
        """False if there is no session to go on with."""
        match action:
            case TakePicture():
                self._taking = asyncio.create_task(self._take())
            case Begin():
                return await self._begin(action)
            case Weigh():
                if self.session_id is not None:
                    await self._record_weight(self.session_id, action.weight_kg, self.now())
            case StorePicture():
                await self._record_picture()
            case Finish() | Cancel():
                await self._end(action)
        return True

    async def _take(self) -> CameraImage:
        if self.camera is None:
            raise CameraError("there is no camera (AGENT_CAMERA_URL)")
        return await self.camera.take()

    async def _discard_picture(self) -> None:
        """Its animal has gone; the picture must not become the next one's."""
        task, self._taking, self._shot = self._taking, None, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _taken(self, task: "asyncio.Task[CameraImage]") -> weighing.Event:
        self._taking = None
        try:
            self._shot = self._stamped(task.result())
        except CameraError as error:
            self._camera_failed(error)
            return weighing.NoPicture(str(error))
        self.recorder.health.camera_ok = True
        return weighing.PictureTaken()

    async def _begin(self, action: Begin) -> bool:
        session_id = ids.new()
        shot, self._shot = (self._shot, None) if action.pictured else (None, self._shot)
        try:
            await self._open(session_id, action.weight_kg, shot, self.now())
        except RejectedError:
            return False
        self.session_id = session_id
        await self._confirm(shot)
        return True

    async def _record_picture(self) -> None:
        shot, self._shot = self._shot, None
        if shot is None or self.session_id is None:
            return
        with contextlib.suppress(RejectedError):
            await self.recorder.photograph(_picture(shot, self.session_id))
            await self._confirm(shot)

    async def _end(self, action: Finish | Cancel) -> None:
        session_id, self.session_id = self.session_id, None
        if session_id is None:
            return
        # A disk that is full now takes it later, with this time: the animal has left.
        if isinstance(action, Finish):
            await self._close(session_id, action.weight_kg, self.now())
            return
        log.get(_NAME).info("weighing.cancelled", reason=action.reason)
        self.cancelled += 1
        cancel = partial(self.recorder.cancel, session_id, reason=action.reason, at=self.now())
        await self.recorder.pending.write(session_id, cancel)

    # --- the empty scale: once after the start, then once in a while

    async def _watch_empty(self, at: float, every_s: float) -> None:
        if self.watched.phase != "empty" or at - self.watched.since < CALM_S:
            await self._discard_empty()
        elif self._empty is None:
            if at >= self._empty_due_at:
                self._empty_due_at = at + _EMPTY_AGAIN_S
                self._empty = asyncio.create_task(self._take())
        elif self._empty.done():
            self._empty_taken_at = self._empty_taken_at or at
            if at - self._empty_taken_at >= CALM_S and await self._record_empty(self._empty):
                self._empty_due_at = at + every_s

    async def _record_empty(self, task: "asyncio.Task[CameraImage]") -> bool:
        self._empty = self._empty_taken_at = None
        try:
            shot = self._stamped(task.result())
        except CameraError as error:
            self._camera_failed(error)
            return False
        self.recorder.health.camera_ok = True
        try:
            await self.recorder.photograph(_picture(shot, None), of_empty_scale=True)
        except RejectedError:
            return False
        await self._confirm(shot)
        return True

    async def _discard_empty(self) -> None:
        """Somebody came: the picture may show who."""
        task, self._empty, self._empty_taken_at = self._empty, None, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # --- phase 2: a picture in every slot, or every picture that comes into a folder

    async def photograph_on_schedule(self, *, every_s: float, with_weight: bool) -> None:
        """For as long as the agent runs."""
        if isinstance(self.camera, Folder):
            await self._follow_folder(self.camera, with_weight=with_weight)
        started_at = time.monotonic()
        while True:
            delay_s = weighing.next_slot(started_at, every_s, time.monotonic()) - time.monotonic()
            await asyncio.sleep(max(0.0, delay_s))
            await self.photograph(with_weight=with_weight)

    async def photograph(self, *, with_weight: bool) -> None:
        """Take a picture now; a camera that fails is tried again within the slot."""
        for attempt in range(self.rules.picture_tries):
            try:
                shot = await self._take()
            except CameraError as error:
                self._camera_failed(error, attempt=attempt + 1)
                continue
            self.recorder.health.camera_ok = True
            with contextlib.suppress(RejectedError):
                await self._record(self._stamped(shot), with_weight=with_weight)
            return

    async def _follow_folder(self, folder: Folder, *, with_weight: bool) -> None:
        backoff = Backoff(base_s=0.5, cap_s=30.0)
        while True:
            try:
                shot = await folder.next()
            except CameraError as error:
                self._camera_failed(error, attempt=1)
                await backoff.wait()
                continue
            self.recorder.health.camera_ok = True
            try:
                await self._record(shot, with_weight=with_weight)
            except RejectedError:
                # It stays in the folder until there is room.
                folder.give_back(shot)
                await backoff.wait()

    async def _record(self, shot: CameraImage, *, with_weight: bool) -> None:
        """Where the picture belongs. Raises RejectedError."""
        steady_kg, session_id = self.watched.steady_kg, self.session_id
        match weighing.placement(session_id, steady_kg, with_weight=with_weight):
            case "join":
                try:
                    await self.recorder.photograph(_picture(shot, session_id))
                except RejectedError:
                    # The session ended while the picture was taken.
                    await self.recorder.photograph(_picture(shot, None))
            case "weigh":
                own_id, weight_kg, at = ids.new(), steady_kg or 0.0, self.now()
                await self._open(own_id, weight_kg, shot, at)
                await self._record_weight(own_id, weight_kg, at)
                await self._close(own_id, weight_kg, at)
            case "loose":
                await self.recorder.photograph(_picture(shot, None))
        await self._confirm(shot)

    # --- both

    def now(self) -> datetime:
        """The agent's time; nothing is decided by it."""
        return self.recorder.buffer.now()

    def _stamped(self, shot: CameraImage) -> CameraImage:
        """A picture of now has the agent's time, as the weights have; a file has its own."""
        return shot if shot.path else replace(shot, captured_at=self.now())

    def _camera_failed(self, error: CameraError, **fields: int) -> None:
        self.recorder.health.camera_ok = False
        log.get(_NAME).warning("camera.failed", reason=str(error), **fields)

    async def _open(
        self, session_id: UUID, weight_kg: float | None, shot: CameraImage | None, at: datetime
    ) -> None:
        await self.recorder.open(
            session_id,
            batch_id=self.batch_id,
            initial_weight_kg=weight_kg,
            picture=_picture(shot, session_id) if shot else None,
            at=at,
        )

    async def _record_weight(self, session_id: UUID, weight_kg: float, at: datetime) -> None:
        weigh = partial(self.recorder.weigh, session_id, weight_kg=weight_kg, at=at)
        await self.recorder.pending.write(session_id, weigh)

    async def _close(self, session_id: UUID, weight_kg: float, at: datetime) -> None:
        self.finished += 1
        close = partial(self.recorder.close, session_id, final_weight_kg=weight_kg, at=at)
        await self.recorder.pending.write(session_id, close)

    async def _confirm(self, shot: CameraImage | None) -> None:
        """Tell the camera that the picture is stored."""
        if shot is not None and self.camera is not None:
            await self.camera.confirm(shot)


def _sample(received: Received | None) -> stable.Sample | None:
    if received is None or not isinstance(received.reading, Reading):
        return None
    reading = received.reading
    return stable.Sample(reading.weight_kg, reading.stable, reading.overload)


def _picture(shot: CameraImage, session_id: UUID | None) -> Picture:
    """As the recorder takes it; each call makes another one."""
    return Picture(ids.new(), session_id, shot.content_type, shot.data, shot.captured_at)
