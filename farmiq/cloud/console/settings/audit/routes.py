"""The route of the audit log, as a page and as CSV. Admins only."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request, Response
from pydantic import Field

from farmiq import api
from farmiq.cloud.console import pages
from farmiq.cloud.console.settings.audit import queries
from farmiq.cloud.console.settings.audit import view as audit
from farmiq.cloud.console.settings.audit.view import View
from farmiq.plumbing import sheet
from farmiq.ui import look, words

ROOT = "/settings/audit"
LEAST = "admin"
PAGE = 50
MAX_CSV_ROWS = 10_000


class AuditFilter(api.PageFilter):
    actor: Annotated[str, Field(max_length=300, pattern=r"^[^\x00]*$")] | None = None
    kind: Annotated[str, api.one_of(audit.KINDS)] | None = None
    format: Literal["html", "csv"] = "html"
    company: str | None = None

    @property
    def limit(self) -> int:
        return MAX_CSV_ROWS if self.format == "csv" else PAGE


@dataclass(frozen=True)
class AuditPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(app, (ROOT, self.audit, "GET"))

    async def audit(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        query = api.parse(AuditFilter, request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            pages.require(company, LEAST)
            entries = await queries.entries(connection, query.page())
            actors = await queries.actors(connection)
        last = entries[query.limit - 1] if len(entries) > query.limit else None
        shown = entries[: query.limit]
        if query.format == "csv":
            return _csv(shown)
        return await self.pages.page(
            "audit.html",
            signed_in,
            View(
                company=company,
                entries=shown,
                actors=actors,
                actor=query.actor or "",
                kind=query.kind or "",
                cursor=api.cursor(last.at, last.entry_id) if last else None,
                now=now,
                where=words.zone(company.timezone),
            ),
        )


def _csv(entries: list[audit.Entry]) -> Response:
    rows: list[list[Any]] = [[getattr(entry, name) for name in audit.COLUMNS] for entry in entries]
    headers = {**look.HEADERS, "Content-Disposition": 'attachment; filename="audit.csv"'}
    text = sheet.lines([audit.COLUMNS, *rows])
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)
