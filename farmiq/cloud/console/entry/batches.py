"""The form of a batch: placed, corrected and closed by those who work in the barns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from farmiq import api
from farmiq.cloud import entries
from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.batches.view import address
from farmiq.cloud.console.company import queries as company_queries
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.entry import queries, rejected, view
from farmiq.cloud.console.entry.view import FormView, PlaceOption
from farmiq.cloud.farms import kinds, store
from farmiq.cloud.farms.kinds import BATCHES
from farmiq.cloud.identity import people
from farmiq.cloud.identity.store import SignIn
from farmiq.plumbing import db, ids
from farmiq.plumbing.http import HttpError
from farmiq.ui import look
from farmiq.ui.entry import fields
from farmiq.ui.i18n import gettext as _

# Words of our own addresses: a batch of this name would have no page.
_RESERVED = ("new", "rows")


class NewBatchFilter(api.Filter):
    place: str = ""
    company: str | None = None


@dataclass(frozen=True)
class BatchForms:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            ("/batches/new", self.new, "GET"),
            ("/batches/new", self.save, "POST"),
            ("/batches/{batch_id}/edit", self.edit, "GET"),
            ("/batches/{batch_id}/edit", self.save, "POST"),
        )

    async def new(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        query = api.parse(NewBatchFilter, request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            pages.require(company, entries.ROLE)
            places = await queries.places(connection)
            empty = [place for place in places if place.batch_id is None]
            wanted = view.place_of(places, wanted=query.place, batch_id="")
            suggested = next(
                (place for place in places if place.place.value == wanted),
                empty[0] if empty else None,
            )
            today = now.astimezone(suggested.place.zone).date() if suggested else now.date()
            values = {
                "place": suggested.place.value if suggested else "",
                "batch_id": view.suggested_id(suggested, today) if suggested else "",
                "placed_on": today,
                "sex": "mixed",
            }
            shown = await self._view(connection, company, values, places=places)
        return await self.pages.page("batch_form.html", signed_in, shown)

    async def edit(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        batch_id = request.path_params["batch_id"]
        async with self.pages.visit(request, signed_in) as (connection, company, _now):
            pages.require(company, entries.ROLE)
            row = await _find(connection, company.tenant_id, batch_id)
            if row is None:
                raise HttpError(404, "there is no such batch")
            places = await queries.places(connection)
            values = {**row, "place": _place(places, row), "changed_at": _stamp(row)}
            shown = await self._view(connection, company, values, places=places, batch_id=batch_id)
        return await self.pages.page("batch_form.html", signed_in, shown)

    async def save(self, request: Request) -> Response:
        """A new batch, or a change of one; the address says which."""
        signed_in = await self.pages.must_be_signed_in(request)
        typed = await self.pages.form(request, signed_in)
        known = request.path_params.get("batch_id")
        try:
            batch_id = await people.with_retries(self._save)(
                request=request, typed=typed, known=known
            )
        except HttpError as error:
            return await self._rejected(request, signed_in, typed, known, error)
        if not look.is_browser(request):
            return JSONResponse(
                {"batch_id": batch_id, "page": address(batch_id)}, 201, headers=look.HEADERS
            )
        return acting.redirect(request, address(batch_id))

    async def _save(self, *, request: Request, typed: Mapping[str, str], known: str | None) -> str:
        """Raises HttpError 403, 404, 409, or 422 with a detail for each wrong field."""
        company_id = pages.company_of(request)
        visit = people.People(self.pages.sign_ins).caller(request, company_id, least=entries.ROLE)
        async with visit as caller:
            tx, tenant_id = caller.connection, caller.tenant_id
            places = view.by_value(await queries.places(tx))
            wanted = {**typed, "batch_id": known} if known else typed
            values, errors = fields.batch(wanted, places)
            batch = _read(values, errors)
            # Of two who add the same batch at a time, the second sees that it is there.
            await tx.execute(
                "select pg_advisory_xact_lock(hashtextextended(%s || chr(31) || %s, 7503))",
                (tenant_id, batch.batch_id),
            )
            there = await _find(tx, tenant_id, batch.batch_id)
            if known and there is None:
                raise HttpError(404, "there is no such batch")
            if known and there and typed.get("changed_at") != _stamp(there):
                raise HttpError(
                    rejected.CONFLICT,
                    _("somebody changed this batch meanwhile; load the page again"),
                )
            if not known and there is not None and _differs(there, batch):
                raise rejected.invalid({"batch_id": _("There is a batch of this name already.")})
            try:
                await store.save(
                    await caller.become_service(), BATCHES, tenant_id, [batch], actor=caller.email
                )
            except store.RejectedError as error:
                field = "place" if error.field or "in barn" in str(error) else ""
                raise rejected.invalid(
                    fields.errors_of([{"field": field, "reason": str(error)}], "")
                ) from None
            return batch.batch_id

    async def _rejected(
        self,
        request: Request,
        signed_in: SignIn,
        typed: Mapping[str, str],
        known: str | None,
        error: HttpError,
    ) -> Response:
        rejected.raise_unless_shown(request, error)
        async with self.pages.visit(request, signed_in) as (connection, company, _now):
            places = await queries.places(connection)
            shown = await self._view(
                connection,
                company,
                typed,
                places=places,
                batch_id=known,
                errors=rejected.at_fields(error),
            )
        return await self.pages.page("batch_form.html", signed_in, shown, status=error.status)

    async def _view(
        self,
        connection: db.Connection,
        company: Company,
        values: Mapping[str, Any],
        *,
        places: Sequence[PlaceOption],
        batch_id: str | None = None,
        errors: fields.Errors | None = None,
    ) -> FormView:
        now = await company_queries.now(connection)
        return FormView(
            company=company,
            now=now,
            zone=view.zone_name(places, company, now),
            heading=_("Change a batch") if batch_id else _("Place a batch"),
            action=f"{address(batch_id)}/edit" if batch_id else "/batches/new",
            key=str(ids.new()),
            places=view.options(places),
            values=values,
            errors=errors or {},
            breeds=await queries.breeds(connection),
            is_new=batch_id is None,
            back=address(batch_id) if batch_id else "/batches",
        )


def _read(values: fields.Body, errors: fields.Errors) -> kinds.Batch:
    """Raises HttpError 422 with everything that is wrong."""
    if values.get("batch_id") in _RESERVED:
        errors["batch_id"] = _("Choose another name.")
    if errors:
        raise rejected.invalid(errors)
    try:
        return msgspec.convert(values, kinds.Batch)
    except msgspec.ValidationError as error:
        reason, _at, path = str(error).partition(" - at `$.")
        field = path.removesuffix("`")
        if field == "batch_id":
            reason = _("Use letters, digits, points, dashes, colons or underlines.")
        raise rejected.invalid(fields.errors_of([{"field": field, "reason": reason}], "")) from None


async def _find(
    connection: db.Connection, tenant_id: str, batch_id: str
) -> Mapping[str, Any] | None:
    if "\0" in batch_id:
        return None
    return await store.find(connection, BATCHES, tenant_id, {"batch_id": batch_id})


def _place(places: Sequence[PlaceOption], row: Mapping[str, Any]) -> str:
    return next(
        (
            place.place.value
            for place in places
            if (place.farm_id, place.barn_id) == (row["farm_id"], row["barn_id"])
        ),
        "",
    )


def _stamp(row: Mapping[str, Any]) -> str:
    """Tells a form that was read before another change from one that was not."""
    return str(row["changed_at"].isoformat())


def _differs(row: Mapping[str, Any], batch: kinds.Batch) -> bool:
    """Whether a batch that is there is another than this one: a form that is sent twice is not."""
    given = msgspec.structs.asdict(batch)
    return any(row[name] != value for name, value in given.items())
