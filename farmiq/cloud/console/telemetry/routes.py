"""The routes of the latest readings: the page, its fragment, and the same as JSON."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fastapi import FastAPI, Request, Response

from farmiq import api
from farmiq.api import route
from farmiq.cloud.console import pages
from farmiq.cloud.console.telemetry import queries
from farmiq.cloud.console.telemetry import view as readings
from farmiq.cloud.identity import sign_in
from farmiq.cloud.identity.store import SignIn
from farmiq.ui import look


class LatestReading(api.Model):
    event_id: UUID
    farm_id: str
    barn_id: str
    device_id: str
    metric_type: str
    metric_value: float | None
    unit: str
    occurred_at: api.At
    stored_at: api.At
    clock_suspect: bool
    reading_count: int
    aggregation_window: str | None
    age_s: float
    expected_interval_s: float
    state: str


class LatestReadings(api.Model):
    company: str
    timezone: str
    as_of: api.At
    summary: str
    problems: int
    readings: list[LatestReading]


@dataclass(frozen=True)
class TelemetryPages(api.Routes):
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(app, ("/", self.latest, "GET"), ("/readings", self.fragment, "GET"))
        super().add_to(app)

    def endpoint(self, handler: look.Endpoint) -> look.Endpoint:
        return look.with_error_pages(handler)

    async def latest(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self.pages.page("latest.html", signed_in, await self._view(request, signed_in))

    async def fragment(self, request: Request) -> Response:
        view = await self._view(request, await self.pages.must_be_signed_in(request))
        return await look.fragment(request, "readings.html", "readings", view)

    @route(
        "GET",
        "/api/v1/telemetry/latest",
        LatestReadings,
        response_description="The readings of the person's company.",
        dependencies=[sign_in.SIGN_IN],
    )
    async def latest_json(self, request: Request, response: Response) -> Any:
        """The newest reading of every sensor."""
        view = await self._view(request, await self.pages.must_be_signed_in(request))
        response.headers.update(api.NO_STORE)
        return readings.as_json(view)

    async def _view(self, request: Request, signed_in: SignIn) -> readings.View:
        async with self.pages.as_person(request, signed_in) as connection:
            company = await self.pages.company(connection, signed_in)
            rows = await queries.latest(connection)
        # In a thread, like rendering: a large farm must not delay other requests.
        return await asyncio.to_thread(readings.view, company, rows, now=datetime.now(UTC))
