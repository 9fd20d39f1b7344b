"""Pure: who did what, newest first."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode
from uuid import UUID
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _

KINDS = (
    "people", "sign-ins", "edges", "dead letters", "alerts", "master data", "records", "cameras",
    "schedules",
)  # fmt: skip
# The subject of these begins with the table of the row that it is about, unless it is a camera's
# name.
NAMED = ("master data", "cameras")
OF_A_CAMERA = ("order", "new_dish")
COLUMNS = ("at", "actor", "kind", "action", "subject", "detail")


def kind_word(kind: str) -> str:
    return {
        "people": _("people"),
        "sign-ins": _("sign-ins"),
        "edges": _("edges"),
        "dead letters": _("dead letters"),
        "alerts": _("alerts"),
        "master data": _("farms, barns and batches"),
        "records": _("records and feed"),
        "cameras": _("cameras, their images and dishes"),
        "schedules": _("schedules of cameras"),
    }.get(kind, kind)


def noun_word(table: str) -> str:
    """What a row of this table is."""
    return {
        "farms": _("farm"),
        "barns": _("barn"),
        "batches": _("batch"),
        "feed_products": _("feed product"),
        "metrics": _("metric"),
        "breed_standards": _("breed standard"),
        "pilot_programs": _("program"),
        "sites": _("site"),
        "devices": _("camera"),
        "device_images": _("image"),
        "device_alerts": _("of a camera"),
    }.get(table, table)


def how_word(how: str) -> str:
    return {
        "password": _("with the password"),
        "code": _("with a code of the app"),
        "recovery_code": _("with a recovery code"),
        "command": _("by command"),
    }.get(how, how)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """`actor` is an e-mail, `system`, `cli:` and a login, or `edge:` and its id."""

    entry_id: UUID
    at: datetime
    actor: str
    kind: str
    action: str
    subject: str
    detail: str

    @property
    def kind_word(self) -> str:
        return kind_word(self.kind)

    @property
    def about(self) -> str:
        """What it was done to, unless it is the person themselves."""
        if self.subject == self.actor:
            return ""
        if self.kind not in NAMED or self.action in OF_A_CAMERA:
            return self.subject
        noun, space, name = self.subject.partition(" ")
        return f"{noun_word(noun)}{space}{name}"

    @property
    def shown_detail(self) -> str:
        """The detail; of a sign-in how and from where, of fields their names and values."""
        if self.kind == "sign-ins":
            how, _space, network = self.detail.partition(" ")
            return f"{how_word(how)} · {network}" if network else how_word(how)
        if not self.detail.startswith("{"):
            return self.detail
        try:
            fields = json.loads(self.detail)
        except ValueError:
            return self.detail  # it was cut off
        return ", ".join(
            f"{name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            for name, value in fields.items()
            if value not in (None, [], {}, "")
        )

    @property
    def action_word(self) -> str:
        if self.action == "password" and self.subject == self.actor:
            return _("chose a new password")
        return {
            "add": _("added"),
            "change": _("changed"),
            "remove": _("removed"),
            "password": _("gave a new password to"),
            "reset_second_factor": _("removed the second factor of"),
            "import": _("imported"),
            "invite": _("invited the edge"),
            "enroll": _("enrolled the edge"),
            "rotate": _("replaced the key of"),
            "revoke": _("revoked the edge"),
            "grant": _("gave a further company to"),
            "redrive": _("sent the dead letter again:"),
            "discard": _("discarded the dead letter:"),
            "order_redrive": _("ordered that dead letters are sent again:"),
            "order_discard": _("ordered that dead letters are discarded:"),
            "acknowledge": _("acknowledged the alert"),
            "post": _("entered"),
            "order": _("ordered"),
            "request": _("requested a schedule for"),
            "cancel": _("cancelled the new schedule of"),
            "new_dish": _("put a new dish under"),
            "look_at_company": _("looked at this company"),
            "sign_in": _("signed in"),
            "sign_in_failed": _("was not let in"),
            "sign_out": _("signed out"),
            "language": _("chose a language"),
            "second_factor_on": _("turned the second factor on"),
            "second_factor_off": _("turned the second factor off"),
            "recovery_codes": _("made new recovery codes"),
            "recovery_code_used": _("used a recovery code"),
            "end_session": _("ended another sign-in"),
            "end_other_sessions": _("ended all other sign-ins"),
            "second_factor_rule": _("changed who needs a second factor"),
            "end": _("closed the alert"),
            "add_channel": _("added the channel"),
            "change_channel": _("changed the channel"),
            "remove_channel": _("removed the channel"),
            "test_channel": _("tested the channel"),
            "add_contact": _("added the contact"),
            "change_contact": _("changed the contact"),
            "remove_contact": _("removed the contact"),
            "add_report": _("subscribed to the report"),
            "remove_report": _("unsubscribed the report"),
            "change_settings": _("changed the settings of alerts"),
            "rule.set": _("changed the rule"),
            "rule.remove": _("removed the rule"),
            "window.add": _("added the maintenance window"),
            "window.remove": _("ended the maintenance window"),
            "resend": _("asked again for"),
            "resolve": _("closed the alert"),
        }.get(self.action, self.action.replace("_", " "))


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    entries: Sequence[Entry]
    actors: Sequence[str]
    actor: str
    kind: str
    cursor: str | None
    now: datetime
    where: ZoneInfo
    page: str = "settings"

    @property
    def title(self) -> str:
        return words.title(_("Audit log"), problems=0)

    @property
    def zone(self) -> str:
        return words.zone_name(self.where, self.now)

    def at(self, entry: Entry) -> str:
        return words.instant(entry.at, now=self.now, zone=self.where)

    @property
    def kinds(self) -> list[tuple[str, str]]:
        return [("", _("everything")), *((kind, kind_word(kind)) for kind in KINDS)]

    @property
    def people(self) -> list[tuple[str, str]]:
        shown = dict.fromkeys([*self.actors, *([self.actor] if self.actor else [])])
        return [("", _("everybody")), *((actor, words.cut(actor)) for actor in shown)]

    @property
    def next_href(self) -> str:
        return self._address(cursor=self.cursor) if self.cursor else ""

    @property
    def csv_href(self) -> str:
        return self._address(format="csv", company=str(self.company.company_id))

    def _address(self, **more: Any) -> str:
        given: Mapping[str, Any] = {"actor": self.actor, "kind": self.kind, **more}
        return (
            f"/settings/audit?{urlencode({name: value for name, value in given.items() if value})}"
        )
