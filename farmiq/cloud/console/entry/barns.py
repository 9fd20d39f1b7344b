"""The form of a barn, and of its farm if that is new: what an empty installation begins with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.company import queries as company_queries
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.entry import queries, rejected, view
from farmiq.cloud.console.entry.view import FormView
from farmiq.cloud.farms import kinds, store
from farmiq.cloud.farms.kinds import BARNS, FARMS
from farmiq.cloud.identity import people
from farmiq.plumbing import db, ids
from farmiq.plumbing.http import HttpError
from farmiq.ui import look
from farmiq.ui.entry import fields
from farmiq.ui.i18n import gettext as _

ROLE = "admin"
PATH = "/batches/barns/new"


@dataclass(frozen=True)
class BarnForms:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(app, (PATH, self.new, "GET"), (PATH, self.save, "POST"))

    async def new(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.visit(request, signed_in) as (connection, company, _now):
            pages.require(company, ROLE)
            reporting = await queries.reporting_barns(connection)
            farm_id, barn_id = reporting[0] if reporting else ("", "")
            values = {"farm_id": farm_id, "barn_id": barn_id, "timezone": company.timezone}
            shown = await _view(connection, company, values)
        return await self.pages.page("barn_form.html", signed_in, shown)

    async def save(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        typed = await self.pages.form(request, signed_in)
        try:
            barn = await people.with_retries(self._save)(request=request, typed=typed)
        except HttpError as error:
            if error.status != rejected.NOT_VALID or not look.is_browser(request):
                raise
            async with self.pages.visit(request, signed_in) as (connection, company, _now):
                shown = await _view(connection, company, typed, errors=rejected.at_fields(error))
            return await self.pages.page(
                "barn_form.html", signed_in, shown, status=rejected.NOT_VALID
            )
        place = f"{barn.farm_id}/{barn.barn_id}/"
        page = f"/batches/new?{urlencode({'place': place})}"
        if not look.is_browser(request):
            return JSONResponse({"page": page}, 201, headers=look.HEADERS)
        return acting.redirect(request, page)

    async def _save(self, *, request: Request, typed: Mapping[str, str]) -> kinds.Barn:
        """Raises HttpError 403, or 422 with a detail for each wrong field."""
        company_id = pages.company_of(request)
        visit = people.People(self.pages.sign_ins).caller(request, company_id, least=ROLE)
        async with visit as caller:
            tx, tenant_id = caller.connection, caller.tenant_id
            values, errors = fields.barn(typed)
            if errors:
                raise rejected.invalid(errors)
            farm = await store.find(tx, FARMS, tenant_id, {"farm_id": values["farm_id"]})
            new_farm = None if farm else _read(kinds.Farm, fields.farm(typed))
            barn: kinds.Barn = _read(kinds.Barn, values)
            key = {"farm_id": barn.farm_id, "barn_id": barn.barn_id}
            there = await store.find(tx, BARNS, tenant_id, key)
            given = msgspec.structs.asdict(barn)
            # A form that was sent twice is no other barn.
            if there and any(there[name] != value for name, value in given.items()):
                raise rejected.invalid({"barn_id": _("There is a barn of this name already.")})
            service = await caller.become_service()
            if new_farm:
                await store.save(service, FARMS, tenant_id, [new_farm], actor=caller.email)
            await store.save(service, BARNS, tenant_id, [barn], actor=caller.email)
            return barn


def _read(kind: Any, values: Mapping[str, Any]) -> Any:
    """Raises HttpError 422."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        reason, _at, path = str(error).partition(" - at `$.")
        field = path.removesuffix("`")
        if field in ("farm_id", "barn_id"):
            reason = _("Use letters, digits, points, dashes, colons or underlines.")
        if "time zone" in reason:
            field = "timezone"
        if field == "name":
            field = "farm_name" if kind is kinds.Farm else "barn_name"
        raise rejected.invalid(fields.errors_of([{"field": field, "reason": reason}], "")) from None


async def _view(
    connection: db.Connection,
    company: Company,
    values: Mapping[str, Any],
    *,
    errors: fields.Errors | None = None,
) -> FormView:
    now = await company_queries.now(connection)
    reporting = await queries.reporting_barns(connection)
    return FormView(
        company=company,
        now=now,
        zone=view.zone_name([], company, now),
        heading=_("Add a barn"),
        action=PATH,
        key=str(ids.new()),
        places=(),
        values=values,
        errors=errors or {},
        farms=sorted(
            {*await queries.farms(connection), *(farm_id for farm_id, _barn in reporting)}
        ),
        barns=sorted({barn_id for _farm, barn_id in reporting}),
    )
