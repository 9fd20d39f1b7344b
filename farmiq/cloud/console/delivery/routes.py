"""The routes of delivery: all edges, one edge; dead letters are in `dead_letters`."""

import re
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response

from farmiq.cloud.console import pages
from farmiq.cloud.console.delivery import queries, view
from farmiq.cloud.console.delivery.view import EdgeView, View
from farmiq.cloud.identity.store import SignIn
from farmiq.messages.ids import ID_PATTERN
from farmiq.plumbing.http import HttpError
from farmiq.ui import look


@dataclass(frozen=True)
class DeliveryPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/delivery", self.overview, "GET"),
            ("/delivery/rows", self.rows, "GET"),
            ("/delivery/edges/{edge_id}", self.edge, "GET"),
            ("/delivery/edges/{edge_id}/parts", self.parts, "GET"),
        )

    async def overview(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        shown = await self._overview(request, signed_in)
        return await self.pages.page("delivery.html", signed_in, shown)

    async def rows(self, request: Request) -> Response:
        shown = await self._overview(request, await self.pages.must_be_signed_in(request))
        return await look.fragment(request, "delivery_parts.html", "overview", shown)

    async def edge(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        shown = await self._edge(request, signed_in)
        return await self.pages.page("delivery_edge.html", signed_in, shown)

    async def parts(self, request: Request) -> Response:
        shown = await self._edge(request, await self.pages.must_be_signed_in(request))
        return await look.fragment(request, "delivery_parts.html", "edge_parts", shown)

    async def _overview(self, request: Request, signed_in: SignIn) -> View:
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            facts = await queries.facts(connection, now=now)
        return view.view(company, facts, now=now)

    async def _edge(self, request: Request, signed_in: SignIn) -> EdgeView:
        edge_id = request.path_params["edge_id"]
        if not re.match(ID_PATTERN, edge_id):
            raise HttpError(404, "there is no such edge")
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            facts = await queries.edge(connection, edge_id, now=now)
        if facts is None:
            raise HttpError(404, "there is no such edge")
        return view.edge_view(company, facts, now=now)
