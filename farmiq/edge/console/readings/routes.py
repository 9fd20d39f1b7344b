"""The routes of readings at the edge: all sensors, one with its chart, their live parts."""

import asyncio
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response

from farmiq.edge.console.pages import Pages, Visit
from farmiq.edge.console.readings import queries
from farmiq.edge.console.readings import view as readings
from farmiq.edge.console.readings.view import RANGES, ReadingsView, SensorView
from farmiq.plumbing.http import HttpError
from farmiq.ui import look
from farmiq.ui.metrics import Catalogue


@dataclass(frozen=True)
class ReadingPages:
    pages: Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/readings", self.latest, "GET"),
            ("/readings/rows", self.rows, "GET"),
            ("/readings/{device_id}/{metric_type}", self.sensor, "GET"),
            ("/readings/{device_id}/{metric_type}/parts", self.parts, "GET"),
        )

    async def latest(self, request: Request) -> Response:
        async with self.pages.visit(request, "telemetry") as visit:
            view = await self._latest(visit)
        return await self.pages.page("edge_readings.html", visit.signed_in, view)

    async def rows(self, request: Request) -> Response:
        async with self.pages.visit(request, "telemetry") as visit:
            view = await self._latest(visit)
        return await look.fragment(request, "edge_reading_list.html", "readings", view)

    async def _latest(self, visit: Visit) -> ReadingsView:
        connection, tenant, now, _ = visit
        latest = await queries.latest(connection, tenant.tenant_id)
        lines = await queries.lines(connection, tenant.tenant_id, now=now)
        heartbeats = await queries.heartbeats(connection, tenant.tenant_id)
        # In a thread, like rendering: a large farm must not delay what devices send.
        return await asyncio.to_thread(
            readings.view, tenant, latest, lines=lines, heartbeats=heartbeats, now=now
        )

    async def sensor(self, request: Request) -> Response:
        async with self.pages.visit(request, "telemetry") as visit:
            view = await self._sensor(request, visit)
        return await self.pages.page("edge_sensor.html", visit.signed_in, view)

    async def parts(self, request: Request) -> Response:
        async with self.pages.visit(request, "telemetry") as visit:
            view = await self._sensor(request, visit)
        return await look.fragment(request, "edge_sensor_parts.html", "parts", view)

    async def _sensor(self, request: Request, visit: Visit) -> SensorView:
        device_id, metric_type = (
            request.path_params[name].replace("\0", "") for name in ("device_id", "metric_type")
        )
        connection, tenant, now, _ = visit
        key = request.query_params.get("range", RANGES[1].key)
        wanted = next((known for known in RANGES if known.key == key), None)
        if wanted is None:
            raise HttpError(400, f"range is one of: {', '.join(known.key for known in RANGES)}")
        latest = await queries.latest(
            connection, tenant.tenant_id, device_id=device_id, metric_type=metric_type
        )
        if not latest:
            raise HttpError(404, "there is no such sensor")
        heartbeats = await queries.heartbeats(connection, tenant.tenant_id)
        buckets = await queries.chart(
            connection, tenant.tenant_id, (device_id, metric_type),
            window=wanted.window, step=wanted.step, begin=now - wanted.lasts, end=now,
        )  # fmt: skip
        shown = readings.row(
            latest[0], (), heartbeats.get(device_id), catalogue=Catalogue(), now=now
        )
        return readings.sensor_view(tenant, shown, buckets, wanted=wanted, now=now)
