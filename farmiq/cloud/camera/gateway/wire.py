"""Pure: what cameras say and what they are told, whichever firmware they run.

Each dialect makes these words of topics and bytes, and topics and bytes of the answers (C-72,
C-88). Chunks are numbered as the camera counts, from 0 or from 1.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from farmiq.cloud.camera import mac
from farmiq.messages import check
from farmiq.messages.kinds import in_utc

MAX_IMAGE_BYTES = 5 * 2**20
MAX_CHUNKS = 4096
MAX_PENDING = 100_000
# A camera's clock may be so wrong before it counts as wrong (C-58).
MOST_PAST = timedelta(days=7)
MOST_FUTURE = timedelta(minutes=10)

# One of these is in every announcement, however wrong the rest of it.
_OF_AN_IMAGE = (b"image", b"total_chunks", b"captur")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Wrong(Exception):  # noqa: N818 - a verdict on what a camera sent
    """The message cannot be taken; `reasons` lists everything that is wrong with it."""

    def __init__(self, reasons: list[str], *, kind: str = "format") -> None:
        self.reasons, self.kind = reasons, kind
        super().__init__("; ".join(reasons))


class Sent(NamedTuple):
    """A message as the broker stored it: when, by the broker's clock, and its number in the log."""

    topic: str
    raw: bytes
    stored_at_ns: int = 0
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Hello:
    """A camera is awake, and holds so many images that nobody has acknowledged.

    `noted` is what was not kept of its words, and why.
    """

    pending_count: int
    battery_voltage: float | None = None
    wifi_rssi: float | None = None
    firmware: str | None = None
    noted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """An image is about to come, or comes again. `said` is what is kept of the message.

    `noted` is what is not kept of it, and why.
    """

    image_name: str
    captured_at: datetime | None
    total_chunks: int
    image_size: int | None = None
    chunk_size: int | None = None
    first_chunk_id: int = 0
    sha256: bytes | None = None
    error: str | None = None
    said: dict[str, Any] = field(default_factory=dict)
    noted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of an image; without a name it is of what its camera speaks of (devices.speaks_of).

    `number` is as the camera counts; only the announcement tells from where.
    """

    image_name: str | None
    number: int
    data: bytes


Message = Hello | Metadata | Chunk


@dataclass(frozen=True, slots=True)
class Missing:
    """These chunks have not come; numbered as the camera counts."""

    image_name: str
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """The image is safe: the camera may forget it and sleep until then."""

    image_name: str
    next_wake: datetime | None
    timezone: str


@dataclass(frozen=True, slots=True)
class SendImage:
    """Send this image again; without a name, the next one that waits."""

    image_name: str | None


@dataclass(frozen=True, slots=True)
class CaptureImage:
    """Take a picture now."""


@dataclass(frozen=True, slots=True)
class NextWake:
    """Wake then."""

    at: datetime
    timezone: str


@dataclass(frozen=True, slots=True)
class Greeting:
    """The answer to a HELLO of a camera that holds images: it may announce the oldest (C-117)."""

    next_wake: datetime | None
    timezone: str


Answer = Missing | Stored | SendImage | CaptureImage | NextWake | Greeting


@dataclass(frozen=True, slots=True)
class Place:
    """A topic taken apart. `spelling` is the MAC address as the camera writes it."""

    root: str
    spelling: str
    channel: str

    @property
    def mac(self) -> str:
        return plain_mac(self.spelling)


def place(topic: str) -> Place:
    """Raises Wrong for a topic that no camera has."""
    levels = topic.split("/")
    if len(levels) != 3 or not plain_mac(levels[1]):  # noqa: PLR2004
        raise Wrong([f"no camera has the topic {topic[:200]!r}: a MAC address is its middle"])
    if levels[2] not in {"status", "data"}:
        raise Wrong([f"cameras send on status and data, not on {levels[2][:50]!r}"])
    return Place(*levels)


def is_chunk(raw: bytes) -> bool:
    """A guess, for what is not read yet or cannot be."""
    return raw[:1] == b"\x01" or b'"chunk_id"' in raw


def may_announce(said_at: Place, raw: bytes) -> bool:
    """Whether what cannot be taken may have told of an image; a word of the weather does not."""
    if said_at.channel != "data" or is_chunk(raw):
        return False
    return any(word in raw for word in _OF_AN_IMAGE)


def plain_mac(spelling: str) -> str:
    """The address as the registry has it; empty for what is none."""
    try:
        return mac.normal(spelling)
    except ValueError:
        return ""


def spellings(address: str) -> list[str]:
    """The ways in which firmware writes a MAC address."""
    pairs = [address[at : at + 2] for at in range(0, 12, 2)]
    plain = [address, ":".join(pairs), "-".join(pairs)]
    return [*plain, *(each.lower() for each in plain if each.lower() != each)]


def name_problems(name: str) -> list[str]:
    if _NAME.fullmatch(name):
        return []
    return [f"image_name is {name[:40]!a}: 1 to 128 letters, digits, dots, dashes, underscores"]


def size_problems(*, total_chunks: int, image_size: int | None) -> list[str]:
    """The caps of C-78, which hold whatever a camera says."""
    wrong = []
    if not 1 <= total_chunks <= MAX_CHUNKS:
        wrong.append(f"an image has 1 to {MAX_CHUNKS} chunks, not {total_chunks}")
    if image_size is not None and not 1 <= image_size <= MAX_IMAGE_BYTES:
        wrong.append(f"an image has 1 to {MAX_IMAGE_BYTES} bytes, not {image_size}")
    return wrong


def is_suspect(captured_at: datetime | None, now: datetime) -> bool:
    """Whether a camera's clock cannot be believed (C-58)."""
    return captured_at is None or not now - MOST_PAST <= captured_at <= now + MOST_FUTURE


_FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%Y%m%d_%H%M%S", "%Y-%m-%d_%H-%M-%S")
# Seconds up to the year 5138; above that it is milliseconds.
_MOST_SECONDS = 10**11


def moment(said: Any, field_name: str) -> datetime | None:
    """When, as firmware writes it: ISO 8601, seconds or milliseconds since 1970; UTC if unsaid.

    Raises Wrong for what is no moment; None and empty text are none said.
    """
    if said is None or said == "":
        return None
    try:
        found = _moment(said)
        return in_utc(found if found.tzinfo else found.replace(tzinfo=UTC))
    except (ValueError, OverflowError, OSError):
        raise Wrong([f"{field_name} is no moment: {str(said)[:60]!a}"]) from None


def _moment(said: Any) -> datetime:
    if isinstance(said, bool) or not isinstance(said, (str, int, float)):
        raise ValueError  # noqa: TRY004 - caught with the others above
    if isinstance(said, str) and not re.fullmatch(r"\d{9,13}", said):
        return _written(said)
    seconds = float(said)
    return datetime.fromtimestamp(seconds if seconds < _MOST_SECONDS else seconds / 1000, UTC)


def _written(said: str) -> datetime:
    try:
        return datetime.fromisoformat(said)
    except ValueError:
        for pattern in _FORMATS:
            try:
                return datetime.strptime(said, pattern)  # noqa: DTZ007 - made UTC by moment()
            except ValueError:
                continue
        raise


def utc_text(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- JSON as cameras write it, and the bytes of a chunk inside of it

# A chunk says little but its bytes, which may be an array of numbers: it is read by itself.
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_byte_array = msgspec.json.Decoder(list[int])
_json = msgspec.json.Decoder()


def fields(raw: bytes) -> dict[str, msgspec.Raw]:
    """The fields of an object, not looked into. Raises Wrong."""
    try:
        return _fields.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Wrong([f"not a JSON object: {error}"[:300]]) from None


def whole_object(raw: bytes) -> dict[str, Any]:
    """An object that can be kept as it is. Raises Wrong with every reason."""
    if reasons := check.keepable(raw):
        raise Wrong(check.Invalid(reasons).reasons)
    said = _json.decode(raw)
    if not isinstance(said, dict):
        raise Wrong(["not a JSON object"])
    return said


def values(found: dict[str, msgspec.Raw], *names: str) -> tuple[dict[str, Any], list[str]]:
    """(those fields that are there, what is wrong with them). What cannot be read is not absent."""
    said, wrong = {}, []
    for name in names:
        if name not in found:
            continue
        try:
            said[name] = _json.decode(found[name])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            wrong.append(f"{name} is no JSON: {error}"[:200])
    return said, wrong


class Reader:
    """Takes fields out of an object and gathers what is wrong with them."""

    def __init__(self, said: dict[str, Any]) -> None:
        self._said = said
        self.wrong: list[str] = []

    def whole_number(self, *names: str, needed: bool = False) -> int | None:
        name, found = self._find(names, needed=needed)
        if found is None:
            return None
        if isinstance(found, float) and found.is_integer():
            found = int(found)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
        self._refuse(name, found, "a whole number")
        return None

    def number(self, *names: str) -> float | None:
        name, found = self._find(names, needed=False)
        if found is None:
            return None
        if isinstance(found, (int, float)) and not isinstance(found, bool):
            try:
                return float(found)
            except OverflowError:  # an integer of hundreds of digits
                pass
        self._refuse(name, found, "a number")
        return None

    def text(self, *names: str, needed: bool = False) -> str | None:
        name, found = self._find(names, needed=needed)
        if found is None or isinstance(found, str):
            return found
        self._refuse(name, found, "text")
        return None

    def _find(self, names: tuple[str, ...], *, needed: bool) -> tuple[str, Any]:
        for name in names:
            if self._said.get(name) is not None:
                return name, self._said[name]
        if needed:
            self.wrong.append(f"{names[0]} is missing")
        return names[0], None

    def _refuse(self, name: str, found: Any, wanted: str) -> None:
        self.wrong.append(f"{name} has to be {wanted}, not {_quoted(found)}")


def shown(found: Any, *, most: int = 40) -> str:
    """Not all of it, and Python itself refuses to write integers of thousands of digits."""
    try:
        return ascii(str(found)[:most])[1:-1]
    except ValueError:
        return "one of thousands of digits"


def _quoted(found: Any) -> str:
    return f"'{shown(found)}'"


def data_of(raw: msgspec.Raw | None) -> bytes:
    """A chunk's bytes: an array of numbers from 0 to 255, or base64. Raises Wrong."""
    if raw is None:
        raise Wrong(["payload is missing"])
    if bytes(raw)[:1] == b'"':
        return _from_base64(raw)
    try:
        return bytes(_byte_array.decode(raw))
    except (msgspec.DecodeError, ValueError, OverflowError):
        raise Wrong(["payload has to be base64 or an array of numbers from 0 to 255"]) from None


def _from_base64(raw: msgspec.Raw) -> bytes:
    try:
        text: str = _json.decode(raw)
        return base64.b64decode(text, validate=True)
    except (msgspec.DecodeError, binascii.Error, ValueError):
        raise Wrong(["payload is not base64"]) from None


# --- what of a camera's words is kept
#
# What cannot be true or is too long is left out, and said. The wake counts all the same: a sensor
# that has gone mad is no reason to lose an image.

# What a sensor on a camera may tell; beyond it the sensor is broken, or the unit is another.
PLAUSIBLE: Mapping[str, tuple[float, float]] = {
    "temperature": (-100, 200),
    "humidity": (-10, 110),
    "pressure": (0, 200_000),
    "gas_resistance": (0, 1e9),
    "battery_voltage": (0, 100),
    "wifi_rssi": (-200, 100),
}
MOST_FIRMWARE = 200
MOST_FIELD_BYTES = 1024
MOST_FIELD_NAME = 64
MOST_SAID_BYTES = 8 * 1024
MOST_NOTED = 20
# Without these an announcement is none: they are kept first.
_NEEDED = frozenset({
    "image_name", "captured_at", "capture_timestamp", "total_chunks", "total_chunks_count",
    "image_size", "chunk_size", "max_chunk_size", "first_chunk_id", "sha256", "device_id",
})  # fmt: skip


def number(name: str, said: float | None, noted: list[str]) -> float | None:
    """A reading if it can be true; otherwise None, and `noted` says so."""
    if said is None or is_plausible(name, said):
        return said
    noted.append(_beyond(name, said))
    return None


def firmware(said: str | None, noted: list[str]) -> str | None:
    if said is None or len(said) <= MOST_FIRMWARE:
        return said
    noted.append(f"firmware has {len(said)} characters, at most {MOST_FIRMWARE} are kept")
    return None


def is_plausible(name: str, said: Any) -> bool:
    """Whether a reading can be true; what is no number at all stands in no column."""
    if name not in PLAUSIBLE or isinstance(said, bool) or not isinstance(said, (int, float, str)):
        return True
    least, most = PLAUSIBLE[name]
    try:
        return least <= float(said) <= most
    except OverflowError:
        return False
    except ValueError:
        return True


def kept(said: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(what is kept of an announcement, why the rest is not)."""
    found: dict[str, Any] = {}
    noted: list[str] = []
    room = MOST_SAID_BYTES
    for name in sorted(said, key=lambda each: (each not in _NEEDED, each not in PLAUSIBLE)):
        value = said[name]
        size = len(name) + len(msgspec.json.encode(value))
        if not is_plausible(name, value):
            noted.append(_beyond(name, value))
        elif size > MOST_FIELD_BYTES or len(name) > MOST_FIELD_NAME:
            noted.append(f"{_short_of(name)} has {_length(value, size)} and is not kept")
        elif size > room:
            noted.append(f"{_short_of(name)} is not kept: {MOST_SAID_BYTES} bytes are said already")
        else:
            found[name] = value
            room -= size
    if len(noted) > MOST_NOTED:
        noted[MOST_NOTED:] = [f"{len(noted) - MOST_NOTED} more are not kept"]
    return found, tuple(noted)


def _beyond(name: str, said: Any) -> str:
    least, most = PLAUSIBLE[name]
    return f"{name} of {_short_of(said)} is not kept: a camera's is {least:g} to {most:g}"


def _length(value: Any, size: int) -> str:
    return f"{len(value)} characters" if isinstance(value, str) else f"{size} bytes"


def _short_of(said: Any) -> str:
    """Python itself refuses to write integers of thousands of digits."""
    try:
        return ascii(str(said)[:40])[1:-1]
    except ValueError:
        return "thousands of digits"
