"""The routes of devices: the list of all, and the page of one camera, sensor or weigh station."""

import asyncio
import re
from dataclasses import dataclass
from typing import Annotated, Literal
from uuid import UUID

from fastapi import FastAPI, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.cloud.console import pages
from farmiq.cloud.console.delivery import queries as delivery_queries
from farmiq.cloud.console.devices import connectivity, detail, queries
from farmiq.cloud.console.devices import view as devices
from farmiq.cloud.console.devices.view import DevicesQuery
from farmiq.cloud.console.sites import queries as site_queries
from farmiq.cloud.console.sites import strips
from farmiq.cloud.console.telemetry import queries as telemetry_queries
from farmiq.cloud.identity.store import SignIn
from farmiq.messages.ids import ID_PATTERN
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words
from farmiq.ui.metrics import Catalogue

DEVICE = "/devices/{kind}/{device_id}"
MAX_FAILED, MAX_IMAGES = 20, 6


class DevicesFilter(api.Filter):
    show: Annotated[
        Literal["camera", "sensor", "station", "problems"] | None,
        api.any_case((*devices.KINDS, devices.PROBLEMS)),
    ] = None
    page: Annotated[int, Field(ge=1, le=1000)] = 1
    company: str | None = None


@dataclass(frozen=True)
class DevicePages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/devices", self.list_page, "GET"),
            ("/devices/rows", self.rows, "GET"),
            (DEVICE, self.device, "GET"),
            (f"{DEVICE}/parts", self.parts, "GET"),
        )

    async def list_page(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        view = await self._devices(request, signed_in)
        return await self.pages.page("devices.html", signed_in, view)

    async def rows(self, request: Request) -> Response:
        view = await self._devices(request, await self.pages.must_be_signed_in(request))
        return await look.fragment(request, "device_list.html", "devices", view)

    async def device(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        view = await self._device(request, signed_in)
        return await self.pages.page("device.html", signed_in, view)

    async def parts(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        view = await self._device(request, signed_in)
        return await look.fragment(
            request, "device_detail.html", "parts", view, signed_in.csrf_token
        )

    async def _devices(self, request: Request, signed_in: SignIn) -> devices.View:
        given = api.parse(DevicesFilter, request)
        query = DevicesQuery(show=given.show, page=given.page)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            of_barns = await queries.barn_devices(connection)
            cameras = await queries.cameras(connection)
            sensors = await queries.sensors(connection)
            edges = await delivery_queries.edges(connection, now=now)
        return await asyncio.to_thread(
            devices.view,
            company,
            of_barns,
            cameras,
            late_sensors=detail.late_sensors(sensors, now=now),
            query=query,
            now=now,
            edges=edges,
        )

    async def _device(self, request: Request, signed_in: SignIn) -> detail.View:
        kind, device_id = request.path_params["kind"], request.path_params["device_id"]
        if kind not in devices.KINDS or not re.match(ID_PATTERN, device_id):
            raise _not_found()
        if kind == devices.CAMERA:
            return await self._camera(request, signed_in, device_id)
        return await self._barn_device(request, signed_in, device_id)

    async def _camera(self, request: Request, signed_in: SignIn, text: str) -> detail.View:
        try:
            device_id = UUID(text)
        except ValueError:
            raise _not_found() from None
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            camera = await queries.camera(connection, device_id)
            if camera is None:
                raise _not_found()
            zone = words.zone(camera.timezone or company.timezone)
            begin = connectivity.begin_at(now, zone)
            wakes = await queries.camera_wakes(connection, device_id, begin=begin)
            stays = await site_queries.stays(connection, [device_id])
            site_of = await site_queries.sites_of(
                connection, list({wake.session_id for wake in wakes})
            )
            (of_site,) = await site_queries.cameras(connection, None, [device_id])
            events = await queries.camera_events(connection, device_id)
            measured = await queries.camera_measured(connection, device_id, begin=begin)
            failed = await queries.failed_images(connection, device_id, limit=MAX_FAILED)
            images = await queries.newest_images(connection, device_id, limit=MAX_IMAGES)
            login = await queries.camera_login(connection, device_id)
        owed = strips.mark_required(wakes, stays, site_of=site_of)
        return detail.of_camera(
            company,
            camera,
            connectivity=connectivity.of_wakes(owed, of_site, now=now, zone=zone),
            events=events,
            measured=measured,
            failed=failed,
            images=images,
            login=login,
            now=now,
        )

    async def _barn_device(
        self, request: Request, signed_in: SignIn, device_id: str
    ) -> detail.View:
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            device = await queries.barn_device(connection, device_id)
            if device is None:
                raise _not_found()
            zone = words.zone(device.timezone or company.timezone)
            begin = connectivity.begin_at(now, zone)
            sensors = await queries.sensors(connection, device_id)
            entries = await telemetry_queries.catalogue(connection)
            events = await queries.barn_events(connection, device_id)
            measured = await queries.barn_measured(connection, device_id, begin=begin)
            dropped = await queries.dropped(connection, device_id, begin=begin)
            if device.kind == devices.STATION:
                week = connectivity.of_weighings(
                    await queries.weighing_hours(connection, device_id, begin=begin),
                    await queries.offline_spans(connection, device_id, begin=begin),
                    now=now,
                    zone=zone,
                )
            else:
                week = connectivity.of_readings(
                    await queries.reading_hours(connection, device_id, begin=begin),
                    interval_s=min((sensor.interval_s for sensor in sensors), default=0),
                    now=now,
                    zone=zone,
                )
        return detail.of_barn(
            company,
            device,
            sensors=sensors,
            catalogue=Catalogue(entries),
            connectivity=week,
            events=events,
            measured=measured,
            dropped=dropped,
            now=now,
        )


def _not_found() -> HttpError:
    return HttpError(404, "there is no such device")
