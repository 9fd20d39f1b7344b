"""The routes of sites: the list, a site's day, its images, and the schedule of a camera."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import urlencode
from uuid import UUID

import psycopg
from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import Field

from farmiq import api
from farmiq.cloud import camera_images
from farmiq.cloud.console import pages
from farmiq.cloud.console.sites import day as site_day
from farmiq.cloud.console.sites import images, queries, schedules, strips
from farmiq.cloud.console.sites import view as sites
from farmiq.cloud.console.sites.day import May, SiteDayQuery
from farmiq.cloud.console.sites.strips import Camera
from farmiq.cloud.console.sites.view import Site
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.images import pictures
from farmiq.plumbing.images.gallery import Gallery
from farmiq.ui import look, words

SITE = "/sites/{site_id}"
IMAGE = "/sites/images/{image_id}"
SCHEDULE = f"{SITE}/cameras/{{device_id}}/schedule"


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
            (SCHEDULE, self.schedule, "GET"),
            (SCHEDULE, self.change_schedule, "POST"),
            (f"{SCHEDULE}/{{change_id}}/cancel", self.cancel_change, "POST"),
        )

    async def list_page(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self.pages.page("sites.html", signed_in, await self._sites(request, signed_in))

    async def rows(self, request: Request) -> Response:
        view = await self._sites(request, await self.pages.must_be_signed_in(request))
        return await look.fragment(request, "site_list.html", "sites", view)

    async def site_page(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        return await self.pages.page("site.html", signed_in, await self._site(request, signed_in))

    async def parts(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        view = await self._site(request, signed_in)
        return await look.fragment(request, "site_detail.html", "parts", view, signed_in.csrf_token)

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
        """A person requests an image again (DB2-20)."""
        signed_in = await self.pages.must_be_signed_in(request)
        await self.pages.form(request, signed_in)
        image_id = _id(request, "image_id", "image")
        async with self._acting(request, signed_in) as connection:
            may = await self._may(connection, signed_in)
            place = await queries.place_of(connection, image_id)
            if place is None:
                raise _not_found("image")
            if not may.resend:
                raise HttpError(403, "viewers look only: an operator may ask for an image again")
            await queries.request_resend(connection, image_id)
        site_id, device_id, day = place
        address = sites.site_address(site_id, day=day, camera=device_id)
        return _redirect(request, f"{address}#i-{image_id}")

    async def schedule(self, request: Request) -> Response:
        """The form; with ?cron= also a preview of that schedule."""
        signed_in = await self.pages.must_be_signed_in(request)
        entered = _cron(request.query_params.get("cron"))
        return await self._schedule(request, signed_in, entered=entered)

    async def change_schedule(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        form = await self.pages.form(request, signed_in)
        cron = _cron(form.get("cron"))
        try:
            async with self._acting(request, signed_in) as connection:
                site, camera = await self._camera(connection, request)
                await self._must_schedule(connection, signed_in)
                await queries.request_change(connection, camera.device_id, cron)
        except psycopg.errors.InvalidParameterValue:
            return await self._schedule(request, signed_in, entered=cron)
        return _redirect(request, f"{sites.site_address(site.site_id)}#schedules")

    async def cancel_change(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        await self.pages.form(request, signed_in)
        change_id = _id(request, "change_id", "schedule change")
        async with self._acting(request, signed_in) as connection:
            site, _ = await self._camera(connection, request)
            await self._must_schedule(connection, signed_in)
            await queries.cancel_change(connection, change_id)
        return _redirect(request, f"{sites.site_address(site.site_id)}#schedules")

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
            changes = await queries.waiting_changes(connection, known)
            alerts = await queries.alerts(connection, day) if day else []
            may = await self._may(connection, signed_in)
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
            may=may,
            now=now,
        )

    async def _schedule(self, request: Request, signed_in: SignIn, *, entered: str) -> Response:
        problem, preview = "", None
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            site, camera = await self._camera(connection, request)
            changes = await queries.waiting_changes(connection, [camera.device_id])
            today = await queries.wake_times(
                connection, camera.wake_schedule_cron, timezone=site.zone_today, at=site.today
            )
            may = await self._may(connection, signed_in)
            if entered:
                try:
                    preview = await self._preview(connection, site, camera, entered, now=now)
                except psycopg.errors.InvalidParameterValue as error:
                    problem = db.first_line(error)
        view = schedules.view(
            company,
            site,
            camera,
            change=changes[0] if changes else None,
            times_today=today,
            entered=entered,
            problem=problem,
            preview=preview,
            may=may,
            now=now,
        )
        return await self.pages.page(
            "schedule.html", signed_in, view, status=422 if problem else 200
        )

    async def _preview(
        self, connection: db.Connection, site: Site, camera: Camera, cron: str, *, now: datetime
    ) -> schedules.Preview:
        # A savepoint: an invalid schedule must not end the transaction.
        async with connection.transaction():
            answer = await queries.preview_change(connection, camera.device_id, cron)
            first = api.parse_day(answer["effective_date"])
            before, after = [
                await queries.wake_times(connection, schedule, timezone=site.timezone, at=first)
                for schedule in (camera.wake_schedule_cron, cron)
            ]
        return schedules.preview(
            answer,
            zone=words.zone(site.timezone),
            now=now,
            before=before,
            after=after,
            current=camera.wake_schedule_cron,
        )

    async def _camera(self, connection: db.Connection, request: Request) -> tuple[Site, Camera]:
        site_id = _id(request, "site_id", "site")
        device_id = _id(request, "device_id", "camera")
        site = await queries.site(connection, site_id)
        cameras = await queries.cameras(connection, site_id, [])
        camera = next((camera for camera in cameras if camera.device_id == device_id), None)
        if site is None or camera is None:
            raise _not_found("camera")
        return site, camera

    async def _stored(self, request: Request) -> camera_images.Stored:
        signed_in = await self.pages.must_be_signed_in(request)
        image_id = _id(request, "image_id", "image")
        async with self.pages.as_person(request, signed_in) as connection:
            return await camera_images.stored(connection, image_id)

    @asynccontextmanager
    async def _acting(self, request: Request, signed_in: SignIn) -> AsyncIterator[db.Connection]:
        """A transaction for an action; an error that the database raises becomes a response."""
        try:
            async with self.pages.as_person(request, signed_in) as connection:
                yield connection
        except psycopg.errors.NoDataFound as error:
            raise HttpError(404, db.first_line(error)) from error
        except psycopg.errors.InsufficientPrivilege as error:
            raise HttpError(403, db.first_line(error)) from error
        except psycopg.errors.ObjectNotInPrerequisiteState as error:
            raise HttpError(409, db.first_line(error)) from error

    async def _may(self, connection: db.Connection, signed_in: SignIn) -> May:
        role = await queries.role(connection, signed_in.user_id)
        return site_day.may(role, is_super_admin=signed_in.is_super_admin)

    async def _must_schedule(self, connection: db.Connection, signed_in: SignIn) -> None:
        if not (await self._may(connection, signed_in)).schedule:
            raise HttpError(403, "schedules are changed by technicians and admins")


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


def _redirect(request: Request, address: str) -> Response:
    """After a form: redirect to the page that shows the result, in the company of the form."""
    company = request.query_params.get("company")
    if company:
        path, _, mark = address.partition("#")
        query = urlencode({"company": company})
        address = f"{path}{'&' if '?' in path else '?'}{query}#{mark}"
    return RedirectResponse(address, 303, headers=look.HEADERS)


def _cron(text: str | None) -> str:
    """As it was typed, without NUL, which the database rejects."""
    return (text or "").replace("\0", " ").strip()[: schedules.MAX_CRON]
