"""A weigh station under test: a buffer in a folder, pictures, a clock that the test moves."""

import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from farmiq.config import DeviceSettings
from farmiq.device.buffer import database
from farmiq.device.buffer.database import Buffer, Clock
from farmiq.device.buffer.recorder import Picture, Recorder
from farmiq.device.buffer.rules import Identity
from farmiq.device.buffer.writer import Limits, Writer
from farmiq.messages.topics import Place
from farmiq.plumbing import ids

WHO = Identity(Place("t-1", "f-1", "b-1", "d-1"), "s-1")
BEGAN = datetime(2026, 3, 1, 6, 0, tzinfo=UTC)


class MovedClock(Clock):
    """Both clocks stand still until they are moved; the wall's may go back."""

    def __init__(self) -> None:
        self.wall, self.seconds = BEGAN, 1000.0

    def now(self) -> datetime:
        return self.wall

    def mono(self) -> float:
        return self.seconds

    def move(self, seconds: float, *, wall_s: float | None = None) -> None:
        self.seconds += seconds
        self.wall += timedelta(seconds=seconds if wall_s is None else wall_s)


def limits(
    *,
    events: int = 10_000,
    hours: float = 72,
    patience_s: float = 30,
    picture_bytes: int = 2**26,
    disk_reserve_bytes: int = 0,
) -> Limits:
    return Limits(
        events=events,
        age_s=hours * 3600,
        stored_s=24 * 3600,
        patience_s=patience_s,
        picture_bytes=picture_bytes,
        disk_reserve_bytes=disk_reserve_bytes,
        max_weight_kg=2000,
    )


async def recorder(
    folder: Path, *, clock: Clock | None = None, within: Limits | None = None
) -> Recorder:
    opened: Buffer = await database.opened(folder, clock=clock or MovedClock())
    return Recorder(opened, Writer(WHO, opened, within or limits()))


def picture(session_id: UUID | None, *, at: datetime = BEGAN, size: int = 400) -> Picture:
    """A JPEG by its first and last bytes, each of its own."""
    image_id = ids.new()
    inside = zlib.crc32(image_id.bytes).to_bytes(4, "big") * (size // 4)
    return Picture(
        image_id, session_id, "image/jpeg", b"\xff\xd8\xff\xe0" + inside + b"\xff\xd9", at
    )


async def weighing(
    book: Recorder, *, at: datetime = BEGAN, weights: int = 2, pictures: int = 1
) -> UUID:
    """A whole session, as the capture code writes it."""
    session_id = ids.new()
    first = picture(session_id, at=at) if pictures else None
    await book.open(session_id, batch_id="lot-1", initial_weight_kg=98.5, picture=first, at=at)
    for number in range(1, pictures):
        await book.photograph(picture(session_id, at=at + timedelta(seconds=number)))
    for number in range(weights):
        await book.weigh(session_id, weight_kg=98 + number / 10, at=at + timedelta(seconds=number))
    await book.close(session_id, final_weight_kg=98.5, at=at + timedelta(seconds=weights))
    return session_id


def settings(folder: Path, *, mqtt_url: str, edge_url: str, **others: object) -> DeviceSettings:
    """Of the station above, impatient."""
    given = {
        "AGENT_TENANT_ID": WHO.place.tenant_id,
        "AGENT_FARM_ID": WHO.place.farm_id,
        "AGENT_BARN_ID": WHO.place.barn_id,
        "AGENT_DEVICE_ID": WHO.place.device_id,
        "AGENT_STATION_ID": WHO.station_id,
        "AGENT_MQTT_URL": mqtt_url,
        "AGENT_EDGE_URL": edge_url,
        "AGENT_TOKEN": "of-this-test",
        "AGENT_BUFFER_DIR": str(folder),
        "AGENT_STATUS_PORT": "0",
        "AGENT_UPLOAD_BACKOFF_SECONDS": "0.05",
        "AGENT_PICTURE_PATIENCE_SECONDS": "2",
        "AGENT_DISK_RESERVE_BYTES": "0",
        "AGENT_HEARTBEAT_SECONDS": "1",
        "AGENT_RECONNECT_SECONDS": "0.5",
    }
    return DeviceSettings.load({**given, **{name: str(value) for name, value in others.items()}})
