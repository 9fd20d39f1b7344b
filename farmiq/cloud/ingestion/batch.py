"""Pure: an OutboxBatch as the edge posts it, parsed and checked (002), and the events about it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from pydantic import BaseModel

from farmiq.messages import bus, catalogue, check, ids, sync
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


# Longer texts would only repeat what the edge has sent.
_MAX_TEXT = 500
# Of all events together; one event may have check.MAX_VALUES.
MAX_VALUES = 200_000
# A batch has two levels more than its events.
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


class BadBatchError(Exception):
    """The edge must change the batch: `message` for people, `details` per event for the edge."""

    def __init__(self, message: str, details: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.message, self.details = message, details


class TooLargeError(BadBatchError):
    """More events or bytes than one batch may have."""


def read(body: bytes) -> Batch:
    """The batch in a request body.

    Raises BadBatchError: its message has the errors of the batch itself, its details those of each
    event. Both are always reported.
    """
    try:
        raw = _decoder.decode(body)
    except check.DECODE_ERRORS as error:
        raise _bad_frame(body, str(error)) from None
    _limit(raw.events)
    events, details = _read_events(raw.events)
    # The events are valid: only the fields around them are left to check.
    if not details and check.only_holds(body, raw.events, names=_NAMES):
        return Batch(raw.batchId, tuple(events), raw.republish)
    unkeepable = check.keepable(body, levels=_LEVELS, max_values=MAX_VALUES)
    if unkeepable or details:
        raise _bad(unkeepable, details, len(raw.events))
    return Batch(raw.batchId, tuple(events), raw.republish)


def not_an_edges(events: Sequence[BusEvent]) -> list[dict[str, Any]]:
    """Events that only the cloud may publish (C-115), as details of a response."""
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
        raise TooLargeError(f"{len(events)} events in one batch, at most {MAX_EVENTS}")


def _read_events(raw_events: list[msgspec.Raw]) -> tuple[list[BusEvent], list[dict[str, Any]]]:
    events: list[BusEvent] = []
    details: list[dict[str, Any]] = []
    for index, raw in enumerate(raw_events):
        try:
            events.append(bus.read(raw))
        except check.InvalidError as invalid:
            details.append(_detail(index, check.look(raw)[0], invalid.reasons))
    return events, details


def _bad_frame(body: bytes, error: str) -> BadBatchError:
    """The errors of a batch that cannot be decoded, and of its events as far as possible."""
    value, unkeepable = check.look(body, levels=_LEVELS, max_values=MAX_VALUES)
    events_field = value.get("events") if isinstance(value, dict) else None
    events = events_field if isinstance(events_field, list) else []
    _limit(events)
    details = [
        _detail(index, event, reasons)
        for index, event in enumerate(events)
        if (reasons := [*_within(unkeepable, index), *bus.problems(event)])
    ]
    return _bad([*unkeepable, *check.misfits(value, _Batch, "$")] or [error], details, len(events))


def _within(reasons: list[str], index: int) -> list[str]:
    """The errors in one event, with paths that begin at the event."""
    place = f"`$.events[{index}]"
    return [why.replace(place, "`$", 1) for why in reasons if place in why]


def _bad(frame: list[str], details: list[dict[str, Any]], count: int) -> BadBatchError:
    if not details:
        return BadBatchError("; ".join(frame)[:_MAX_TEXT])
    # An error within an event is reported with that event.
    own = [why for why in frame if " - at `$" in why and " - at `$.events[" not in why]
    return BadBatchError("; ".join([*own, _message(details, count)])[:_MAX_TEXT], details)


def _detail(index: int, event: Any, reasons: list[str]) -> dict[str, Any]:
    given = event.get("event_id") if isinstance(event, dict) else None
    event_id = None if given is None or given is check.ODD else str(given)[:64]
    return {"index": index, "event_id": event_id, "reason": "; ".join(reasons)[:1000]}


def _message(details: list[dict[str, Any]], count: int) -> str:
    """002's own words when that is what is wrong, else how many and the first reason."""
    if any(missing in detail["reason"] for detail in details for missing in _NO_IDENTITY):
        return "event_id and tenant_id are required"
    first = details[0]["reason"]
    return f"{len(details)} of {count} events are not valid; first: {first}"[:_MAX_TEXT]


_NO_IDENTITY = tuple(
    f"missing required field `{name}` - at `$`" for name in ("event_id", "tenant_id")
)


@dataclass(frozen=True, slots=True)
class Received:
    """Makes the events about a batch itself: received, and all of its events confirmed (C-09).

    The same batch gives the same events again: their ids are derived from tenant, batch and type,
    and the time at which the batch was first received (C-94). `counts` are its events by tenant:
    an event on the bus is of one tenant.
    """

    batch_id: str
    edge_cluster_id: str
    counts: Counter[str]
    at: datetime
    trace_id: str

    def sent(self) -> list[BusEvent]:
        return [
            self._event(
                tenant_id,
                sync.BATCH_SENT,
                sync.SyncBatchSent(
                    batch_id=self.batch_id,
                    event_count=count,
                    edge_cluster_id=self.edge_cluster_id,
                ),
            )
            for tenant_id, count in sorted(self.counts.items())
        ]

    def acked(self) -> list[BusEvent]:
        return [
            self._event(
                tenant_id,
                sync.BATCH_ACKED,
                sync.SyncBatchAcked(batch_id=self.batch_id, event_count=count, status="acked"),
            )
            for tenant_id, count in sorted(self.counts.items())
        ]

    def _event(self, tenant_id: str, event_type: str, payload: msgspec.Struct) -> BusEvent:
        return BusEvent(
            event_id=ids.derived(self.at, tenant_id, self.batch_id, event_type),
            event_type=event_type,
            tenant_id=tenant_id,
            farm_id=None,
            barn_id=None,
            device_id=None,
            session_id=None,
            occurred_at=self.at,
            trace_id=self.trace_id,
            payload=msgspec.Raw(msgspec.json.encode(payload)),
        )
