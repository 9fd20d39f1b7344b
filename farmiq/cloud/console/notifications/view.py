"""Pure: the pages about who is told of alerts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.ui import i18n, words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked, ngettext

ROOT = "/settings/notifications"
WEB_PUSH = "web_push"
KIND_WORDS = {
    "email": marked("E-mail"),
    "webhook": marked("Webhook"),
    "ntfy": marked("ntfy"),
    "telegram": marked("Telegram"),
    "sms": marked("Short message"),
    "post": marked("Any HTTP service"),
    "web_push": marked("Messages to devices"),
}
_STATES = {
    "pending": ("info", marked("waits to be sent")),
    "sent": ("good", marked("sent")),
    "failed": ("bad", marked("not delivered")),
    "dropped": ("muted", marked("not needed any more")),
}
_STEPS = {
    "opened": marked("began"),
    "worsened": marked("became worse"),
    "escalated": marked("nobody acknowledged"),
    "acknowledged": marked("acknowledged"),
    "resolved": marked("over"),
    "test": marked("test"),
    "report": marked("report"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRow:
    channel_id: str
    kind: str
    kind_word: str
    name: str
    enabled: bool
    leads_to: str
    secrets: str
    contacts: tuple[tuple[str, str], ...]
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContactRow:
    contact_id: str
    name: str
    enabled: bool
    level: str
    severities: str
    addresses: tuple[str, ...]
    quiet: str
    is_device: bool
    href: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    message_id: UUID
    tone: str
    word: str
    step: str
    to: str
    subject: str
    error: str
    at: datetime
    text: str
    episode_id: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationsView:
    company: Company
    now: datetime
    zone: str
    as_of: str
    channels: tuple[ChannelRow, ...]
    contacts: tuple[ContactRow, ...]
    messages: tuple[MessageRow, ...]
    test: MessageRow | None
    test_channel: str
    escalate_after_min: int | None
    push_key: str
    can_seal: bool
    problem: str
    may_change: bool
    may_subscribe: bool
    page: str = "settings"

    @property
    def name(self) -> str:
        return _("Who is told")

    @property
    def title(self) -> str:
        return words.title(self.name, problems=0)

    @property
    def fragment(self) -> str:
        return f"{ROOT}/parts" + (f"?test={self.test.message_id}" if self.test else "")

    @property
    def sentence(self) -> str:
        reachable = [row for row in self.contacts if row.enabled and row.addresses]
        if not reachable:
            return _("Nobody is told of alerts yet")
        return ngettext(
            "%(num)s person or device is told of alerts",
            "%(num)s people and devices are told of alerts",
            len(reachable),
        ) % {"num": len(reachable)}

    @property
    def reachable(self) -> int:
        return sum(row.enabled and bool(row.addresses) for row in self.contacts)

    @property
    def kinds(self) -> list[tuple[str, str]]:
        return [(kind, _(word)) for kind, word in KIND_WORDS.items()]


def notifications_view(
    company: Company,
    *,
    channels: Sequence[Mapping[str, Any]],
    contacts: Sequence[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
    test: Mapping[str, Any] | None,
    escalate_after_min: int | None,
    can_seal: bool,
    problem: str = "",
    now: datetime,
) -> NotificationsView:
    zone = words.zone(company.timezone)
    names = {row["channel_id"]: row["name"] or row["channel_id"] for row in channels}
    kinds = {row["channel_id"]: row["kind"] for row in channels}
    push = next((row for row in channels if row["kind"] == WEB_PUSH and row["enabled"]), None)
    return NotificationsView(
        company=company,
        now=now,
        zone=words.zone_name(zone, now),
        as_of=f"{now.astimezone(zone):%H:%M:%S}",
        channels=tuple(_channel(row, contacts) for row in channels),
        contacts=tuple(_contact(row, names, kinds) for row in contacts),
        messages=tuple(message(row, names, now=now, zone=zone) for row in messages),
        test=None if test is None else message(test, names, now=now, zone=zone),
        test_channel="" if test is None else test["channel_id"],
        escalate_after_min=escalate_after_min,
        push_key=(push["public_key"] or "") if push else "",
        can_seal=can_seal,
        problem=problem,
        may_change=company.may("admin"),
        may_subscribe=company.may("operator"),
    )


def _channel(row: Mapping[str, Any], contacts: Sequence[Mapping[str, Any]]) -> ChannelRow:
    channel_id = row["channel_id"]
    return ChannelRow(
        channel_id=channel_id,
        kind=row["kind"],
        kind_word=_(KIND_WORDS[row["kind"]]),
        name=row["name"] or channel_id,
        enabled=row["enabled"],
        leads_to=row["host"] or row["settings"].get("sender") or "",
        secrets=", ".join(row["secret_names"]),
        contacts=tuple(
            (contact["contact_id"], contact["name"])
            for contact in contacts
            if channel_id in contact["addresses"]
        ),
        href=f"{ROOT}/channels/{quote(channel_id, safe='')}",
    )


def _contact(
    row: Mapping[str, Any], names: Mapping[str, str], kinds: Mapping[str, str]
) -> ContactRow:
    is_device = any(kinds.get(channel_id) == WEB_PUSH for channel_id in row["addresses"])
    quiet = ""
    if row["quiet_from"] is not None:
        quiet = _("quiet from %(begin)s to %(end)s (%(zone)s)") % {
            "begin": f"{row['quiet_from']:%H:%M}",
            "end": f"{row['quiet_until']:%H:%M}",
            "zone": row["timezone"],
        }
    return ContactRow(
        contact_id=row["contact_id"],
        name=row["name"],
        enabled=row["enabled"],
        level=_("at once") if row["level"] == 1 else _("if nobody acknowledges"),
        severities=", ".join(words.severity(name) for name in row["severities"]),
        addresses=tuple(
            names.get(channel_id, channel_id)
            if kinds.get(channel_id) in (WEB_PUSH, "webhook")
            else f"{names.get(channel_id, channel_id)}: {address}"
            for channel_id, address in sorted(row["addresses"].items())
        ),
        quiet=quiet,
        is_device=is_device,
        href=f"{ROOT}/contacts/{quote(row['contact_id'], safe='')}",
    )


def message(
    row: Mapping[str, Any], names: Mapping[str, str], *, now: datetime, zone: ZoneInfo
) -> MessageRow:
    tone, word = _STATES[row["state"]]
    at = row["ended_at"] or row["created_at"]
    channel = names.get(row["channel_id"], row["channel_id"])
    return MessageRow(
        message_id=row["message_id"],
        tone=tone,
        word=_(word),
        step=_(_STEPS[row["step"]]),
        to=", ".join(part for part in (row["contact_id"], channel) if part),
        subject=row["subject"],
        error=row["error"] or "",
        at=at,
        text=words.instant(at, now=now, zone=zone),
        episode_id=row["episode_id"],
    )


# --- one channel, one contact


@dataclass(frozen=True, slots=True, kw_only=True)
class EditView:
    """A form of a channel or contact: `row` is what is there already."""

    company: Company
    now: datetime
    zone: str
    heading: str
    address: str
    form: Mapping[str, str]
    problems: Mapping[str, str]
    problem: str
    is_new: bool
    kind: str = ""
    settings: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    known_secrets: tuple[str, ...] = ()
    host: str = ""
    channels: tuple[tuple[str, str, str], ...] = ()
    own_zone: str = ""
    page: str = "settings"

    @property
    def title(self) -> str:
        return self.heading

    @property
    def severities(self) -> list[tuple[str, str]]:
        return [(name, words.severity(name)) for name in reversed(words.SEVERITIES)]

    @property
    def languages(self) -> list[tuple[str, str]]:
        return [*i18n.LANGUAGES.items()]

    @property
    def levels(self) -> list[tuple[str, str]]:
        return [("1", _("At once")), ("2", _("Only if nobody acknowledges"))]

    @property
    def kind_word(self) -> str:
        return _(KIND_WORDS[self.kind]) if self.kind else ""

    def error(self, field: str) -> str:
        return self.problems.get(field, "")

    def given(self, field: str) -> str:
        return self.form.get(field, "")

    def label(self, field: str) -> str:
        return _(_LABELS[field][0])

    def hint(self, field: str) -> str:
        hint = _(_LABELS[field][1]) if _LABELS[field][1] else ""
        if field in self.known_secrets:
            return _("Set; it is never shown again. Empty: it stays.") + (
                f" {hint}" if hint else ""
            )
        return hint


_LABELS: Mapping[str, tuple[str, str]] = {
    "sender": (marked("Sender"), marked("Only with a mail server of your own.")),
    "smtp_url": (
        marked("Mail server of your own"),
        marked("Such as smtps://user:password@mail.example.com. Empty: that of FarmIQ's operator."),
    ),
    "url": (marked("Address"), marked("Begins with https://")),
    "signing_key": (marked("Signing key"), marked("whsec_ and 24 to 64 random bytes in base64")),
    "token": (marked("Token"), ""),
    "template": (
        marked("Template"),
        marked("A JSON object; {address} and {short} are filled in."),
    ),
    "content_type": (marked("Sent as"), ""),
    "headers": (marked("Headers"), marked("A line each: Name: value")),
    "fields": (marked("Secret values of the template"), marked("A line each: name: value")),
    "contact": (
        marked("Contact for push services"),
        marked("Such as mailto:alerts@example.com"),
    ),
}
