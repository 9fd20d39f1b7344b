"""Pure: messages of cameras and answers to them, for every dialect (C-72, C-88).

Chunks are numbered as the camera counts, from 0 or from 1.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import msgspec

from farmiq.cloud.camera import mac

MAX_IMAGE_BYTES = 5 * 2**20
MAX_CHUNKS = 4096
# Beyond these a camera's clock is suspect (C-58).
MAX_CLOCK_BEHIND = timedelta(days=7)
MAX_CLOCK_AHEAD = timedelta(minutes=10)

UP_CHANNELS = ("status", "data")
DOWN_CHANNELS = ("ack", "cmd")
RejectionKind = Literal[
    "format", "unknown", "unassigned", "dialect", "security", "conflict", "limits", "database"
]
REJECTION_KINDS: tuple[RejectionKind, ...] = get_args(RejectionKind)
CommandName = Literal["send_image", "capture_image", "next_wake"]
COMMAND_NAMES: tuple[CommandName, ...] = get_args(CommandName)
COMMAND_STATES = ("queued", "sent", "done", "failed", "expired")

# Every announcement contains one of these words, even an invalid one.
_ANNOUNCEMENT_WORDS = (b"image", b"total_chunks", b"captur")
_IMAGE_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


class RejectedMessageError(Exception):
    """`reasons` lists everything that is wrong with a message."""

    def __init__(self, reasons: list[str], *, kind: RejectionKind = "format") -> None:
        self.reasons, self.kind = reasons, kind
        super().__init__("; ".join(reasons))


class RawMessage(NamedTuple):
    """A message as the broker stored it, with the broker's time and its number in the log."""

    topic: str
    raw: bytes
    stored_at_ns: int = 0
    seq: int = 0


class Hello(NamedTuple):
    """A camera is awake and holds `pending_count` images that are not acknowledged.

    `noted` lists what is not stored of the message, and why.
    """

    pending_count: int
    battery_voltage: float | None = None
    wifi_rssi: float | None = None
    firmware: str | None = None
    noted: tuple[str, ...] = ()

    def then(self, later: "Hello") -> "Hello":
        """The later one, with what it leaves out."""
        missing = {
            name: was for name, was in self._asdict().items() if getattr(later, name) is None
        }
        return later._replace(**missing)


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """Announces an image, for the first time or again.

    `fields` is stored of the message; `noted` lists what is not, and why.
    """

    image_name: str
    captured_at: datetime | None
    total_chunks: int
    image_size: int | None = None
    chunk_size: int | None = None
    first_chunk_id: int = 0
    sha256: bytes | None = None
    error: str | None = None
    fields: dict[str, Any] = msgspec.field(default_factory=dict)
    noted: tuple[str, ...] = ()


class Chunk(NamedTuple):
    """A part of an image; without a name it belongs to its camera's current transfer.

    `number` is as the camera counts; the announcement says whether from 0 or 1.
    """

    image_name: str | None
    number: int
    data: bytes


Message = Hello | Announcement | Chunk


class Missing(NamedTuple):
    """Requests chunks, numbered as the camera counts."""

    image_name: str
    numbers: tuple[int, ...]


class Stored(NamedTuple):
    """ACK_OK: the image is stored, the camera may delete it and sleep until `next_wake`."""

    image_name: str
    next_wake: datetime | None
    timezone: str


class SendImage(NamedTuple):
    """Requests an image; without a name, the next one that the camera holds."""

    image_name: str | None


@dataclass(frozen=True, slots=True)
class CaptureImage:
    """Tells the camera to take a picture now."""


class NextWake(NamedTuple):
    """Tells the camera when to wake."""

    at: datetime
    timezone: str


class Greeting(NamedTuple):
    """Answers the HELLO of a camera that holds images: it may announce the oldest (C-117)."""

    next_wake: datetime | None
    timezone: str


Answer = Missing | Stored | SendImage | CaptureImage | NextWake | Greeting


class CameraTopic(NamedTuple):
    """`spelling` is the MAC address as the camera writes it."""

    root: str
    spelling: str
    channel: str
    mac: str


# Of many chunks.
@lru_cache(maxsize=4096)
def parse_topic(topic: str) -> CameraTopic:
    """Raises RejectedMessageError for a topic that no camera has."""
    levels = topic.split("/")
    if len(levels) != 3 or not (address := plain_mac(levels[1])):  # noqa: PLR2004
        reason = f"no camera has the topic {topic[:200]!r}: a MAC address is its middle"
        raise RejectedMessageError([reason])
    if levels[2] not in UP_CHANNELS:
        reason = f"cameras send on status and data, not on {levels[2][:50]!r}"
        raise RejectedMessageError([reason])
    return CameraTopic(levels[0], levels[1], levels[2], address)


def is_chunk(raw: bytes) -> bool:
    """A guess, for a message that is not parsed."""
    return raw[:1] == b"\x01" or b'"chunk_id"' in raw


def may_announce(topic: CameraTopic, raw: bytes) -> bool:
    """Whether a rejected message may have been an announcement."""
    if topic.channel != "data" or is_chunk(raw):
        return False
    return any(word in raw for word in _ANNOUNCEMENT_WORDS)


def plain_mac(spelling: str) -> str:
    """The address as the registry stores it; empty if it is not a MAC address."""
    try:
        return mac.normal(spelling)
    except ValueError:
        return ""


def spellings(address: str) -> list[str]:
    """How firmware may write a MAC address."""
    pairs = [address[at : at + 2] for at in range(0, 12, 2)]
    upper = [address, ":".join(pairs), "-".join(pairs)]
    return list(dict.fromkeys([*upper, *(spelling.lower() for spelling in upper)]))


def name_problems(name: str) -> list[str]:
    if _IMAGE_NAME.fullmatch(name):
        return []
    return [f"image_name is {name[:40]!a}: 1 to 128 letters, digits, dots, dashes, underscores"]


def is_suspect(captured_at: datetime | None, now: datetime) -> bool:
    """Whether a camera's clock is suspect (C-58)."""
    return captured_at is None or not now - MAX_CLOCK_BEHIND <= captured_at <= now + MAX_CLOCK_AHEAD
