"""Pure: the dialect of public ESP32 camera firmware, on ESP32CAM/{mac}/… (C-88).

Chunks count from 1 and come as arrays of numbers. How many there are is computed from the image's
size: the number that the firmware says may be wrong. Times of day are the site's own.
"""

from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec

from farmiq.cloud.camera.gateway import bounds, payload, standard, wire
from farmiq.cloud.camera.gateway.wire import (
    Answer,
    CaptureImage,
    Chunk,
    Greeting,
    Hello,
    Message,
    Metadata,
    Missing,
    NextWake,
    Place,
    SendImage,
    Stored,
    Wrong,
)

NAME = "esp32cam"
ROOT = "ESP32CAM"
FIRST_CHUNK_ID = 1
# The name of an image that was never taken, where the camera gives it none.
NO_IMAGE = "no-image"


def read(place: Place, raw: bytes) -> Message:
    """Raises Wrong with every reason."""
    if place.channel == "status":
        return _hello(place, raw)
    found = payload.fields(raw)
    if "chunk_id" in found:
        return _chunk(place, found)
    if found.keys() & {"total_chunks_count", "image_size", "error"}:
        return _metadata(place, raw)
    raise Wrong(["neither a chunk (chunk_id) nor an announcement (image_size)"])


def _hello(place: Place, raw: bytes) -> Hello:
    plain = payload.whole(raw)
    said = payload.Reader(plain)
    foreign = _identity(place, said.text("device_id"))
    wrong = foreign if plain.get("status") == "alive" else [*foreign, "status of a HELLO is alive"]
    count = said.whole_number("pendingImg") or 0
    return standard.hello(count, said, wrong, kind=_kind(foreign))


def _metadata(place: Place, raw: bytes) -> Metadata:
    plain = payload.whole(raw)
    error = plain.get("error") or None
    said = payload.Reader(plain)
    name = said.text("image_name", needed=not error) or (NO_IMAGE if error else "")
    size, chunk_size, total = _sizes(said, error=bool(error))
    foreign = _identity(place, said.text("device_id"))
    wrong = [*foreign, *said.wrong]
    if name:
        wrong += wire.name_problems(name)
    captured_at = None
    try:
        captured_at = wire.moment(plain.get("capture_timestamp"), "capture_timestamp")
    except Wrong as bad:
        wrong += bad.reasons
    if wrong:
        raise Wrong(wrong, kind=_kind(foreign))
    kept, noted = bounds.kept(plain)
    return Metadata(
        image_name=name,
        captured_at=captured_at,
        total_chunks=total,
        image_size=size,
        chunk_size=chunk_size,
        first_chunk_id=FIRST_CHUNK_ID,
        error=None if error is None else payload.shown(error, most=200),
        said=kept,
        noted=noted,
    )


def _sizes(said: payload.Reader, *, error: bool) -> tuple[int | None, int | None, int]:
    """(bytes, bytes of a chunk, chunks); what is wrong with them is said to the reader.

    A camera that took no image has nothing to say of its size: whatever it says then is no reason
    not to hear that it woke.
    """
    heard = len(said.wrong)
    size = said.whole_number("image_size", needed=not error)
    chunk_size = said.whole_number("max_chunk_size", needed=not error)
    total = 0
    if chunk_size is not None and not 1 <= chunk_size <= wire.MOST_IMAGE_BYTES:
        said.wrong.append(f"no chunk has {payload.shown(chunk_size)} bytes")
    elif size is not None and chunk_size is not None:
        total = -(-size // chunk_size)
        said.wrong += wire.size_problems(total_chunks=total, image_size=size)
    if error and (len(said.wrong) > heard or not total):
        del said.wrong[heard:]
        return None, None, 0
    return size, chunk_size, total


def _chunk(place: Place, found: dict[str, msgspec.Raw]) -> Chunk:
    plain, wrong = payload.values(found, "device_id")
    said = payload.Reader(plain)
    foreign = _identity(place, said.text("device_id"))
    if wrong := [*wrong, *foreign, *said.wrong]:
        raise Wrong(wrong, kind=_kind(foreign))
    return standard.chunk(found)


def _identity(place: Place, said: str | None) -> list[str]:
    """Whose message it is, the broker has checked by the topic: the body must say the same."""
    if said is None or wire.plain_mac(said) == place.mac:
        return []
    return [f"device_id is {said[:40]!a}, and the topic {place.spelling}"]


def _kind(foreign: list[str]) -> str:
    """Whoever speaks for another camera is of interest for that alone."""
    return "security" if foreign else "format"


def answer(spelling: str, told: Answer) -> tuple[str, bytes]:
    """(topic, bytes)."""
    channel = "cmd"
    body: dict[str, object] = {"device_id": spelling}
    match told:
        case Missing():
            body |= {"image_name": told.image_name, "missing_chunks": told.numbers}
        case Stored():
            channel = "ack"
            at = told.next_wake
            until = {"next_wake_time": _time_of_day(at, told.timezone)} if at else {}
            body |= {"image_name": told.image_name, "ACK_OK": until}
        case Greeting():
            channel = "ack"
            at = told.next_wake
            body["ACK_OK"] = {"next_wake_time": _time_of_day(at, told.timezone)} if at else {}
        case SendImage():
            body["send_image"] = told.image_name
        case CaptureImage():
            body["capture_image"] = True
        case NextWake():
            body["next_wake"] = _time_of_day(told.at, told.timezone)
    return f"{ROOT}/{spelling}/{channel}", msgspec.json.encode(body)


def _time_of_day(at: datetime, timezone: str) -> str:
    """As in 5:30PM."""
    local = at.astimezone(ZoneInfo(timezone))
    return f"{local:%I:%M%p}".lstrip("0")
