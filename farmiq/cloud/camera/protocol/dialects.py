"""Pure: the dialects of cameras: topics and bytes to messages, answers to topics and bytes.

`standard` is 004, on device/{mac}/…; C-72 decides what it leaves open. A chunk is JSON (chunk_id,
payload as base64 or an array) or a binary frame: 0x01, the length of the image's name in two bytes,
the name, chunk_id in four bytes, the data; big-endian.

`esp32cam` is that of public ESP32 camera firmware, on ESP32CAM/{mac}/… (C-88, C-117). Chunks count
from 1 and are arrays of numbers. Their count is computed from the image's size, because the count
that the firmware sends may be wrong. Times of day are local to the site.
"""

import base64
import contextlib
import re
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import msgspec

from farmiq.cloud.camera.protocol import wire
from farmiq.cloud.camera.protocol.wire import CameraTopic, Chunk, RejectedMessageError
from farmiq.messages import check
from farmiq.messages.kinds import in_utc

T = TypeVar("T", int, float, str)

STANDARD, ESP32CAM = "standard", "esp32cam"
ROOTS = {"device": STANDARD, "ESP32CAM": ESP32CAM}
_ROOT_OF = {dialect: root for root, dialect in ROOTS.items()}
# Topics that cameras send on.
UP = tuple(f"{root}/+/{channel}" for root in ROOTS for channel in wire.UP_CHANNELS)

MAX_PENDING = 100_000
# The name of an image that was never taken, if the camera gives it none.
NO_IMAGE = "no-image"
_ANNOUNCEMENT_FIELDS = {
    STANDARD: {"image_name", "total_chunks"},
    ESP32CAM: {"image_size", "total_chunks_count", "error"},
}
_FRAME = b"\x01"
_FRAME_HEAD = struct.Struct(">BH")
_FRAME_NUMBER = struct.Struct(">I")

# Plausible values; others mean a broken sensor or another unit.
PLAUSIBLE: Mapping[str, tuple[float, float]] = {
    "temperature": (-100, 200),
    "humidity": (-10, 110),
    "pressure": (0, 200_000),
    "gas_resistance": (0, 1e9),
    "battery_voltage": (0, 100),
    "wifi_rssi": (-200, 100),
}
MAX_FIRMWARE = 200
MAX_FIELD_BYTES = 1024
MAX_FIELD_NAME = 64
MAX_STORED_BYTES = 8 * 1024
MAX_NOTED = 20
# These are stored first: an announcement means nothing without them.
_ESSENTIAL = frozenset({
    "image_name", "captured_at", "capture_timestamp", "total_chunks", "total_chunks_count",
    "image_size", "chunk_size", "max_chunk_size", "first_chunk_id", "sha256", "device_id",
})  # fmt: skip

_TYPE_NAMES = {int: "a whole number", float: "a number", str: "text"}
_TIME_FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%Y%m%d_%H%M%S", "%Y-%m-%d_%H-%M-%S")
# Seconds up to the year 5138; a larger number is milliseconds.
_MAX_SECONDS = 10**11


class _PlainChunk(msgspec.Struct, gc=False):
    """A chunk of JSON as nearly all are: decoded at once, since its bytes are a long text."""

    chunk_id: int
    payload: bytes | list[int]
    image_name: str | None = None
    device_id: str | None = None


_plain_chunk = msgspec.json.Decoder(_PlainChunk)
# The fields of others are decoded one by one, so that each that is wrong can be named.
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_byte_array = msgspec.json.Decoder(list[int])
_json = msgspec.json.Decoder()
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def dialect_of(topic: CameraTopic) -> str:
    try:
        return ROOTS[topic.root]
    except KeyError:
        reason = f"no camera's topic begins with {topic.root[:40]!a}"
        raise RejectedMessageError([reason]) from None


def topics(mac: str, channels: tuple[str, ...]) -> list[str]:
    """A camera's topics on these channels, in every spelling of its address."""
    return [
        f"{root}/{spelling}/{channel}"
        for root in ROOTS
        for spelling in wire.spellings(mac)
        for channel in channels
    ]


# --- messages


def parse(dialect: str, topic: CameraTopic, raw: bytes) -> wire.Message:
    """Raises RejectedMessageError with every reason."""
    if topic.channel == "status":
        return _hello(dialect, topic, raw)
    if dialect == STANDARD and raw[:1] == _FRAME:
        return _chunk_of_frame(raw)
    if (chunk := _chunk_of_plain_json(dialect, topic, raw)) is not None:
        return chunk
    try:
        fields = _raw_fields.decode(raw)
    except _NOT_JSON as error:
        raise RejectedMessageError([f"not a JSON object: {error}"[:300]]) from None
    if "chunk_id" in fields:
        return _chunk_of_json(dialect, topic, fields)
    if fields.keys() & _ANNOUNCEMENT_FIELDS[dialect]:
        return _announcement(dialect, topic, raw)
    names = ", ".join(sorted(_ANNOUNCEMENT_FIELDS[dialect]))
    raise RejectedMessageError([f"neither a chunk (chunk_id) nor an announcement ({names})"])


class _Fields:
    """The fields of a JSON object; collects everything that is wrong with them."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        self.problems: list[str] = []
        self.noted: list[str] = []
        self.kind: wire.RejectionKind = "format"

    def get(self, kind: type[T], *names: str, needed: bool = False) -> T | None:
        """The first of these fields that is present."""
        name = next((name for name in names if self.values.get(name) is not None), None)
        if name is None:
            self.problems += [f"{names[0]} is missing"] if needed else []
            return None
        value = self.values[name]
        if type(value) is kind:
            return value
        if kind is int and isinstance(value, float) and value.is_integer():
            return int(value)
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            self.problems.append(f"{name} has to be {_TYPE_NAMES[kind]}, not '{_short(value)}'")
            return None

    def reading(self, name: str) -> float | None:
        """A sensor's value if it is plausible."""
        value = self.get(float, name)
        if value is None or _is_plausible(name, value):
            return value
        self.noted.append(_implausible(name, value))
        return None

    def instant(self, name: str) -> datetime | None:
        value = self.values.get(name)
        try:
            return None if value is None or value == "" else in_utc(_instant(value))
        except (ValueError, OverflowError, OSError):
            self.problems.append(f"{name} is no moment: {str(value)[:60]!a}")
            return None

    def check_sender(self, topic: CameraTopic) -> None:
        """The broker checks the sender of a topic; the body must name the same camera."""
        device_id = self.get(str, "device_id")
        if device_id is not None and wire.plain_mac(device_id) != topic.mac:
            self.problems.append(f"device_id is {device_id[:40]!a}, and the topic {topic.spelling}")
            self.kind = "security"

    def raise_problems(self) -> None:
        if self.problems:
            raise RejectedMessageError(self.problems, kind=self.kind)


def _object(raw: bytes) -> _Fields:
    """Raises RejectedMessageError if it cannot be stored."""
    if reasons := check.keepable(raw):
        raise RejectedMessageError(check.InvalidError(reasons).reasons)
    values = _json.decode(raw)
    if not isinstance(values, dict):
        raise RejectedMessageError(["not a JSON object"])
    return _Fields(values)


def _hello(dialect: str, topic: CameraTopic, raw: bytes) -> wire.Hello:
    fields = _object(raw)
    if dialect == ESP32CAM:
        fields.check_sender(topic)
        if fields.values.get("status") != "alive":
            fields.problems.append("status of a HELLO is alive")
    name = "pendingImg" if dialect == ESP32CAM else "pending_count"
    pending_count = fields.get(int, name) or 0
    if not 0 <= pending_count <= MAX_PENDING:
        fields.problems.append(f"no camera holds {_short(pending_count)} images")
    battery_voltage, wifi_rssi = fields.reading("battery_voltage"), fields.reading("wifi_rssi")
    firmware = fields.get(str, "firmware", "firmware_version")
    if firmware is not None and len(firmware) > MAX_FIRMWARE:
        fields.noted.append(f"firmware of {len(firmware)} characters: at most {MAX_FIRMWARE}")
        firmware = None
    fields.raise_problems()
    return wire.Hello(pending_count, battery_voltage, wifi_rssi, firmware, tuple(fields.noted))


def _announcement(dialect: str, topic: CameraTopic, raw: bytes) -> wire.Announcement:
    fields = _object(raw)
    error, first, sha256 = None, 1, None
    if dialect == ESP32CAM:
        error = fields.values.get("error") or None
        fields.check_sender(topic)
    else:
        first, sha256 = fields.get(int, "first_chunk_id") or 0, fields.get(str, "sha256")
    name = fields.get(str, "image_name", needed=not error)
    if error and not name:
        name = NO_IMAGE
    if name is not None:
        fields.problems += wire.name_problems(name)
    if first not in {0, 1}:
        fields.problems.append(f"first_chunk_id is 0 or 1, not {_short(first)}")
    if sha256 is not None and not re.fullmatch(r"[0-9A-Fa-f]{64}", sha256):
        fields.problems.append("sha256 has to be 64 hexadecimal digits")
    captured_at = fields.instant("captured_at" if dialect == STANDARD else "capture_timestamp")
    total, size, chunk_size = _sizes(dialect, fields, has_image=not error)
    fields.raise_problems()
    stored, noted = _storable(fields.values)
    return wire.Announcement(
        image_name=name or "",
        captured_at=captured_at,
        total_chunks=total,
        image_size=size,
        chunk_size=chunk_size,
        first_chunk_id=first,
        sha256=bytes.fromhex(sha256) if sha256 else None,
        error=_short(error, length=200) if error else None,
        fields=stored,
        noted=noted,
    )


def _sizes(dialect: str, fields: _Fields, *, has_image: bool) -> tuple[int, int | None, int | None]:
    """(chunks, bytes, bytes of a chunk).

    Without an image wrong sizes are no problem: the wake counts.
    """
    sizes = _Fields(fields.values)
    if dialect == STANDARD:
        size = sizes.get(int, "image_size")
        chunk_size = sizes.get(int, "chunk_size", "max_chunk_size")
        total = sizes.get(int, "total_chunks", needed=True)
    else:
        size = sizes.get(int, "image_size", needed=True)
        chunk_size = sizes.get(int, "max_chunk_size", needed=True)
        total = -(-size // chunk_size) if size is not None and chunk_size else None
    sizes.problems += _size_problems(total, size, chunk_size)
    if size and chunk_size and total and not (total - 1) * chunk_size < size <= total * chunk_size:
        parts = f"{_short(total)} chunks of {_short(chunk_size)} bytes"
        sizes.problems.append(f"{parts} do not make {_short(size)} bytes")
    if sizes.problems and not has_image:
        return 0, None, None
    fields.problems += sizes.problems
    return total or 0, size, chunk_size


def _size_problems(total: int | None, size: int | None, chunk_size: int | None) -> list[str]:
    """The limits of C-78."""
    limits = (
        (chunk_size, wire.MAX_IMAGE_BYTES, "no chunk has {0} bytes"),
        (total, wire.MAX_CHUNKS, "an image has 1 to {1} chunks, not {0}"),
        (size, wire.MAX_IMAGE_BYTES, "an image has 1 to {1} bytes, not {0}"),
    )
    return [
        reason.format(_short(value), limit)
        for value, limit, reason in limits
        if value is not None and not 1 <= value <= limit
    ]


def _chunk_of_plain_json(dialect: str, topic: CameraTopic, raw: bytes) -> Chunk | None:
    """None if anything is unusual: `_chunk_of_json` then says what."""
    try:
        plain = _plain_chunk.decode(raw)
        data = bytes(plain.payload)
    except (*_NOT_JSON, ValueError):
        return None
    sender = plain.device_id if dialect == ESP32CAM else None
    if sender is not None and wire.plain_mac(sender) != topic.mac:
        return None
    name, number = plain.image_name, plain.chunk_id
    is_usual = data and 0 <= number <= wire.MAX_CHUNKS
    if not is_usual or (name is not None and wire.name_problems(name)):
        return None
    return Chunk(name, number, data)


def _chunk_of_json(dialect: str, topic: CameraTopic, raw: dict[str, msgspec.Raw]) -> Chunk:
    fields = _Fields({})
    for name in ("chunk_id", "image_name", *(["device_id"] if dialect == ESP32CAM else [])):
        try:
            if name in raw:
                fields.values[name] = _json.decode(raw[name])
        except _NOT_JSON as error:
            fields.problems.append(f"{name} is no JSON: {error}"[:200])
    number = fields.get(int, "chunk_id", needed=not fields.problems)
    image_name = fields.get(str, "image_name")
    if dialect == ESP32CAM:
        fields.check_sender(topic)
    return _chunk(image_name, number, _chunk_data(fields, raw.get("payload")), fields)


def _chunk_of_frame(raw: bytes) -> Chunk:
    try:
        _, length = _FRAME_HEAD.unpack_from(raw)
        name_end = _FRAME_HEAD.size + length
        name = raw[_FRAME_HEAD.size : name_end].decode("ascii")
        (number,) = _FRAME_NUMBER.unpack_from(raw, name_end)
    except (struct.error, UnicodeDecodeError):
        reason = "a binary frame that ends early, or has no plain name"
        raise RejectedMessageError([reason]) from None
    return _chunk(name or None, number, raw[name_end + _FRAME_NUMBER.size :], _Fields({}))


def _chunk(name: str | None, number: int | None, data: bytes, fields: _Fields) -> Chunk:
    if name is not None:
        fields.problems += wire.name_problems(name)
    if number is not None and not 0 <= number <= wire.MAX_CHUNKS:
        limit = f"an image has at most {wire.MAX_CHUNKS} chunks"
        fields.problems.append(f"chunk_id is {_short(number)}: {limit}")
    if not data and not fields.problems:
        fields.problems.append("a chunk without bytes")
    if fields.problems or number is None:
        raise RejectedMessageError(fields.problems, kind=fields.kind)
    return Chunk(name, number, data)


def _chunk_data(fields: _Fields, raw: msgspec.Raw | None) -> bytes:
    """An array of numbers from 0 to 255, or base64."""
    if raw is None:
        fields.problems.append("payload is missing")
        return b""
    is_text = bytes(raw)[:1] == b'"'
    try:
        if is_text:
            return base64.b64decode(_json.decode(raw), validate=True)
        return bytes(_byte_array.decode(raw))
    except (ValueError, OverflowError):
        array = "payload has to be base64 or an array of numbers from 0 to 255"
        fields.problems.append("payload is not base64" if is_text else array)
        return b""


def _instant(value: Any) -> datetime:
    """ISO 8601 and similar, seconds or milliseconds since 1970; UTC if no zone is given.

    Raises ValueError, OverflowError or OSError.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError  # noqa: TRY004 - caught with the others
    if isinstance(value, str) and not re.fullmatch(r"\d{9,13}", value):
        with contextlib.suppress(ValueError):
            at = datetime.fromisoformat(value)
            return at if at.tzinfo else at.replace(tzinfo=UTC)
        for form in _TIME_FORMATS:
            with contextlib.suppress(ValueError):
                return datetime.strptime(value, form).replace(tzinfo=UTC)
        raise ValueError(value)
    seconds = float(value)
    return datetime.fromtimestamp(seconds if seconds < _MAX_SECONDS else seconds / 1000, UTC)


# --- what is stored of an announcement
#
# A value that is not plausible or too long is left out and noted. The wake still counts: a broken
# sensor is no reason to lose an image.


def _is_plausible(name: str, value: Any) -> bool:
    """Whether a reading can be true; only numbers are stored in columns."""
    if name not in PLAUSIBLE or isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return True
    low, high = PLAUSIBLE[name]
    try:
        return low <= float(value) <= high
    except OverflowError:
        return False
    except ValueError:
        return True


def _storable(values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(what is stored of an announcement, why the rest is not)."""
    stored: dict[str, Any] = {}
    noted: list[str] = []
    left = MAX_STORED_BYTES
    for name in sorted(values, key=lambda name: (name not in _ESSENTIAL, name not in PLAUSIBLE)):
        value = values[name]
        size = len(name) + len(msgspec.json.encode(value))
        if not _is_plausible(name, value):
            noted.append(_implausible(name, value))
        elif size > MAX_FIELD_BYTES or len(name) > MAX_FIELD_NAME:
            length = f"{len(value)} characters" if isinstance(value, str) else f"{size} bytes"
            noted.append(f"{_short(name)} has {length} and is not stored")
        elif size > left:
            noted.append(f"{_short(name)} is not stored: the rest has {MAX_STORED_BYTES} bytes")
        else:
            stored[name] = value
            left -= size
    if len(noted) > MAX_NOTED:
        noted[MAX_NOTED:] = [f"{len(noted) - MAX_NOTED} more are not stored"]
    return stored, tuple(noted)


def _implausible(name: str, value: Any) -> str:
    low, high = PLAUSIBLE[name]
    return f"{name} of {_short(value)} is not stored: a camera's is {low:g} to {high:g}"


def _short(value: Any, *, length: int = 40) -> str:
    return ascii(str(value)[:length])[1:-1]


# --- answers


def encode(dialect: str, spelling: str, answer: wire.Answer) -> tuple[str, bytes] | None:
    """(topic, bytes), or None if the dialect has no such answer."""
    is_standard = dialect == STANDARD
    channel = "cmd"
    body: dict[str, object] = {} if is_standard else {"device_id": spelling}
    match answer:
        case wire.Missing():
            channel = "ack" if is_standard else "cmd"
            body |= {"image_name": answer.image_name, "missing_chunks": answer.numbers}
        case wire.Stored() | wire.Greeting():
            channel = "ack"
            if isinstance(answer, wire.Stored):
                body["image_name"] = answer.image_name
            elif is_standard:
                return None
            at = answer.next_wake and _wake_time(dialect, answer.next_wake, answer.timezone)
            if is_standard:
                body |= {"ACK_OK": True} | ({"next_wake": at} if at else {})
            else:
                body["ACK_OK"] = {"next_wake_time": at} if at else {}
        case wire.SendImage():
            body["send_image"] = answer.image_name
        case wire.CaptureImage():
            body["capture_image"] = True
        case wire.NextWake():
            body["next_wake"] = _wake_time(dialect, answer.at, answer.timezone)
    return f"{_ROOT_OF[dialect]}/{spelling}/{channel}", msgspec.json.encode(body)


def _wake_time(dialect: str, at: datetime, timezone: str) -> str:
    """UTC; for esp32cam the local time of day, such as 5:30PM."""
    if dialect == STANDARD:
        return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{at.astimezone(ZoneInfo(timezone)):%I:%M%p}".lstrip("0")
