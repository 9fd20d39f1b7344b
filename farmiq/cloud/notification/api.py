"""Channels, contacts, messages and settings of alerts, for people. Nobody reads a secret back."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

import msgspec
from fastapi import Depends, Query, Request, Response
from msgspec import UNSET
from pydantic import Field

from farmiq import api
from farmiq.api import At, BodyOf, Handler, Id, JsonBody, PathId, PathText
from farmiq.cloud.identity import people
from farmiq.cloud.identity.people import AVisit, Caller, PeopleRoutes
from farmiq.cloud.notification import contacts
from farmiq.cloud.notification.contacts import (
    ChannelValues,
    ContactValues,
    Language,
    SettingsValues,
    TrialValues,
    shown_channel,
    shown_contact,
)
from farmiq.cloud.notification.sending import queries
from farmiq.cloud.notification.sending.channels import Kind
from farmiq.messages import ids
from farmiq.messages.edge import Severity
from farmiq.plumbing.addresses import Allowed
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.sealing import Sealer, SealError

ROOT = "/api/v1"
MAX_BYTES = 64 * 1024
MAX_ROWS = 1000
ADMIN = "admin"

T = TypeVar("T", bound=msgspec.Struct)

WRITING = {
    **people.FORBIDDEN,
    409: "CONFLICT: there are too many, or the service has no key to seal secrets with.",
}


# --- responses


class AlertChannel(api.Model):
    """`secrets` are the names of those that it has; `host` is where it leads to.

    `public_key` is what a browser subscribes with (web_push).
    """

    channel_id: str
    kind: Kind
    name: str | None
    enabled: bool
    settings: dict[str, Any]
    secrets: list[str]
    host: str | None
    public_key: str | None
    changed_at: At
    changed_by: str


class AlertChannels(api.Model):
    channels: list[AlertChannel]


class AlertQuietHours(api.Model):
    begin: Annotated[str, Field(alias="from")]
    until: str
    timezone: str
    passed_by: list[Severity]


class AlertContact(api.Model):
    contact_id: str
    name: str
    enabled: bool
    level: int
    severities: list[Severity]
    farms: list[str] | None
    addresses: dict[str, str]
    quiet_hours: AlertQuietHours | None
    language: Language
    changed_at: At
    changed_by: str


class AlertContacts(api.Model):
    contacts: list[AlertContact]


class AlertMessage(api.Model):
    """`body` is what was sent, without the link that acknowledges. `error` is the last one."""

    message_id: UUID
    episode_id: UUID | None
    step: str
    contact_id: str | None
    channel_id: str
    address: str
    severity: str
    subject: str
    body: str
    state: Literal["pending", "sent", "failed", "dropped"]
    created_at: At
    send_after: At
    next_attempt_at: At
    attempts: int
    ended_at: At | None
    error: str | None


class AlertMessages(api.Model):
    messages: list[AlertMessage]
    next_cursor: str | None


class AlertSettings(api.Model):
    escalate_after_min: int | None


class MessageFilter(api.SpanFilter):
    """Which messages, newest first."""

    episode: Annotated[UUID | None, Field(description="Only of this episode.")] = None
    contact: Annotated[Id | None, Field(description="Only to this contact.")] = None
    channel: Annotated[Id | None, Field(description="Only over this channel.")] = None
    state: Annotated[
        Literal["pending", "sent", "failed", "dropped"] | None, Field(description="Only these.")
    ] = None
    step: Annotated[
        Literal["opened", "worsened", "escalated", "acknowledged", "resolved", "test", "report"]
        | None,
        Field(description="Only these."),
    ] = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS, description="At most so many rows.")] = 100
    company: people.Company = None


def _route(
    method: str, path: str, model: Any = None, **options: Any
) -> Callable[[Handler], Handler]:
    """A route for people who are signed in."""
    responses: dict[int, Any] = {404: people.MISSING, **(WRITING if method != "GET" else {})}
    if method == "PUT" and model is not AlertSettings:
        responses[201] = {"model": model, "description": "Added."}
    return people.route(method, f"{ROOT}/{path}", model, responses=responses, **options)


def _body(kind: type[T]) -> Any:
    return Depends(BodyOf(kind, what="a body", max_bytes=MAX_BYTES))


ChannelBody = Annotated[JsonBody[ChannelValues], _body(ChannelValues)]
ContactBody = Annotated[JsonBody[ContactValues], _body(ContactValues)]
TrialBody = Annotated[JsonBody[TrialValues], _body(TrialValues)]
SettingsBody = Annotated[JsonBody[SettingsValues], _body(SettingsValues)]


@dataclass
class Api(PeopleRoutes):
    """Without a sealer no channel can have secrets."""

    sealer: Sealer | None
    allowed: Allowed

    # --- channels

    @_route("GET", "alert-channels", AlertChannels)
    async def channels(self, visit: AVisit) -> Any:
        """How messages about alerts leave, in the order of their ids."""
        async with self.people.caller(*visit) as caller:
            rows = await contacts.list_channels(caller.connection, caller.tenant_id)
        return {"channels": [shown_channel(row) for row in rows]}

    @_route("GET", "alert-channels/{channel_id}", AlertChannel)
    async def channel(self, visit: AVisit, channel_id: PathText) -> Any:
        """One channel."""
        async with self.people.caller(*visit) as caller:
            return shown_channel(await _find_channel(caller, channel_id))

    @_route("PUT", "alert-channels/{channel_id}", AlertChannel)
    async def put_channel(
        self, visit: AVisit, response: Response, channel_id: PathText, body: ChannelBody
    ) -> Any:
        """Add or change a channel (admins)."""
        raw = await body.raw()
        async with self.people.caller(*visit, least=ADMIN) as caller:
            values, tenant_id = body.decode(raw), caller.tenant_id
            _check_path_id(channel_id)
        # Names are resolved outside of a transaction: a slow resolver holds up nobody else.
        if values.secrets is not UNSET and (
            problem := await contacts.private_problem(values.secrets, self.allowed, owner=tenant_id)
        ):
            raise api.invalid(problem)
        async with self.people.caller(*visit, least=ADMIN) as caller:
            service = await caller.become_service()
            with _rejections():
                is_new = await contacts.save_channel(
                    service, tenant_id, channel_id, values, sealer=self.sealer, by=caller.email
                )
            row = await _find_channel(caller, channel_id)
            response.status_code = 201 if is_new else 200
        return shown_channel(row)

    @_route("DELETE", "alert-channels/{channel_id}", status_code=204)
    async def delete_channel(self, visit: AVisit, channel_id: PathText) -> None:
        """Remove a channel (admins); messages that wait for it fail."""
        async with self.people.caller(*visit, least=ADMIN) as caller:
            service = await caller.become_service()
            if not await contacts.remove_channel(
                service, caller.tenant_id, channel_id, by=caller.email
            ):
                raise HttpError(404, "there is no such channel")

    @_route("POST", "alert-channels/{channel_id}/test", AlertMessage, status_code=202)
    async def test_channel(self, visit: AVisit, channel_id: PathText, body: TrialBody) -> Any:
        """Send a test message (admins); it shows under alert-messages what became of it."""
        raw = await body.raw()
        async with self.people.caller(*visit, least=ADMIN) as caller:
            values = body.decode(raw)
            await _find_channel(caller, channel_id)
            service = await caller.become_service()
            with _rejections():
                message_id = await contacts.send_test(
                    service, caller.tenant_id, channel_id, values, by=caller.email
                )
            return await queries.find_message(caller.connection, caller.tenant_id, message_id)

    # --- contacts

    @_route("GET", "alert-contacts", AlertContacts)
    async def contacts(self, visit: AVisit) -> Any:
        """Who is told of alerts, in the order of their ids."""
        async with self.people.caller(*visit) as caller:
            rows = await contacts.list_contacts(caller.connection, caller.tenant_id)
        return {"contacts": [shown_contact(row) for row in rows]}

    @_route("GET", "alert-contacts/{contact_id}", AlertContact)
    async def contact(self, visit: AVisit, contact_id: PathText) -> Any:
        """One contact."""
        async with self.people.caller(*visit) as caller:
            return shown_contact(await _find_contact(caller, contact_id))

    @_route("PUT", "alert-contacts/{contact_id}", AlertContact)
    async def put_contact(
        self, visit: AVisit, response: Response, contact_id: PathText, body: ContactBody
    ) -> Any:
        """Add or change a contact (admins)."""
        raw = await body.raw()
        async with self.people.caller(*visit, least=ADMIN) as caller:
            values = body.decode(raw)
            _check_path_id(contact_id)
            service = await caller.become_service()
            with _rejections():
                is_new = await contacts.save_contact(
                    service, caller.tenant_id, contact_id, values, by=caller.email
                )
            response.status_code = 201 if is_new else 200
            return shown_contact(await _find_contact(caller, contact_id))

    @_route("DELETE", "alert-contacts/{contact_id}", status_code=204)
    async def delete_contact(self, visit: AVisit, contact_id: PathText) -> None:
        """Remove a contact (admins); their links do not acknowledge any more."""
        async with self.people.caller(*visit, least=ADMIN) as caller:
            service = await caller.become_service()
            if not await contacts.remove_contact(
                service, caller.tenant_id, contact_id, by=caller.email
            ):
                raise HttpError(404, "there is no such contact")

    # --- messages and settings

    @_route("GET", "alert-messages", AlertMessages)
    async def messages(self, request: Request, query: Annotated[MessageFilter, Query()]) -> Any:
        """Messages and what became of them, newest first."""
        async with self.people.caller(request, query.company) as caller:
            rows = await queries.page(caller.connection, caller.tenant_id, query.page())
        shown, following = api.cut(rows, query.limit, at="created_at", key="message_id")
        return {"messages": shown, "next_cursor": following}

    @_route("GET", "alert-messages/{message_id}", AlertMessage)
    async def message(self, visit: AVisit, message_id: PathId) -> Any:
        """One message."""
        async with self.people.caller(*visit) as caller:
            row = await queries.find_message(caller.connection, caller.tenant_id, message_id)
        if row is None:
            raise HttpError(404, "there is no such message")
        return row

    @_route("GET", "alert-settings", AlertSettings)
    async def settings(self, visit: AVisit) -> Any:
        """When alerts that nobody acknowledges go to contacts of level 2."""
        async with self.people.caller(*visit) as caller:
            minutes = await contacts.escalate_after_min(caller.connection, caller.tenant_id)
        return {"escalate_after_min": minutes}

    @_route("PUT", "alert-settings", AlertSettings)
    async def put_settings(self, visit: AVisit, body: SettingsBody) -> Any:
        """Change when alerts go to contacts of level 2 (admins)."""
        raw = await body.raw()
        async with self.people.caller(*visit, least=ADMIN) as caller:
            values = body.decode(raw)
            service = await caller.become_service()
            await contacts.save_settings(
                service,
                caller.tenant_id,
                escalate_after_min=values.escalate_after_min,
                by=caller.email,
            )
        return {"escalate_after_min": values.escalate_after_min}


@contextmanager
def _rejections() -> Iterator[None]:
    """Answer errors of contacts and channels with 400 or 409."""
    try:
        yield
    except contacts.InvalidError as error:
        raise api.invalid(*error.problems) from None
    except (SealError, contacts.TooManyError) as error:
        raise HttpError(409, str(error)) from None


async def _find_channel(caller: Caller, channel_id: str) -> dict[str, Any]:
    row = await contacts.find_channel(caller.connection, caller.tenant_id, channel_id)
    if row is None:
        raise HttpError(404, "there is no such channel")
    return row


async def _find_contact(caller: Caller, contact_id: str) -> dict[str, Any]:
    row = await contacts.find_contact(caller.connection, caller.tenant_id, contact_id)
    if row is None:
        raise HttpError(404, "there is no such contact")
    return row


def _check_path_id(text: str) -> None:
    if not re.match(ids.ID_PATTERN, text):
        raise api.invalid(("path", "has to be letters, digits and . _ : -, at most 128"))
