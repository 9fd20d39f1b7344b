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

# How a reason begins, by kind; the first that matches any reason is the kind of the message.
_OTHER_SENDER = re.compile(r"topic says (tenant_id|device_id|event_type)")
_OTHER_SESSION = re.compile(r"FOREIGN_SESSION")
_SIGNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("security", _OTHER_SENDER),
    ("security", re.compile(r"NOT_REGISTERED")),
    ("security", _OTHER_SESSION),
    ("conflict", re.compile(r"EVENT_ID_CONFLICT")),
    ("size", re.compile(r"payload of \d+ bytes|topic longer than")),
    ("database", re.compile(r"the database refused it|cannot be kept")),
    ("not_recorded", re.compile(r"[\w.]+ is understood but not recorded")),
)
# The end of the fixed words of a reason, where a value begins.
_VALUE = re.compile(r"[`'\":0-9]| - at ")
_MAX_GIST = 100


@dataclass(frozen=True, slots=True)
class Alert:
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
    """The place in the topic; NOBODY if it has none.

    The topic of a session names a station, which is taken as its device.
    """
    try:
        parsed = topics.parse(topic)
    except InvalidError:
        return NOBODY
    match parsed:
        case CameraTopic():
            return NOBODY
        case SessionTopic():
            return Place(parsed.tenant_id, parsed.farm_id, parsed.barn_id, parsed.station_id)
        case _:
            return parsed.place


def alert(topic: str, reasons: Sequence[str]) -> Alert | None:
    """The alert for a person (C-02, C-05), or None.

    The registry raises its own alert for a device that is not registered.
    """
    match kind(reasons):
        case "security" if any(_OTHER_SENDER.match(reason) for reason in reasons):
            return Alert(
                "ingress.impostor",
                subject(place(topic)),
                "security",
                "messages on this device's topic speak for somebody else; they wait in quarantine. "
                "Look at the device and at who has its login: "
                "`farmiq quarantine ls --kind security`",
            )
        case "security" if any(_OTHER_SESSION.match(reason) for reason in reasons):
            return Alert(
                "ingress.foreign_session",
                subject(place(topic)),
                "security",
                "this station spoke of a weigh session that another device began; nothing was "
                "bound, the messages wait in quarantine. Two devices share a memory or a login, or "
                "somebody guesses ids: `farmiq quarantine ls --kind security`",
            )
        case "conflict":
            return Alert(
                "ingress.event_id_conflict",
                subject(place(topic)),
                "warning",
                "an event_id came again with another content; the first is kept, the others wait "
                "in quarantine. The device's firmware makes ids twice, or its memory was copied: "
                "`farmiq quarantine ls --kind conflict`",
            )
        case _:
            return None


def subject(parsed: Place) -> str:
    if parsed == NOBODY:
        return UNKNOWN
    return f"{parsed.tenant_id}/{parsed.farm_id}/{parsed.barn_id}/{parsed.device_id}"


class Named(msgspec.Struct):
    """The fields of an event that a log may show (C-37); empty if the bytes have none."""

    event_id: str = ""
    event_type: str = ""
    trace_id: str = ""


_named = msgspec.json.Decoder(Named)
_MAX_NAME = 128


def named(raw: bytes) -> Named:
    try:
        event = _named.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return Named()
    return Named(
        event.event_id[:_MAX_NAME],
        event.event_type[:_MAX_NAME],
        event.trace_id[:_MAX_NAME],
    )
