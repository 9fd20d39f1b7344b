"""Weigh sessions for programs: a list, page by page or as CSV, and one in full."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Query, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.api import At, Id, PathId, route
from farmiq.cloud.console import pages
from farmiq.cloud.console.weighings import queries
from farmiq.cloud.console.weighings import view as weighings
from farmiq.cloud.identity import sign_in
from farmiq.cloud.identity.people import NO_COMPANY
from farmiq.plumbing.http import HttpError
from farmiq.ui import look

SESSIONS = "/api/v1/weighvision/sessions"
SESSION = f"{SESSIONS}/{{session_id}}"
MAX_ROWS = 10_000
COLUMNS = (
    "session_id", "farm_id", "barn_id", "device_id", "batch_id", "state", "status", "start_at",
    "end_at", "initial_weight_kg", "final_weight_kg", "image_count", "media_ids", "missing",
    "cancel_reason", "received_at", "station_id", "clock_suspect",
)  # fmt: skip

State = Literal["created", "finalized", "cancelled", "INCOMPLETE"]
Company = Annotated[
    UUID | None, Field(description="For super admins: another company than the one they chose.")
]


class WeighingFilter(api.SpanFilter):
    """Which sessions, newest first. `day` is a day by the farm's clock."""

    day: Annotated[
        api.Day | None, Field(description="Begun on this day, by the clock of its farm.")
    ] = None
    farm: Annotated[Id | None, Field(description="Only this farm's.")] = None
    barn: Annotated[Id | None, Field(description="Only this barn's.")] = None
    device: Annotated[Id | None, Field(description="Only this device's.")] = None
    batch: Annotated[
        Id | None,
        Field(description="Only this batch's: named, or in the barn on that local day."),
    ] = None
    state: Annotated[
        State | None, api.any_case(weighings.STATES), Field(description="Only in this state.")
    ] = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 100
    format: Annotated[api.TableFormat, Field(description="json, csv or parquet.")] = "json"
    company: Company = None


class CompanyFilter(api.Filter):
    company: Company = None


class Weighing(api.Model):
    """`state` is the status, or INCOMPLETE while a part is missing for too long: see `lacking`.

    `batch_id` is the batch that was named, else the one that was in the barn on that local day.
    `media_ids` are the images that were announced, in their order. `clock_suspect`: the clock of
    the device cannot be right, so times of this session may be wrong.
    """

    session_id: UUID
    farm_id: str
    barn_id: str
    device_id: str | None
    batch_id: str | None
    state: State
    status: Literal["created", "finalized", "cancelled"]
    start_at: At
    end_at: At | None
    initial_weight_kg: float | None
    final_weight_kg: float | None
    image_count: int | None
    media_ids: list[UUID]
    missing: list[str]
    cancel_reason: str | None
    received_at: At
    station_id: str | None
    clock_suspect: bool
    lacking: list[str]


class Weighings(api.Model):
    sessions: list[Weighing]
    next_cursor: str | None


class WeighingEvent(api.Model):
    event_id: UUID
    event_type: str
    occurred_at: At
    stored_at: At
    weight_kg: float | None
    media_id: UUID | None


class WeighingImage(api.Model):
    """`here`: its bytes are in the cloud; else it is on its way from the edge."""

    media_id: UUID
    here: bool


class WeighingEstimate(api.Model):
    """What a model made of the images; it never replaces the scale.

    Without a weight `reason` says why; `low_kg` to `high_kg` holds 90 % of true weights, and
    `confidence` is the probability of an error of at most 5 %. `is_shadow`: the model is not used.
    """

    inference_result_id: UUID
    predicted_weight_kg: float | None
    low_kg: float | None
    high_kg: float | None
    confidence: float
    model_version: str
    is_shadow: bool
    reason: str | None


class WeighingInFull(Weighing):
    """`estimate` is null until the images were looked at."""

    events: list[WeighingEvent]
    images: list[WeighingImage]
    estimate: WeighingEstimate | None


@dataclass(frozen=True)
class WeighingApi(api.Routes):
    pages: pages.Pages
    patience_s: float

    def endpoint(self, handler: look.Endpoint) -> look.Endpoint:
        return look.with_error_pages(handler)

    @route(
        "GET",
        SESSIONS,
        Weighings,
        operation_id="getWeighings",
        response_description="A page.",
        dependencies=[sign_in.SIGN_IN],
        responses={200: api.TABLES, **NO_COMPANY},
    )
    async def sessions(
        self, request: Request, response: Response, query: Annotated[WeighingFilter, Query()]
    ) -> Any:
        """Weigh sessions of the person's company, newest first."""
        signed_in = await self.pages.must_be_signed_in(request)
        wanted = query.page()
        async with self.pages.as_person(request, signed_in) as connection:
            zone = (await self.pages.company(connection, signed_in)).timezone
            fetched = await queries.page(connection, wanted, zone=zone, patience_s=self.patience_s)
        rows, following = api.cut(
            [_row(weighing) for weighing in fetched], query.limit, at="start_at", key="session_id"
        )
        if query.format != "json":
            table = api.csv_response(request, COLUMNS, map(_cells, rows), following)
            table.headers.update(api.NO_STORE)
            table.headers["Content-Disposition"] = (
                f'attachment; filename="weighings.{query.format}"'
            )
            return table
        response.headers.update(api.NO_STORE)
        return {"sessions": rows, "next_cursor": following}

    @route(
        "GET",
        SESSION,
        WeighingInFull,
        operation_id="getWeighing",
        response_description="The session.",
        dependencies=[sign_in.SIGN_IN],
        responses={404: "NOT_FOUND: there is no such session."},
    )
    async def session(
        self,
        request: Request,
        response: Response,
        session_id: PathId,
        _: Annotated[CompanyFilter, Query()],
    ) -> Any:
        """One weigh session with its events, images and the estimate from these."""
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.as_person(request, signed_in) as connection:
            zone = (await self.pages.company(connection, signed_in)).timezone
            weighing = await queries.find(
                connection, session_id, zone=zone, patience_s=self.patience_s
            )
            if weighing is None:
                raise HttpError(404, "there is no such weighing")
            events = await queries.events(connection, session_id)
            here = await queries.here(connection, weighing.media_ids)
            estimate = await queries.estimate(connection, weighing)
        response.headers.update(api.NO_STORE)
        images = [
            {"media_id": media_id, "here": media_id in here} for media_id in weighing.media_ids
        ]
        shown = estimate and {
            name: getattr(estimate, name) for name in WeighingEstimate.model_fields
        }
        return {**_row(weighing), "events": events, "images": images, "estimate": shown}


def _row(weighing: weighings.Weighing) -> dict[str, Any]:
    row = asdict(weighing)
    lacking = list(weighing.lacking) if weighing.state == "INCOMPLETE" else []
    return {**{name: row[name] for name in COLUMNS}, "lacking": lacking}


def _cells(row: Any) -> dict[str, Any]:
    return {
        name: " ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in row.items()
    }
