"""Sources: the scales and cameras that the settings name, each a task of the agent.

A source handles its own failures (a cable that is out, a camera that hangs), recovers by itself and
reports in `recorder.health`. It is cancelled when the agent stops. RejectedError means that a
capture did not happen, BufferFullError that nothing new is accepted until the edge is back.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from farmiq.config import SettingsError
from farmiq.config.device import DeviceSettings, HardwareSettings
from farmiq.device.buffer.recorder import Recorder
from farmiq.device.capture import camera, indicator, scale, stable, weighing
from farmiq.device.capture.camera import Camera
from farmiq.device.capture.folder import Folder
from farmiq.device.capture.scale import Scale
from farmiq.device.capture.station import Station

Source = Callable[[Recorder], Awaitable[None]]


def configured(settings: DeviceSettings) -> Sequence[Source]:
    """The sources that the settings name. Raises SettingsError for wrong settings."""
    if settings.scale_url is None and settings.camera_url is None:
        return ()
    if settings.scale_url is None and settings.capture == "session":
        raise SettingsError("AGENT_SCALE_URL is not set: without a scale, AGENT_CAPTURE=schedule")
    if settings.camera_url is None:
        raise SettingsError("AGENT_CAMERA_URL is not set: a session needs a picture")
    if settings.capture == "both" and _is_folder(settings):
        raise SettingsError(
            "AGENT_CAPTURE=both needs a camera that can be asked; a folder: is either for "
            "session or for schedule"
        )
    # A wrong setting fails now, and not in a source every few seconds.
    if settings.scale_url is not None:
        scale_of(settings)
    camera_of(settings)

    async def source(recorder: Recorder) -> None:
        await _capture(recorder, settings)

    return (source,)


async def _capture(recorder: Recorder, settings: DeviceSettings) -> None:
    """Both phases share the scale, the camera and the open session."""
    eye = camera_of(settings)
    station = Station(
        recorder,
        eye,
        limits=limits(settings),
        rules=rules(settings),
        batch_id=settings.batch_id,
        sessions=settings.capture != "schedule",
        # A camera that puts pictures into a folder cannot be asked for one.
        empty_every_s=None if _is_folder(settings) else settings.empty_scale_hours * 3600 or None,
    )
    try:
        async with asyncio.TaskGroup() as group:
            if settings.scale_url is not None:
                group.create_task(station.weigh(scale_of(settings)))
            if settings.capture != "session":
                group.create_task(
                    station.photograph_on_schedule(
                        every_s=settings.schedule_minutes * 60,
                        with_weight=settings.schedule_weights,
                    )
                )
    finally:
        await eye.close()


def scale_of(settings: HardwareSettings) -> Scale:
    """Raises SettingsError if none is set, or it cannot be one."""
    if settings.scale_url is None:
        raise SettingsError("AGENT_SCALE_URL is not set: serial:///dev/ttyUSB0 or tcp://host:port")
    try:
        port = scale.port(settings.scale_url, baud=settings.scale_baud, mode=settings.scale_mode)
    except ValueError as error:
        raise SettingsError(f"AGENT_SCALE_URL or AGENT_SCALE_MODE is wrong: {error}") from None
    try:
        parse = indicator.parser(
            settings.scale_format, unit=settings.scale_unit, pattern=settings.scale_pattern
        )
    except indicator.BadPatternError as error:
        raise SettingsError(f"AGENT_SCALE_PATTERN {error}") from None
    return Scale(port, parse, silent_s=settings.scale_silent_s)


def camera_of(settings: HardwareSettings) -> Camera:
    """Raises SettingsError if none is set, or it cannot be one."""
    if settings.camera_url is None:
        raise SettingsError(
            "AGENT_CAMERA_URL is not set: http://host/snapshot.jpg, v4l2:/dev/video0, folder:/path"
        )
    url = settings.camera_url.get_secret_value()
    if _is_folder(settings):
        return Folder(Path(url.partition(":")[2]), timeout_s=settings.camera_timeout_s)
    try:
        return camera.camera(url, timeout_s=settings.camera_timeout_s, tls=settings.tls)
    except ValueError as error:
        raise SettingsError(f"AGENT_CAMERA_URL is wrong: {error}") from None


def limits(settings: DeviceSettings) -> stable.Limits:
    return stable.Limits(
        present_kg=settings.present_kg,
        tolerance_kg=settings.tolerance_kg,
        window_s=settings.stable_s,
        again_s=settings.again_s,
        settle_within_s=settings.settle_s,
        zero_kg=settings.zero_kg,
        zero_kg_per_s=settings.zero_kg_per_s,
        max_kg=settings.max_weight_kg,
    )


def rules(settings: HardwareSettings) -> weighing.Rules:
    return weighing.Rules(
        weights=settings.session_weights,
        pictures=settings.session_pictures,
        session_s=settings.session_s,
        passes_s=settings.passes_s,
    )


def _is_folder(settings: HardwareSettings) -> bool:
    url = settings.camera_url
    return url is not None and url.get_secret_value().startswith("folder:")
