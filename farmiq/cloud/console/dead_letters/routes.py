"""The routes of dead letters: by reason, an order about them, and what became of an order."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from fastapi import FastAPI, Request, Response

from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.dead_letters import queries, view
from farmiq.cloud.console.dead_letters.view import OrderView, View
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import http
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words

ROOT = "/delivery/dead-letters"


@dataclass(frozen=True)
class DeadLetterPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            (ROOT, self.letters, "GET"),
            (ROOT, self.order, "POST"),
            (f"{ROOT}/orders/{{order_id}}", self.outcome, "GET"),
            (f"{ROOT}/orders/{{order_id}}/parts", self.parts, "GET"),
        )

    async def letters(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        shown = await self._letters(request, signed_in)
        return await self.pages.page("dead_letters.html", signed_in, shown)

    async def order(self, request: Request) -> Response:
        """Write an order; the dead-letter service does it."""
        signed_in = await self.pages.must_be_signed_in(request)
        form = await self.pages.form(request, signed_in)
        async with self.pages.visit(request, signed_in) as (connection, company, _):
            pages.require(company, "admin")
            http.allow(request, signed_in.email)
            new_order, errors = view.read_order(form)
            order_id = new_order and await queries.insert_order(connection, company, new_order)
        if new_order is None:
            shown = await self._letters(request, signed_in, form, errors)
            return await self.pages.page("dead_letters.html", signed_in, shown, status=422)
        if order_id is None:
            raise HttpError(409, "too many orders wait already: wait until some are done")
        return acting.redirect(request, f"{ROOT}/orders/{order_id}")

    async def outcome(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        shown = await self._order(request, signed_in)
        return await self.pages.page("dead_letter_order.html", signed_in, shown)

    async def parts(self, request: Request) -> Response:
        shown = await self._order(request, await self.pages.must_be_signed_in(request))
        return await look.fragment(request, "dead_letter_parts.html", "order_parts", shown)

    async def _letters(
        self,
        request: Request,
        signed_in: SignIn,
        given: Mapping[str, str] | None = None,
        errors: Mapping[str, str] | None = None,
    ) -> View:
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            groups = await queries.groups(connection)
            orders = await queries.orders(connection)
        return View(
            company=company,
            groups=groups,
            orders=orders,
            now=now,
            where=words.zone(company.timezone),
            given=given or {},
            errors=errors or {},
        )

    async def _order(self, request: Request, signed_in: SignIn) -> OrderView:
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            order_and_outcomes = await queries.order(connection, _order_id(request))
        if order_and_outcomes is None:
            raise HttpError(404, "there is no such order")
        order, outcomes = order_and_outcomes
        return OrderView(
            company=company,
            order=order,
            outcomes=outcomes,
            now=now,
            where=words.zone(company.timezone),
        )


def _order_id(request: Request) -> UUID:
    try:
        return UUID(request.path_params["order_id"])
    except ValueError:
        raise HttpError(404, "there is no such order") from None
