"""Pure: the kind of a rejection, how rejections are grouped, and which alert they raise."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from farmiq.messages import topics
from farmiq.messages.check import InvalidError
from farmiq.messages.topics import CameraTopic, Place, SessionTopic

Kind = Literal["security", "conflict", "format", "not_recorded", "database", "size"]
KINDS: tuple[Kind, ...] = ("security", "conflict", "format", "not_recorded", "database", "size")

UNKNOWN = "unknown"
NOBODY = Place(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)

# How a reason begins, by kind; the first that fits any reason is the kind of the message.
_IMPOSTOR = re.compile(r"topic says (tenant_id|device_id|event_type)")
_FOREIGN = re.compile(r"FOREIGN_SESSION")
_SIGNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("security", _IMPOSTOR),
    ("security", re.compile(r"NOT_REGISTERED")),
    ("security", _FOREIGN),
    ("conflict", re.compile(r"EVENT_ID_CONFLICT")),
    ("size", re.compile(r"payload of \d+ bytes|topic longer than")),
    ("database", re.compile(r"the database refused it|cannot be kept")),
    ("not_recorded", re.compile(r"[\w.]+ is understood but not recorded")),
)
# Where the fixed words of a reason end and the value begins.
_VALUE = re.compile(r"[`'\":0-9]| - at ")
_MAX_GIST = 100


@dataclass(frozen=True, slots=True)
class Concern:
    """An alert to raise; `subject` is the device that the topic names."""

    kind: str
    subject: str
    severity: Literal["warning", "security"]
    message: str


def kind(reasons: Sequence[str]) -> Kind:
    for name, sign in _SIGNS:
        if any(sign.match(reason) for reason in reasons):
            return name
    return "format"


def gist(reasons: Sequence[str]) -> str:
    """The first reason up to its first value: rejections are counted by it."""
    first = reasons[0]
    if kind(reasons) == "not_recorded":
        return first[:_MAX_GIST]
    return _VALUE.split(first, maxsplit=1)[0].strip()[:_MAX_GIST] or "other"


def place(topic: str) -> Place:
    """Where the topic says the message is from; NOBODY if it does not say.

    A session's topic names a station, which is its device here.
    """
    try:
        where = topics.parse(topic)
    except InvalidError:
        return NOBODY
    match where:
        case CameraTopic():
            return NOBODY
        case SessionTopic():
            return Place(where.tenant_id, where.farm_id, where.barn_id, where.station_id)
        case _:
            return where.place


def concern(topic: str, reasons: Sequence[str]) -> Concern | None:
    """The alert for a person (C-02, C-05), or None.

    The registry raises its own alert for a device that is not registered.
    """
    match kind(reasons):
        case "security" if any(_IMPOSTOR.match(reason) for reason in reasons):
            return Concern(
                "ingress.impostor",
                subject(place(topic)),
                "security",
                "messages on this device's topic speak for somebody else; they wait in quarantine. "
                "Look at the device and at who has its login: "
                "`farmiq quarantine ls --kind security`",
            )
        case "security" if any(_FOREIGN.match(reason) for reason in reasons):
            return Concern(
                "ingress.foreign_session",
                subject(place(topic)),
                "security",
                "this station spoke of a weigh session that another device began; nothing was "
                "bound, the messages wait in quarantine. Two devices share a memory or a login, or "
                "somebody guesses ids: `farmiq quarantine ls --kind security`",
            )
        case "conflict":
            return Concern(
                "ingress.event_id_conflict",
                subject(place(topic)),
                "warning",
                "an event_id came again with another content; the first is kept, the others wait "
                "in quarantine. The device's firmware makes ids twice, or its memory was copied: "
                "`farmiq quarantine ls --kind conflict`",
            )
        case _:
            return None


def subject(where: Place) -> str:
    if where == NOBODY:
        return UNKNOWN
    return f"{where.tenant_id}/{where.farm_id}/{where.barn_id}/{where.device_id}"


class Named(msgspec.Struct):
    """The fields of an event that a log may show (C-37); empty if the bytes have none."""

    event_id: str = ""
    event_type: str = ""
    trace_id: str = ""


_named = msgspec.json.Decoder(Named)
_MAX_NAME = 128


def named(raw: bytes) -> Named:
    try:
        found = _named.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Named()
    return Named(
        found.event_id[:_MAX_NAME],
        found.event_type[:_MAX_NAME],
        found.trace_id[:_MAX_NAME],
    )
