"""Pure: the dialect of 004 as written, on device/{mac}/…; what it leaves open is said in C-72.

A chunk is JSON (chunk_id, payload as base64 or an array) or a binary frame: 0x01, the length of the
image's name in two bytes, the name, chunk_id in four bytes, the bytes; big-endian.
"""

import struct
from dataclasses import replace

import msgspec

from farmiq.cloud.camera.gateway import bounds, payload, wire
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
    SendImage,
    Stored,
    Wrong,
)

NAME = "standard"
ROOT = "device"

_FRAME = 1
_HEAD = struct.Struct(">BH")
_NUMBER = struct.Struct(">I")
_SHA256_BYTES = 32


def read(place: wire.Place, raw: bytes) -> Message:
    """Raises Wrong with every reason."""
    if place.channel == "status":
        return _hello(raw)
    if raw[:1] == bytes([_FRAME]):
        return _frame(raw)
    found = payload.fields(raw)
    if "chunk_id" in found:
        return chunk(found)
    if "total_chunks" in found or "image_name" in found:
        return _metadata(raw)
    raise Wrong(["neither a chunk (chunk_id) nor an announcement (image_name, total_chunks)"])


def _hello(raw: bytes) -> Hello:
    said = payload.Reader(payload.whole(raw))
    pending = said.whole_number("pending_count") or 0
    return hello(pending, said, [])


def hello(
    pending_count: int, said: payload.Reader, wrong: list[str], *, kind: str = "format"
) -> Hello:
    """Of either dialect. Raises Wrong."""
    noted: list[str] = []
    found = Hello(
        pending_count,
        battery_voltage=bounds.number("battery_voltage", said.number("battery_voltage"), noted),
        wifi_rssi=bounds.number("wifi_rssi", said.number("wifi_rssi"), noted),
        firmware=bounds.firmware(said.text("firmware", "firmware_version"), noted),
    )
    wrong = [*wrong, *said.wrong]
    if not 0 <= pending_count <= wire.MOST_PENDING:
        wrong.append(f"no camera holds {payload.shown(pending_count)} images")
    if wrong:
        raise Wrong(wrong, kind=kind)
    return replace(found, noted=tuple(noted))


def _metadata(raw: bytes) -> Metadata:
    plain = payload.whole(raw)
    said = payload.Reader(plain)
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
    if chunk_size is not None and not 1 <= chunk_size <= wire.MOST_IMAGE_BYTES:
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
    kept, noted = bounds.kept(plain)
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


def chunk(found: dict[str, msgspec.Raw]) -> Chunk:
    """A chunk in JSON, of either dialect."""
    plain, wrong = payload.values(found, "chunk_id", "image_name")
    said = payload.Reader(plain)
    number = said.whole_number("chunk_id", needed=not wrong)
    name = said.text("image_name")
    wrong += said.wrong + (wire.name_problems(name) if name is not None else [])
    data = b""
    try:
        data = payload.data_of(found.get("payload"))
    except Wrong as bad:
        wrong += bad.reasons
    return _checked(name, number, data, wrong)


def _checked(name: str | None, number: int | None, data: bytes, wrong: list[str]) -> Chunk:
    if number is not None and not 0 <= number <= wire.MOST_CHUNKS:
        wrong = [*wrong, f"chunk_id is {number}: an image has at most {wire.MOST_CHUNKS} chunks"]
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


def answer(spelling: str, told: Answer) -> tuple[str, bytes] | None:
    """(topic, bytes), or None where this dialect has no word for it."""
    match told:
        case Missing():
            body = {"image_name": told.image_name, "missing_chunks": told.numbers}
            return f"{ROOT}/{spelling}/ack", msgspec.json.encode(body)
        case Stored():
            until = {"next_wake": wire.utc_text(told.next_wake)} if told.next_wake else {}
            stored = {"image_name": told.image_name, "ACK_OK": True, **until}
            return f"{ROOT}/{spelling}/ack", msgspec.json.encode(stored)
        case SendImage():
            command: dict[str, object] = {"send_image": told.image_name}
        case CaptureImage():
            command = {"capture_image": True}
        case Greeting():
            return None
        case NextWake():
            command = {"next_wake": wire.utc_text(told.at)}
    return f"{ROOT}/{spelling}/cmd", msgspec.json.encode(command)
