"""The routes of /settings/notifications: channels, contacts, escalation, tests, this device."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from fastapi import FastAPI, Request, Response
from msgspec import UNSET

from farmiq.cloud.console import acting, pages
from farmiq.cloud.console.acting import redirect
from farmiq.cloud.console.company.view import Company
from farmiq.cloud.console.notifications import form as forms
from farmiq.cloud.console.notifications import view
from farmiq.cloud.console.notifications.form import WrongError
from farmiq.cloud.console.notifications.view import ROOT, WEB_PUSH, EditView, NotificationsView
from farmiq.cloud.identity.store import SignIn
from farmiq.cloud.notification import contacts
from farmiq.cloud.notification.contacts import (
    ContactValues,
    InvalidError,
    TooManyError,
    TrialValues,
)
from farmiq.cloud.notification.sending import queries as message_queries
from farmiq.plumbing import db, web_push
from farmiq.plumbing.addresses import Allowed
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.sealing import Sealer, SealError
from farmiq.ui import look, words
from farmiq.ui.i18n import gettext as _

ADMIN, OPERATOR = "admin", "operator"
CHANNEL, CONTACT = f"{ROOT}/channels/{{channel_id}}", f"{ROOT}/contacts/{{contact_id}}"
MAX_MESSAGES = 20
MAX_ESCALATION_MIN = 7 * 24 * 60


@dataclass(frozen=True)
class NotificationPages:
    """Without a sealer no channel can have secrets."""

    pages: pages.Pages
    sealer: Sealer | None
    allowed: Allowed

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(
            app,
            (ROOT, self.overview, "GET"),
            (f"{ROOT}/parts", self.parts, "GET"),
            (f"{ROOT}/escalation", self.change_escalation, "POST"),
            (f"{ROOT}/device", self.add_device, "POST"),
            (f"{ROOT}/device/remove", self.remove_device, "POST"),
            (f"{ROOT}/channels/new", self.new_channel, "GET"),
            (f"{ROOT}/channels/new", self.save_channel, "POST"),
            (CHANNEL, self.channel, "GET"),
            (CHANNEL, self.save_channel, "POST"),
            (f"{CHANNEL}/remove", self.remove_channel, "POST"),
            (f"{CHANNEL}/test", self.test_channel, "POST"),
            (f"{ROOT}/contacts/new", self.new_contact, "GET"),
            (f"{ROOT}/contacts/new", self.save_contact, "POST"),
            (CONTACT, self.contact, "GET"),
            (CONTACT, self.save_contact, "POST"),
            (f"{CONTACT}/remove", self.remove_contact, "POST"),
        )

    # --- the page

    async def overview(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        shown = await self._view(request, signed_in)
        return await self.pages.page("notifications.html", signed_in, shown)

    async def parts(self, request: Request) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        shown = await self._view(request, signed_in)
        csrf = pages.form_token(signed_in, shown.company)
        return await look.fragment(request, "notification_parts.html", "parts", shown, csrf)

    async def _view(self, request: Request, signed_in: SignIn) -> NotificationsView:
        wanted = request.query_params.get("test")
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            tenant_id = company.tenant_id
            test = None
            if wanted and (message_id := _uuid(wanted)):
                test = await message_queries.find_message(connection, tenant_id, message_id)
            return view.notifications_view(
                company,
                channels=await contacts.list_channels(connection, tenant_id),
                contacts=await contacts.list_contacts(connection, tenant_id),
                messages=await message_queries.page(connection, tenant_id, _NEWEST),
                test=test,
                escalate_after_min=await contacts.escalate_after_min(connection, tenant_id),
                can_seal=self.sealer is not None,
                now=now,
            )

    async def change_escalation(self, request: Request) -> Response:
        text = (await acting.form(self.pages, request)).get("minutes", "")
        minutes = None
        if text:
            if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_ESCALATION_MIN:
                raise HttpError(
                    422, f"minutes have to be 1 to {MAX_ESCALATION_MIN}, or empty for never"
                )
            minutes = int(text)
        async with acting.caller(self.pages, request, least=ADMIN) as caller:
            service = await caller.become_service()
            await contacts.save_settings(
                service, caller.tenant_id, escalate_after_min=minutes, by=caller.email
            )
        return redirect(request, f"{ROOT}#escalation")

    # --- this device

    async def add_device(self, request: Request) -> Response:
        """A browser's subscription becomes a contact of the person."""
        form = await acting.form(self.pages, request)
        subscription = form.get("subscription", "")
        async with acting.caller(self.pages, request, least=OPERATOR) as caller:
            try:
                web_push.read(subscription)
            except ValueError as error:
                raise HttpError(422, f"what the browser sent {error}") from None
            tenant_id = caller.tenant_id
            channels = await contacts.list_channels(caller.connection, tenant_id)
            channel = next((row for row in channels if row["kind"] == WEB_PUSH), None)
            if channel is None:
                raise HttpError(409, "an administrator has to switch on messages to devices first")
            values = ContactValues(
                name=f"{caller.email}, {form.get('label') or _('a device')}"[:200],
                addresses={channel["channel_id"]: subscription},
            )
            service = await caller.become_service()
            await _saved(
                contacts.save_contact(
                    service,
                    tenant_id,
                    device_id(subscription),
                    values,
                    by=caller.email,
                    owner=caller.email,
                )
            )
        return redirect(request, f"{ROOT}#contacts")

    async def remove_device(self, request: Request) -> Response:
        subscription = (await acting.form(self.pages, request)).get("subscription", "")
        async with acting.caller(self.pages, request, least=OPERATOR) as caller:
            service = await caller.become_service()
            await contacts.remove_contact(
                service, caller.tenant_id, device_id(subscription), by=caller.email
            )
        return redirect(request, f"{ROOT}#contacts")

    # --- channels

    async def new_channel(self, request: Request) -> Response:
        kind = request.query_params.get("kind", "email")
        if kind not in forms.KINDS:
            raise HttpError(404, "there is no such kind of channel")
        form = dict(forms.NEW_CHANNEL)
        return await self._channel_page(request, None, form, kind=kind)

    async def channel(self, request: Request) -> Response:
        return await self._channel_page(request, request.path_params["channel_id"], None)

    async def save_channel(self, request: Request) -> Response:
        form = await acting.form(self.pages, request)
        channel_id = request.path_params.get("channel_id")
        kind = form.get("kind", "")
        async with acting.caller(self.pages, request, least=ADMIN) as caller:
            rows = await contacts.list_channels(caller.connection, caller.tenant_id)
            taken, owner = {row["channel_id"] for row in rows}, caller.tenant_id
        if kind not in forms.KINDS:
            raise HttpError(422, "there is no such kind of channel")
        if channel_id is not None and channel_id not in taken:
            raise HttpError(404, "there is no such channel")
        try:
            values = forms.channel(form, kind)
            # Names are resolved outside of a transaction: a slow resolver holds up nobody else.
            if values.secrets is not UNSET:
                problem = await contacts.private_problem(values.secrets, self.allowed, owner=owner)
                if problem:
                    problems = {forms.field_of(problem[0]): problem[1]}
                    return await self._channel_page(request, channel_id, form, problems, kind=kind)
            wanted = channel_id or forms.new_id(form.get("name", ""), taken, kind.replace("_", "-"))
            async with acting.caller(self.pages, request, least=ADMIN) as caller:
                service = await caller.become_service()
                await contacts.save_channel(
                    service, owner, wanted, values, sealer=self.sealer, by=caller.email,
                    merge_secrets=True,
                )  # fmt: skip
        except WrongError as error:
            return await self._channel_page(request, channel_id, form, error.problems, kind=kind)
        except InvalidError as error:
            problems = {forms.field_of(path): reason for path, reason in error.problems}
            return await self._channel_page(request, channel_id, form, problems, kind=kind)
        except (SealError, TooManyError) as error:
            return await self._channel_page(
                request, channel_id, form, problem=str(error), kind=kind
            )
        return redirect(request, f"{ROOT}#channels")

    async def remove_channel(self, request: Request) -> Response:
        await acting.form(self.pages, request)
        async with acting.caller(self.pages, request, least=ADMIN) as caller:
            service = await caller.become_service()
            if not await contacts.remove_channel(
                service, caller.tenant_id, request.path_params["channel_id"], by=caller.email
            ):
                raise HttpError(404, "there is no such channel")
        return redirect(request, f"{ROOT}#channels")

    async def test_channel(self, request: Request) -> Response:
        """Send a test message; the page shows what became of it."""
        form = await acting.form(self.pages, request)
        channel_id = request.path_params["channel_id"]
        values = TrialValues(
            contact_id=form.get("contact") or None, address=form.get("address") or None
        )
        async with acting.caller(self.pages, request, least=ADMIN) as caller:
            if await contacts.find_channel(caller.connection, caller.tenant_id, channel_id) is None:
                raise HttpError(404, "there is no such channel")
            service = await caller.become_service()
            message_id = await _saved(
                contacts.send_test(service, caller.tenant_id, channel_id, values, by=caller.email)
            )
        return redirect(request, f"{ROOT}?test={message_id}#test")

    async def _channel_page(
        self,
        request: Request,
        channel_id: str | None,
        form: Mapping[str, str] | None,
        problems: Mapping[str, str] | None = None,
        *,
        problem: str = "",
        kind: str = "",
    ) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            pages.require(company, ADMIN)
            row = None
            if channel_id is not None:
                row = await contacts.find_channel(connection, company.tenant_id, channel_id)
                if row is None:
                    raise HttpError(404, "there is no such channel")
                kind = row["kind"]
        settings, secrets = forms.KINDS[kind]
        shown = EditView(
            company=company,
            now=now,
            zone=words.zone_name(words.zone(company.timezone), now),
            heading=str(row["name"] or channel_id) if row else _("New channel"),
            address=f"{ROOT}/channels/{channel_id or 'new'}",
            form=form if form is not None else forms.channel_fields(row or {}),
            problems=problems or {},
            problem=problem,
            is_new=row is None,
            kind=kind,
            settings=settings,
            secrets=secrets,
            known_secrets=tuple(row["secret_names"]) if row else (),
            host=(row["host"] or "") if row else "",
        )
        status = 422 if problems or problem else 200
        return await self.pages.page("channel.html", signed_in, shown, status=status)

    # --- contacts

    async def new_contact(self, request: Request) -> Response:
        return await self._contact_page(request, None, dict(forms.NEW_CONTACT))

    async def contact(self, request: Request) -> Response:
        return await self._contact_page(request, request.path_params["contact_id"], None)

    async def save_contact(self, request: Request) -> Response:
        form = await acting.form(self.pages, request)
        contact_id = request.path_params.get("contact_id")
        try:
            async with acting.caller(self.pages, request, least=ADMIN) as caller:
                await self._save_contact(caller.connection, caller, contact_id, form)
        except WrongError as error:
            return await self._contact_page(request, contact_id, form, error.problems)
        except InvalidError as error:
            problems = {forms.field_of(path): reason for path, reason in error.problems}
            return await self._contact_page(request, contact_id, form, problems)
        except TooManyError as error:
            return await self._contact_page(request, contact_id, form, problem=str(error))
        return redirect(request, f"{ROOT}#contacts")

    async def _save_contact(
        self, connection: db.Connection, caller: Any, contact_id: str | None, form: dict[str, str]
    ) -> None:
        tenant_id = caller.tenant_id
        channels = await contacts.list_channels(connection, tenant_id)
        known = {
            row["contact_id"]: row for row in await contacts.list_contacts(connection, tenant_id)
        }
        if contact_id is not None and contact_id not in known:
            raise HttpError(404, "there is no such contact")
        zone = await db.fetch_value(connection, "select timezone from companies")
        addresses = known[contact_id]["addresses"] if contact_id is not None else {}
        values = forms.contact(form, channels, addresses, timezone=zone)
        wanted = contact_id or forms.new_id(values.name, set(known), "contact")
        service = await caller.become_service()
        await contacts.save_contact(service, tenant_id, wanted, values, by=caller.email)

    async def remove_contact(self, request: Request) -> Response:
        await acting.form(self.pages, request)
        async with acting.caller(self.pages, request, least=ADMIN) as caller:
            service = await caller.become_service()
            if not await contacts.remove_contact(
                service, caller.tenant_id, request.path_params["contact_id"], by=caller.email
            ):
                raise HttpError(404, "there is no such contact")
        return redirect(request, f"{ROOT}#contacts")

    async def _contact_page(
        self,
        request: Request,
        contact_id: str | None,
        form: Mapping[str, str] | None,
        problems: Mapping[str, str] | None = None,
        *,
        problem: str = "",
    ) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            pages.require(company, ADMIN)
            row = None
            if contact_id is not None:
                row = await contacts.find_contact(connection, company.tenant_id, contact_id)
                if row is None:
                    raise HttpError(404, "there is no such contact")
            channels = await contacts.list_channels(connection, company.tenant_id)
        shown = EditView(
            company=company,
            now=now,
            zone=words.zone_name(words.zone(company.timezone), now),
            heading=row["name"] if row else _("New contact"),
            address=f"{ROOT}/contacts/{contact_id or 'new'}",
            form=_with_zone(form if form is not None else forms.contact_fields(row or {}), company),
            problems=problems or {},
            problem=problem,
            is_new=row is None,
            channels=tuple(
                (item["channel_id"], item["name"] or item["channel_id"], item["kind"])
                for item in channels
                if item["kind"] != WEB_PUSH
            ),
        )
        status = 422 if problems or problem else 200
        return await self.pages.page("contact.html", signed_in, shown, status=status)


_NEWEST: Mapping[str, Any] = {
    "episode": None, "contact": None, "channel": None, "state": None, "step": None, "begin": None,
    "end": None, "after_at": None, "after_id": None, "limit": MAX_MESSAGES,
}  # fmt: skip


def device_id(subscription: str) -> str:
    """The contact of a browser: the same one whenever it subscribes again."""
    try:
        endpoint = web_push.read(subscription).endpoint
    except ValueError:
        endpoint = ""
    return f"device-{hashlib.sha256(endpoint.encode()).hexdigest()[:16]}"


async def _saved(change: Any) -> Any:
    """What a change gives; what is wrong with it as an answer of HTTP."""
    try:
        return await change
    except InvalidError as error:
        raise HttpError(422, "; ".join(reason for _field, reason in error.problems)) from None
    except TooManyError as error:
        raise HttpError(409, str(error)) from None


def _with_zone(form: Mapping[str, str], company: Company) -> Mapping[str, str]:
    return {**form, "timezone": form.get("timezone") or company.timezone}


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
