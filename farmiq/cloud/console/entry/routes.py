"""The forms of barn records and feed: shown, posted, corrected, and listed.

A posting takes the same way as one over the API (cloud/posting.py): stored with its key, then put
on the bus. A script that kept a form while the link was broken posts the same form and asks for
JSON; a person without a script gets pages.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from farmiq import api
from farmiq.cloud import entries, posting
from farmiq.cloud.barn import store as barn_store
from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.batches.view import address
from farmiq.cloud.console.company import queries as company_queries
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.entry import queries, rejected, view
from farmiq.cloud.console.entry.view import EntriesView, FormView
from farmiq.cloud.feed import store as feed_store
from farmiq.cloud.identity import people
from farmiq.cloud.identity.store import SignIn
from farmiq.farm import postings
from farmiq.farm.postings import IntakePosted, LotPosted, RecordPosted
from farmiq.messages import feed
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.http import HttpError
from farmiq.ui import look
from farmiq.ui.entry import fields
from farmiq.ui.entry.kinds import RECORD_KINDS
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked

# Answers of the posting that are about what was typed.
_AT_FIELDS = (400, 404)


class NewFilter(api.Filter):
    """What a form begins with. `replaces` is what it corrects."""

    kind: str = "mortality"
    place: str = ""
    batch: str = ""
    replaces: str = ""
    company: str | None = None


class EntriesFilter(api.Filter):
    of: Literal["records", "intakes"] = "records"
    batch: Annotated[str, Field(max_length=128, pattern=r"^[^\x00]*$")] = ""
    cursor: api.Cursor | None = None
    company: str | None = None


@dataclass(frozen=True)
class EntryForm:
    """One form: its address, heading and template, how it is read, and what becomes of it."""

    path: str
    template: str
    heading: str
    correction: str
    parse: fields.Parse
    kind: type[Any]
    columns: tuple[str, ...]
    page: str = "batches"


RECORD = EntryForm(
    "/records/new", "record_form.html", marked("Write down"), marked("Correct a record"),
    fields.record, RecordPosted, barn_store.COLUMNS,
)  # fmt: skip
INTAKE = EntryForm(
    "/feed/intakes/new", "feed_form.html", marked("Feed taken in"),
    marked("Correct feed taken in"), fields.intake, IntakePosted, feed_store.INTAKE,
)  # fmt: skip
LOT = EntryForm(
    "/feed/lots/new", "feed_form.html", marked("Feed delivered"), marked("Correct a delivery"),
    fields.lot, LotPosted, feed_store.LOT,
)  # fmt: skip


@dataclass(frozen=True)
class EntryPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        for form in (RECORD, INTAKE, LOT):
            look.add_pages(
                app, (form.path, self._shows(form), "GET"), (form.path, self._posts(form), "POST")
            )
        look.add_pages(app, ("/records", self.entries, "GET"))

    def _shows(self, form: EntryForm) -> look.Endpoint:
        async def show(request: Request) -> Response:
            signed_in = await self.pages.must_be_signed_in(request)
            query = api.parse(NewFilter, request)
            async with self.pages.visit(request, signed_in) as (connection, company, _now):
                pages.require(company, entries.ROLE)
                places = await queries.places(connection)
                if query.replaces:
                    event = await _replaced(connection, form, query.replaces)
                    values = {**view.values_of(event, places), "replaces": query.replaces}
                else:
                    place = view.place_of(places, wanted=query.place, batch_id=query.batch)
                    values = {"place": place, "kind": query.kind}
                shown = await self._view(connection, company, form, values, key=str(ids.new()))
            return await self.pages.page(form.template, signed_in, shown)

        return show

    def _posts(self, form: EntryForm) -> look.Endpoint:
        async def post(request: Request) -> Response:
            signed_in = await self.pages.must_be_signed_in(request)
            typed = await self.pages.form(request, signed_in)
            try:
                event = await people.with_retries(self._accept)(
                    request=request, form=form, typed=typed
                )
            except HttpError as error:
                return await self._rejected(request, signed_in, form, typed, error)
            if not look.is_browser(request):
                row = {**postings.shown(event, form.columns), "page": _done(event)}
                return JSONResponse(msgspec.to_builtins(row), 201, headers=look.HEADERS)
            return acting.redirect(request, _done(event))

        return post

    async def _accept(
        self, *, request: Request, form: EntryForm, typed: Mapping[str, str]
    ) -> BusEvent:
        """The event of what was typed, stored and committed.

        Raises HttpError 422 with a detail for each wrong field, 403 or 409.
        """
        company_id = pages.company_of(request)
        visit = people.People(self.pages.sign_ins).caller(request, company_id, least=entries.ROLE)
        async with visit as caller:
            places = view.by_value(await queries.places(caller.connection))
            now = await company_queries.now(caller.connection)
            body, errors = form.parse(typed, places, now)
            key = typed.get("idempotency_key", "")
            if not 0 < len(key) <= api.MAX_KEY_LENGTH or not key.isprintable():
                errors[""] = _("This form has no key: load the page again.")
            if errors:
                raise rejected.invalid(errors)
            raw = msgspec.json.encode(body)
            try:
                return await posting.accept(
                    await caller.become_service(),
                    api.BodyOf(form.kind, max_bytes=entries.MAX_BYTES).decode(raw),
                    raw,
                    tenant_id=caller.tenant_id,
                    by=caller.email,
                    key=key,
                    trace_id=http.trace_id(request),
                )
            except HttpError as error:
                if error.status not in _AT_FIELDS:
                    raise
                raise rejected.invalid(fields.errors_of(error.details, error.message)) from None

    async def _rejected(
        self,
        request: Request,
        signed_in: SignIn,
        form: EntryForm,
        typed: Mapping[str, str],
        error: HttpError,
    ) -> Response:
        """The form again with what is wrong; a script gets the standard body."""
        rejected.raise_unless_shown(request, error)
        async with self.pages.visit(request, signed_in) as (connection, company, _now):
            shown = await self._view(
                connection, company, form, typed, key=typed.get("idempotency_key", ""),
                errors=rejected.at_fields(error),
            )  # fmt: skip
        return await self.pages.page(form.template, signed_in, shown, status=error.status)

    async def _view(
        self,
        connection: db.Connection,
        company: Company,
        form: EntryForm,
        values: Mapping[str, Any],
        *,
        key: str,
        errors: fields.Errors | None = None,
    ) -> FormView:
        now = await company_queries.now(connection)
        places = await queries.places(connection)
        kind = RECORD_KINDS.get(str(values.get("kind") or "")) or RECORD_KINDS["mortality"]
        replaces = str(values.get("replaces") or "")
        is_feed = form is not RECORD
        return FormView(
            company=company,
            now=now,
            zone=view.zone_name(places, company, now),
            heading=_(form.correction if replaces else form.heading),
            action=form.path,
            key=key,
            places=view.options(places),
            values=values,
            errors=errors or {},
            replaces=replaces,
            kind=None if is_feed else kind,
            products=await queries.products(connection) if kind.is_medicine else (),
            lots=await queries.lots(connection) if form is INTAKE else (),
            silos=await queries.silos(connection) if is_feed else (),
            feed_products=await queries.feed_products(connection) if form is LOT else (),
            back="/feed" if is_feed else "/batches",
            page=form.page,
        )

    async def entries(self, request: Request) -> Response:
        """What was entered lately, each with a way to correct it."""
        signed_in = await self.pages.must_be_signed_in(request)
        query = api.parse(EntriesFilter, request)
        select, make = _LISTS[query.of]
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            places = await queries.places(connection)
            rows = await select(
                connection, company.tenant_id, batch=query.batch or None, after=query.cursor
            )
        listed, following = api.cut(rows, queries.PER_PAGE, at="occurred_at", key="event_id")
        parameters = {"of": query.of, "batch": query.batch, "cursor": following}
        shown = EntriesView(
            company=company,
            now=now,
            zone=view.zone_name(places, company, now),
            zone_key=view.zone_key(places, company),
            of=query.of,
            batch_id=query.batch,
            entries=[make(row, places) for row in listed],
            next_href=f"/records?{view.query(parameters)}" if following else "",
        )
        return await self.pages.page("entries.html", signed_in, shown)


_LISTS: Mapping[str, tuple[Callable[..., Any], Callable[..., view.Entry]]] = {
    "records": (queries.records, view.record_entry),
    "intakes": (queries.intakes, view.intake_entry),
}


async def _replaced(connection: db.Connection, form: EntryForm, replaces: str) -> Mapping[str, Any]:
    """What a correction is of. Raises HttpError 404, also for what another company has."""
    event = None
    if form is RECORD:
        event = await queries.record(connection, replaces) if "\0" not in replaces else None
    else:
        event_type = feed.INTAKE_RECORDED if form is INTAKE else feed.LOT_RECEIVED
        try:
            event = await queries.feed_event(connection, UUID(replaces), event_type)
        except ValueError:
            event = None
    if event is None:
        raise HttpError(404, "there is no such entry")
    return event


def _done(event: BusEvent) -> str:
    """The page that shows what was entered: of its batch, else the list of feed or entries."""
    payload = msgspec.json.decode(event.payload)
    if event.event_type == feed.LOT_RECEIVED:
        return f"/feed?entered={event.event_id}"
    if batch_id := payload.get("batch_id"):
        return f"{address(batch_id)}?entered={event.event_id}"
    return "/records" if event.event_type != feed.INTAKE_RECORDED else "/records?of=intakes"
