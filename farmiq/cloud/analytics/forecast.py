"""The forecast of a batch over HTTP."""

from typing import Annotated, Any

from fastapi import Query, Request
from pydantic import Field

from farmiq import api
from farmiq.cloud.figures import forecast as forecasts
from farmiq.cloud.figures.forecast import Forecast
from farmiq.cloud.identity.people import Company, PeopleRoutes, route
from farmiq.plumbing.http import HttpError

FORECAST = "/api/v1/batches/{batch_id}/forecast"


class ForecastFilter(api.Filter):
    on: Annotated[
        api.Day | None,
        Field(description="The day of the expected weight; else the batch's target date or today."),
    ] = None
    target_kg: Annotated[
        float | None, Field(gt=0, le=10_000, description="Else the batch's target weight.")
    ] = None
    company: Company = None


class ForecastApi(PeopleRoutes):
    @route(
        "GET",
        FORECAST,
        Forecast,
        responses={404: "NOT_FOUND: there is no such batch, or not in the company looked at."},
    )
    async def forecast(
        self, request: Request, batch_id: str, query: Annotated[ForecastFilter, Query()]
    ) -> Any:
        """What a batch will weigh on a day, and when it reaches its target weight."""
        async with self.people.caller(request, query.company) as caller:
            answer = await forecasts.forecast(
                caller.connection,
                caller.tenant_id,
                batch_id,
                on=query.on,
                target_kg=query.target_kg,
            )
        if answer is None:
            raise HttpError(404, "there is no such batch")
        return answer
