"""Phase 2: a picture in every slot, or every picture that somebody puts into the folder.

clock or folder --> [photographing] --of a session, with a weight, or alone--> notebook
"""

import asyncio
import contextlib
import time
from functools import partial

from farmiq.device import schedule
from farmiq.device.camera import CameraError, Shot
from farmiq.device.capture import Station, no_camera, picture
from farmiq.device.folder import Folder
from farmiq.device.notebook import Refused
from farmiq.plumbing import ids, log
from farmiq.plumbing.backoff import Backoff

_NAME = "iot-weighvision-agent"


async def run(station: Station, *, every_s: float, with_weight: bool) -> None:
    """For as long as the agent runs."""
    if isinstance(station.camera, Folder):
        await _follow(station, station.camera, with_weight=with_weight)
    began = time.monotonic()
    while True:
        wait_s = schedule.next_at(began, every_s, time.monotonic()) - time.monotonic()
        await asyncio.sleep(max(0.0, wait_s))
        await once(station, with_weight=with_weight)


async def once(station: Station, *, with_weight: bool) -> None:
    """Now; a camera that fails is tried again within the slot."""
    for attempt in range(station.rules.picture_tries):
        try:
            shot = await (station.camera.take() if station.camera else no_camera())
        except CameraError as error:
            _failed(station, error, attempt=attempt + 1)
            continue
        station.notebook.health.camera_ok = True
        with contextlib.suppress(Refused):
            await keep(station, station.stamped(shot), with_weight=with_weight)
        return


async def _follow(station: Station, folder: Folder, *, with_weight: bool) -> None:
    backoff = Backoff(base_s=0.5, cap_s=30.0)
    while True:
        try:
            shot = await folder.next()
        except CameraError as error:
            _failed(station, error, attempt=1)
            await backoff.wait()
            continue
        station.notebook.health.camera_ok = True
        try:
            await keep(station, shot, with_weight=with_weight)
        except Refused:
            # It stays in the folder until there is room.
            folder.back(shot)
            await backoff.wait()


def _failed(station: Station, error: CameraError, *, attempt: int) -> None:
    station.notebook.health.camera_ok = False
    log.get(_NAME).warning("camera.failed", reason=str(error), attempt=attempt)


async def keep(station: Station, shot: Shot, *, with_weight: bool) -> None:
    """Where it belongs. Raises Refused."""
    steady_kg, session_id = station.watched.steady_kg, station.session_id
    match schedule.way(session_id, steady_kg, with_weight=with_weight):
        case "join":
            try:
                await station.notebook.photograph(picture(shot, session_id))
            except Refused:
                # The session ended while the picture was taken.
                await station.notebook.photograph(picture(shot, None))
        case "weigh":
            await _keep_session(station, shot, steady_kg or 0.0)
        case "loose":
            await station.notebook.photograph(picture(shot, None))
    await station.moved(shot)


async def _keep_session(station: Station, shot: Shot, weight_kg: float) -> None:
    """A session of this moment: one picture, one weight."""
    session_id, at = ids.new(), station.now()
    await station.notebook.open(
        session_id,
        batch_id=station.batch_id,
        initial_weight_kg=weight_kg,
        picture=picture(shot, session_id),
        at=at,
    )
    book = station.notebook
    await book.owing.keep(session_id, partial(book.weigh, session_id, weight_kg=weight_kg, at=at))
    close = partial(book.close, session_id, final_weight_kg=weight_kg, at=at)
    await book.owing.keep(session_id, close)
    station.finished += 1
