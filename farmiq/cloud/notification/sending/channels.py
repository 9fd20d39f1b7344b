"""Pure: the kinds of channels, what each needs, and the request that it makes of a message.

ntfy, Telegram, short messages and whatever else takes a POST are one sender: an address, headers
and a template, of which a kind may have its own. Values go into the strings of a template that was
parsed before, so no value can become a part of its structure.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from msgspec import Meta

from farmiq.messages.kinds import Name
from farmiq.plumbing import addresses, mail, web_push

Kind = Literal["email", "webhook", "ntfy", "telegram", "sms", "post", "web_push"]
NTFY_URL = "https://ntfy.sh"
TELEGRAM_URL = "https://api.telegram.org"
MAX_TEMPLATE = 4096
MAX_ADDRESS = 2048
# Names in braces that a template may have.
VALUES = frozenset(
    {
        "message_id", "episode_id", "step", "severity", "priority", "subject", "text", "link",
        "address", "message", "advice", "farm", "farm_id", "barn", "barn_id", "device_id",
        "opened_at", "resolved_at", "value", "worst_value", "limit", "unit", "short",
    }
)  # fmt: skip
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_FIELD = re.compile(r"[a-z_]{1,64}")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}")
_SIGNING = "whsec_"
_SIGNING_BYTES = range(24, 65)
# Headers of which the request has its own.
_OWN_HEADERS = {"host", "content-length", "transfer-encoding", "connection", "content-type"}

_Secret = Annotated[str, Meta(min_length=1, max_length=2048)]
_Header = Annotated[str, Meta(max_length=2048)]


class ChannelSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be shown of a channel.

    `sender` is of e-mails, `template` and `content_type` of sms and post, `contact` of web_push.
    """

    sender: Name | None = None
    contact: Name | None = None
    content_type: Literal["application/json", "application/x-www-form-urlencoded"] | None = None
    template: dict[str, Any] | None = None


class ChannelSecrets(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What is never shown again. Addresses are among it: many hold a token.

    `smtp_url` is of e-mails, `url` of all that are posted to, `token` of ntfy and Telegram,
    `signing_key` of webhooks, `headers` and `fields` of sms and post. `fields` are values of the
    template that nobody may read, by their names.
    """

    smtp_url: _Secret | None = None
    url: _Secret | None = None
    token: _Secret | None = None
    signing_key: _Secret | None = None
    headers: Annotated[dict[str, _Header], Meta(max_length=20)] | None = None
    fields: Annotated[dict[str, _Secret], Meta(max_length=20)] | None = None


class Secrets(ChannelSecrets, frozen=True, kw_only=True):
    """With the key of web push, which is made here and has no other copy."""

    vapid_key: str | None = None


@dataclass(frozen=True, slots=True)
class Channel:
    channel_id: str
    kind: Kind
    settings: ChannelSettings
    secrets: Secrets


# By kind: the settings and the secrets that it may have, of which those with a ! are needed.
_FIELDS: dict[str, tuple[str, str]] = {
    "email": ("sender", "smtp_url"),
    "webhook": ("", "url! signing_key!"),
    "ntfy": ("", "url token"),
    "telegram": ("", "url token!"),
    "sms": ("content_type template!", "url! headers fields"),
    "post": ("content_type template!", "url! headers fields"),
    "web_push": ("contact!", "vapid_key"),
}


def problems(channel: Channel) -> list[tuple[str, str]]:
    """(field, reason) of everything that is wrong with a channel; no secret is quoted."""
    fields = _FIELDS[channel.kind]
    own = channel.secrets.fields or {}
    listed = [
        problem
        for where, names, struct in zip(
            ("settings", "secrets"), fields, (channel.settings, channel.secrets), strict=True
        )
        for problem in _wrong_fields(channel.kind, where, names.split(), struct)
    ]
    checks: tuple[tuple[str, Any, Callable[[Any], object]], ...] = (
        ("settings.sender", channel.settings.sender, _check_sender),
        ("settings.contact", channel.settings.contact, _check_contact),
        ("settings.template", channel.settings.template, partial(_check_template, own=own)),
        ("secrets.smtp_url", channel.secrets.smtp_url, mail.server),
        ("secrets.url", channel.secrets.url, addresses.check),
        ("secrets.token", channel.secrets.token, _check_token),
        ("secrets.signing_key", channel.secrets.signing_key, signing_key),
        ("secrets.headers", channel.secrets.headers, _check_headers),
        ("secrets.fields", own, _check_fields),
    )
    for field, value, check in checks:
        if value is not None:
            try:
                check(value)
            except ValueError as error:
                listed.append((field, str(error)))
    if channel.settings.sender and not channel.secrets.smtp_url and channel.kind == "email":
        listed.append(("settings.sender", "is for a mail server of your own (smtp_url)"))
    if channel.settings.content_type == "application/x-www-form-urlencoded" and any(
        isinstance(value, (dict, list)) for value in (channel.settings.template or {}).values()
    ):
        listed.append(("settings.template", "a form has no values inside others"))
    return listed


def _wrong_fields(
    kind: str, where: str, names: list[str], struct: msgspec.Struct
) -> list[tuple[str, str]]:
    given = {name for name, value in msgspec.structs.asdict(struct).items() if value is not None}
    known = {name.rstrip("!") for name in names}
    needed = {name.rstrip("!") for name in names if name.endswith("!")}
    return [
        *((f"{where}.{name}", f"a channel of kind {kind} has none") for name in given - known),
        *((f"{where}.{name}", f"a channel of kind {kind} needs it") for name in needed - given),
    ]


def _check_sender(sender: str) -> None:
    mail.compose(sender=sender, to=["nobody@example.com"], subject="", text="")


def _check_contact(contact: str) -> None:
    if not (contact.startswith("mailto:") and mail.is_mailbox(contact.removeprefix("mailto:"))):
        raise ValueError("has to be an address such as mailto:alerts@example.com")


def _check_token(token: str) -> None:
    if not re.fullmatch(r"[\x21-\x7e]+", token) or "/" in token:
        raise ValueError("has to be ASCII without spaces and slashes")


def _check_headers(headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise ValueError("has a name that no header of yours may have")
        if not value.isascii() or not value.isprintable():
            raise ValueError("has a value with other than printable ASCII characters")


def _check_fields(fields: Mapping[str, str]) -> None:
    for name in fields:
        if not _FIELD.fullmatch(name) or name in VALUES:
            raise ValueError("has a name other than a-z and _, or that of a value that there is")


def _check_template(template: Mapping[str, Any], *, own: Mapping[str, str]) -> None:
    if len(json.dumps(template)) > MAX_TEMPLATE:
        raise ValueError(f"is longer than {MAX_TEMPLATE}")
    names = {name for text in _texts(template) for name in _PLACEHOLDER.findall(text)}
    if unknown := sorted(names - VALUES - own.keys()):
        raise ValueError(f"{{{unknown[0]}}} is no value; there are {', '.join(sorted(VALUES))}")


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, Mapping) else value
    return [text for item in inner for text in _texts(item)] if _is_nested(value) else []


def _is_nested(value: Any) -> bool:
    return isinstance(value, (dict, list))


def signing_key(text: str) -> bytes:
    """The bytes of a key such as whsec_… (Standard Webhooks). Raises ValueError."""
    try:
        key = base64.b64decode(text.removeprefix(_SIGNING), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(_SIGNING) or len(key) not in _SIGNING_BYTES:
        raise ValueError(f"has to be {_SIGNING} and 24 to 64 random bytes in base64")
    return key


def address_problem(kind: str, address: str) -> str | None:
    """Why a message cannot go to this address over a channel of this kind."""
    match kind:
        case "email":
            fits = mail.is_mailbox(address)
            reason = "has to be one address, such as ann@example.com"
        case "webhook":
            fits, reason = address == "", "has to be empty: a webhook goes to its own url"
        case "ntfy":
            fits = re.fullmatch(r"[A-Za-z0-9_-]{1,64}", address) is not None
            reason = "has to be a topic of ntfy"
        case "telegram":
            fits = re.fullmatch(r"-?[0-9]{1,20}|@[A-Za-z0-9_]{3,64}", address) is not None
            reason = "has to be a chat id of Telegram"
        case "sms":
            fits = re.fullmatch(r"\+?[0-9]{5,20}", address) is not None
            reason = "has to be a telephone number such as +66812345678"
        case "web_push":
            return _subscription_problem(address)
        case _:
            fits = len(address) <= MAX_ADDRESS and address.isprintable()
            reason = "has to be one line"
    return None if fits else reason


def _subscription_problem(address: str) -> str | None:
    try:
        addresses.check(web_push.read(address).endpoint)
    except ValueError:
        return "has to be the JSON of a browser's push subscription"
    return None


# --- requests


@dataclass(frozen=True, slots=True)
class Request:
    url: str
    headers: dict[str, str]
    content: bytes


def request(channel: Channel, values: Mapping[str, Any]) -> Request:
    """The request of a channel that takes a POST by template."""
    secrets, headers = channel.secrets, dict(channel.secrets.headers or {})
    template, form = channel.settings.template or {}, False
    match channel.kind:
        case "ntfy":
            url, template = secrets.url or NTFY_URL, _NTFY
            if secrets.token:
                headers["Authorization"] = f"Bearer {secrets.token}"
        case "telegram":
            base = (secrets.url or TELEGRAM_URL).rstrip("/")
            url, template = f"{base}/bot{secrets.token}/sendMessage", _TELEGRAM
        case _:
            url = secrets.url or ""
            form = channel.settings.content_type == "application/x-www-form-urlencoded"
    filled = fill(template, {**values, **(secrets.fields or {})})
    if form:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        fields = {name: value for name, value in filled.items() if value is not None}
        return Request(url, headers, urlencode(fields).encode())
    headers["Content-Type"] = "application/json"
    return Request(url, headers, json.dumps(filled).encode())


_NTFY = {
    "topic": "{address}",
    "title": "{subject}",
    "message": "{text}",
    "priority": "{priority}",
    "tags": ["{severity}"],
    "click": "{link}",
}
_TELEGRAM = {
    "chat_id": "{address}",
    "text": "{subject}\n\n{text}",
    "disable_web_page_preview": True,
}


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """A template with its values; one that is nothing but {name} keeps the value's own type.

    Names are replaced once: a value with braces in it stays what it is. A field whose value is
    not known is left out.
    """
    if isinstance(template, str):
        whole = _PLACEHOLDER.fullmatch(template)
        if whole:
            return values.get(whole[1])
        return _PLACEHOLDER.sub(lambda match: _text(values.get(match[1])), template)
    if isinstance(template, Mapping):
        filled = {name: fill(value, values) for name, value in template.items()}
        return {
            name: value
            for name, value in filled.items()
            if value is not None or template[name] is None
        }
    if isinstance(template, list):
        return [fill(value, values) for value in template]
    return template


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def webhook(channel: Channel, message_id: str, content: bytes, *, timestamp: int) -> Request:
    """A signed request as Standard Webhooks has it; a repeat has the same webhook-id."""
    key = signing_key(channel.secrets.signing_key or "")
    signed = b".".join((message_id.encode(), str(timestamp).encode(), content))
    signature = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    headers = {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }
    return Request(channel.secrets.url or "", headers, content)


def redacted(text: str, secrets: Secrets) -> str:
    """The text without any secret of the channel that somebody quoted in it."""
    given = msgspec.structs.asdict(secrets)
    inner = [v for name in ("headers", "fields") for v in (given.pop(name) or {}).values()]
    for secret in sorted(filter(None, (*given.values(), *inner)), key=len, reverse=True):
        text = text.replace(str(secret), "***")
    return text
