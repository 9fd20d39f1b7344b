"""Pure: who did what, newest first."""

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
    "people", "edges", "dead letters", "alerts", "master data", "records", "cameras", "schedules",
)  # fmt: skip
COLUMNS = ("at", "actor", "kind", "action", "subject", "detail")


def kind_word(kind: str) -> str:
    return {
        "people": _("people"),
        "edges": _("edges"),
        "dead letters": _("dead letters"),
        "alerts": _("alerts"),
        "master data": _("farms, barns and batches"),
        "records": _("records and feed"),
        "cameras": _("commands to cameras, dishes"),
        "schedules": _("schedules of cameras"),
    }.get(kind, kind)


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
    def action_word(self) -> str:
        return {
            "add": _("added"),
            "change": _("changed"),
            "remove": _("removed"),
            "password": _("gave a new password to"),
            "reset_second_factor": _("removed the second factor of"),
            "import": _("imported"),
            "invite": _("invited"),
            "enroll": _("enrolled"),
            "rotate": _("replaced the key of"),
            "revoke": _("revoked"),
            "grant": _("gave a further company to"),
            "redrive": _("sent again"),
            "discard": _("discarded"),
            "acknowledge": _("acknowledged"),
            "post": _("entered"),
            "order": _("ordered"),
            "request": _("requested"),
            "cancel": _("cancelled"),
            "new_dish": _("put a new dish under"),
            "look_at_company": _("looked at this company"),
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
