"""The routes of devices at the edge: the page and its live part."""

from dataclasses import dataclass

from fastapi import FastAPI, Request, Response

from farmiq.edge.console.devices import queries
from farmiq.edge.console.devices import view as devices
from farmiq.edge.console.devices.view import DevicesView
from farmiq.edge.console.pages import Pages, Visit
from farmiq.ui import look


@dataclass(frozen=True)
class DevicePages:
    pages: Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/devices", self.devices, "GET"),
            ("/devices/rows", self.rows, "GET"),
        )

    async def devices(self, request: Request) -> Response:
        async with self.pages.visit(request, "devices") as visit:
            view = await self._view(visit)
        return await self.pages.page("edge_devices.html", visit.signed_in, view)

    async def rows(self, request: Request) -> Response:
        async with self.pages.visit(request, "devices") as visit:
            view = await self._view(visit)
        return await look.fragment(request, "edge_device_list.html", "devices", view)

    async def _view(self, visit: Visit) -> DevicesView:
        connection, tenant, now, _ = visit
        registered = await queries.devices(connection, tenant.tenant_id)
        wrong_clocks = await queries.wrong_clocks(connection, tenant.tenant_id)
        return devices.view(tenant, registered, wrong_clocks, now=now)
