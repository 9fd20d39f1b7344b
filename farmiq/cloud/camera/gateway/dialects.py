"""Pure: the dialects of cameras: topics and bytes in, and out.

`standard` is 004 as written, on device/{mac}/…; what it leaves open is said in C-72. A chunk is
JSON (chunk_id, payload as base64 or an array) or a binary frame: 0x01, the length of the image's
name in two bytes, the name, chunk_id in four bytes, the bytes; big-endian.

`esp32cam` is that of public ESP32 camera firmware, on ESP32CAM/{mac}/… (C-88, C-117). Chunks count
from 1 and come as arrays of numbers. How many there are is computed from the image's size: the
number that the firmware says may be wrong. Times of day are the site's own.
"""

import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

import msgspec

from farmiq.cloud.camera.gateway import wire
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

STANDARD = "standard"
_ROOT_STANDARD = "device"

_FRAME = 1
_HEAD = struct.Struct(">BH")
_NUMBER = struct.Struct(">I")
_SHA256_BYTES = 32


def _read_standard(place: Place, raw: bytes) -> Message:
    """Raises Wrong with every reason."""
    if place.channel == "status":
        return _hello_standard(raw)
    if raw[:1] == bytes([_FRAME]):
        return _frame(raw)
    found = wire.fields(raw)
    if "chunk_id" in found:
        return _chunk_json(found)
    if "total_chunks" in found or "image_name" in found:
        return _metadata_standard(raw)
    raise Wrong(["neither a chunk (chunk_id) nor an announcement (image_name, total_chunks)"])


def _hello_standard(raw: bytes) -> Hello:
    said = wire.Reader(wire.whole_object(raw))
    pending = said.whole_number("pending_count") or 0
    return _hello(pending, said, [])


def _hello(
    pending_count: int, said: wire.Reader, wrong: list[str], *, kind: str = "format"
) -> Hello:
    """Of either dialect. Raises Wrong."""
    noted: list[str] = []
    found = Hello(
        pending_count,
        battery_voltage=wire.number("battery_voltage", said.number("battery_voltage"), noted),
        wifi_rssi=wire.number("wifi_rssi", said.number("wifi_rssi"), noted),
        firmware=wire.firmware(said.text("firmware", "firmware_version"), noted),
    )
    wrong = [*wrong, *said.wrong]
    if not 0 <= pending_count <= wire.MAX_PENDING:
        wrong.append(f"no camera holds {wire.shown(pending_count)} images")
    if wrong:
        raise Wrong(wrong, kind=kind)
    return replace(found, noted=tuple(noted))


def _metadata_standard(raw: bytes) -> Metadata:
    plain = wire.whole_object(raw)
    said = wire.Reader(plain)
    name = said.text("image_name", needed=True) or ""
    total = said.whole_number("total_chunks", needed=True)
    size = said.whole_number("image_size")
    chunk_size = said.whole_number("chunk_size", "max_chunk_size")
    first = said.whole_number("first_chunk_id") or 0
    wrong = said.wrong
    if "image_name" in plain and isinstance(plain["image_name"], str):
        wrong += wire.name_problems(name)
    if total is not None:
        wrong += wire.size_problems(total_chunks=total, image_size=size)
    if chunk_size is not None and not 1 <= chunk_size <= wire.MAX_IMAGE_BYTES:
        wrong.append(f"no chunk has {chunk_size} bytes")
    if first not in {0, 1}:
        wrong.append(f"first_chunk_id is 0 or 1, not {first}")
    sha256 = _sha256(said.text("sha256"), wrong)
    captured_at = None
    try:
        captured_at = wire.moment(plain.get("captured_at"), "captured_at")
    except Wrong as bad:
        wrong += bad.reasons
    if size and chunk_size and total and not (total - 1) * chunk_size < size <= total * chunk_size:
        wrong.append(f"{total} chunks of {chunk_size} bytes do not make {size} bytes")
    if wrong or total is None:
        raise Wrong(wrong)
    kept, noted = wire.kept(plain)
    return Metadata(
        image_name=name,
        captured_at=captured_at,
        total_chunks=total,
        image_size=size,
        chunk_size=chunk_size,
        first_chunk_id=first,
        sha256=sha256,
        said=kept,
        noted=noted,
    )


def _sha256(said: str | None, wrong: list[str]) -> bytes | None:
    if said is None:
        return None
    try:
        found = bytes.fromhex(said)
    except ValueError:
        found = b""
    if len(found) != _SHA256_BYTES:
        wrong.append("sha256 has to be 64 hexadecimal digits")
    return found


def _chunk_json(found: dict[str, msgspec.Raw]) -> Chunk:
    """A chunk in JSON, of either dialect."""
    plain, wrong = wire.values(found, "chunk_id", "image_name")
    said = wire.Reader(plain)
    number = said.whole_number("chunk_id", needed=not wrong)
    name = said.text("image_name")
    wrong += said.wrong + (wire.name_problems(name) if name is not None else [])
    data = b""
    try:
        data = wire.data_of(found.get("payload"))
    except Wrong as bad:
        wrong += bad.reasons
    return _checked(name, number, data, wrong)


def _checked(name: str | None, number: int | None, data: bytes, wrong: list[str]) -> Chunk:
    if number is not None and not 0 <= number <= wire.MAX_CHUNKS:
        wrong = [*wrong, f"chunk_id is {number}: an image has at most {wire.MAX_CHUNKS} chunks"]
    if not data and not wrong:
        wrong = ["a chunk without bytes"]
    if wrong or number is None:
        raise Wrong(wrong)
    return Chunk(name, number, data)


def _frame(raw: bytes) -> Chunk:
    try:
        _, length = _HEAD.unpack_from(raw)
        name = raw[_HEAD.size : _HEAD.size + length].decode("ascii")
        (number,) = _NUMBER.unpack_from(raw, _HEAD.size + length)
    except (struct.error, UnicodeDecodeError):
        raise Wrong(["a binary frame that ends early, or has no plain name"]) from None
    wrong = wire.name_problems(name) if length else []
    return _checked(name or None, number, raw[_HEAD.size + length + _NUMBER.size :], wrong)


def _answer_standard(spelling: str, told: Answer) -> tuple[str, bytes] | None:
    """(topic, bytes), or None where this dialect has no word for it."""
    match told:
        case Missing():
            body = {"image_name": told.image_name, "missing_chunks": told.numbers}
            return f"{_ROOT_STANDARD}/{spelling}/ack", msgspec.json.encode(body)
        case Stored():
            until = {"next_wake": wire.utc_text(told.next_wake)} if told.next_wake else {}
            stored = {"image_name": told.image_name, "ACK_OK": True, **until}
            return f"{_ROOT_STANDARD}/{spelling}/ack", msgspec.json.encode(stored)
        case SendImage():
            command: dict[str, object] = {"send_image": told.image_name}
        case CaptureImage():
            command = {"capture_image": True}
        case Greeting():
            return None
        case NextWake():
            command = {"next_wake": wire.utc_text(told.at)}
    return f"{_ROOT_STANDARD}/{spelling}/cmd", msgspec.json.encode(command)


# --- esp32cam

ESP32CAM = "esp32cam"
_ROOT_ESP32CAM = "ESP32CAM"
FIRST_CHUNK_ID = 1
# The name of an image that was never taken, where the camera gives it none.
NO_IMAGE = "no-image"


def _read_esp32cam(place: Place, raw: bytes) -> Message:
    """Raises Wrong with every reason."""
    if place.channel == "status":
        return _hello_esp32cam(place, raw)
    found = wire.fields(raw)
    if "chunk_id" in found:
        return _chunk_esp32cam(place, found)
    if found.keys() & {"total_chunks_count", "image_size", "error"}:
        return _metadata_esp32cam(place, raw)
    raise Wrong(["neither a chunk (chunk_id) nor an announcement (image_size)"])


def _hello_esp32cam(place: Place, raw: bytes) -> Hello:
    plain = wire.whole_object(raw)
    said = wire.Reader(plain)
    foreign = _identity(place, said.text("device_id"))
    wrong = foreign if plain.get("status") == "alive" else [*foreign, "status of a HELLO is alive"]
    count = said.whole_number("pendingImg") or 0
    return _hello(count, said, wrong, kind=_kind(foreign))


def _metadata_esp32cam(place: Place, raw: bytes) -> Metadata:
    plain = wire.whole_object(raw)
    error = plain.get("error") or None
    said = wire.Reader(plain)
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
    kept, noted = wire.kept(plain)
    return Metadata(
        image_name=name,
        captured_at=captured_at,
        total_chunks=total,
        image_size=size,
        chunk_size=chunk_size,
        first_chunk_id=FIRST_CHUNK_ID,
        error=None if error is None else wire.shown(error, most=200),
        said=kept,
        noted=noted,
    )


def _sizes(said: wire.Reader, *, error: bool) -> tuple[int | None, int | None, int]:
    """(bytes, bytes of a chunk, chunks); what is wrong with them is said to the reader.

    A camera that took no image has nothing to say of its size: whatever it says then is no reason
    not to hear that it woke.
    """
    heard = len(said.wrong)
    size = said.whole_number("image_size", needed=not error)
    chunk_size = said.whole_number("max_chunk_size", needed=not error)
    total = 0
    if chunk_size is not None and not 1 <= chunk_size <= wire.MAX_IMAGE_BYTES:
        said.wrong.append(f"no chunk has {wire.shown(chunk_size)} bytes")
    elif size is not None and chunk_size is not None:
        total = -(-size // chunk_size)
        said.wrong += wire.size_problems(total_chunks=total, image_size=size)
    if error and (len(said.wrong) > heard or not total):
        del said.wrong[heard:]
        return None, None, 0
    return size, chunk_size, total


def _chunk_esp32cam(place: Place, found: dict[str, msgspec.Raw]) -> Chunk:
    plain, wrong = wire.values(found, "device_id")
    said = wire.Reader(plain)
    foreign = _identity(place, said.text("device_id"))
    if wrong := [*wrong, *foreign, *said.wrong]:
        raise Wrong(wrong, kind=_kind(foreign))
    return _chunk_json(found)


def _identity(place: Place, said: str | None) -> list[str]:
    """Whose message it is, the broker has checked by the topic: the body must say the same."""
    if said is None or wire.plain_mac(said) == place.mac:
        return []
    return [f"device_id is {said[:40]!a}, and the topic {place.spelling}"]


def _kind(foreign: list[str]) -> str:
    """Whoever speaks for another camera is of interest for that alone."""
    return "security" if foreign else "format"


def _answer_esp32cam(spelling: str, told: Answer) -> tuple[str, bytes]:
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
    return f"{_ROOT_ESP32CAM}/{spelling}/{channel}", msgspec.json.encode(body)


def _time_of_day(at: datetime, timezone: str) -> str:
    """As in 5:30PM."""
    local = at.astimezone(ZoneInfo(timezone))
    return f"{local:%I:%M%p}".lstrip("0")


# --- which one a message or a camera speaks

READ: dict[str, Callable[[Place, bytes], Message]] = {
    STANDARD: _read_standard,
    ESP32CAM: _read_esp32cam,
}
ANSWER: dict[str, Callable[[str, Answer], tuple[str, bytes] | None]] = {
    STANDARD: _answer_standard,
    ESP32CAM: _answer_esp32cam,
}
ROOTS = {_ROOT_STANDARD: STANDARD, _ROOT_ESP32CAM: ESP32CAM}
# What the gateway listens to: answers and commands run the other way.
UP = tuple(f"{root}/+/{channel}" for root in ROOTS for channel in ("status", "data"))


def dialect_of(place: Place) -> str:
    try:
        return ROOTS[place.root]
    except KeyError:
        raise Wrong([f"no camera's topic begins with {place.root[:40]!a}"]) from None


def publishes(mac: str) -> list[str]:
    """What a camera may publish on, however it writes its address."""
    return [
        f"{root}/{spelling}/{channel}"
        for root in ROOTS
        for spelling in wire.spellings(mac)
        for channel in ("status", "data")
    ]


def subscribes(mac: str) -> list[str]:
    return [
        f"{root}/{spelling}/{channel}"
        for root in ROOTS
        for spelling in wire.spellings(mac)
        for channel in ("ack", "cmd")
    ]
