"""Feed's routes at the edge, for the OpenAPI document."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.asked import LONGEST_CURSOR
from farmiq.contracts import schemas
from farmiq.edge.feed.api import INTAKES, LONGEST_KEY, LOTS, MOST_BYTES
from farmiq.edge.feed.ask import MOST_ROWS, ROWS
from farmiq.edge.feed.lot import LotReceived
from farmiq.messages.feed import Source
from farmiq.messages.ids import ID_PATTERN


class FeedLot(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A lot as it was recorded; `recorded_by` names the key that it was posted with.

    `quantity_kg` is null if one was recorded that is no number, before there was a bound.
    """

    event_id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str | None
    feed_lot_id: str
    quantity_kg: float | None
    occurred_at: datetime
    recorded_at: datetime
    recorded_by: str


class FeedLots(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    lots: list[FeedLot]
    next_cursor: str | None


class FeedIntake(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`parent_event_id` is the import or the silo's reading that it was made from.

    `quantity_kg` is null if one was recorded that is no number, before there was a bound.
    """

    intake_id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str | None
    source: Source
    feed_lot_id: str | None
    quantity_kg: float | None
    occurred_at: datetime
    recorded_at: datetime
    parent_event_id: UUID | None
    clock_suspect: bool


class FeedIntakes(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    intakes: list[FeedIntake]
    next_cursor: str | None


TYPES = (LotReceived, FeedLot, FeedLots, FeedIntakes)
KEY: list[dict[str, list[str]]] = [{"key": []}]
_ASKED = {
    "tenant": "Only this tenant's.",
    "farm": "Only this farm's.",
    "barn": "Only this barn's.",
    "device": "Only this device's.",
    "lot": "Only this feed_lot_id.",
    "from": "Not before this moment (RFC 3339, with a zone).",
    "to": "Before this moment.",
    "limit": f"At most so many rows, 1 to {MOST_ROWS}; {ROWS} if it is not given.",
    "cursor": "The next_cursor of the page before.",
    "format": "json or csv.",
}
_SCHEMAS: dict[str, dict[str, Any]] = {
    **{
        name: {"type": "string", "pattern": ID_PATTERN}
        for name in ("tenant", "farm", "barn", "device", "lot")
    },
    **{name: {"type": "string", "format": "date-time"} for name in ("from", "to")},
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_ROWS},
    "cursor": {"type": "string", "maxLength": LONGEST_CURSOR},
    "format": {"type": "string", "enum": ["json", "csv"]},
    "Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": LONGEST_KEY},
}
_WRONG = {
    "400": "VALIDATION_ERROR: not valid; `details` names everything that is wrong.",
    "401": "UNAUTHENTICATED: no key, or one that is not known.",
    "403": "FORBIDDEN: the key's role does not allow it.",
    "503": "UNAVAILABLE: the database is away; try again after Retry-After.",
}
_WRONG_LOT = {
    **_WRONG,
    "409": "CONFLICT: the event_id or Idempotency-Key was used for something else.",
    "413": f"PAYLOAD_TOO_LARGE: more than {MOST_BYTES} bytes.",
    "415": "UNSUPPORTED_MEDIA_TYPE: send application/json.",
    "429": "TOO_MANY_REQUESTS: the key acts too often; wait for Retry-After.",
}


def paths(error: Any) -> dict[str, Any]:
    """`error` is the type of the standard error body."""
    return {
        LOTS: {
            "post": {
                "summary": "A lot of feed was delivered",
                "operationId": "postFeedLot",
                "description": "For operators. The same event_id or Idempotency-Key with the same "
                "body has the same answer and no second effect.",
                "security": KEY,
                "parameters": [_parameter("Idempotency-Key", "Any text of the client.", "header")],
                "requestBody": {"required": True, "content": _content(LotReceived)},
                "responses": {
                    "201": _answer("The lot: stored, and owed to the cloud.", FeedLot),
                    **{status: _answer(why, error) for status, why in _WRONG_LOT.items()},
                },
            },
            "get": _page("Lots of feed, newest first", "getFeedLots", FeedLots, error),
        },
        INTAKES: {
            "get": _page("Feed taken in, newest first", "getFeedIntakes", FeedIntakes, error)
        },
    }


def _page(summary: str, operation: str, kind: Any, error: Any) -> dict[str, Any]:
    table = {"text/csv": {"schema": {"type": "string"}}}
    page = {"description": "A page.", "content": {**_content(kind), **table}}
    return {
        "summary": summary,
        "operationId": operation,
        "security": KEY,
        "parameters": [_parameter(name, why, "query") for name, why in _ASKED.items()],
        "responses": {
            "200": page,
            **{status: _answer(why, error) for status, why in _WRONG.items()},
        },
    }


def _parameter(name: str, why: str, where: str) -> dict[str, Any]:
    schema = _SCHEMAS.get(name, {"type": "string"})
    return {"name": name, "in": where, "description": why, "schema": schema}


def _answer(description: str, kind: Any) -> dict[str, Any]:
    return {"description": description, "content": _content(kind)}


def _content(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schemas.ref(kind)}}
