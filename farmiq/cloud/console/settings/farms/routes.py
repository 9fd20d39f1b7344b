"""The routes of master data: one list, and one form that is of a farm, a barn or a feed product."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.entry import rejected
from farmiq.cloud.console.settings.farms import forms
from farmiq.cloud.console.settings.farms.forms import FORMS, NEW, ROOT, MasterForm
from farmiq.cloud.farms import store
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import ids
from farmiq.plumbing.http import HttpError
from farmiq.ui import look, words
from farmiq.ui.entry.fields import Errors
from farmiq.ui.i18n import gettext as _

ROLE = "admin"
MAX_ROWS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ListView:
    company: Company
    now: datetime
    where: ZoneInfo
    farms: Sequence[Mapping[str, Any]]
    barns: Sequence[Mapping[str, Any]]
    products: Sequence[Mapping[str, Any]]
    page: str = "settings"

    @property
    def title(self) -> str:
        return _("Farms and feed")

    @property
    def zone(self) -> str:
        return words.zone_name(self.where, self.now)

    @property
    def forms(self) -> Mapping[str, MasterForm]:
        return FORMS

    def barns_of(self, farm: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        return [barn for barn in self.barns if barn["farm_id"] == farm["farm_id"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormView:
    company: Company
    now: datetime
    form: MasterForm
    action: str
    key: str
    values: Mapping[str, Any]
    errors: Errors
    is_new: bool
    page: str = "settings"
    back: str = ROOT
    replaces: str = ""

    @property
    def heading(self) -> str:
        return _(self.form.add if self.is_new else self.form.change)

    @property
    def title(self) -> str:
        return words.title(self.heading, problems=len(self.errors))

    @property
    def zones(self) -> list[str]:
        return sorted(available_timezones()) if self.form is forms.FARM else []

    def value(self, name: str) -> Any:
        value = self.values.get(name)
        return "" if value is None else value

    def error(self, name: str) -> str:
        return self.errors.get(name, "")


@dataclass(frozen=True)
class FarmPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(app, (ROOT, self.overview, "GET"))
        for form in FORMS.values():
            row_path = "/".join((form.path, *(f"{{{name}}}" for name in form.keys)))
            for path in (f"{form.path}/{NEW}", row_path):
                look.add_pages(
                    app, (path, self._shows(form), "GET"), (path, self._saves(form), "POST")
                )

    async def overview(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            rows = {
                name: await store.page(connection, form.kind, company.tenant_id, limit=MAX_ROWS)
                for name, form in FORMS.items()
            }
        shown = ListView(
            company=company,
            now=now,
            where=words.zone(company.timezone),
            farms=rows["farms"],
            barns=rows["barns"],
            products=rows["products"],
        )
        return await self.pages.page("farms.html", signed_in, shown)

    def _shows(self, form: MasterForm) -> look.Endpoint:
        async def show(request: Request) -> Response:
            signed_in = await self.pages.must_be_signed_in(request)
            key = _key(form, request)
            async with self.pages.visit(request, signed_in) as (connection, company, now):
                pages.require(company, ROLE)
                values: Mapping[str, Any] = dict.fromkeys(("timezone",), "")
                values = {**values, **request.query_params, "timezone": company.timezone}
                if key is not None:
                    row = await store.find(connection, form.kind, company.tenant_id, key)
                    if row is None:
                        raise HttpError(404, f"there is no such {form.kind.noun}")
                    values = {**row, "changed_at": forms.stamp(row)}
            shown = _view(form, request, company, now, values)
            return await self.pages.page("master_form.html", signed_in, shown)

        return show

    def _saves(self, form: MasterForm) -> look.Endpoint:
        async def save(request: Request) -> Response:
            signed_in = await self.pages.must_be_signed_in(request)
            typed = await acting.form(self.pages, request)
            try:
                await self._save(request, form, typed)
            except HttpError as error:
                return await self._rejected(request, signed_in, form, typed, error)
            if not look.is_browser(request):
                return JSONResponse({"page": ROOT}, 201, headers=look.HEADERS)
            return acting.redirect(request, ROOT)

        return save

    async def _save(self, request: Request, form: MasterForm, typed: Mapping[str, str]) -> None:
        key = _key(form, request)
        async with acting.caller(self.pages, request, least=ROLE) as caller:
            row = forms.read(form, {**typed, **(key or {})})
            same = {name: getattr(row, name) for name in form.keys}
            known = await store.find(caller.connection, form.kind, caller.tenant_id, same)
            if problem := forms.conflict(known, row, typed, is_new=key is None):
                raise problem
            service = await caller.become_service()
            try:
                await store.save(service, form.kind, caller.tenant_id, [row], actor=caller.email)
            except store.RejectedError as error:
                raise rejected.invalid({error.field or "": str(error)}) from None

    async def _rejected(
        self,
        request: Request,
        signed_in: SignIn,
        form: MasterForm,
        typed: Mapping[str, str],
        error: HttpError,
    ) -> Response:
        if error.status not in (rejected.CONFLICT, rejected.NOT_VALID) or not look.is_browser(
            request
        ):
            raise error
        async with self.pages.visit(request, signed_in) as (_connection, company, now):
            pass
        values = {**typed, **(_key(form, request) or {})}
        shown = _view(form, request, company, now, values, errors=rejected.at_fields(error))
        return await self.pages.page("master_form.html", signed_in, shown, status=error.status)


def _key(form: MasterForm, request: Request) -> dict[str, str] | None:
    """Of the row that the address names; None for a new one."""
    named = {name: request.path_params.get(name) for name in form.keys}
    return None if None in named.values() else {name: str(text) for name, text in named.items()}


def _view(
    form: MasterForm,
    request: Request,
    company: Company,
    now: datetime,
    values: Mapping[str, Any],
    *,
    errors: Errors | None = None,
) -> FormView:
    return FormView(
        company=company,
        now=now,
        form=form,
        action=request.url.path,
        key=str(ids.new()),
        values=values,
        errors=errors or {},
        is_new=_key(form, request) is None,
    )
