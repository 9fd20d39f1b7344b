"""The routes about weighings: the list of a day, one in full, and their fragments."""

import asyncio
import re
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import FastAPI, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.cloud.console import pages
from farmiq.cloud.console.weighings import api as weighing_api
from farmiq.cloud.console.weighings import queries
from farmiq.cloud.console.weighings import view as weighings
from farmiq.cloud.console.weighings.view import Detail, View, Weighing
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words


class DayFilter(api.Filter):
    """What the page of a day shows: a day (None: today), a station, a state, a page."""

    day: api.Day | None = None
    station: api.Id | None = None
    state: Annotated[weighing_api.State | None, api.any_case(weighings.STATES)] = None
    page: Annotated[int, Field(ge=1, le=1000)] = 1
    company: str | None = None

    def query(self) -> weighings.WeighingsQuery:
        return weighings.WeighingsQuery(
            day=self.day, station=self.station, state=self.state, page=self.page
        )


@dataclass(frozen=True)
class WeighingPages:
    pages: pages.Pages
    patience_s: float

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/weighings", self.day, "GET"),
            ("/weighings/rows", self.rows, "GET"),
            ("/weighings/{session_id}", self.weighing, "GET"),
            ("/weighings/{session_id}/parts", self.parts, "GET"),
        )
        weighing_api.WeighingApi(self.pages, self.patience_s).add_to(app)

    async def day(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self.pages.page(
            "weighings.html", signed_in, await self._day(request, signed_in)
        )

    async def rows(self, request: Request) -> Response:
        view = await self._day(request, await self.pages.must_be_signed_in(request))
        return await look.fragment(request, "weighing_list.html", "weighings", view)

    async def weighing(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self.pages.page(
            "weighing.html", signed_in, await self._detail(request, signed_in)
        )

    async def parts(self, request: Request) -> Response:
        view = await self._detail(request, await self.pages.must_be_signed_in(request))
        return await look.fragment(request, "weighing_detail.html", "parts", view)

    async def _day(self, request: Request, signed_in: SignIn) -> View:
        query = api.parse(DayFilter, request).query()
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            day = query.day or now.astimezone(words.zone(company.timezone)).date()
            weighings_of_day = await queries.day(
                connection, day=day, zone=company.timezone, patience_s=self.patience_s
            )
            shown = weighings.on_page(weighings.matching_of(weighings_of_day, query), query.page)
            here = await queries.here(connection, queries.pictures(shown))
            last_at = None if weighings_of_day else await queries.last_at(connection)
            targets = await queries.targets(connection, day)
        # In a thread, like rendering: a large farm must not delay other requests.
        return await asyncio.to_thread(
            weighings.view,
            company,
            weighings_of_day,
            query=query,
            here=here,
            last_at=last_at,
            targets=targets,
            now=now,
        )

    async def _detail(self, request: Request, signed_in: SignIn) -> Detail:
        session_id = _session_id(request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            weighing = await self._find(connection, session_id, company.timezone)
            events = await queries.events(connection, session_id)
            here = await queries.here(connection, weighing.media_ids)
            zone = words.zone(weighing.timezone or company.timezone)
            day = weighing.start_at.astimezone(zone).date()
            beside = await queries.beside(connection, weighing, day=day, zone=company.timezone)
            estimate = await queries.estimate(connection, weighing)
        return weighings.detail(
            company,
            weighing,
            events,
            here=here,
            image=_image_number(request.query_params.get("image")),
            before=beside.before,
            after=beside.after,
            place=(beside.number, beside.total),
            estimate=estimate,
            now=now,
        )

    async def _find(self, connection: db.Connection, session_id: UUID, zone: str) -> Weighing:
        weighing = await queries.find(connection, session_id, zone=zone, patience_s=self.patience_s)
        if weighing is None:
            raise HttpError(404, "there is no such weighing")
        return weighing


def _session_id(request: Request) -> UUID:
    try:
        return UUID(request.path_params["session_id"])
    except ValueError:
        raise HttpError(404, "there is no such weighing") from None


def _image_number(text: str | None) -> int:
    """The number of the image to show; 1 if the URL has no valid one."""
    return int(text) if text and re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) else 1
