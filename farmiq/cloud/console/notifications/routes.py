"""The routes of /settings/notifications: channels, contacts, escalation, tests, this device."""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, cast
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
    Language,
    TooManyError,
    TrialValues,
)
from farmiq.cloud.notification.sending import queries as message_queries
from farmiq.plumbing import db, web_push
from farmiq.plumbing.addresses import Allowed
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.sealing import Sealer, SealError
from farmiq.ui import i18n, look, words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked

ADMIN, OPERATOR = "admin", "operator"
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
            (f"{ROOT}/{CHANNELS.name}/{{id}}/test", self.test_channel, "POST"),
            *self._routes(CHANNELS),
            *self._routes(CONTACTS),
        )

    def _routes(self, half: "Half") -> "Iterator[tuple[str, look.Endpoint, str]]":
        """Of channels or of contacts: a form for a new one, and one for each that is there."""
        for address in (f"{ROOT}/{half.name}/new", f"{ROOT}/{half.name}/{{id}}"):
            yield address, partial(self.edit, half), "GET"
            yield address, partial(self.save, half), "POST"
        yield f"{ROOT}/{half.name}/{{id}}/remove", partial(self.remove, half), "POST"

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
                language=cast(Language, i18n.language()),
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

    # --- a channel, a contact

    async def edit(self, half: "Half", request: Request) -> Response:
        return await self._form_page(half, request)

    async def save(self, half: "Half", request: Request) -> Response:
        form = await acting.form(self.pages, request)
        problems: Mapping[str, str] = {}
        problem = ""
        try:
            await half.store(self, request, form)
        except WrongError as error:
            problems = error.problems
        except InvalidError as error:
            problems = {forms.field_of(path): reason for path, reason in error.problems}
        except (SealError, TooManyError) as error:
            problem = str(error)
        else:
            return redirect(request, f"{ROOT}#{half.name}")
        return await self._form_page(half, request, form, problems, problem)

    async def remove(self, half: "Half", request: Request) -> Response:
        await acting.form(self.pages, request)
        async with acting.caller(self.pages, request, least=ADMIN) as caller:
            service = await caller.become_service()
            if not await half.remove(service, caller.tenant_id, _id(request), by=caller.email):
                raise HttpError(404, half.missing)
        return redirect(request, f"{ROOT}#{half.name}")

    async def test_channel(self, request: Request) -> Response:
        """Send a test message; the page shows what became of it."""
        form = await acting.form(self.pages, request)
        values = TrialValues(
            contact_id=form.get("contact") or None, address=form.get("address") or None
        )
        async with acting.caller(self.pages, request, least=ADMIN) as caller:
            channel_id = _id(request)
            if await contacts.find_channel(caller.connection, caller.tenant_id, channel_id) is None:
                raise HttpError(404, CHANNELS.missing)
            service = await caller.become_service()
            message_id = await _saved(
                contacts.send_test(service, caller.tenant_id, channel_id, values, by=caller.email)
            )
        return redirect(request, f"{ROOT}?test={message_id}#test")

    async def store_channel(self, request: Request, form: dict[str, str]) -> None:
        channel_id = request.path_params.get("id")
        async with acting.caller(self.pages, request, least=ADMIN) as caller:
            rows = await contacts.list_channels(caller.connection, caller.tenant_id)
            taken, owner = {row["channel_id"] for row in rows}, caller.tenant_id
        kind = _kind(form, status=422)
        if channel_id is not None and channel_id not in taken:
            raise HttpError(404, CHANNELS.missing)
        values = forms.channel(form, kind)
        # Names are resolved outside of a transaction: a slow resolver holds up nobody else.
        if values.secrets is not UNSET:
            problem = await contacts.private_problem(values.secrets, self.allowed, owner=owner)
            if problem:
                raise InvalidError(problem)
        wanted = channel_id or forms.new_id(form.get("name", ""), taken, kind.replace("_", "-"))
        async with acting.caller(self.pages, request, least=ADMIN) as caller:
            service = await caller.become_service()
            await contacts.save_channel(
                service, owner, wanted, values, sealer=self.sealer, by=caller.email,
                merge_secrets=True,
            )  # fmt: skip

    async def store_contact(self, request: Request, form: dict[str, str]) -> None:
        contact_id = request.path_params.get("id")
        async with acting.caller(self.pages, request, least=ADMIN) as caller:
            tenant_id, connection = caller.tenant_id, caller.connection
            channels = await contacts.list_channels(connection, tenant_id)
            rows = await contacts.list_contacts(connection, tenant_id)
            known = {row["contact_id"]: row for row in rows}
            if contact_id is not None and contact_id not in known:
                raise HttpError(404, CONTACTS.missing)
            zone = await db.fetch_value(connection, "select timezone from companies")
            addresses = known[contact_id]["addresses"] if contact_id is not None else {}
            values = forms.contact(form, channels, addresses, timezone=zone)
            wanted = contact_id or forms.new_id(values.name, set(known), "contact")
            service = await caller.become_service()
            await contacts.save_contact(service, tenant_id, wanted, values, by=caller.email)

    async def _form_page(
        self,
        half: "Half",
        request: Request,
        form: Mapping[str, str] | None = None,
        problems: Mapping[str, str] = MappingProxyType({}),
        problem: str = "",
    ) -> Response:
        signed_in = await self.pages.must_be_signed_in(request)
        known_id = request.path_params.get("id")
        async with self.pages.visit(request, signed_in) as (connection, company, now):
            pages.require(company, ADMIN)
            row = None
            if known_id is not None:
                row = await half.find(connection, company.tenant_id, known_id)
                if row is None:
                    raise HttpError(404, half.missing)
            channels = await contacts.list_channels(connection, company.tenant_id)
        shown = EditView(
            company=company,
            now=now,
            zone=words.zone_name(words.zone(company.timezone), now),
            heading=str(row["name"] or known_id) if row else _(half.new),
            address=f"{ROOT}/{half.name}/{known_id or 'new'}",
            form=form if form is not None else half.fields(row),
            problems=problems,
            problem=problem,
            is_new=row is None,
            **half.more(request, form, row, company, channels),
        )
        status = 422 if problems or problem else 200
        return await self.pages.page(half.template, signed_in, shown, status=status)


@dataclass(frozen=True)
class Half:
    """Channels, or contacts: what differs between their forms."""

    name: str
    template: str
    new: str
    missing: str
    find: Callable[[db.Connection, str, str], Awaitable[dict[str, Any] | None]]
    remove: Callable[..., Awaitable[bool]]
    store: Callable[[NotificationPages, Request, dict[str, str]], Awaitable[None]]
    # The fields of one that is there, or of a new one.
    fields: Callable[[Mapping[str, Any] | None], Mapping[str, str]]
    # What else its page shows.
    more: Callable[..., Mapping[str, Any]]


def _of_channel(
    request: Request,
    form: Mapping[str, str] | None,
    row: Mapping[str, Any] | None,
    _company: Company,
    _channels: Sequence[Mapping[str, Any]],
) -> Mapping[str, Any]:
    kind = row["kind"] if row else _kind(form or {"kind": "email", **request.query_params})
    settings, secrets = forms.KINDS[kind]
    return {
        "kind": kind,
        "settings": settings,
        "secrets": secrets,
        "known_secrets": tuple(row["secret_names"]) if row else (),
        "host": (row["host"] or "") if row else "",
    }


def _of_contact(
    _request: Request,
    _form: Mapping[str, str] | None,
    _row: Mapping[str, Any] | None,
    company: Company,
    channels: Sequence[Mapping[str, Any]],
) -> Mapping[str, Any]:
    return {
        "own_zone": company.timezone,
        "channels": tuple(
            (item["channel_id"], item["name"] or item["channel_id"], item["kind"])
            for item in channels
            if item["kind"] != WEB_PUSH
        ),
    }


def _kind(given: Mapping[str, str], *, status: int = 404) -> str:
    kind = given.get("kind", "")
    if kind not in forms.KINDS:
        raise HttpError(status, "there is no such kind of channel")
    return kind


def _id(request: Request) -> str:
    return str(request.path_params["id"])


CHANNELS = Half(
    "channels", "channel.html", marked("New channel"), "there is no such channel",
    contacts.find_channel, contacts.remove_channel, NotificationPages.store_channel,
    lambda row: forms.channel_fields(row) if row else forms.NEW_CHANNEL, _of_channel,
)  # fmt: skip
CONTACTS = Half(
    "contacts", "contact.html", marked("New contact"), "there is no such contact",
    contacts.find_contact, contacts.remove_contact, NotificationPages.store_contact,
    lambda row: forms.contact_fields(row) if row
    else {**forms.NEW_CONTACT, "language": i18n.language()},
    _of_contact,
)  # fmt: skip


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


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
