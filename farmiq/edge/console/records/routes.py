"""The routes of records at the edge: the newest entries, and the forms to write one down.

What is posted goes through the functions of the edge's HTTP API: row, event for the cloud, key
and audit in one transaction. The key of the form makes a second sending harmless.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, RedirectResponse

from farmiq import api
from farmiq.edge import posting
from farmiq.edge.barn import api as barn
from farmiq.edge.console.pages import Pages, Visit
from farmiq.edge.console.records import queries, view
from farmiq.edge.console.records.queries import Corrected
from farmiq.edge.console.records.view import FormView
from farmiq.edge.console.sign_ins import SignIn
from farmiq.edge.feed import api as feed
from farmiq.edge.feed.rules import LotReceived
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.http import HttpError
from farmiq.ui import look
from farmiq.ui.entry import fields
from farmiq.ui.entry.kinds import RECORD_KINDS
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked

_NOT_VALID, _CONFLICT = 422, 409
# Answers of a posting that say what is wrong with a field.
_AT_FIELDS = (400, 404)
MAX_BYTES = 16 * 1024
# Of a lot, the edge's API wants its own type.
LOT = api.BodyOf(LotReceived, what="a lot", max_bytes=MAX_BYTES, message=feed.NOT_STORED)


@dataclass(frozen=True, slots=True)
class EntryForm:
    """One form: its address and heading, the area that the key needs, how it is read.

    With `find` it also corrects: an entry is stored by the id that a correction names.
    """

    path: str
    area: str
    heading: str
    parse: fields.Parse
    body: api.BodyOf[Any]
    kind: posting.Kind | None
    correction: str = ""
    find: Callable[[db.Connection, str, str], Awaitable[Corrected | None]] | None = None


RECORD = EntryForm(
    "/records/new", "barn", marked("Write down"), fields.record,
    api.BodyOf(barn.EdgeRecordPosted, max_bytes=MAX_BYTES), barn.KIND,
    marked("Correct a record"), queries.record,
)  # fmt: skip
INTAKE = EntryForm(
    "/feed/intakes/new", "feed", marked("Feed taken in"), fields.intake,
    api.BodyOf(feed.EdgeIntakePosted, max_bytes=MAX_BYTES), feed.KIND,
    marked("Correct feed taken in"), queries.intake,
)  # fmt: skip
DELIVERY = EntryForm("/feed/lots/new", "feed", marked("Feed delivered"), fields.lot, LOT, None)


@dataclass(frozen=True)
class RecordPages:
    pages: Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(app, ("/records", self.records, "GET"))
        for form in (RECORD, INTAKE, DELIVERY):
            look.add_pages(
                app, (form.path, self._shows(form), "GET"), (form.path, self._posts(form), "POST")
            )

    async def records(self, request: Request) -> Response:
        shows_devices = request.query_params.get("of") == "all"
        async with self.pages.visit(request, "barn", "feed") as visit:
            connection, tenant, now, signed_in = visit
            entries = await queries.entries(
                connection, tenant.tenant_id, barn=tenant.reads("barn"), feed=tenant.reads("feed"),
                devices=shows_devices,
            )  # fmt: skip
        done = request.query_params.get("done") == "1"
        shown = view.records_view(tenant, entries, now=now, done=done, shows_devices=shows_devices)
        return await self.pages.page("edge_records.html", signed_in, shown)

    def _shows(self, form: EntryForm) -> look.Endpoint:
        async def show(request: Request) -> Response:
            given = {
                name: request.query_params.get(name, "")[:300].replace("\0", "")
                for name in ("kind", "place", "replaces")
            }
            async with self.pages.visit(request, form.area, role="operator") as visit:
                if given["replaces"]:
                    given |= await _corrected(visit, form, given["replaces"])
                shown = await self._view(visit, form, given, key=str(ids.new()))
            return await self.pages.page("edge_entry.html", visit.signed_in, shown)

        return show

    def _posts(self, form: EntryForm) -> look.Endpoint:
        async def post(request: Request) -> Response:
            async with self.pages.visit(request, form.area, role="operator") as visit:
                typed = await self.pages.form(request, visit.signed_in)
                barns = await queries.barns(visit.connection, visit.tenant.tenant_id, now=visit.now)
            try:
                body, key = _read(form, typed, view.places(barns, visit.tenant), visit)
                await self._accept(request, form, body, key=key, signed_in=visit.signed_in)
            except HttpError as error:
                return await self._rejected(request, form, typed, error)
            if not look.is_browser(request):
                return JSONResponse({"page": "/records?done=1"}, 201, headers=look.HEADERS)
            return RedirectResponse("/records?done=1", 303, headers=look.HEADERS)

        return post

    async def _accept(
        self,
        request: Request,
        form: EntryForm,
        body: Mapping[str, Any],
        *,
        key: str,
        signed_in: SignIn,
    ) -> None:
        """Stored and committed. Raises HttpError 422 with a detail for each wrong field, or 409."""
        raw = msgspec.json.encode(body)
        trace_id = http.trace_id(request)
        by = signed_in.name
        try:
            content = form.body.decode(raw)
            if form.kind is None:
                await feed.receive_lot(
                    self.pages.pool, content, raw, by=by, key=key, trace_id=trace_id
                )
                return
            async with db.transaction(self.pages.pool) as tx:
                await posting.accept(tx, form.kind, content, raw, by=by, key=key, trace_id=trace_id)
        except HttpError as error:
            if error.status not in _AT_FIELDS:
                raise
            raise _invalid(fields.errors_of(error.details, error.message)) from None

    async def _rejected(
        self, request: Request, form: EntryForm, typed: Mapping[str, str], error: HttpError
    ) -> Response:
        """The form again with what is wrong; a script gets the standard body."""
        if not look.is_browser(request) or error.status not in (_CONFLICT, _NOT_VALID):
            raise error
        errors = (
            {item["field"]: item["reason"] for item in error.details or []}
            if error.status == _NOT_VALID
            else fields.errors_of(None, error.message)
        )
        async with self.pages.visit(request, form.area) as visit:
            shown = await self._view(
                visit, form, typed, key=typed.get("idempotency_key", ""), errors=errors
            )
        return await self.pages.page("edge_entry.html", visit.signed_in, shown, status=error.status)

    async def _view(
        self,
        visit: Visit,
        form: EntryForm,
        values: Mapping[str, Any],
        *,
        key: str,
        errors: fields.Errors | None = None,
    ) -> FormView:
        connection, tenant, now, _signed_in = visit
        barns = await queries.barns(connection, tenant.tenant_id, now=now)
        options = view.place_options(barns)
        chosen = str(values.get("place") or (options[0][0] if len(options) == 1 else ""))
        kind = RECORD_KINDS.get(str(values.get("kind") or "")) or RECORD_KINDS["mortality"]
        is_record = form is RECORD
        replaces = str(values.get("replaces") or "")
        heading = _(form.correction if replaces and form.find else form.heading)
        lots = await queries.lots(connection, tenant.tenant_id) if form is INTAKE else []
        return FormView(
            company=tenant,
            now=now,
            title=heading,
            page="records",
            heading=heading,
            action=form.path,
            key=key,
            places=options,
            values={**values, "place": chosen},
            errors=errors or {},
            kind=kind if is_record else None,
            kinds=view.kind_tabs(chosen) if is_record and not replaces else (),
            replaces=replaces if form.find else "",
            lots=[(lot, lot) for lot in lots],
            silos=[] if is_record else await queries.silos(connection, tenant.tenant_id),
        )


async def _corrected(visit: Visit, form: EntryForm, replaces: str) -> dict[str, str]:
    """The values of the entry that is to be corrected. Raises HttpError 404."""
    stored = form.find and await form.find(visit.connection, visit.tenant.tenant_id, replaces)
    if not stored:
        raise HttpError(404, "there is no such entry at this edge")
    barns = await queries.barns(visit.connection, visit.tenant.tenant_id, now=visit.now)
    return view.values_of(stored, view.places(barns, visit.tenant))


def _read(
    form: EntryForm, typed: Mapping[str, str], places: Mapping[str, fields.Place], visit: Visit
) -> tuple[dict[str, Any], str]:
    """(body, key). Raises HttpError 422 with everything that is wrong."""
    body, errors = form.parse(typed, places, visit.now)
    key = typed.get("idempotency_key", "")
    if not 0 < len(key) <= api.MAX_KEY_LENGTH or not (key.isascii() and key.isprintable()):
        errors[""] = _("This form has no key: load the page again.")
    if errors:
        raise _invalid(errors)
    return {**body, "tenant_id": visit.tenant.tenant_id}, key


def _invalid(errors: fields.Errors) -> HttpError:
    details = [{"field": name, "reason": reason} for name, reason in errors.items()]
    message = "; ".join(dict.fromkeys(errors.values())) or _("Some fields are wrong.")
    return HttpError(_NOT_VALID, message, details=details)
