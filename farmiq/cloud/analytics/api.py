"""Figures of batches for people and programs: by day, in short, and the weighings behind them."""

from datetime import date, datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import Query, Request
from pydantic import Field, ValidationInfo, field_validator

from farmiq import api
from farmiq.api import At, Id
from farmiq.cloud.figures import queries
from farmiq.cloud.identity.people import NO_COMPANY, AVisit, Company, PeopleRoutes, route
from farmiq.messages.kpi import KpiType
from farmiq.plumbing.http import HttpError

KPIS = "/api/v1/kpis"
SUMMARY = "/api/v1/batches/{batch_id}/summary"
WEIGHINGS = "/api/v1/batches/{batch_id}/weighings"
MAX_ROWS = 10_000
MAX_DAYS = 100
COLUMNS = (
    "kpi_date", "farm_id", "barn_id", "batch_id", "kpi_type", "value", "unit",
    "source_event_count", "expected_value", "difference", "revision", "computed_at",
)  # fmt: skip
MISSING = "NOT_FOUND: there is no such batch, or not in the company that is looked at."


class FigurePosition(msgspec.Struct, frozen=True, array_like=True):
    """Where a page of figures ends."""

    at: datetime
    batch_id: str
    kpi_type: str


class DayPosition(msgspec.Struct, frozen=True, array_like=True):
    """Where a page of days ends."""

    at: datetime


class DatesFilter(api.Filter):
    begin: Annotated[
        api.Day | None, Field(alias="from", description="Not before this date of the farm.")
    ] = None
    end: Annotated[api.Day | None, Field(alias="to", description="Not after this date.")] = None
    company: Company = None

    @field_validator("end")
    @classmethod
    def _not_before_begin(cls, end: date | None, info: ValidationInfo) -> date | None:
        begin = info.data.get("begin")
        if begin and end and begin > end:
            raise ValueError("is before from")
        return end


class KpiFilter(DatesFilter):
    """Which figures, newest date first."""

    farm: Annotated[Id | None, Field(description="Only this farm's.")] = None
    barn: Annotated[Id | None, Field(description="Only this barn's.")] = None
    batch: Annotated[Id | None, Field(description="Only this batch's.")] = None
    kpi_type: Annotated[KpiType | None, Field(alias="type", description="Only this figure.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 100
    cursor: Annotated[
        Annotated[FigurePosition, api.cursor_of(FigurePosition, max_length=512)] | None,
        Field(description="The next_cursor of the page before."),
    ] = None
    format: Annotated[api.TableFormat, Field(description="json, csv or parquet.")] = "json"


class WeighedDayFilter(DatesFilter):
    """Which days of a batch, newest first."""

    limit: Annotated[int, Field(ge=1, le=MAX_DAYS, description="At most so many days.")] = 30
    cursor: Annotated[
        Annotated[DayPosition, api.cursor_of(DayPosition, max_length=256)] | None,
        Field(description="The next_cursor of the page before."),
    ] = None


class LatestFigure(api.Model):
    """`expected_value` is the breed standard's at the batch's age, `difference` value less that."""

    kpi_type: KpiType
    kpi_date: date
    value: float
    unit: str
    source_event_count: int
    expected_value: float | None
    difference: float | None


class DailyFigure(LatestFigure):
    """`revision` grows with each change of the figure."""

    farm_id: str
    barn_id: str
    batch_id: str
    revision: int
    computed_at: At


class DailyFigures(api.Model):
    kpis: list[DailyFigure]
    next_cursor: str | None


class BatchSummary(api.Model):
    """`safe_to_sell_from`: the first date after the withdrawal of all treatments, if any.

    `age_days` are the days since placing if the age is not known.
    """

    batch_id: str
    farm_id: str
    barn_id: str
    species: str
    breed: str | None
    sex: str
    placed_count: int
    placed_on: date
    closed_on: date | None
    target_weight_kg: float | None
    target_on: date | None
    today: date
    age_days: int
    is_age_known: bool
    head_count: float
    dead: float
    culled: float
    weighed_count: int
    outlier_count: int
    safe_to_sell_from: date | None
    figures: list[LatestFigure]


class CountedWeighing(api.Model):
    session_id: UUID
    weight_kg: float
    is_outlier: bool
    start_at: At
    device_id: str | None


class WeighedDay(api.Model):
    """Statistics are over the weighings that are no outliers.

    `vision_residual_pct` is how far estimates by vision are above the scale in the mean, of the
    `estimated_count` weighings that have one.
    """

    kpi_date: date
    weighed_count: int
    outlier_count: int
    weight_mean_kg: float | None
    weight_median_kg: float | None
    weight_p10_kg: float | None
    weight_p90_kg: float | None
    weight_cv_pct: float | None
    weight_uniformity_pct: float | None
    estimated_count: int
    vision_residual_pct: float | None
    weighings: list[CountedWeighing]


class WeighedDays(api.Model):
    days: list[WeighedDay]
    next_cursor: str | None


class Api(PeopleRoutes):
    @route("GET", KPIS, DailyFigures, responses={200: api.TABLES, **NO_COMPANY})
    async def kpis(self, request: Request, query: Annotated[KpiFilter, Query()]) -> Any:
        """Daily figures of batches, newest date first."""
        async with self.people.caller(request, query.company) as caller:
            rows = await queries.page(caller.connection, wanted(caller.tenant_id, query))
        shown, following = cut(rows, query.limit)
        if query.format != "json":
            return api.csv_response(request, COLUMNS, shown, following)
        return {"kpis": shown, "next_cursor": following}

    @route("GET", SUMMARY, BatchSummary, responses={404: MISSING})
    async def summary(self, visit: AVisit, batch_id: str) -> Any:
        """A batch in short: its animals, the latest figures, and from when it may be sold."""
        async with self.people.caller(*visit) as caller:
            batch = await queries.summary(caller.connection, caller.tenant_id, batch_id)
        if batch is None:
            raise HttpError(404, "there is no such batch")
        return batch

    @route("GET", WEIGHINGS, WeighedDays, responses={404: MISSING})
    async def weighings(
        self, request: Request, batch_id: str, query: Annotated[WeighedDayFilter, Query()]
    ) -> Any:
        """Weighings of a batch by date, newest first, with the sessions behind each."""
        end = query.end
        if query.cursor is not None:
            behind = date.fromordinal(query.cursor.at.date().toordinal() - 1)
            end = min(end, behind) if end else behind
        async with self.people.caller(request, query.company) as caller:
            tx, tenant_id = caller.connection, caller.tenant_id
            if not await queries.has_batch(tx, tenant_id, batch_id):
                raise HttpError(404, "there is no such batch")
            days = await queries.weighed_dates(
                tx, tenant_id, batch_id, begin=query.begin, end=end, limit=query.limit + 1
            )
            shown = days[: query.limit]
            dates = [day["kpi_date"] for day in shown]
            weighed = await queries.weighings(tx, tenant_id, batch_id, dates)
        by_date: dict[date, list[dict[str, Any]]] = {on: [] for on in dates}
        for row in weighed:
            by_date[row.pop("kpi_date")].append(row)
        return {
            "days": [{**day, "weighings": by_date[day["kpi_date"]]} for day in shown],
            "next_cursor": api.cursor(dates[-1]) if len(days) > query.limit else None,
        }


def cut(rows: list[dict[str, Any]], limit: int) -> tuple[list[dict[str, Any]], str | None]:
    """The figures of a page, and the cursor of the next page if there is one."""
    if len(rows) <= limit:
        return rows, None
    last = rows[limit - 1]
    return rows[:limit], api.cursor(last["kpi_date"], last["batch_id"], last["kpi_type"])


def wanted(tenant_id: str, query: KpiFilter) -> dict[str, Any]:
    """The SQL parameters of a page: one row more says whether there is a next one."""
    position = query.cursor
    return {
        **query.model_dump(by_alias=False, exclude={"cursor", "format", "company", "limit"}),
        "tenant": tenant_id,
        "limit": query.limit + 1,
        "after_date": position.at.date() if position else None,
        "after_batch": position.batch_id if position else None,
        "after_type": position.kpi_type if position else None,
    }
