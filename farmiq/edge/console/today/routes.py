"""The routes of Today: the page, its live part, and closing an alert."""

from dataclasses import dataclass

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from farmiq.edge import alerts
from farmiq.edge.console.delivery import queries as delivery
from farmiq.edge.console.pages import Pages, Visit
from farmiq.edge.console.tenant import bounds
from farmiq.edge.console.today import queries
from farmiq.edge.console.today import view as today
from farmiq.edge.console.today.view import TodayView
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words


@dataclass(frozen=True)
class TodayPages:
    """`patience_s`: for so long without an answer the cloud does not count as away."""

    pages: Pages
    patience_s: float

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/", self.today, "GET"),
            ("/today/parts", self.parts, "GET"),
            ("/alerts/close", self.close_alert, "POST"),
        )

    async def today(self, request: Request) -> Response:
        async with self.pages.visit(request) as visit:
            view = await self._view(visit)
        return await self.pages.page("edge_today.html", visit.signed_in, view)

    async def parts(self, request: Request) -> Response:
        async with self.pages.visit(request) as visit:
            view = await self._view(visit)
        csrf = visit.signed_in.csrf_token
        return await look.fragment(request, "edge_today_parts.html", "parts", view, csrf)

    async def _view(self, visit: Visit) -> TodayView:
        connection, tenant, now, _ = visit
        zone = words.zone(tenant.timezone)
        begin, end = bounds(now.astimezone(zone).date(), zone)
        only = tenant.only_tenant_id
        open_alerts, count = (
            await queries.open_alerts(connection, only) if tenant.reads("alerts") else ([], 0)
        )
        return today.view(
            tenant,
            now=now,
            backlog=await delivery.backlog(connection, tenant.tenant_id),
            alerts=open_alerts,
            alert_count=count,
            device_count=await queries.device_count(connection, tenant.tenant_id),
            silent=await queries.silent_devices(connection, tenant.tenant_id),
            day=await queries.day(connection, tenant.tenant_id, begin=begin, end=end),
            rejected=await delivery.rejected_count(connection, only),
            patience_s=self.patience_s,
        )

    async def close_alert(self, request: Request) -> Response:
        """Somebody dealt with it; a siren that sounds because of it stops."""
        async with self.pages.visit(request, "alerts", role="operator") as visit:
            form = await self.pages.form(request, visit.signed_in)
            kind, subject = form.get("kind", ""), form.get("subject", "")
            only = visit.tenant.only_tenant_id
            if only and subject != only and not subject.startswith(f"{only}/"):
                raise HttpError(404, "there is no such alert")
            chosen = alerts.Filter(kind, subject, exact=True)
            by = f"key {visit.signed_in.name}"
            await alerts.close_chosen(visit.connection, chosen, by=by)
        return RedirectResponse("/", 303, headers=look.HEADERS)
