"""Pure: the kind of a rejection, and which sequence numbers of a device are missing (C-84)."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import msgspec

from farmiq.edge.arrival import Arrival
from farmiq.messages import topics
from farmiq.messages.check import InvalidError
from farmiq.messages.topics import CameraTopic, Place, SessionTopic

# --- rejections

Kind = Literal["security", "conflict", "format", "not_recorded", "database", "size"]
KINDS: tuple[Kind, ...] = ("security", "conflict", "format", "not_recorded", "database", "size")

UNKNOWN = "unknown"
NOBODY = Place(UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)

# How a reason begins, by kind; the first that matches any reason is the kind of the message.
OTHER_SENDER = re.compile(r"topic says (tenant_id|device_id|event_type)")
OTHER_SESSION = re.compile(r"FOREIGN_SESSION")
CONFLICT = re.compile(r"EVENT_ID_CONFLICT")
_SIGNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("security", OTHER_SENDER),
    ("security", re.compile(r"NOT_REGISTERED")),
    ("security", OTHER_SESSION),
    ("conflict", CONFLICT),
    ("size", re.compile(r"payload of \d+ bytes|topic longer than")),
    ("database", re.compile(r"the database refused it|cannot be kept")),
    ("not_recorded", re.compile(r"[\w.]+ is understood but not recorded")),
)
# The end of the fixed words of a reason, where a value begins.
_VALUE = re.compile(r"[`'\":0-9]| - at ")
_MAX_GIST = 100


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


# --- gaps: what was seen is stored as ranges per boot, whose union needs no order

# Of one boot. Numbers missing below these are only counted, also if they come later.
MAX_GAPS = 512
_MAX_BOOT_ID = 128

# First and last number of a range, both included.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Seen:
    """Numbers of one boot of a device; `spans` ascend and do not touch."""

    tenant_id: str
    device_id: str
    boot_id: str
    spans: tuple[Span, ...]
    first_at: datetime


@dataclass(frozen=True, slots=True)
class Gap:
    """`boot_id` is that of the numbers after the gap."""

    boot_id: str
    first_missing: int
    last_missing: int

    @property
    def count(self) -> int:
        return self.last_missing - self.first_missing + 1


def seen(arrivals: Iterable[Arrival]) -> list[Seen]:
    """The numbers of a batch by boot, sorted; arrivals without seq are left out."""
    numbers: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    first: dict[tuple[str, str, str], datetime] = {}
    for arrival in arrivals:
        if arrival.seq is None:
            continue
        key = (
            arrival.place.tenant_id,
            arrival.place.device_id,
            (arrival.boot_id or "")[:_MAX_BOOT_ID],
        )
        numbers[key].append(arrival.seq)
        first[key] = min(first.get(key, arrival.event.occurred_at), arrival.event.occurred_at)
    return [Seen(*key, spans(numbers[key]), first[key]) for key in sorted(numbers)]


def spans(numbers: Iterable[int]) -> tuple[Span, ...]:
    """The numbers as ascending ranges."""
    ranges: list[Span] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


def missing(boots: Sequence[Seen]) -> list[Gap]:
    """The gaps of one device, lowest first, from all its boots.

    Inside a boot all numbers from the lowest to the highest are expected. Between two boots (by the
    time of the device) numbers are expected if the later one begins above the end of the earlier
    one; a boot that starts again has lost its counter, which is no gap.
    """
    inside = [
        Gap(boot.boot_id, before[1] + 1, after[0] - 1)
        for boot in boots
        for before, after in zip(boot.spans, boot.spans[1:], strict=False)
    ]
    return sorted([*inside, *_between(boots)], key=lambda gap: (gap.first_missing, gap.boot_id))


def _between(boots: Sequence[Seen]) -> list[Gap]:
    gaps: list[Gap] = []
    before: Seen | None = None
    for boot in sorted(boots, key=lambda item: (item.first_at, item.spans[0], item.boot_id)):
        if before is not None and boot.spans[0][0] > before.spans[-1][1] + 1:
            gaps.append(Gap(boot.boot_id, before.spans[-1][1] + 1, boot.spans[0][0] - 1))
        before = boot
    return gaps
