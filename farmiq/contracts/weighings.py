"""Weigh sessions' routes in the cloud, for the OpenAPI document."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from farmiq.asked import LONGEST_CURSOR
from farmiq.cloud.console.ask import MOST_ROWS, ROWS
from farmiq.cloud.console.weighing_pages import SESSION, SESSIONS
from farmiq.cloud.console.weighings import STATES
from farmiq.contracts import schemas
from farmiq.contracts.weighvision import ASKED
from farmiq.edge.weighvision.ask import State
from farmiq.edge.weighvision.rules import Part, Status


class Weighing(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`state` is the status, or INCOMPLETE while a part is missing for too long: see `lacking`.

    `media_ids` are the images that were announced, in their order. `clock_suspect`: the clock of
    the device cannot be right, so times of this session may be wrong.
    """

    session_id: UUID
    farm_id: str
    barn_id: str
    device_id: str | None
    batch_id: str | None
    state: State
    status: Status
    start_at: datetime
    end_at: datetime | None
    initial_weight_kg: float | None
    final_weight_kg: float | None
    image_count: int | None
    media_ids: list[UUID]
    missing: list[Part]
    cancel_reason: str | None
    received_at: datetime
    station_id: str | None
    clock_suspect: bool
    lacking: list[str]


class Weighings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    sessions: list[Weighing]
    next_cursor: str | None


class WeighingEvent(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    event_id: UUID
    event_type: str
    occurred_at: datetime
    stored_at: datetime
    weight_kg: float | None
    media_id: UUID | None


class WeighingImage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`here`: its bytes are in the cloud; else it is on its way from the edge."""

    media_id: UUID
    here: bool


class WeighingInFull(Weighing, kw_only=True, forbid_unknown_fields=True):
    events: list[WeighingEvent]
    images: list[WeighingImage]


TYPES = (Weighing, Weighings, WeighingInFull)
_WHICH: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ASKED[name] for name in ("farm", "barn", "device", "from", "to", "format")},
    "day": ("Begun on this day, in the company's zone.", ASKED["day"][1]),
    "state": ("Only in this state.", {"type": "string", "enum": [*STATES]}),
    "limit": (
        f"At most so many rows, 1 to {MOST_ROWS}; {ROWS} if it is not given.",
        {"type": "integer", "minimum": 1, "maximum": MOST_ROWS},
    ),
    "cursor": (
        "The next_cursor of the page before.",
        {"type": "string", "maxLength": LONGEST_CURSOR},
    ),
    "company": (
        "For super admins: another company than the one they chose.",
        {"type": "string", "format": "uuid"},
    ),
}
_WRONG = {
    "400": "VALIDATION_ERROR: not valid; `details` names everything that is wrong.",
    "401": "UNAUTHENTICATED: nobody is signed in.",
    "404": "NOT_FOUND: there is no such company, or not for you.",
    "503": "UNAVAILABLE: the database is away; try again after Retry-After.",
}


def paths(error: Any, people: list[dict[str, list[str]]]) -> dict[str, Any]:
    """`error` is the type of the standard error body, `people` how somebody is signed in."""
    table = {"text/csv": {"schema": {"type": "string"}}}
    page = {"description": "A page.", "content": {**_content(Weighings), **table}}
    wrong = {status: _answer(why, error) for status, why in _WRONG.items()}
    one = {
        "name": "session_id",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "format": "uuid"},
    }
    return {
        SESSIONS: {
            "get": {
                "summary": "Weigh sessions of the person's company, newest first",
                "operationId": "getWeighings",
                "security": people,
                "parameters": [_query(name) for name in _WHICH],
                "responses": {"200": page, **wrong},
            }
        },
        SESSION: {
            "get": {
                "summary": "One weigh session with its events and images",
                "operationId": "getWeighing",
                "security": people,
                "parameters": [one, _query("company")],
                "responses": {
                    "200": _answer("The session.", WeighingInFull),
                    **{status: wrong[status] for status in ("401", "503")},
                    "404": _answer("NOT_FOUND: there is no such session.", error),
                },
            }
        },
    }


def _query(name: str) -> dict[str, Any]:
    why, schema = _WHICH[name]
    return {"name": name, "in": "query", "description": why, "schema": schema}


def _answer(description: str, kind: Any) -> dict[str, Any]:
    return {"description": description, "content": _content(kind)}


def _content(kind: Any) -> dict[str, Any]:
    return {"application/json": {"schema": schemas.ref(kind)}}
