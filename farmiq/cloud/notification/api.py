"""Channels, contacts, messages and settings of alerts, for people. Nobody reads a secret back."""

import re
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import time
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

import msgspec
from fastapi import Depends, Query, Request, Response
from msgspec import UNSET, Meta, UnsetType
from pydantic import AfterValidator, Field

from farmiq import api
from farmiq.api import At, BodyOf, Handler, Id, JsonBody, PathId
from farmiq.cloud.identity import people, sign_in
from farmiq.cloud.identity.people import AVisit, Caller, People, with_retries
from farmiq.cloud.notification import channels, store, words
from farmiq.cloud.notification.channels import Channel, ChannelSecrets, ChannelSettings, Secrets
from farmiq.messages import ids
from farmiq.messages.kinds import Name
from farmiq.plumbing import addresses, db, http, mail, outgoing, web_push
from farmiq.plumbing.addresses import Allowed
from farmiq.plumbing.http import HttpError
from farmiq.plumbing.sealing import Sealer, SealError

ROOT = "/api/v1"
MAX_BYTES = 64 * 1024
MAX_ROWS = 1000
MAX_TESTS_PER_HOUR = 60
ADMIN = "admin"

Severity = Literal["info", "warning", "critical", "security"]
_Clock = Annotated[str, Meta(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9](?![\s\S])")]
_Address = Annotated[str, Meta(max_length=channels.MAX_ADDRESS)]
_Severities = Annotated[list[Severity], Meta(min_length=1, max_length=4)]

T = TypeVar("T", bound=msgspec.Struct)

MISSING = "NOT_FOUND: there is none, or not in the company that is looked at."
WRITING = {
    403: "FORBIDDEN: the person's role does not reach.",
    409: "CONFLICT: there are too many, or the service has no key to seal secrets with.",
    429: http.ERRORS[429],
}


# --- bodies


class ChannelValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without `secrets` those that the channel has stay; else all of them are replaced."""

    kind: channels.Kind
    name: Name | None = None
    enabled: bool = True
    settings: ChannelSettings = ChannelSettings()
    secrets: ChannelSecrets | UnsetType = UNSET


class QuietHoursValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By the clocks of `timezone`; over midnight if `until` is earlier than `from`."""

    begin: _Clock = msgspec.field(name="from")
    until: _Clock
    timezone: Name
    passed_by: Annotated[list[Severity], Meta(max_length=4)] = msgspec.field(
        default_factory=lambda: ["critical", "security"]
    )


class ContactValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person. `addresses` has the address on each channel, by channel_id.

    Level 1 is told at once, level 2 if nobody acknowledges. Without `farms` they are told of all.
    """

    name: Name
    enabled: bool = True
    level: Annotated[int, Meta(ge=1, le=2)] = 1
    severities: _Severities = msgspec.field(
        default_factory=lambda: ["warning", "critical", "security"]
    )
    farms: Annotated[list[ids.Id], Meta(min_length=1, max_length=1000)] | None = None
    addresses: Annotated[dict[ids.Id, _Address], Meta(max_length=20)]
    quiet_hours: QuietHoursValues | None = None


class TrialValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """To a contact, or to an address; a webhook needs neither."""

    contact_id: ids.Id | None = None
    address: _Address | None = None


class SettingsValues(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Minutes without an acknowledgement until contacts of level 2 are told; null: never."""

    escalate_after_min: Annotated[int, Meta(ge=1, le=7 * 24 * 60)] | None


# --- responses


class AlertChannel(api.Model):
    """`secrets` are the names of those that it has; `host` is where it leads to.

    `public_key` is what a browser subscribes with (web_push).
    """

    channel_id: str
    kind: channels.Kind
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
    responses: dict[int, Any] = {404: MISSING, **(WRITING if method != "GET" else {})}
    if method == "PUT" and model is not AlertSettings:
        responses[201] = {"model": model, "description": "Added."}
    return api.route(
        method, f"{ROOT}/{path}", model, dependencies=[sign_in.SIGN_IN], responses=responses,
        **options,
    )  # fmt: skip


def _body(kind: type[T]) -> Any:
    return Depends(BodyOf(kind, what="a body", max_bytes=MAX_BYTES))


ChannelBody = Annotated[JsonBody[ChannelValues], _body(ChannelValues)]
ContactBody = Annotated[JsonBody[ContactValues], _body(ContactValues)]
TrialBody = Annotated[JsonBody[TrialValues], _body(TrialValues)]
SettingsBody = Annotated[JsonBody[SettingsValues], _body(SettingsValues)]
PathText = Annotated[str, AfterValidator(lambda text: "" if "\x00" in text else text)]


@dataclass
class Api(api.Routes):
    """Without a sealer no channel can have secrets."""

    sign_ins: sign_in.SignIns
    sealer: Sealer | None
    allowed: Allowed

    def __post_init__(self) -> None:
        self.people = People(self.sign_ins)

    def endpoint(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        return with_retries(handler)

    # --- channels

    @_route("GET", "alert-channels", AlertChannels)
    async def channels(self, visit: AVisit) -> Any:
        """How messages about alerts leave, in the order of their ids."""
        async with self.people.caller(*visit) as caller:
            rows = await store.list_channels(caller.connection, caller.tenant_id)
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
            problem := await private_problem(values.secrets, self.allowed, owner=tenant_id)
        ):
            raise api.invalid(problem)
        async with self.people.caller(*visit, least=ADMIN) as caller:
            service = await caller.become_service()
            try:
                is_new = await save_channel(
                    service, tenant_id, channel_id, values, sealer=self.sealer, by=caller.email
                )
            except InvalidError as error:
                raise api.invalid(*error.problems) from None
            except (SealError, store.TooManyError) as error:
                raise HttpError(409, str(error)) from None
            row = await _find_channel(caller, channel_id)
            response.status_code = 201 if is_new else 200
        return shown_channel(row)

    @_route("DELETE", "alert-channels/{channel_id}", status_code=204)
    async def delete_channel(self, visit: AVisit, channel_id: PathText) -> None:
        """Remove a channel (admins); messages that wait for it fail."""
        async with self.people.caller(*visit, least=ADMIN) as caller:
            service = await caller.become_service()
            if not await store.remove_channel(
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
            try:
                message_id = await send_test(
                    service, caller.tenant_id, channel_id, values, by=caller.email
                )
            except InvalidError as error:
                raise api.invalid(*error.problems) from None
            except store.TooManyError as error:
                raise HttpError(409, str(error)) from None
            return await store.find_message(caller.connection, caller.tenant_id, message_id)

    # --- contacts

    @_route("GET", "alert-contacts", AlertContacts)
    async def contacts(self, visit: AVisit) -> Any:
        """Who is told of alerts, in the order of their ids."""
        async with self.people.caller(*visit) as caller:
            rows = await store.list_contacts(caller.connection, caller.tenant_id)
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
            try:
                is_new = await save_contact(
                    service, caller.tenant_id, contact_id, values, by=caller.email
                )
            except InvalidError as error:
                raise api.invalid(*error.problems) from None
            except store.TooManyError as error:
                raise HttpError(409, str(error)) from None
            response.status_code = 201 if is_new else 200
            return shown_contact(await _find_contact(caller, contact_id))

    @_route("DELETE", "alert-contacts/{contact_id}", status_code=204)
    async def delete_contact(self, visit: AVisit, contact_id: PathText) -> None:
        """Remove a contact (admins); their links do not acknowledge any more."""
        async with self.people.caller(*visit, least=ADMIN) as caller:
            service = await caller.become_service()
            if not await store.remove_contact(
                service, caller.tenant_id, contact_id, by=caller.email
            ):
                raise HttpError(404, "there is no such contact")

    # --- messages and settings

    @_route("GET", "alert-messages", AlertMessages)
    async def messages(self, request: Request, query: Annotated[MessageFilter, Query()]) -> Any:
        """Messages and what became of them, newest first."""
        async with self.people.caller(request, query.company) as caller:
            rows = await store.page(caller.connection, caller.tenant_id, query.page())
        shown, following = api.cut(rows, query.limit, at="created_at", key="message_id")
        return {"messages": shown, "next_cursor": following}

    @_route("GET", "alert-messages/{message_id}", AlertMessage)
    async def message(self, visit: AVisit, message_id: PathId) -> Any:
        """One message."""
        async with self.people.caller(*visit) as caller:
            row = await store.find_message(caller.connection, caller.tenant_id, message_id)
        if row is None:
            raise HttpError(404, "there is no such message")
        return row

    @_route("GET", "alert-settings", AlertSettings)
    async def settings(self, visit: AVisit) -> Any:
        """When alerts that nobody acknowledges go to contacts of level 2."""
        async with self.people.caller(*visit) as caller:
            minutes = await store.escalate_after_min(caller.connection, caller.tenant_id)
        return {"escalate_after_min": minutes}

    @_route("PUT", "alert-settings", AlertSettings)
    async def put_settings(self, visit: AVisit, body: SettingsBody) -> Any:
        """Change when alerts go to contacts of level 2 (admins)."""
        raw = await body.raw()
        async with self.people.caller(*visit, least=ADMIN) as caller:
            values = body.decode(raw)
            service = await caller.become_service()
            await store.save_settings(
                service,
                caller.tenant_id,
                escalate_after_min=values.escalate_after_min,
                by=caller.email,
            )
        return {"escalate_after_min": values.escalate_after_min}


# --- what the API and the command share


class InvalidError(Exception):
    """What was given is not valid: (field, reason) of each problem."""

    def __init__(self, *problems: tuple[str, str]) -> None:
        super().__init__("; ".join(f"{field}: {reason}" for field, reason in problems))
        self.problems = problems


async def private_problem(
    secrets: ChannelSecrets, allowed: Allowed, *, owner: str
) -> tuple[str, str] | None:
    """(field, reason) of an address that leads into a private network, as far as is known now.

    It is looked at again before each message: a name may lead elsewhere then.
    """
    try:
        if secrets.url is not None:
            parts = urlsplit(secrets.url)
            host, port = addresses.check(secrets.url), parts.port or 443
            target = await outgoing.resolve(host, port, allowed=allowed, owner=owner)
            if parts.scheme == "http" and not target.is_inside:
                return "secrets.url", "has to begin with https://"
        if secrets.smtp_url is not None:
            where = mail.server(secrets.smtp_url)
            await outgoing.resolve(where.host, where.port, allowed=allowed, owner=owner)
    except outgoing.ForbiddenHostError as error:
        return "secrets.url" if secrets.url else "secrets.smtp_url", str(error)
    except (outgoing.NoAnswerError, ValueError):
        return None  # away for now, or not valid: then it is said with all other problems
    return None


async def save_channel(
    tx: db.Connection,
    tenant_id: str,
    channel_id: str,
    values: ChannelValues,
    *,
    sealer: Sealer | None,
    by: str,
) -> bool:
    """Add or change a channel; True if it is new.

    Raises InvalidError, SealError if secrets cannot be sealed, or TooManyError.
    """
    sealed = await store.sealed_secrets(tx, tenant_id, channel_id)
    known = Secrets()
    if sealed is not None and (values.secrets is UNSET or values.kind == "web_push"):
        known = store.opened(sealer, sealed, tenant_id, channel_id)
    secrets = known
    if values.secrets is not UNSET:
        given = msgspec.structs.asdict(values.secrets)
        secrets = Secrets(**given, vapid_key=known.vapid_key)
    if values.kind == "web_push" and secrets.vapid_key is None:
        secrets = msgspec.structs.replace(secrets, vapid_key=web_push.new_private_key())
    channel = Channel(channel_id, values.kind, values.settings, secrets)
    if problems := channels.problems(channel):
        raise InvalidError(*problems)
    return await store.save_channel(
        tx,
        tenant_id,
        channel,
        name=values.name,
        is_enabled=values.enabled,
        sealed=_sealed(sealer, tenant_id, channel),
        host=_host(channel),
        public_key=web_push.public_key(secrets.vapid_key) if secrets.vapid_key else None,
        by=by,
    )


def _sealed(sealer: Sealer | None, tenant_id: str, channel: Channel) -> bytes | None:
    if channel.secrets == Secrets():
        return None
    if sealer is None:
        raise SealError(
            "secrets cannot be stored: whoever runs FarmIQ has to set FARMIQ_SECRETS_KEY_FILE"
        )
    raw = msgspec.json.encode(channel.secrets)
    return sealer.seal(raw, bound_to=store.bound_to(tenant_id, channel.channel_id))


def _host(channel: Channel) -> str | None:
    secrets = channel.secrets
    if secrets.smtp_url is not None:
        return mail.server(secrets.smtp_url).host
    return None if secrets.url is None else urlsplit(secrets.url).hostname


async def save_contact(
    tx: db.Connection, tenant_id: str, contact_id: str, values: ContactValues, *, by: str
) -> bool:
    """Add or change a contact; True if it is new. Raises InvalidError or TooManyError."""
    kinds = {row["channel_id"]: row["kind"] for row in await store.list_channels(tx, tenant_id)}
    problems = [
        (f"addresses.{channel_id}", reason)
        for channel_id, address in values.addresses.items()
        if (reason := _address_problem(kinds.get(channel_id), address))
    ]
    quiet = values.quiet_hours
    if quiet is not None and quiet.begin == quiet.until:
        problems.append(("quiet_hours", "begin and end at the same time"))
    if quiet is not None and quiet.timezone not in zoneinfo.available_timezones():
        problems.append(("quiet_hours.timezone", "is no time zone such as Asia/Bangkok"))
    if problems:
        raise InvalidError(*problems)
    row = {
        "name": values.name,
        "enabled": values.enabled,
        "level": values.level,
        "severities": sorted(set(values.severities)),
        "farms": sorted(set(values.farms)) if values.farms is not None else None,
        "addresses": values.addresses,
        "timezone": quiet.timezone if quiet else None,
        "quiet_from": time.fromisoformat(quiet.begin) if quiet else None,
        "quiet_until": time.fromisoformat(quiet.until) if quiet else None,
        "quiet_passed_by": sorted(set(quiet.passed_by)) if quiet else [],
    }
    return await store.save_contact(tx, tenant_id, contact_id, row, by=by)


def _address_problem(kind: str | None, address: str) -> str | None:
    return "there is no such channel" if kind is None else channels.address_problem(kind, address)


async def send_test(
    tx: db.Connection, tenant_id: str, channel_id: str, values: TrialValues, *, by: str
) -> UUID:
    """Add a test message to those that wait. Raises InvalidError."""
    row = await store.find_channel(tx, tenant_id, channel_id)
    if row is None:
        raise InvalidError(("channel_id", "there is no such channel"))
    address = values.address
    if values.contact_id is not None:
        if address is not None:
            raise InvalidError(("address", "give an address or a contact, not both"))
        contact = await store.find_contact(tx, tenant_id, values.contact_id)
        address = None if contact is None else contact["addresses"].get(channel_id)
        if address is None:
            raise InvalidError(("contact_id", "there is no such contact on this channel"))
    address = address or ""
    if reason := channels.address_problem(row["kind"], address):
        raise InvalidError(("address", reason))
    # Addresses are not proven to be the company's own.
    if await store.tests_of_last_hour(tx, tenant_id) >= MAX_TESTS_PER_HOUR:
        raise store.TooManyError(
            f"a company sends at most {MAX_TESTS_PER_HOUR} test messages in an hour"
        )
    return await store.add_test_message(
        tx,
        tenant_id,
        words.trial(channel_id, by=by),
        channel_id=channel_id,
        contact_id=values.contact_id,
        address=address,
        by=by,
    )


def shown_channel(row: Mapping[str, Any]) -> dict[str, Any]:
    """A channel as people see it."""
    return {**{name: value for name, value in row.items() if name != "secret_names"},
            "secrets": row["secret_names"]}  # fmt: skip


def shown_contact(row: Mapping[str, Any]) -> dict[str, Any]:
    """A contact as people see it."""
    hidden = {"timezone", "quiet_from", "quiet_until", "quiet_passed_by"}
    quiet = None
    if row["quiet_from"] is not None:
        quiet = {
            "from": f"{row['quiet_from']:%H:%M}",
            "until": f"{row['quiet_until']:%H:%M}",
            "timezone": row["timezone"],
            "passed_by": row["quiet_passed_by"],
        }
    shown = {name: value for name, value in row.items() if name not in hidden}
    return {**shown, "quiet_hours": quiet}


async def _find_channel(caller: Caller, channel_id: str) -> dict[str, Any]:
    row = await store.find_channel(caller.connection, caller.tenant_id, channel_id)
    if row is None:
        raise HttpError(404, "there is no such channel")
    return row


async def _find_contact(caller: Caller, contact_id: str) -> dict[str, Any]:
    row = await store.find_contact(caller.connection, caller.tenant_id, contact_id)
    if row is None:
        raise HttpError(404, "there is no such contact")
    return row


def _check_path_id(text: str) -> None:
    if not re.match(ids.ID_PATTERN, text):
        raise api.invalid(("path", "has to be letters, digits and . _ : -, at most 128"))
