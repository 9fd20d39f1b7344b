"""The routes that change when a camera wakes: a form with a preview, and taking a change back."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import psycopg
from fastapi import FastAPI, Request, Response

from farmiq import api
from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.schedules import queries
from farmiq.cloud.console.schedules import view as schedules
from farmiq.cloud.console.sites import queries as site_queries
from farmiq.cloud.console.sites import view as sites
from farmiq.cloud.console.sites.strips import Camera
from farmiq.cloud.console.sites.view import Site
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import db
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words

SCHEDULE = "/sites/{site_id}/cameras/{device_id}/schedule"
# Who changes schedules; the database function asks for the same.
TECHNICIAN = "technician"
NOT_VALID = 400


@dataclass(frozen=True)
class SchedulePages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            (SCHEDULE, self.schedule, "GET"),
            (SCHEDULE, self.change_schedule, "POST"),
            (f"{SCHEDULE}/{{change_id}}/cancel", self.cancel_change, "POST"),
        )

    async def schedule(self, request: Request) -> Response:
        """The form; with ?cron= also a preview of that schedule."""
        signed_in = await self.pages.must_be_signed_in(request)
        entered = _cron(request.query_params.get("cron"))
        return await self._page(request, signed_in, entered=entered)

    async def change_schedule(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        form = await self.pages.form(request, signed_in)
        cron = _cron(form.get("cron"))
        try:
            async with acting.caller(self.pages, request, least=TECHNICIAN) as caller:
                site, camera = await _camera(caller.connection, request)
                await queries.request_change(caller.connection, camera.device_id, cron)
        except HttpError as error:
            if error.status != NOT_VALID:
                raise
            return await self._page(request, signed_in, entered=cron)
        return acting.redirect(request, f"{sites.site_address(site.site_id)}#schedules")

    async def cancel_change(self, request: Request) -> Response:
        await acting.form(self.pages, request)
        change_id = _id(request, "change_id", "schedule change")
        async with acting.caller(self.pages, request, least=TECHNICIAN) as caller:
            site, _ = await _camera(caller.connection, request)
            await queries.cancel_change(caller.connection, change_id)
        return acting.redirect(request, f"{sites.site_address(site.site_id)}#schedules")

    async def _page(self, request: Request, signed_in: SignIn, *, entered: str) -> Response:
        problem, preview = "", None
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            site, camera = await _camera(connection, request)
            changes = await queries.waiting_changes(connection, [camera.device_id])
            today = await queries.wakes_today(connection, site, camera)
            if entered:
                try:
                    preview = await _preview(connection, site, camera, entered, now=now)
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
            now=now,
        )
        return await self.pages.page(
            "schedule.html", signed_in, view, status=422 if problem else 200
        )


async def _preview(
    connection: db.Connection, site: Site, camera: Camera, cron: str, *, now: datetime
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


async def _camera(connection: db.Connection, request: Request) -> tuple[Site, Camera]:
    site_id = _id(request, "site_id", "site")
    device_id = _id(request, "device_id", "camera")
    site = await site_queries.site(connection, site_id)
    cameras = await site_queries.cameras(connection, site_id, [])
    camera = next((camera for camera in cameras if camera.device_id == device_id), None)
    if site is None or camera is None:
        raise HttpError(404, "there is no such camera")
    return site, camera


def _id(request: Request, name: str, what: str) -> UUID:
    try:
        return UUID(request.path_params[name])
    except ValueError:
        raise HttpError(404, f"there is no such {what}") from None


def _cron(text: str | None) -> str:
    """As it was typed, without NUL, which the database rejects."""
    return (text or "").replace("\0", " ").strip()[: schedules.MAX_CRON]
