"""The routes of a site's dishes: the page, the time-lapse of one, and a new dish."""

import asyncio
import shutil
from dataclasses import dataclass, field
from typing import Annotated
from uuid import UUID

import msgspec
from fastapi import FastAPI, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.cloud import camera_images
from farmiq.cloud.camera.observations import service, time_lapse
from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.dishes import queries
from farmiq.cloud.console.dishes import view as dishes
from farmiq.cloud.console.dishes.api import DishApi
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.images import pictures
from farmiq.plumbing.images.gallery import Gallery
from farmiq.plumbing.sandbox import InputRejectedError, WorkerGoneError
from farmiq.ui import look

DISHES = "/sites/{site_id}/dishes"
DISH = f"{DISHES}/{{device_id}}"
FFMPEG, MP4 = "ffmpeg", "video/mp4"


class DishesFilter(api.Filter):
    """The change in percent whose day is forecast."""

    threshold: Annotated[int, Field(ge=3, le=95)] = dishes.DEFAULT_THRESHOLD
    company: str | None = None


@dataclass(frozen=True)
class DishPages:
    pages: pages.Pages
    gallery: Gallery
    # One at a time: each takes a core for seconds.
    one_at_a_time: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            (DISHES, self.page, "GET"),
            (f"{DISH}/time-lapse.webp", self.time_lapse, "GET"),
            (f"{DISH}/time-lapse.mp4", self.time_lapse_mp4, "GET"),
            (f"{DISH}/new", self.new_dish, "POST"),
        )
        DishApi(self.pages).add_to(app)

    async def page(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        query = api.parse(DishesFilter, request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            site = await queries.site(connection, _id(request, "site_id", "site"))
            if site is None:
                raise HttpError(404, "there is no such site")
            cameras, measured = await queries.dishes(connection, site.site_id, now=now)
        view = await asyncio.to_thread(
            dishes.view,
            company,
            site,
            cameras=cameras,
            measured=measured,
            threshold=query.threshold,
            now=now,
            has_mp4=shutil.which(FFMPEG) is not None,
        )
        return await self.pages.page("dishes.html", signed_in, view)

    async def time_lapse(self, request: Request) -> Response:
        """The images of a camera's newest dish as an animated WebP."""
        return await self._time_lapse(request, pictures.WEBP)

    async def time_lapse_mp4(self, request: Request) -> Response:
        """The same as MP4, to send on; by the server's own ffmpeg, if it has one."""
        return await self._time_lapse(request, MP4)

    async def _time_lapse(self, request: Request, content_type: str) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        site_id, device_id = _id(request, "site_id", "site"), _id(request, "device_id", "camera")
        async with self.pages.as_person(request, signed_in) as connection:
            frames = await queries.frames(connection, site_id, device_id)
        ffmpeg = shutil.which(FFMPEG) if content_type == MP4 else None
        if content_type == MP4 and ffmpeg is None:
            raise HttpError(404, "this server has no ffmpeg: the time-lapse is a WebP alone")
        ours = [
            frame.image_url
            for frame in frames
            if frame.image_url.startswith(f"{camera_images.FOLDER}{frame.company_id}/")
        ]
        if not ours:
            raise HttpError(404, "no images of a dish are here")
        ending = content_type.rpartition("/")[2]
        tag = f'"{len(ours)}-{ours[-1].rpartition("/")[2]}"'
        headers = {
            "ETag": tag,
            "Cache-Control": "private, no-cache",
            "X-Content-Type-Options": "nosniff",
            "Content-Disposition": f'inline; filename="{device_id}.{ending}"',
        }
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        keys = [ours[index] for index in time_lapse.chosen(len(ours))]
        made = await self._made(keys, ffmpeg=ffmpeg)
        return Response(made, media_type=content_type, headers=headers)

    async def _made(self, keys: list[str], *, ffmpeg: str | None) -> bytes:
        async with self.one_at_a_time:
            images = []
            for key in keys:
                try:
                    images.append(await self.gallery.small_data(key))
                except HttpError as error:
                    if error.status != 404:  # noqa: PLR2004 - one that is gone is left out
                        raise
            data = msgspec.msgpack.encode(images)
            try:
                made = await asyncio.to_thread(
                    service.WORKER.call, "time_lapse", data, limits=time_lapse.LIMITS, ffmpeg=ffmpeg
                )
            except InputRejectedError as error:
                raise HttpError(404, f"no time-lapse can be made: {error}") from None
            except WorkerGoneError as error:
                raise HttpError(503, str(error), retry_after_s=5) from None
        return made.data

    async def new_dish(self, request: Request) -> Response:
        """A person has put a new dish under a camera: a new series begins with its next image."""
        await acting.form(self.pages, request)
        site_id, device_id = _id(request, "site_id", "site"), _id(request, "device_id", "camera")
        async with acting.caller(self.pages, request, least="operator") as caller:
            cameras = await queries.cameras(caller.connection, site_id)
            if all(camera.device_id != device_id for camera in cameras):
                raise HttpError(404, "there is no such camera")
            await queries.start_dish(caller.connection, device_id)
        return acting.redirect(request, f"/sites/{site_id}/dishes#d-{device_id}")


def _id(request: Request, name: str, what: str) -> UUID:
    try:
        return UUID(request.path_params[name])
    except ValueError:
        raise HttpError(404, f"there is no such {what}") from None
