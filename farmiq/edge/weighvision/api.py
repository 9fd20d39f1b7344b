"""Weigh sessions' HTTP routes at the edge: a list, page by page or as CSV, and one in full."""

from typing import Annotated, Any, Literal, get_args
from uuid import UUID

from fastapi import Query, Request
from pydantic import Field

from farmiq import api
from farmiq.api import At, Id, route
from farmiq.edge import access
from farmiq.edge.weighvision import queries
from farmiq.farm.sessions import Part, Status
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError

SESSIONS = "/api/v1/weighvision/sessions"
SESSION = f"{SESSIONS}/{{session_id}}"
MAX_ROWS = 1000

State = Literal["created", "finalized", "cancelled", "INCOMPLETE"]


class WeighSessionFilter(api.PlaceFilter):
    """Which sessions, newest first. `day` is a day of the farm."""

    station: Annotated[Id | None, Field(description="Only this station's.")] = None
    day: Annotated[
        api.Day | None, Field(description="Begun on this day, in the zone of its farm.")
    ] = None
    state: Annotated[
        State | None, api.any_case(get_args(State)), Field(description="Only in this state.")
    ] = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 100
    format: Annotated[api.Format, Field(description="json or csv.")] = "json"


class WeighSession(api.Model):
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
    start_at: At
    end_at: At | None
    initial_weight_kg: float | None
    final_weight_kg: float | None
    image_count: int | None
    stored_image_count: int
    cancel_reason: str | None
    incomplete_reason: str | None
    incomplete_at: At | None
    received_at: At
    inference_result_id: UUID | None


class WeighSessions(api.Model):
    sessions: list[WeighSession]
    next_cursor: str | None


class WeighEvent(api.Model):
    """One event of a session; `weight_kg` is the weighing's, or the one that its event names."""

    event_id: UUID
    event_type: str
    occurred_at: At
    seq: int | None
    weight_kg: float | None
    image_count: int | None
    media_id: UUID | None
    reason: str | None
    clock_suspect: bool
    received_at: At


class Weight(api.Model):
    occurred_at: At
    weight_kg: float


class WeighImage(api.Model):
    """An image of a session. `bound`: announced on its topic and stored by its own device."""

    media_id: UUID
    announced_at: At | None
    upload_status: str | None
    mime_type: str | None
    size_bytes: int | None
    captured_at: At | None
    stored_at: At | None
    bound: bool


class WeighSessionInFull(WeighSession):
    """`valid`: created, weighed, photographed and finalized; else `missing` says what is not."""

    valid: bool
    missing: list[Part]
    events: list[WeighEvent]
    weights: list[Weight]
    images: list[WeighImage]


class Api(api.Routes):
    def __init__(self, pool: db.Pool, *, timezone: str) -> None:
        self.pool, self._timezone = pool, timezone

    @route(
        "GET",
        SESSIONS,
        WeighSessions,
        operation_id="getWeighSessions",
        responses={200: api.CSV},
    )
    async def get_sessions(
        self, request: Request, caller: access.Viewer, query: Annotated[WeighSessionFilter, Query()]
    ) -> Any:
        """Weigh sessions, newest first."""
        wanted = {**query.page(), "tenant": caller.tenant(query.tenant)}
        async with self.pool.connection(timeout=5.0) as connection:
            sessions = await queries.page(connection, wanted, timezone=self._timezone)
        rows, following = api.cut(sessions, query.limit, at="start_at", key="session_id")
        if query.format == "csv":
            return api.csv_response(request, queries.SESSION, rows, following)
        return {"sessions": rows, "next_cursor": following}

    @route(
        "GET",
        SESSION,
        WeighSessionInFull,
        operation_id="getWeighSession",
        responses={404: "NOT_FOUND: there is no such session."},
    )
    async def get_session(self, caller: access.Viewer, session_id: UUID) -> Any:
        """One weigh session with its events, weights and images."""
        async with self.pool.connection(timeout=5.0) as connection:
            session = await queries.show(connection, session_id)
        if session is None or not caller.reaches(session["tenant_id"]):
            raise HttpError(404, "there is no such session")
        return session
