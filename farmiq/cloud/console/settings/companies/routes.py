"""The routes of companies: a super admin lists them and adds one with its first admin."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import available_timezones

import psycopg
from fastapi import FastAPI, Request, Response

from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.company import queries as company_queries
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.settings.people import queries as people
from farmiq.cloud.console.settings.people import routes as passwords
from farmiq.cloud.console.settings.people.view import OneTimePassword
from farmiq.cloud.identity.store import SignIn
from farmiq.messages.ids import ID_PATTERN
from farmiq.plumbing import db, http
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, sentences
from farmiq.ui.i18n import gettext as _

ROOT = "/settings/companies"
MAX_NAME = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    now: datetime
    companies: Sequence[Any]
    given: Mapping[str, str]
    errors: Mapping[str, str]
    made: OneTimePassword | None
    page: str = "settings"

    @property
    def title(self) -> str:
        return _("Companies")

    @property
    def zones(self) -> list[str]:
        return sorted(available_timezones())


@dataclass(frozen=True)
class CompaniesPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(app, (ROOT, self.overview, "GET"), (ROOT, self.add, "POST"))

    async def overview(self, request: Request) -> Response:
        return await self._page(request, await self._super_admin(request))

    async def add(self, request: Request) -> Response:
        """The password of the first admin is on this answer only, so it is no redirect."""
        signed_in = await self._super_admin(request)
        form = await acting.form(self.pages, request)
        http.allow(request, signed_in.email)
        errors = read(form)
        if not errors:
            made = OneTimePassword(form["email"].lower(), passwords.new_password())
            secret = await passwords.hashed(self.pages, signed_in, made.password)
            try:
                async with self.pages.sign_ins.as_person(signed_in) as connection:
                    company_id = await db.fetch_value(
                        connection,
                        "select fn_add_company(%s, %s, %s)",
                        *(form["name"], form["timezone"], form.get("tenant_id", "")),
                    )
                    await connection.execute("select set_active_company_context(%s)", (company_id,))
                    await people.add(connection, made.email, "admin", secret)
                return await self._page(request, signed_in, made=made)
            except (psycopg.errors.UniqueViolation, psycopg.errors.InvalidParameterValue) as error:
                reason = db.first_line(error)
                field = (
                    "tenant_id" if "bus" in reason else "email" if "mail" in reason else "timezone"
                )
                errors = {field: f"{sentences.shown(reason)}."}
        return await self._page(request, signed_in, given=form, errors=errors)

    async def _super_admin(self, request: Request) -> SignIn:
        signed_in = await self.pages.must_be_signed_in(request)
        if not signed_in.is_super_admin:
            raise HttpError(403, _("this is for super admins"))
        return signed_in

    async def _page(
        self,
        request: Request,
        signed_in: SignIn,
        *,
        given: Mapping[str, str] | None = None,
        errors: Mapping[str, str] | None = None,
        made: OneTimePassword | None = None,
    ) -> Response:
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            companies = await company_queries.choices(connection)
        shown = View(
            company=company,
            now=now,
            companies=companies,
            given=given or {"timezone": company.timezone},
            errors=errors or {},
            made=made,
        )
        status = 422 if errors else 200
        return await self.pages.page("companies.html", signed_in, shown, status=status)


def read(form: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with the form, by its fields."""
    errors = {}
    if not 0 < len(form.get("name", "")) <= MAX_NAME:
        errors["name"] = _("Fill this in.")
    if "@" not in form.get("email", ""):
        errors["email"] = _("This is not an e-mail address.")
    if form.get("timezone") not in available_timezones():
        errors["timezone"] = _("Choose one of the list.")
    tenant_id = form.get("tenant_id", "")
    if tenant_id and not re.match(ID_PATTERN, tenant_id):
        errors["tenant_id"] = _("Use letters, digits, points, dashes, colons or underlines.")
    return errors
