"""Pure: an OutboxBatch as the edge posts it, taken apart and checked (002)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import BaseModel

from farmiq.messages import bus, catalogue, check
from farmiq.messages.bus import BusEvent
from farmiq.messages.catalogue import Maker
from farmiq.messages.ids import Id

MAX_EVENTS = 500
MAX_BYTES = 5 * 1024 * 1024
# What the document says of the errors of the route (FB-06).
ERRORS = {
    400: "VALIDATION_ERROR: not valid; `details` names every bad event. Nothing was stored.",
    401: "UNAUTHENTICATED: no token, or not a good one.",
    403: "FORBIDDEN: the token does not speak for a tenant, or the tenant is not known.",
    408: "REQUEST_TIMEOUT: the body was not here in time.",
    413: f"PAYLOAD_TOO_LARGE: more than {MAX_EVENTS} events or {MAX_BYTES} bytes.",
    415: "UNSUPPORTED_MEDIA_TYPE: send application/json, as it is or compressed with gzip.",
    503: "UNAVAILABLE: the database or the bus is away; try again after Retry-After.",
}


class OutboxBatch(msgspec.Struct, kw_only=True):
    """Events of one edge. Their payloads are those of the AsyncAPI document.

    With `republish` they go onto the bus although they are known; the token's `role` is admin.
    """

    events: list[BusEvent]
    batchId: Id | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815 - the contract's spelling
    republish: bool | msgspec.UnsetType = msgspec.UNSET


class BatchAccepted(BaseModel):
    """`deduped` counts the events that were known before; without any it is absent."""

    accepted: bool
    batchId: str  # noqa: N815 - the contract's spelling
    deduped: int = 0


# An answer is for reading; what does not fit would only repeat what the edge has sent.
_LONGEST = 500
# Looked at all together, in a thread; an event alone may have check.MAX_VALUES.
MAX_VALUES = 200_000
# A batch has two levels more than its events, which may have as many as they like elsewhere.
_LEVELS = check.MAX_DEPTH + 2


class _Batch(msgspec.Struct, kw_only=True):
    events: list[msgspec.Raw]
    batchId: Id | None = None  # noqa: N815 - the contract's spelling
    republish: bool = False


_decoder = msgspec.json.Decoder(_Batch)
_NAMES = frozenset(("events", "batchId", "republish"))


@dataclass(frozen=True, slots=True)
class Batch:
    """With `republish` its events go onto the bus although they are known (C-99)."""

    batch_id: str | None
    events: tuple[BusEvent, ...]
    republish: bool = False


class BadBatch(Exception):  # noqa: N818 - it reads as a verdict
    """The edge must change the batch: `message` for people, `details` per event for the edge."""

    def __init__(self, message: str, details: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.message, self.details = message, details


class TooLarge(BadBatch):
    """More events or bytes than one batch may have."""


def read(body: bytes) -> Batch:
    """The batch in a request body.

    Raises BadBatch: its message says what is wrong with the frame, its details what is wrong with
    every bad event. A frame that is wrong hides no event, and the other way round.
    """
    try:
        raw = _decoder.decode(body)
    except check.DECODE_ERRORS as error:
        raise _bad_frame(body, str(error)) from None
    _limit(raw.events)
    events, details = _read_events(raw.events)
    # Of events that are good in themselves only what is around them is left to look at.
    if not details and check.only_holds(body, raw.events, names=_NAMES):
        return Batch(raw.batchId, tuple(events), raw.republish)
    unkeepable = check.keepable(body, levels=_LEVELS, max_values=MAX_VALUES)
    if unkeepable or details:
        raise _bad(unkeepable, details, len(raw.events))
    return Batch(raw.batchId, tuple(events), raw.republish)


def not_an_edges(events: Sequence[BusEvent]) -> list[dict[str, Any]]:
    """Those that only the cloud makes (C-115), as details of an answer."""
    return [
        {
            "index": index,
            "event_id": str(event.event_id),
            "event_type": event.event_type,
            "reason": f"{event.event_type} is made by {Maker.CLOUD.value}",
        }
        for index, event in enumerate(events)
        if catalogue.BUS[event.event_type].made_by is Maker.CLOUD
    ]


def _limit(events: list[Any]) -> None:
    if len(events) > MAX_EVENTS:
        raise TooLarge(f"{len(events)} events in one batch, at most {MAX_EVENTS}")


def _read_events(raw_events: list[msgspec.Raw]) -> tuple[list[BusEvent], list[dict[str, Any]]]:
    events: list[BusEvent] = []
    details: list[dict[str, Any]] = []
    for index, raw in enumerate(raw_events):
        try:
            events.append(bus.read(raw))
        except check.InvalidError as invalid:
            details.append(_detail(index, check.look(raw)[0], invalid.reasons))
    return events, details


def _bad_frame(body: bytes, error: str) -> BadBatch:
    """What is wrong with a batch that cannot be taken apart, and with its events as they look."""
    value, unkeepable = check.look(body, levels=_LEVELS, max_values=MAX_VALUES)
    found = value.get("events") if isinstance(value, dict) else None
    events = found if isinstance(found, list) else []
    _limit(events)
    details = [
        _detail(index, event, reasons)
        for index, event in enumerate(events)
        if (reasons := [*_within(unkeepable, index), *bus.problems(event)])
    ]
    return _bad([*unkeepable, *check.misfits(value, _Batch, "$")] or [error], details, len(events))


def _within(reasons: list[str], index: int) -> list[str]:
    """Those that stand in one event, their places as seen from there."""
    place = f"`$.events[{index}]"
    return [why.replace(place, "`$", 1) for why in reasons if place in why]


def _bad(frame: list[str], details: list[dict[str, Any]], count: int) -> BadBatch:
    if not details:
        return BadBatch("; ".join(frame)[:_LONGEST])
    # What stands in an event, or makes the whole unreadable, is told with the event.
    own = [why for why in frame if " - at `$" in why and " - at `$.events[" not in why]
    return BadBatch("; ".join([*own, _message(details, count)])[:_LONGEST], details)


def _detail(index: int, event: Any, reasons: list[str]) -> dict[str, Any]:
    said = event.get("event_id") if isinstance(event, dict) else None
    event_id = None if said is None or said is check.ODD else str(said)[:64]
    return {"index": index, "event_id": event_id, "reason": "; ".join(reasons)[:1000]}


def _message(details: list[dict[str, Any]], count: int) -> str:
    """002's own words when that is what is wrong, else how many and the first reason."""
    if any(missing in detail["reason"] for detail in details for missing in _NO_IDENTITY):
        return "event_id and tenant_id are required"
    first = details[0]["reason"]
    return f"{len(details)} of {count} events are not valid; first: {first}"[:_LONGEST]


_NO_IDENTITY = tuple(
    f"missing required field `{name}` - at `$`" for name in ("event_id", "tenant_id")
)
