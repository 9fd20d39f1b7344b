"""The routes of devices at the edge: the list, one device, and their live parts."""

from dataclasses import dataclass

from fastapi import FastAPI, Request, Response

from farmiq.edge.console.devices import queries
from farmiq.edge.console.devices import view as devices
from farmiq.edge.console.devices.view import DevicesView, DeviceView
from farmiq.edge.console.pages import Pages, Visit
from farmiq.edge.console.readings import view as readings
from farmiq.edge.console.readings.queries import latest as latest_readings
from farmiq.edge.console.tenant import bounds
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words
from farmiq.ui.metrics import Catalogue


@dataclass(frozen=True)
class DevicePages:
    pages: Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/devices", self.devices, "GET"),
            ("/devices/rows", self.rows, "GET"),
            ("/devices/{device_id}", self.device, "GET"),
            ("/devices/{device_id}/parts", self.parts, "GET"),
        )

    async def devices(self, request: Request) -> Response:
        async with self.pages.visit(request, "devices") as visit:
            view = await self._view(visit)
        return await self.pages.page("edge_devices.html", visit.signed_in, view)

    async def rows(self, request: Request) -> Response:
        async with self.pages.visit(request, "devices") as visit:
            view = await self._view(visit)
        return await look.fragment(request, "edge_device_list.html", "devices", view)

    async def device(self, request: Request) -> Response:
        async with self.pages.visit(request, "devices") as visit:
            view = await self._device(request, visit)
        return await self.pages.page("edge_device.html", visit.signed_in, view)

    async def parts(self, request: Request) -> Response:
        async with self.pages.visit(request, "devices") as visit:
            view = await self._device(request, visit)
        return await look.fragment(request, "edge_device_parts.html", "parts", view)

    async def _device(self, request: Request, visit: Visit) -> DeviceView:
        """Raises HttpError 404; another tenant's device is not found either."""
        connection, tenant, now, _ = visit
        device_id = request.path_params["device_id"].replace("\0", "")
        device = await queries.device(connection, tenant.tenant_id, device_id)
        if device is None:
            raise HttpError(404, "there is no such device")
        latest = (
            await latest_readings(connection, tenant.tenant_id, device_id=device_id)
            if tenant.reads("telemetry")
            else []
        )
        heartbeat_s = None if device["revoked_at"] else float(device["heartbeat_s"])
        catalogue = Catalogue()
        zone = words.zone(tenant.timezone)
        begin, _end = bounds(now.astimezone(zone).date(), zone)
        return devices.device_view(
            tenant,
            device,
            sensors=[
                readings.row(reading, (), heartbeat_s, catalogue=catalogue, now=now)
                for reading in latest
            ],
            counts=await queries.counts(connection, tenant.tenant_id, device_id, since=begin),
            losses=await queries.losses(connection, tenant.tenant_id, device_id),
            commands=await queries.commands(connection, tenant.tenant_id, device_id),
            now=now,
        )

    async def _view(self, visit: Visit) -> DevicesView:
        connection, tenant, now, _ = visit
        registered = await queries.devices(connection, tenant.tenant_id)
        wrong_clocks = await queries.wrong_clocks(connection, tenant.tenant_id)
        return devices.view(tenant, registered, wrong_clocks, now=now)
