"""The routes of weighings at the edge: a day, one in full, their live parts and images."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

from fastapi import FastAPI, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.edge.console.pages import Pages, Visit
from farmiq.edge.console.tenant import bounds
from farmiq.edge.console.weighings import queries
from farmiq.edge.console.weighings import view as weighings
from farmiq.edge.console.weighings.view import DayView, WeighingView
from farmiq.edge.media import store as media
from farmiq.edge.weighvision import api as weighing_api
from farmiq.edge.weighvision import queries as sessions
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.images.gallery import Gallery
from farmiq.ui import look, words

ON_A_PAGE = 50


class DayQuery(api.PageFilter):
    """A day (None: today), a state, and behind which weighing to go on."""

    day: api.Day | None = None
    state: Annotated[weighing_api.State | None, api.any_case(tuple(weighings.TONES))] = None
    company: Annotated[str | None, Field(max_length=200)] = None
    limit: int = ON_A_PAGE


@dataclass(frozen=True)
class WeighingPages:
    pages: Pages
    gallery: Gallery

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/weighings", self.day, "GET"),
            ("/weighings/rows", self.rows, "GET"),
            ("/weighings/{session_id}", self.weighing, "GET"),
            ("/weighings/{session_id}/parts", self.parts, "GET"),
            ("/images/{media_id}", self.image, "GET"),
            ("/images/{media_id}/small", self.thumbnail, "GET"),
        )

    async def day(self, request: Request) -> Response:
        async with self.pages.visit(request, "weighvision") as visit:
            view = await self._day(request, visit)
        return await self.pages.page("edge_weighings.html", visit.signed_in, view)

    async def rows(self, request: Request) -> Response:
        async with self.pages.visit(request, "weighvision") as visit:
            view = await self._day(request, visit)
        return await look.fragment(request, "edge_weighing_list.html", "weighings", view)

    async def _day(self, request: Request, visit: Visit) -> DayView:
        query = api.parse(DayQuery, request)
        connection, tenant, now, _ = visit
        zone = words.zone(tenant.timezone)
        day = query.day or now.astimezone(zone).date()
        begin, end = bounds(day, zone)
        wanted = {
            **query.page(), "tenant": tenant.tenant_id, "farm": None, "barn": None,
            "device": None, "station": None, "day": None, "begin": begin, "end": end,
        }  # fmt: skip
        page_rows = await sessions.page(connection, wanted, timezone=tenant.timezone)
        rows, cursor = api.cut(page_rows, ON_A_PAGE, at="start_at", key="session_id")
        given = {"day": day.isoformat(), "state": query.state or ""}
        fragment = f"/weighings/rows?{urlencode(given)}"
        if "cursor" in request.query_params:
            fragment += "&" + urlencode({"cursor": request.query_params["cursor"]})
        return weighings.day_view(
            tenant,
            now=now,
            day=day,
            state=query.state,
            figures=await queries.figures(connection, tenant.tenant_id, begin=begin, end=end),
            sessions=rows,
            images=await queries.first_images(
                connection, tenant.tenant_id, [row["session_id"] for row in rows]
            ),
            next_href=f"/weighings?{urlencode({**given, 'cursor': cursor})}" if cursor else "",
            fragment=fragment,
        )

    async def weighing(self, request: Request) -> Response:
        async with self.pages.visit(request, "weighvision") as visit:
            view = await self._weighing(request, visit)
        return await self.pages.page("edge_weighing.html", visit.signed_in, view)

    async def parts(self, request: Request) -> Response:
        async with self.pages.visit(request, "weighvision") as visit:
            view = await self._weighing(request, visit)
        return await look.fragment(request, "edge_weighing_parts.html", "parts", view)

    async def _weighing(self, request: Request, visit: Visit) -> WeighingView:
        session_id = _uuid(request, "session_id")
        session = await sessions.show(visit.connection, session_id)
        if session is None or session["tenant_id"] != visit.tenant.tenant_id:
            raise HttpError(404, "there is no such weighing")
        return weighings.weighing_view(
            visit.tenant,
            session,
            await queries.estimate(visit.connection, visit.tenant.tenant_id, session_id),
            now=visit.now,
            fragment=f"/weighings/{session_id}/parts",
        )

    async def image(self, request: Request) -> Response:
        key, sha256, mime_type = await self._stored(request)
        return await self.gallery.whole(request, key, sha256, mime_type)

    async def thumbnail(self, request: Request) -> Response:
        key, sha256, _ = await self._stored(request)
        return await self.gallery.small(request, key, sha256)

    async def _stored(self, request: Request) -> tuple[str, str, str]:
        """Key, hash and type of an image of the tenant; the bucket is asked without a connection.

        Raises HttpError 404 for one that is not here or another tenant's.
        """
        async with self.pages.visit(request, "media") as visit:
            row = await media.show(visit.connection, _uuid(request, "media_id"))
        reaches = row is not None and visit.tenant.only_tenant_id in (None, row["tenant_id"])
        if row is None or not reaches or row["upload_status"] != "stored":
            raise HttpError(404, "there is no such image")
        return row["object_key"], row["sha256"], row["mime_type"]


def _uuid(request: Request, name: str) -> UUID:
    try:
        return UUID(request.path_params[name])
    except ValueError:
        raise HttpError(404, "there is nothing of this id") from None
