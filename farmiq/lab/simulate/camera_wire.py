"""Pure: topics and bytes of the two firmwares, as a camera writes and reads them.

Written after C-72 and C-88, not after the gateway: what both got wrong would never be seen.
`standard` counts chunks from 0, `esp32cam` from 1 and says a chunk too many now and then.
"""

import base64
import json
import struct
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import msgspec

from farmiq.lab.simulate.camera import (
    AckOk,
    Answer,
    CaptureImage,
    Chunk,
    Frame,
    Hello,
    Image,
    Metadata,
    Missing,
    NextWake,
    SendImage,
)

Dialect = Literal["standard", "esp32cam"]
Encoding = Literal["array", "base64", "binary"]
DIALECTS: tuple[Dialect, ...] = ("standard", "esp32cam")
ENCODINGS: tuple[Encoding, ...] = ("array", "base64", "binary")

_ROOTS: dict[Dialect, str] = {"standard": "device", "esp32cam": "ESP32CAM"}
_FRAME = 1
_HEAD = struct.Struct(">BH")
_NUMBER = struct.Struct(">I")


class Speech(NamedTuple):
    """How a camera speaks; `spelling` is its address as it writes it."""

    spelling: str
    dialect: Dialect = "standard"
    encoding: Encoding = "array"
    # 004 does not say that a chunk carries its image's name.
    names_chunks: bool = True

    def topic(self, channel: str) -> str:
        return f"{_ROOTS[self.dialect]}/{self.spelling}/{channel}"


def listens(speech: Speech) -> list[str]:
    return [speech.topic("ack"), speech.topic("cmd")]


def encode(speech: Speech, frame: Frame, data: bytes) -> tuple[str, bytes]:
    """(topic, payload); `data` is the whole picture of a chunk."""
    if isinstance(frame, Hello):
        return speech.topic("status"), _hello(speech, frame)
    if isinstance(frame, Metadata):
        return speech.topic("data"), _metadata(speech, frame.image)
    begin = frame.place * frame.image.chunk_bytes
    part = data[begin : begin + frame.image.chunk_bytes]
    return speech.topic("data"), _chunk(speech, frame, part)


def _hello(speech: Speech, hello: Hello) -> bytes:
    if speech.dialect == "standard":
        return _json({"alive": 1, "pending_count": hello.pending})
    return _json({"device_id": speech.spelling, "status": "alive", "pendingImg": hello.pending})


def _metadata(speech: Speech, image: Image) -> bytes:
    measured = image.reading
    climate = {
        "temperature": measured.temperature,
        "humidity": measured.humidity,
        "pressure": measured.pressure,
        "gas_resistance": measured.gas_resistance,
    }
    if speech.dialect == "standard":
        fields = {
            "image_name": image.name,
            "captured_at": _at(image.captured_at),
            "image_size": image.size,
            "total_chunks": image.total_chunks,
            **climate,
            "battery_voltage": measured.battery_voltage,
            "wifi_rssi": measured.wifi_rssi,
        }
        return _json(fields)
    exact = image.size % image.chunk_bytes == 0
    return _json(
        {
            "device_id": speech.spelling,
            "capture_timestamp": _at(image.captured_at),
            "image_name": image.name,
            "image_size": image.size,
            "max_chunk_size": image.chunk_bytes,
            # The public firmware divides and adds one, also where nothing is left over.
            "total_chunks_count": image.total_chunks + (1 if exact else 0),
            "error": 0,
            "location": "",
            **climate,
        }
    )


def _chunk(speech: Speech, chunk: Chunk, part: bytes) -> bytes:
    if speech.dialect == "esp32cam":
        return _json(
            {
                "device_id": speech.spelling,
                "image_name": chunk.image.name,
                "chunk_id": chunk.place + 1,
                "max_chunk_size": chunk.image.chunk_bytes,
                "payload": list(part),
            }
        )
    if speech.encoding == "binary":
        name = chunk.image.name.encode() if speech.names_chunks else b""
        return _HEAD.pack(_FRAME, len(name)) + name + _NUMBER.pack(chunk.place) + part
    named = {"image_name": chunk.image.name} if speech.names_chunks else {}
    body = list(part) if speech.encoding == "array" else base64.b64encode(part).decode()
    return _json({**named, "chunk_id": chunk.place, "payload": body})


def decode(speech: Speech, raw: bytes) -> Answer | None:
    """Decode a message to the camera; None if its firmware does not understand it."""
    fields = _object(raw)
    name = fields.get("image_name")
    if fields.get("ACK_OK"):
        return AckOk(name, _next_wake(speech, fields))
    if isinstance(fields.get("missing_chunks"), list):
        first = 1 if speech.dialect == "esp32cam" else 0
        wanted = fields["missing_chunks"]
        return Missing(name, tuple(number - first for number in wanted if isinstance(number, int)))
    if "send_image" in fields:
        return SendImage(fields["send_image"])
    if fields.get("capture_image"):
        return CaptureImage()
    return NextWake(str(fields["next_wake"])) if fields.get("next_wake") else None


def _object(raw: bytes) -> dict[str, Any]:
    try:
        document = json.loads(raw)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _next_wake(speech: Speech, fields: dict[str, Any]) -> str | None:
    if speech.dialect == "standard":
        moment = fields.get("next_wake")
    else:
        moment = (
            fields["ACK_OK"].get("next_wake_time") if isinstance(fields["ACK_OK"], dict) else None
        )
    return None if moment is None else str(moment)


def _at(moment: datetime) -> str:
    """A camera's clock counts seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(document: dict[str, Any]) -> bytes:
    return msgspec.json.encode(document)
