"""Pure: an OutboxBatch as the edge posts it, taken apart and checked (002)."""

from dataclasses import dataclass
from typing import Any

import msgspec

from farmiq.messages import bus, check
from farmiq.messages.bus import BusEvent
from farmiq.messages.ids import Id

MOST_EVENTS = 500
MOST_BYTES = 5 * 1024 * 1024
# An answer is for reading; what does not fit would only repeat what the edge has sent.
_LONGEST = 500


class _Batch(msgspec.Struct, kw_only=True):
    events: list[msgspec.Raw]
    batchId: Id | None = None  # noqa: N815 - the contract's spelling


_decoder = msgspec.json.Decoder(_Batch)


@dataclass(frozen=True, slots=True)
class Batch:
    batch_id: str | None
    events: tuple[BusEvent, ...]


class BadBatch(Exception):  # noqa: N818 - it reads as a verdict
    """The edge must change the batch: `message` for people, `details` per event for the edge."""

    def __init__(self, message: str, details: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.message, self.details = message, details


class TooLarge(BadBatch):
    """More events or bytes than one batch may have."""


def read(body: bytes) -> Batch:
    """The batch in a request body. Raises BadBatch with a detail for every bad event."""
    try:
        raw = _decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        raise BadBatch("; ".join(check.problems(body, _Batch))[:_LONGEST]) from None
    if len(raw.events) > MOST_EVENTS:
        raise TooLarge(f"{len(raw.events)} events in one batch, at most {MOST_EVENTS}")
    events, details = _read_events(raw.events)
    if details:
        raise BadBatch(_message(details, len(raw.events)), details)
    unkeepable = check.keepable(body)
    if unkeepable:
        raise BadBatch("; ".join(unkeepable)[:_LONGEST])
    return Batch(raw.batchId, tuple(events))


def _read_events(raw_events: list[msgspec.Raw]) -> tuple[list[BusEvent], list[dict[str, Any]]]:
    events: list[BusEvent] = []
    details: list[dict[str, Any]] = []
    for index, raw in enumerate(raw_events):
        try:
            events.append(bus.read(raw))
        except check.Invalid as invalid:
            details.append(
                {
                    "index": index,
                    "event_id": _event_id(raw),
                    "reason": "; ".join(invalid.reasons)[:1000],
                }
            )
    return events, details


def _message(details: list[dict[str, Any]], count: int) -> str:
    """002's own words when that is what is wrong, else how many and the first reason."""
    if any(missing in detail["reason"] for detail in details for missing in _NO_IDENTITY):
        return "event_id and tenant_id are required"
    first = details[0]["reason"]
    return f"{len(details)} of {count} events are not valid; first: {first}"[:_LONGEST]


_NO_IDENTITY = tuple(
    f"missing required field `{name}` - at `$`" for name in ("event_id", "tenant_id")
)


def _event_id(raw: msgspec.Raw) -> str | None:
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    found = value.get("event_id") if isinstance(value, dict) else None
    return str(found)[:64] if found is not None else None
