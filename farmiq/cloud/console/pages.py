"""What the pages of all areas share: who is signed in, their company, live updates, files."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any
from uuid import UUID

from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

from farmiq.cloud.console import nav
from farmiq.cloud.console.company import queries
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.shared_parts import Part, SharedParts
from farmiq.cloud.identity import sign_in
from farmiq.cloud.identity.store import SignIn
from farmiq.messages.wording import worded
from farmiq.plumbing import db, http
from farmiq.ui import forms, live, look


@dataclass(frozen=True)
class Pages:
    sign_ins: sign_in.SignIns
    hub: live.Hub

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/live", self.live, "GET"),
        )
        look.add_files(app)
        app.state.unknown = look.not_found(app.router.not_found)

    async def live(self, request: Request) -> Response:
        signed_in = await self.must_be_signed_in(request)
        if self.hub.is_full(signed_in.token_hash):
            raise http.HttpError(429, "too many live pages are open: close some", retry_after_s=10)
        async with self.as_person(request, signed_in) as connection:
            company = await self.company(connection, signed_in)
        about = request.query_params.get("about", live.TELEMETRY)
        if about not in (*live.CHANNELS, live.ANY):
            raise http.HttpError(400, f"about is one of: {', '.join((*live.CHANNELS, live.ANY))}")
        source = live.stream(
            self.hub,
            about=about,
            company_id=str(company.company_id),
            sign_in=signed_in.token_hash,
            lasts_s=signed_in.remaining_s,
            signed_in=partial(self.sign_ins.signed_in, request),
        )
        # The extra header makes a proxy pass messages on at once.
        headers = {**look.HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(source, media_type="text/event-stream", headers=headers)

    async def must_be_signed_in(self, request: Request) -> SignIn:
        """By the cookie of a browser, or by a bearer token."""
        return await self.sign_ins.require(request)

    @asynccontextmanager
    async def as_person(self, request: Request, signed_in: SignIn) -> AsyncIterator[db.Connection]:
        """In the company of the URL, else in the one that the sign-in has chosen.

        So a page stays in its company when another tab switches.
        """
        wanted = company_of(request)
        async with self.sign_ins.as_person(signed_in, company_id=wanted) as connection:
            yield connection

    @asynccontextmanager
    async def visit(
        self, request: Request, signed_in: SignIn
    ) -> AsyncIterator[tuple[db.Connection, Company, datetime]]:
        """As `as_person`, with the company and the database's clock, which decides about states."""
        async with self.as_person(request, signed_in) as connection:
            company = await self.company(connection, signed_in)
            yield connection, company, await queries.now(connection)

    async def shared_part(
        self, request: Request, signed_in: SignIn, make: Callable[[], Awaitable[Part]]
    ) -> Response:
        """A live part that everybody of the company gets from one computation."""
        async with self.as_person(request, signed_in) as connection:
            company = await self.company(connection, signed_in)
        return await self._parts.answer(request, company.company_id, make)

    @cached_property
    def _parts(self) -> SharedParts:
        return SharedParts(self.hub)

    async def company(self, connection: db.Connection, signed_in: SignIn) -> Company:
        """The company of this transaction."""
        company = await queries.company(connection, signed_in)
        if company is None:
            raise sign_in.not_signed_in()
        return company

    async def page(
        self, template: str, signed_in: SignIn, view: Any, *, status: int = 200, **more: Any
    ) -> Response:
        """A whole page; a super admin can switch to another company on it."""
        choices = []
        if signed_in.is_super_admin:
            async with self.sign_ins.as_person(signed_in) as connection:
                choices = await queries.choices(connection)
        return await asyncio.to_thread(
            look.page, template, status=status, view=view, csrf=form_token(signed_in, view.company),
            choices=choices, nav=nav.entries(), forms=nav.offline_forms(view.company), **more,
        )  # fmt: skip

    async def form(self, request: Request, signed_in: SignIn) -> dict[str, str]:
        """The fields of a form that a page of this sign-in sent.

        What it does is then done in the company of that page, whatever another tab has chosen.
        """
        form = await forms.read(request)
        token, _dot, company = form.get("csrf", "").partition(".")
        if not forms.came_from_us({"csrf": token}, signed_in.csrf_token):
            reason = worded("this form is not of your sign-in: load the page again")
            raise http.HttpError(403, reason)
        if signed_in.is_super_admin and company not in ("", str(signed_in.company_id)):
            request.state.company = company
        return form


def form_token(signed_in: SignIn, company: Company) -> str:
    """The CSRF token of a page's forms, with the company that the page shows."""
    return f"{signed_in.csrf_token}.{company.company_id}"


def company_of(request: Request) -> UUID | None:
    """The company that the address or the page of the form names, if any does."""
    given = request.query_params.get("company") or getattr(request.state, "company", None)
    return company_named(given) if given else None


def require(company: Company, role: str) -> None:
    """Raises HttpError 403 unless the person has this role, or a higher one, in the company."""
    if not company.may(role):
        raise http.HttpError(
            403,
            worded(
                "this needs the role %(role)s, yours is %(own)s: ask an administrator",
                role=role,
                own=company.role,
            ),
        )


def company_named(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise sign_in.no_such_company() from None
