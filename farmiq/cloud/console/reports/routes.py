"""The routes of reports: the page, the PDFs, and who gets which by mail."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from fastapi import FastAPI, Request, Response

from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.reports.view import SentRow, SubscriptionRow, View
from farmiq.cloud.identity.store import SignIn
from farmiq.cloud.reports import files, periods, queries, store
from farmiq.cloud.reports.files import File, Subject
from farmiq.cloud.reports.periods import Period
from farmiq.plumbing import db, http, mail
from farmiq.plumbing.http import HttpError
from farmiq.ui import i18n, look
from farmiq.ui.i18n import gettext as _

ROOT = "/reports"
MAX_BATCHES = 200
MAX_SENT = 50
# Everybody may have reports sent to themselves; only admins to others.
LEAST_FOR_OTHERS = "admin"


@dataclass(frozen=True)
class ReportPages:
    pages: pages.Pages

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            (ROOT, self.reports, "GET"),
            (f"{ROOT}/report.pdf", self.pdf, "GET"),
            (f"{ROOT}/sent/{{report_id}}.pdf", self.sent, "GET"),
            (f"{ROOT}/subscriptions", self.subscribe, "POST"),
            (f"{ROOT}/subscriptions/{{subscription_id}}/remove", self.unsubscribe, "POST"),
        )

    async def reports(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        done = request.query_params.get("done", "")
        return await self._page(request, signed_in, done=done)

    async def pdf(self, request: Request) -> Response:
        """A report as it is now, in the language of who asks."""
        signed_in = await self.pages.must_be_signed_in(request)
        http.allow(request, signed_in.email)
        period = _period(request.query_params.get("period", ""))
        file = await self._file(request, signed_in, request.query_params.get("of", ""), period)
        return _answer(file.name, file.content)

    async def sent(self, request: Request) -> Response:
        """A report as it was mailed."""
        signed_in = await self.pages.must_be_signed_in(request)
        report_id = _id(request.path_params["report_id"], "report")
        async with self.pages.visit(request, signed_in) as (connection, company, _now):
            file = await store.file(connection, company.tenant_id, report_id)
        if file is None:
            raise HttpError(404, "there is no such report")
        return _answer(*file)

    async def subscribe(self, request: Request) -> Response:
        signed_in, form = await self._form(request)
        async with self.pages.visit(request, signed_in) as (connection, company, _now):
            subject = await _find(connection, company.tenant_id, form.get("of", ""))
        own = signed_in.email
        address = form.get("address", "").strip().lower() or own
        errors = {}
        if subject is None:
            errors["of"] = _("Choose a farm or a batch.")
        if form.get("kind") not in periods.KINDS:
            errors["kind"] = _("Choose how often.")
        if not mail.is_mailbox(address):
            errors["address"] = _("This has to be one address, such as ann@example.com.")
        elif address != own and not company.may(LEAST_FOR_OTHERS):
            errors["address"] = _("Only admins have reports sent to others.")
        if errors or subject is None:
            return await self._page(request, signed_in, given=form, errors=errors)
        try:
            async with db.transaction(self.pages.sign_ins.pool) as tx:
                await store.subscribe(
                    tx,
                    company.tenant_id,
                    subject,
                    "month" if form["kind"] == "month" else "week",
                    address=address,
                    language=i18n.language(),
                    user_id=signed_in.user_id if address == own else None,
                    by=signed_in.email,
                )
        except store.TooManyError:
            errors["address"] = _("Your company has as many subscriptions as it may have.")
            return await self._page(request, signed_in, given=form, errors=errors)
        return acting.redirect(request, f"{ROOT}?done=subscribed")

    async def unsubscribe(self, request: Request) -> Response:
        """One's own; an admin those of others too."""
        signed_in, _form = await self._form(request)
        subscription_id = _id(request.path_params["subscription_id"], "subscription")
        async with self.pages.visit(request, signed_in) as (connection, company, _now):
            subscription = await store.subscription(connection, company.tenant_id, subscription_id)
        if subscription is None:
            raise HttpError(404, "there is no such subscription")
        if subscription.user_id != signed_in.user_id:
            pages.require(company, LEAST_FOR_OTHERS)
        async with db.transaction(self.pages.sign_ins.pool) as tx:
            await store.unsubscribe(tx, company.tenant_id, subscription_id, by=signed_in.email)
        return acting.redirect(request, f"{ROOT}?done=unsubscribed")

    async def _form(self, request: Request) -> tuple[SignIn, dict[str, str]]:
        signed_in = await self.pages.must_be_signed_in(request)
        http.allow(request, signed_in.email)
        return signed_in, await self.pages.form(request, signed_in)

    async def _file(self, request: Request, signed_in: SignIn, text: str, period: Period) -> File:
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            subject = await _find(connection, company.tenant_id, text)
            if subject is None:
                raise HttpError(404, "there is no such farm or batch")
            gathered = await files.gather(connection, company.tenant_id, subject, period, now=now)
        if gathered is None:
            raise HttpError(404, "there is no such farm or batch")
        return await files.drawn(gathered, language=i18n.language())

    async def _page(
        self,
        request: Request,
        signed_in: SignIn,
        *,
        given: Mapping[str, str] | None = None,
        errors: Mapping[str, str] | None = None,
        done: str = "",
    ) -> Response:
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            tenant_id = company.tenant_id
            farms = await queries.farms(connection, tenant_id)
            batches = await queries.batches(connection, tenant_id, limit=MAX_BATCHES)
            subscriptions = await store.subscriptions(connection, tenant_id)
            sent = await store.reports(connection, tenant_id, limit=MAX_SENT)
        names = {farm.farm_id: farm.name for farm in farms}
        shown = View(
            company=company,
            now=now,
            farms=farms,
            batches=batches,
            subscriptions=[
                SubscriptionRow(subscription, subscription.user_id == signed_in.user_id)
                for subscription in subscriptions
            ],
            sent=[SentRow(report, names.get(report.farm_id, report.farm_id)) for report in sent],
            given=given or dict(request.query_params),
            errors=errors or {},
            done=done,
        )
        status = 422 if errors else 200
        return await self.pages.page("reports.html", signed_in, shown, status=status)


async def _find(connection: db.Connection, tenant_id: str, text: str) -> Subject | None:
    """The farm or batch that a form names, of those that the person sees."""
    kind, _colon, name = text.partition(":")
    if "\0" in name:
        return None
    if kind == "farm":
        return Subject(name) if await queries.farm(connection, tenant_id, name) else None
    batch = await queries.batch(connection, tenant_id, name) if kind == "batch" else None
    return Subject(batch.farm_id, batch.batch_id) if batch else None


def _period(text: str) -> Period:
    try:
        return periods.parse(text)
    except ValueError as error:
        raise HttpError(400, str(error)) from None


def _id(text: str, what: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise HttpError(404, f"there is no such {what}") from None


def _answer(name: str, content: bytes) -> Response:
    headers = {**look.HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/pdf", headers=headers)
