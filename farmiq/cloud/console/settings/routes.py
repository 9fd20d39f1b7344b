"""The routes of settings: the index, retention, and what this installation is."""

import platform
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response

import farmiq
from farmiq.cloud import retentions
from farmiq.cloud.console import pages
from farmiq.cloud.console.delivery import queries as delivery
from farmiq.cloud.console.settings import view
from farmiq.cloud.console.settings.view import AboutView, RetentionView, View
from farmiq.config import CloudSettings
from farmiq.plumbing import db, http
from farmiq.ui import look, words
from farmiq.ui.i18n import gettext as _


@dataclass(frozen=True)
class SettingsPages:
    pages: pages.Pages
    settings: CloudSettings

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/settings", self.index, "GET"),
            ("/settings/retention", self.retention, "GET"),
            ("/settings/about", self.about, "GET"),
            ("/settings/about/diagnostics", self.diagnostics, "GET"),
        )

    async def index(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.visit(request, signed_in) as (_connection, company, now):
            pass
        shown = View(
            company=company, name=_("Settings"), now=now, where=words.zone(company.timezone)
        )
        return await self.pages.page("settings.html", signed_in, shown)

    async def retention(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.visit(request, signed_in) as (_connection, company, now):
            pass
        shown = RetentionView(
            company=company,
            name=_("Retention"),
            now=now,
            where=words.zone(company.timezone),
            rows=[view.stored_row(rule) for rule in retentions.rules(self.settings)],
        )
        return await self.pages.page("retention.html", signed_in, shown)

    async def about(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            database = await _database(connection)
        shown = AboutView(
            company=company,
            name=_("About"),
            now=now,
            where=words.zone(company.timezone),
            version=farmiq.__version__,
            database=database,
        )
        return await self.pages.page("about.html", signed_in, shown)

    async def diagnostics(self, request: Request) -> Response:
        """What somebody who helps wants to know; no secret, and nothing of another company."""
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            pages.require(company, "admin")
            facts = await delivery.facts(connection, now=now)
            diagnosis: dict[str, Any] = {
                "version": farmiq.__version__,
                "python": platform.python_version(),
                "database": await _database(connection),
                "at": now,
                "company": {"name": company.name, "tenant_id": company.tenant_id},
                "edges": [
                    {"edge_id": edge.edge_id, "state": edge.state, "heartbeat": edge.heartbeat}
                    for edge in facts.edges
                ],
                "dead_letters": facts.dead_letters,
                "event_conflicts_of_24_h": facts.conflicts,
                "rejected_camera_messages": facts.rejected_total,
            }
        headers = {**look.HEADERS, "Content-Disposition": 'attachment; filename="diagnostics.json"'}
        return Response(
            msgspec.json.format(msgspec.json.encode(diagnosis)),
            media_type=http.JSON,
            headers=headers,
        )


async def _database(connection: db.Connection) -> str:
    version: str = await db.fetch_value(connection, "show server_version")
    return version
