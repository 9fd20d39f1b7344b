"""The weighing: scale and camera drive the pure machines, the notebook keeps what comes of it.

scale --Heard--> stable --Arrived, Settled, …--> weighing --Begin, Weigh, Keep, …--> notebook
                                                     └--TakePicture--> camera --Shot--> weighing

The camera works beside the scale: while a picture is on its way, weights are still heard. Nothing
here gives up: what the notebook refuses is said in the log by it, and the next animal is weighed.
"""

import asyncio
import contextlib
import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from farmiq.device import stable, weighing
from farmiq.device.camera import Camera, CameraError, Shot
from farmiq.device.indicator import Reading
from farmiq.device.notebook import Notebook, Picture, Refused
from farmiq.device.scale import Heard, Scale, is_worth_a_line
from farmiq.device.weighing import Action, Begin, Cancel, Finish, Keep, TakePicture, Weigh, Weighing
from farmiq.plumbing import ids, log

_NAME = "iot-weighvision-agent"


@dataclass
class Station:
    """What stands on the scale, and the session of it. `camera` is None where there is none."""

    notebook: Notebook
    camera: Camera | None
    limits: stable.Limits = field(default_factory=stable.Limits)
    rules: weighing.Rules = field(default_factory=weighing.Rules)
    batch_id: str | None = None
    # Phase 2 alone looks at the weight and makes its own sessions.
    sessions: bool = True
    watched: stable.State = field(default_factory=stable.State)
    current: Weighing = field(default_factory=Weighing)
    session_id: UUID | None = None
    finished: int = 0
    cancelled: int = 0
    _taking: "asyncio.Task[Shot] | None" = None
    _shot: Shot | None = None

    def now(self) -> datetime:
        """The agent's time; nothing is decided by it."""
        return self.notebook.buffer.now()

    def stamped(self, shot: Shot) -> Shot:
        """A picture of now has the time of the agent, as the weights have; a file has its own."""
        return shot if shot.path else replace(shot, captured_at=self.now())

    async def weigh(self, scale: Scale) -> None:
        """Weigh animals for as long as the agent runs."""
        async with scale.listening() as following:
            try:
                while True:
                    heard = await following()
                    self.notebook.health.scale_ok = (
                        scale.away is None and not self.watched.told_occupied
                    )
                    await self.hear(heard)
            except Exception:
                # Whoever tends us begins again with an empty scale: this session has no end else.
                await self._end(Cancel("the weighing failed; the agent's log says why"))
                raise
            finally:
                await self._forget_picture()

    async def hear(self, heard: Heard | None) -> None:
        """Take what the scale said; None: nothing came. Then the picture, if one is there."""
        at = heard.at if heard is not None else time.monotonic()
        refused = self.watched.refused
        self.watched, effects = stable.step(self.watched, _sample(heard), at, self.limits)
        if self.watched.refused > refused and is_worth_a_line(self.watched.refused):
            log.get(_NAME).warning(
                "scale.absurd", reason="a weight that is none", count=self.watched.refused
            )
        for effect in effects:
            _tell(effect)
            await self._happen(effect, at)
        if self._taking is not None and self._taking.done():
            await self._happen(self._taken(), at)
        if not effects:
            await self._happen(weighing.TimePassed(), at)

    async def _happen(self, event: weighing.Event, at: float) -> None:
        if not self.sessions:
            return
        self.current, actions = weighing.step(self.current, event, at, self.rules)
        for action in actions:
            if not await self._act(action):
                self.current, _ = weighing.step(self.current, weighing.NotKept(), at, self.rules)
                self.session_id = None
                return
        if self.current.phase == "idle":
            await self._forget_picture()

    async def _act(self, action: Action) -> bool:
        """False if there is no session to go on with."""
        match action:
            case TakePicture():
                self._ask()
            case Begin():
                return await self._begin(action)
            case Weigh():
                await self._keep_weight(action.weight_kg)
            case Keep():
                await self._keep_picture()
            case Finish():
                await self._end(action)
            case Cancel():
                await self._end(action)
        return True

    def _ask(self) -> None:
        if self.camera is None:
            self._taking = asyncio.create_task(no_camera())
        else:
            self._taking = asyncio.create_task(self.camera.take())

    async def _forget_picture(self) -> None:
        """Its animal has gone; it must not become the next one's."""
        task, self._taking, self._shot = self._taking, None, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _taken(self) -> weighing.Event:
        task, self._taking = self._taking, None
        try:
            self._shot = self.stamped(task.result()) if task else None
        except CameraError as error:
            self.notebook.health.camera_ok = False
            log.get(_NAME).warning("camera.failed", reason=str(error))
            return weighing.NoPicture(str(error))
        self.notebook.health.camera_ok = True
        return weighing.Pictured()

    async def _begin(self, action: Begin) -> bool:
        session_id = ids.new()
        shot, self._shot = (self._shot, None) if action.pictured else (None, self._shot)
        try:
            await self.notebook.open(
                session_id,
                batch_id=self.batch_id,
                initial_weight_kg=action.weight_kg,
                picture=picture(shot, session_id) if shot else None,
                at=self.now(),
            )
        except Refused:
            return False
        self.session_id = session_id
        await self.moved(shot)
        return True

    async def _keep_weight(self, weight_kg: float) -> None:
        if self.session_id is not None:
            book, session_id = self.notebook, self.session_id
            weigh = partial(book.weigh, session_id, weight_kg=weight_kg, at=self.now())
            await book.owing.keep(session_id, weigh)

    async def _keep_picture(self) -> None:
        shot, self._shot = self._shot, None
        if shot is None or self.session_id is None:
            return
        with contextlib.suppress(Refused):
            await self.notebook.photograph(picture(shot, self.session_id))
            await self.moved(shot)

    async def _end(self, action: Finish | Cancel) -> None:
        session_id, self.session_id = self.session_id, None
        if session_id is None:
            return
        book, at = self.notebook, self.now()
        # A disk that is full now takes it later, with this time: the animal has left.
        if isinstance(action, Finish):
            end = partial(book.close, session_id, final_weight_kg=action.weight_kg, at=at)
            self.finished += 1
        else:
            log.get(_NAME).info("weighing.cancelled", reason=action.reason)
            end = partial(book.cancel, session_id, reason=action.reason, at=at)
            self.cancelled += 1
        await book.owing.keep(session_id, end)

    async def moved(self, shot: Shot | None) -> None:
        if shot is not None and self.camera is not None:
            await self.camera.kept(shot)


async def no_camera() -> Shot:
    raise CameraError("there is no camera (AGENT_CAMERA_URL)")


def _sample(heard: Heard | None) -> stable.Sample | None:
    if heard is None or not isinstance(heard.said, Reading):
        return None
    said = heard.said
    return stable.Sample(said.weight_kg, said.stable, said.overload)


def picture(shot: Shot, session_id: UUID | None) -> Picture:
    """As the notebook takes it; each call makes another one."""
    return Picture(
        image_id=ids.new(),
        session_id=session_id,
        content_type=shot.content_type,
        data=shot.data,
        captured_at=shot.captured_at,
    )


def _tell(effect: stable.Effect) -> None:
    if isinstance(effect, stable.Occupied):
        log.get(_NAME).warning(
            "scale.occupied",
            reason=f"{effect.weight_kg:g} kg for long: clean the platform and zero the scale",
        )
