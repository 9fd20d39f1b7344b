"""The routes about feed: the page and its fragment."""

from dataclasses import dataclass
from uuid import UUID

from fastapi import FastAPI, Request, Response

from farmiq import api
from farmiq.cloud.console import pages
from farmiq.cloud.console.batches import queries as batch_queries
from farmiq.cloud.console.entry import queries as entry_queries
from farmiq.cloud.console.entry.view import zone_key
from farmiq.cloud.console.feed import queries, view
from farmiq.cloud.console.feed.view import View
from farmiq.cloud.identity.store import SignIn
from farmiq.ui import look


class FeedFilter(api.Filter):
    """`entered` is a delivery that was just posted."""

    entered: UUID | None = None
    company: str | None = None


@dataclass(frozen=True)
class FeedPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(app, ("/feed", self.feed, "GET"), ("/feed/parts", self.parts, "GET"))

    async def feed(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self.pages.page("feed.html", signed_in, await self._view(request, signed_in))

    async def parts(self, request: Request) -> Response:
        shown = await self._view(request, await self.pages.must_be_signed_in(request))
        return await look.fragment(request, "feed_parts.html", "feed", shown)

    async def _view(self, request: Request, signed_in: SignIn) -> View:
        query = api.parse(FeedFilter, request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            timezone = zone_key(await entry_queries.places(connection), company)
            tenant_id = company.tenant_id
            return view.view(
                company,
                silos=await queries.stock(connection, tenant_id, by="silo"),
                of_lots=await queries.stock(connection, tenant_id, by="lot"),
                lots=await queries.lots(connection, tenant_id),
                intakes=await queries.intakes(connection, tenant_id),
                today=await queries.today(connection, timezone),
                timezone=timezone,
                entered=await batch_queries.entered(connection, query.entered)
                if query.entered
                else None,
                now=now,
                days=queries.DAYS,
            )
