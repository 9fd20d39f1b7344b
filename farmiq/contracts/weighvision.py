"""Weigh sessions' routes at the edge, for the OpenAPI document."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.asked import LONGEST_CURSOR
from farmiq.contracts import schemas
from farmiq.edge.weighvision.api import SESSION, SESSIONS
from farmiq.edge.weighvision.ask import MOST_ROWS, ROWS, STATES, State
from farmiq.edge.weighvision.rules import Part, Status
from farmiq.messages.ids import ID_PATTERN


class WeighSession(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`state` is the status, or INCOMPLETE while a part is missing for too long."""

    session_id: UUID
    tenant_id: str
    farm_id: str
    barn_id: str
    device_id: str
    station_id: str
    batch_id: str | None
    state: State
    status: Status
    start_at: datetime
    end_at: datetime | None
    initial_weight_kg: float | None
    final_weight_kg: float | None
    image_count: int | None
    stored_image_count: int
    cancel_reason: str | None
    incomplete_reason: str | None
    incomplete_at: datetime | None
    received_at: datetime


class WeighSessions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    sessions: list[WeighSession]
    next_cursor: str | None


class WeighEvent(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One event of a session; `weight_kg` is the weighing's, or the one that its event names."""

    event_id: UUID
    event_type: str
    occurred_at: datetime
    seq: int | None
    weight_kg: float | None
    image_count: int | None
    media_id: UUID | None
    reason: str | None
    clock_suspect: bool
    received_at: datetime


class Weight(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    occurred_at: datetime
    weight_kg: float


class WeighImage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An image of a session. `bound`: announced on its topic and stored by its own device."""

    media_id: UUID
    announced_at: datetime | None
    upload_status: str | None
    mime_type: str | None
    size_bytes: int | None
    captured_at: datetime | None
    stored_at: datetime | None
    bound: bool


class WeighSessionInFull(WeighSession, kw_only=True, forbid_unknown_fields=True):
    """`valid`: created, weighed, photographed and finalized; else `missing` says what is not."""

    valid: bool
    missing: list[Part]
    events: list[WeighEvent]
    weights: list[Weight]
    images: list[WeighImage]


TYPES = (WeighSession, WeighSessions, WeighSessionInFull)
KEY: list[dict[str, list[str]]] = [{"key": []}]
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    **{
        name: (f"Only this {name}'s.", {"type": "string", "pattern": ID_PATTERN})
        for name in ("tenant", "farm", "barn", "device", "station")
    },
    "day": (
        "Begun on this day, in the zone of its farm.",
        {"type": "string", "format": "date", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
    ),
    "state": ("Only in this state.", {"type": "string", "enum": [*STATES]}),
    "from": (
        "Begun not before this moment (RFC 3339, with a zone).",
        {"type": "string", "format": "date-time"},
    ),
    "to": ("Begun before this moment.", {"type": "string", "format": "date-time"}),
    "limit": (
        f"At most so many rows, 1 to {MOST_ROWS}; {ROWS} if it is not given.",
        {"type": "integer", "minimum": 1, "maximum": MOST_ROWS},
    ),
    "cursor": (
        "The next_cursor of the page before.",
        {"type": "string", "maxLength": LONGEST_CURSOR},
    ),
    "format": ("json or csv.", {"type": "string", "enum": ["json", "csv"]}),
}
_WRONG = {
    "400": "VALIDATION_ERROR: not valid; `details` names everything that is wrong.",
    "401": "UNAUTHENTICATED: no key, or one that is not known.",
    "403": "FORBIDDEN: the key's role does not allow it.",
    "503": "UNAVAILABLE: the database is away; try again after Retry-After.",
}


def paths(error: Any) -> dict[str, Any]:
    """`error` is the type of the standard error body."""
    table = {"text/csv": {"schema": {"type": "string"}}}
    page = {"description": "A page.", "content": {**_content(WeighSessions), **table}}
    wrong = {status: _answer(why, error) for status, why in _WRONG.items()}
    return {
        SESSIONS: {
            "get": {
                "summary": "Weigh sessions, newest first",
                "operationId": "getWeighSessions",
                "security": KEY,
                "parameters": [
                    {"name": name, "in": "query", "description": why, "schema": schema}
                    for name, (why, schema) in ASKED.items()
                ],
                "responses": {"200": page, **wrong},
            }
        },
        SESSION: {
            "get": {
                "summary": "One weigh session with its events, weights and images",
                "operationId": "getWeighSession",
                "security": KEY,
                "parameters": [
                    {
                        "name": "session_id",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "string", "format": "uuid"},
                    }
                ],
                "responses": {
                    "200": _answer("The session.", WeighSessionInFull),
                    **{status: wrong[status] for status in ("401", "403", "503")},
                    "404": _answer("NOT_FOUND: there is no such session.", error),
                },
            }
        },
    }


def _answer(description: str, kind: Any) -> dict[str, Any]:
    return {"description": description, "content": _content(kind)}


def _content(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schemas.ref(kind)}}
