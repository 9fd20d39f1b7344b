"""Dishes of a site for programs: what was measured, the curve, and the forecast."""

from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.api import At, PathId, route
from farmiq.cloud.console import pages
from farmiq.cloud.console.dishes import queries
from farmiq.cloud.console.dishes import view as dishes
from farmiq.cloud.identity import sign_in
from farmiq.cloud.identity.people import NO_COMPANY
from farmiq.plumbing.http import HttpError
from farmiq.ui import look

DISHES = "/api/v1/camera/sites/{site_id}/dishes"


class DishFilter(api.Filter):
    threshold: Annotated[
        float, Field(ge=0.03, le=0.95, description="The change whose day is forecast.")
    ] = dishes.DEFAULT_THRESHOLD / 100
    company: Annotated[
        UUID | None, Field(description="For super admins: another company than the one they chose.")
    ] = None


class DishPoint(api.Model):
    """`smoothed` is null where the quality is too low to count."""

    image_id: UUID
    observed_at: At
    change: float
    quality: float
    smoothed: float | None


class DishForecast(api.Model):
    """The band of 80 %; `latest_at` is null if it is further ahead than a forecast goes."""

    at: At
    earliest_at: At
    latest_at: At | None
    is_passed: bool


class DishOfCamera(api.Model):
    """The newest dish of a camera. `change` is of the covered share since its first image."""

    device_id: UUID
    device_name: str
    x_position: float | None
    y_position: float | None
    series_id: UUID | None
    started_at: At | None
    change: float | None
    forecast: DishForecast | None
    no_forecast_reason: str | None
    problem: str | None
    points: list[DishPoint]


class Dishes(api.Model):
    threshold: float
    dishes: list[DishOfCamera]


@dataclass(frozen=True)
class DishApi(api.Routes):
    pages: pages.Pages

    def endpoint(self, handler: look.Endpoint) -> look.Endpoint:
        return look.with_error_pages(handler)

    @route(
        "GET",
        DISHES,
        Dishes,
        operation_id="getDishes",
        response_description="The dishes.",
        dependencies=[sign_in.SIGN_IN],
        responses={404: "NOT_FOUND: there is no such site.", **NO_COMPANY},
    )
    async def dishes(
        self,
        request: Request,
        response: Response,
        site_id: PathId,
        query: Annotated[DishFilter, Query()],
    ) -> Any:
        """How the dishes of a site grow: at most 60 cameras, the last 60 days."""
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.visit(request, signed_in) as (connection, _, now):
            if await queries.site(connection, site_id) is None:
                raise HttpError(404, "there is no such site")
            cameras = await queries.cameras(connection, site_id)
            known = [camera.series_id for camera in cameras if camera.series_id]
            measured = await queries.measured(connection, known, now=now)
        response.headers.update(api.NO_STORE)
        shown = dishes.all_dishes(cameras, measured, threshold=query.threshold)
        return {"threshold": query.threshold, "dishes": [_row(dish) for dish in shown]}


def _row(dish: dishes.Dish) -> dict[str, Any]:
    camera = dish.camera
    return {
        "device_id": camera.device_id,
        "device_name": camera.device_name,
        "x_position": camera.x_position,
        "y_position": camera.y_position,
        "series_id": camera.series_id,
        "started_at": camera.started_at,
        "change": dish.change,
        "forecast": dish.passing
        and {
            "at": dish.passing.at,
            "earliest_at": dish.passing.earliest_at,
            "latest_at": dish.passing.latest_at,
            "is_passed": dish.passing.is_passed,
        },
        "no_forecast_reason": dish.why_not or None,
        "problem": camera.problem,
        "points": [
            {
                "image_id": point.image_id,
                "observed_at": point.observed_at,
                "change": point.covered_change,
                "quality": point.covered_quality,
                "smoothed": dish.smoothed.get(point.observed_at),
            }
            for point in dish.measured
        ],
    }
