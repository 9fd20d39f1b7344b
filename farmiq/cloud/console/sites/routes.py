"""The routes of sites: the list, a site's day, and its images."""

import asyncio
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from fastapi import FastAPI, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.cloud import camera_images
from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.dishes import queries as dish_queries
from farmiq.cloud.console.dishes import view as dishes
from farmiq.cloud.console.schedules import queries as schedule_queries
from farmiq.cloud.console.sites import day as site_day
from farmiq.cloud.console.sites import images, queries, strips
from farmiq.cloud.console.sites import view as sites
from farmiq.cloud.console.sites.day import SiteDayQuery
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.images import pictures
from farmiq.plumbing.images.gallery import Gallery
from farmiq.ui import look

SITE = "/sites/{site_id}"
IMAGE = "/sites/images/{image_id}"


class SiteDayFilter(api.Filter):
    """A day of a site (None: today), and the camera that is open on the page."""

    day: Annotated[api.Day | None, Field(alias="date")] = None
    camera: UUID | None = None
    company: str | None = None


@dataclass(frozen=True)
class SitePages:
    pages: pages.Pages
    gallery: Gallery

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/sites", self.list_page, "GET"),
            ("/sites/rows", self.rows, "GET"),
            (IMAGE, self.image, "GET"),
            (f"{IMAGE}/file", self.file, "GET"),
            (f"{IMAGE}/thumbnail", self.thumbnail, "GET"),
            (f"{IMAGE}/resend", self.resend, "POST"),
            (SITE, self.site_page, "GET"),
            (f"{SITE}/parts", self.parts, "GET"),
        )

    async def list_page(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self.pages.page("sites.html", signed_in, await self._sites(request, signed_in))

    async def rows(self, request: Request) -> Response:
        view = await self._sites(request, await self.pages.must_be_signed_in(request))
        return await look.fragment(request, "site_list.html", "sites", view)

    async def site_page(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        view = await self._site(request, signed_in)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            cameras, measured = await dish_queries.dishes(connection, view.site.site_id, now=now)
        grown = await asyncio.to_thread(
            dishes.view, company, view.site, cameras=cameras, measured=measured, now=now
        )
        return await self.pages.page("site.html", signed_in, view, grown=grown)

    async def parts(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        view = await self._site(request, signed_in)
        return await look.fragment(
            request, "site_detail.html", "parts", view, pages.form_token(signed_in, view.company)
        )

    async def image(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        image_id = _id(request, "image_id", "image")
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            image = await queries.image(connection, image_id)
            if image is None:
                raise _not_found("image")
            before, after = await queries.images_beside(connection, image)
        view = images.view(company, image, before=before, after=after, now=now)
        return await self.pages.page("image.html", signed_in, view)

    async def file(self, request: Request) -> Response:
        stored = await self._stored(request)
        return await self.gallery.whole(request, stored.key, stored.tag, pictures.JPEG)

    async def thumbnail(self, request: Request) -> Response:
        stored = await self._stored(request)
        return await self.gallery.small(request, stored.key, stored.tag)

    async def resend(self, request: Request) -> Response:
        """A person requests an image again (DB2-20); `back` is the page that they came from."""
        form = await acting.form(self.pages, request)
        image_id = _id(request, "image_id", "image")
        async with acting.caller(self.pages, request, least="operator") as caller:
            place = await queries.place_of(caller.connection, image_id)
            if place is None:
                raise _not_found("image")
            await queries.request_resend(caller.connection, image_id)
        site_id, device_id, day = place
        address = sites.site_address(site_id, day=day, camera=device_id)
        back = look.own_address(form.get("back"))
        return acting.redirect(request, back if back != "/" else f"{address}#i-{image_id}")

    async def _sites(self, request: Request, signed_in: SignIn) -> sites.View:
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            all_sites = await queries.sites(connection)
            days = await queries.last_days(connection)
            today = {site.site_id: site.today for site in all_sites}
            current = [e.session_id for e in days if today.get(e.site_id) == e.session_date]
            wakes = await queries.wakes(connection, current)
            wanted = list({wake.device_id for wake in wakes})
            stays = await queries.stays(connection, wanted)
            cameras = await queries.cameras(connection, None, wanted)
        # In a thread, like rendering: a large farm must not delay other requests.
        site_of = {day.session_id: day.site_id for day in days}
        wakes = await asyncio.to_thread(strips.mark_required, wakes, stays, site_of=site_of)
        return await asyncio.to_thread(
            sites.view, company, all_sites, days=days, wakes=wakes, cameras=cameras, now=now
        )

    async def _site(self, request: Request, signed_in: SignIn) -> site_day.View:
        query = _day_query(request)
        site_id = _id(request, "site_id", "site")
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            site = await queries.site(connection, site_id)
            if site is None:
                raise _not_found("site")
            day = await queries.day(connection, site_id, query.day or site.today)
            wakes = await queries.wakes(connection, [day.session_id] if day else [])
            here = [wake.image_id for wake in wakes if wake.image_id]
            wake_images = await queries.images(connection, here)
            came = list({wake.device_id for wake in wakes})
            stays = await queries.stays(connection, came)
            cameras = await queries.cameras(connection, site_id, came)
            known = [camera.device_id for camera in cameras]
            changes = await schedule_queries.waiting_changes(connection, known)
            alerts = await queries.alerts(connection, day) if day else []
        site_of = {day.session_id: site_id} if day else {}
        wakes = await asyncio.to_thread(strips.mark_required, wakes, stays, site_of=site_of)
        return await asyncio.to_thread(
            site_day.view,
            company,
            site,
            day=day,
            wakes=wakes,
            images=wake_images,
            cameras=cameras,
            changes=changes,
            alerts=alerts,
            query=query,
            now=now,
        )

    async def _stored(self, request: Request) -> camera_images.Stored:
        signed_in = await self.pages.must_be_signed_in(request)
        image_id = _id(request, "image_id", "image")
        async with self.pages.as_person(request, signed_in) as connection:
            return await camera_images.stored(connection, image_id)


def _day_query(request: Request) -> SiteDayQuery:
    query = api.parse(SiteDayFilter, request)
    return SiteDayQuery(day=query.day, camera=query.camera)


def _id(request: Request, name: str, what: str) -> UUID:
    try:
        return UUID(request.path_params[name])
    except ValueError:
        raise _not_found(what) from None


def _not_found(what: str) -> HttpError:
    return HttpError(404, f"there is no such {what}")
