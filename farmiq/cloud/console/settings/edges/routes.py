"""The routes of edges: list, invite one, end its keys. Technicians act, viewers read."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response

from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.settings.edges import queries, view
from farmiq.cloud.console.settings.edges.view import Invitation, View
from farmiq.cloud.identity.store import SignIn
from farmiq.messages.ids import ID_PATTERN
from farmiq.plumbing import http
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words

ROOT = "/settings/edges"
LEAST = "technician"
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+/?")
_KEY = re.compile(r"[A-Za-z0-9_-]{1,128}")


@dataclass(frozen=True)
class EdgePages:
    """`public_url` is where edges reach this cloud; without it the address of the page counts."""

    pages: pages.Pages
    public_url: str | None

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            (ROOT, self.edges, "GET"),
            (f"{ROOT}/invite", self.invite, "POST"),
            (f"{ROOT}/{{edge_id}}/revoke", self.revoke, "POST"),
        )

    async def edges(self, request: Request) -> Response:
        return await self._page(request, await self.pages.must_be_signed_in(request))

    async def invite(self, request: Request) -> Response:
        """The code is on this answer only, so it is no redirect."""
        signed_in = await self.pages.must_be_signed_in(request)
        form = await self.pages.form(request, signed_in)
        edge_id, lasts, errors = view.read_invitation(form)
        invitation = None
        async with self.pages.visit(request, signed_in) as (connection, company, _now):
            pages.require(company, LEAST)
            http.allow(request, signed_in.email)
            if not errors:
                invitation = await queries.invite(
                    connection, company, edge_id, lasts=lasts, cloud_url=self._address(request)
                )
        return await self._page(
            request, signed_in, given=form if errors else {}, errors=errors, invitation=invitation
        )

    async def revoke(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        form = await self.pages.form(request, signed_in)
        edge_id, key_id = request.path_params["edge_id"], form.get("key_id") or None
        async with self.pages.visit(request, signed_in) as (connection, company, _now):
            pages.require(company, LEAST)
            http.allow(request, signed_in.email)
            known = re.match(ID_PATTERN, edge_id) and (not key_id or _KEY.fullmatch(key_id))
            if not known or not await queries.revoke(connection, company, edge_id, key_id):
                raise HttpError(404, "there is no such edge with a good key")
        return acting.redirect(request, ROOT)

    def _address(self, request: Request) -> str:
        """Typed into a shell, so nothing but a plain address."""
        own = str(request.base_url)
        address = self.public_url or (own if _ADDRESS.fullmatch(own) else "https://CLOUD")
        return address.rstrip("/")

    async def _page(
        self,
        request: Request,
        signed_in: SignIn,
        *,
        given: Mapping[str, str] | None = None,
        errors: Mapping[str, str] | None = None,
        invitation: Invitation | None = None,
    ) -> Response:
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            shown = View(
                company=company,
                edges=await queries.edges(connection),
                invited=await queries.invited(connection),
                now=now,
                where=words.zone(company.timezone),
                given=given or {},
                errors=errors or {},
                invitation=invitation,
            )
        status = 422 if errors else 200
        return await self.pages.page("settings_edges.html", signed_in, shown, status=status)
