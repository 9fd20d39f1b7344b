"""Pure: channels and contacts as the fields of a form, and back, with what is wrong by field."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from farmiq.cloud.notification.contacts import ChannelValues, ContactValues
from farmiq.ui.entry.fields import plain_reason
from farmiq.ui.i18n import gettext as _

# By kind: the settings and the secrets that a form has fields for.
KINDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "email": (("sender",), ("smtp_url",)),
    "webhook": ((), ("url", "signing_key")),
    "ntfy": ((), ("url", "token")),
    "telegram": ((), ("token",)),
    "sms": (("template", "content_type"), ("url", "headers", "fields")),
    "post": (("template", "content_type"), ("url", "headers", "fields")),
    "web_push": (("contact",), ()),
}
SEVERITIES = ("info", "warning", "critical", "security")
YES = "yes"
T = TypeVar("T")
_PATH = re.compile(r" - at `\$\.([a-z_.]+)")


class WrongError(Exception):
    """What is wrong with a form, by field."""

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__(str(problems))
        self.problems = problems


def channel(form: Mapping[str, str], kind: str) -> ChannelValues:
    """Secrets that are left empty stay as they are. Raises WrongError."""
    settings_names, secret_names = KINDS[kind]
    settings: dict[str, Any] = {name: form[name] for name in settings_names if form.get(name)}
    if "template" in settings:
        settings["template"] = _json(settings["template"])
    secrets: dict[str, Any] = {name: form[name] for name in secret_names if form.get(name)}
    for name in ("headers", "fields"):
        if name in secrets:
            secrets[name] = _lines(name, secrets[name])
    given: dict[str, Any] = {
        "kind": kind,
        "name": form.get("name") or None,
        "enabled": form.get("enabled") == YES,
        "settings": settings,
    }
    if secrets:
        given["secrets"] = secrets
    return _convert(given, ChannelValues)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise WrongError({"template": _("This is no JSON object")}) from None


def _lines(field: str, text: str) -> dict[str, str]:
    """Lines of `Name: value`."""
    pairs = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, colon, value = line.partition(":")
        if not colon:
            raise WrongError({field: _("Each line has to be a name, a colon and a value")})
        pairs[name.strip()] = value.strip()
    return pairs


def contact(
    form: Mapping[str, str],
    channels: Sequence[Mapping[str, Any]],
    known: Mapping[str, str],
    *,
    timezone: str,
) -> ContactValues:
    """`known` are the addresses so far: those of browsers stay. Raises WrongError."""
    addresses = {}
    for row in channels:
        channel_id, kind = row["channel_id"], row["kind"]
        given = form.get(f"address.{channel_id}", "")
        if kind == "web_push":
            if channel_id in known:
                addresses[channel_id] = known[channel_id]
        elif kind == "webhook":
            if given == YES:
                addresses[channel_id] = ""
        elif given:
            addresses[channel_id] = given
    quiet = None
    if form.get("quiet_from") or form.get("quiet_until"):
        quiet = {
            "from": form.get("quiet_from", ""),
            "until": form.get("quiet_until", ""),
            "timezone": form.get("timezone") or timezone,
            "passed_by": [name for name in SEVERITIES if form.get(f"passes.{name}") == YES],
        }
    farms = [name.strip() for name in form.get("farms", "").split(",")]
    severities = [name for name in SEVERITIES if form.get(f"severity.{name}") == YES]
    if not severities:
        raise WrongError({"severities": _("Choose at least one")})
    return _convert(
        {
            "name": form.get("name", ""),
            "enabled": form.get("enabled") == YES,
            "level": 2 if form.get("level") == "2" else 1,
            "severities": severities,
            "farms": [name for name in farms if name] or None,
            "addresses": addresses,
            "quiet_hours": quiet,
            "language": form.get("language") or "en",
        },
        ContactValues,
    )


def _convert(given: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        path = _PATH.search(str(error))
        reason = str(error).partition(" - at")[0]
        raise WrongError({field_of(path[1] if path else ""): plain_reason(reason)}) from None


def field_of(path: str) -> str:
    """The field of the form that a problem of the API's body is shown at."""
    first, _dot, rest = path.partition(".")
    if first == "addresses":
        return f"address.{rest}" if rest else "name"
    if first == "quiet_hours":
        return {"from": "quiet_from", "until": "quiet_until"}.get(rest, "quiet_from")
    if first in ("settings", "secrets"):
        return rest.partition(".")[0] or "name"
    return first or "name"


def channel_fields(row: Mapping[str, Any]) -> dict[str, str]:
    """Of a channel as it is; secrets are not among them."""
    settings = row["settings"]
    template = settings.get("template")
    return {
        "name": row["name"] or "",
        "enabled": YES if row["enabled"] else "",
        "sender": settings.get("sender", ""),
        "contact": settings.get("contact", ""),
        "content_type": settings.get("content_type", ""),
        "template": json.dumps(template, indent=1, ensure_ascii=False) if template else "",
    }


def contact_fields(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "name": row["name"],
        "enabled": YES if row["enabled"] else "",
        "level": str(row["level"]),
        "farms": ", ".join(row["farms"] or ()),
        "quiet_from": f"{row['quiet_from']:%H:%M}" if row["quiet_from"] else "",
        "quiet_until": f"{row['quiet_until']:%H:%M}" if row["quiet_until"] else "",
        "timezone": row["timezone"] or "",
        "language": row["language"],
        **{f"severity.{name}": YES for name in row["severities"]},
        **{f"passes.{name}": YES for name in row["quiet_passed_by"]},
        **{f"address.{name}": address or YES for name, address in row["addresses"].items()},
    }


NEW_CHANNEL: Mapping[str, str] = {"enabled": YES}
NEW_CONTACT: Mapping[str, str] = {
    "enabled": YES,
    "level": "1",
    **{f"severity.{name}": YES for name in SEVERITIES[1:]},
    **{f"passes.{name}": YES for name in SEVERITIES[2:]},
}


def new_id(name: str, taken: set[str], otherwise: str) -> str:
    """An id that is free, made of a name."""
    base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60] or otherwise
    number, wanted = 1, base
    while wanted in taken:
        number += 1
        wanted = f"{base}-{number}"
    return wanted
