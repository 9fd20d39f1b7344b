"""Pure: the dialect of public ESP32 camera firmware, on ESP32CAM/{mac}/… (C-88).

Chunks count from 1 and come as arrays of numbers. How many there are is computed from the image's
size: the number that the firmware says may be wrong. Times of day are the site's own.
"""

from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec

from farmiq.cloud.camera.gateway import payload, standard, wire
from farmiq.cloud.camera.gateway.wire import (
    Answer,
    CaptureImage,
    Chunk,
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


def read(place: Place, raw: bytes) -> Message:
    """Raises Wrong with every reason."""
    if place.channel == "status":
        return _hello(place, raw)
    found = payload.fields(raw)
    if "chunk_id" in found:
        return _chunk(place, found)
    if "total_chunks_count" in found or "image_size" in found:
        return _metadata(place, raw)
    raise Wrong(["neither a chunk (chunk_id) nor an announcement (image_size)"])


def _hello(place: Place, raw: bytes) -> Hello:
    plain = payload.whole(raw)
    said = payload.Reader(plain)
    wrong = [*_identity(place, said.text("device_id"))]
    if plain.get("status") != "alive":
        wrong.append("status of a HELLO is alive")
    hello = Hello(
        said.whole_number("pendingImg") or 0,
        battery_voltage=said.number("battery_voltage"),
        wifi_rssi=said.number("wifi_rssi"),
        firmware=said.text("firmware"),
    )
    return standard.checked_hello(hello, [*wrong, *said.wrong])


def _metadata(place: Place, raw: bytes) -> Metadata:
    plain = payload.whole(raw)
    said = payload.Reader(plain)
    name = said.text("image_name", needed=True)
    size = said.whole_number("image_size", needed=True)
    chunk_size = said.whole_number("max_chunk_size", needed=True)
    wrong = [*_identity(place, said.text("device_id")), *said.wrong]
    if name is not None:
        wrong += wire.name_problems(name)
    error = plain.get("error") or None
    if chunk_size is not None and chunk_size < 1:
        wrong.append(f"no chunk has {chunk_size} bytes")
    total = -(-size // chunk_size) if size is not None and chunk_size and chunk_size > 0 else None
    if total is not None and (size or not error):
        # An error report may speak of no image at all; one that does keeps the caps.
        wrong += wire.size_problems(total_chunks=total, image_size=size)
    captured_at = None
    try:
        captured_at = wire.moment(plain.get("capture_timestamp"), "capture_timestamp")
    except Wrong as bad:
        wrong += bad.reasons
    if wrong or total is None or name is None:
        raise Wrong(wrong)
    return Metadata(
        image_name=name,
        captured_at=captured_at,
        total_chunks=total,
        image_size=size,
        chunk_size=chunk_size,
        first_chunk_id=FIRST_CHUNK_ID,
        error=None if error is None else str(error)[:200],
        said=plain,
    )


def _chunk(place: Place, found: dict[str, msgspec.Raw]) -> Chunk:
    said = payload.value(found["device_id"]) if "device_id" in found else None
    if wrong := _identity(place, said if isinstance(said, str) else None):
        raise Wrong(wrong, kind="security")
    return standard.chunk(found)


def _identity(place: Place, said: str | None) -> list[str]:
    """Whose message it is, the broker has checked by the topic: the body must say the same."""
    if said is None or wire.plain_mac(said) == place.mac:
        return []
    return [f"device_id is {said[:40]!a}, and the topic {place.spelling}"]


def answer(spelling: str, told: Answer) -> tuple[str, bytes]:
    """(topic, bytes)."""
    channel = "cmd"
    body: dict[str, object] = {"device_id": spelling}
    match told:
        case Missing():
            body |= {"image_name": told.image_name, "missing_chunks": told.numbers}
        case Stored():
            channel = "ack"
            until = _time_of_day(told.next_wake, told.timezone) if told.next_wake else None
            body |= {"image_name": told.image_name, "ACK_OK": {"next_wake_time": until}}
        case SendImage():
            body["send_image"] = told.image_name
        case CaptureImage():
            body["capture_image"] = 1
        case NextWake():
            body["next_wake"] = _time_of_day(told.at, told.timezone)
    return f"{ROOT}/{spelling}/{channel}", msgspec.json.encode(body)


def _time_of_day(at: datetime, timezone: str) -> str:
    """As in 5:30PM."""
    local = at.astimezone(ZoneInfo(timezone))
    return f"{local:%I:%M%p}".lstrip("0")
