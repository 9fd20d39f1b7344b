"""Pure: the index of settings, how long what is stored, and what this installation is."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from farmiq.cloud.console.company.view import Company
from farmiq.cloud.retentions import StorageRule
from farmiq.ui import words
from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import ngettext


@dataclass(frozen=True, slots=True)
class Link:
    """A page of settings; `least` is the role that may open it."""

    address: str
    name: str
    text: str
    least: str = "viewer"


def links() -> list[Link]:
    return [
        Link(
            "/settings/account",
            _("Your account"),
            _("Password, second factor, where you are signed in, language."),
        ),
        Link(
            "/settings/companies",
            _("Companies"),
            _("Add a company with its first admin."),
            "super_admin",
        ),
        Link("/settings/people", _("People"), _("Who may sign in, and what they may do."), "admin"),
        Link(
            "/settings/farms",
            _("Farms and feed"),
            _("Farms with their time zone, barns, feed products."),
        ),
        Link("/settings/edges", _("Edges"), _("Invite an edge, see its keys, revoke it.")),
        Link("/devices", _("Devices"), _("Sensors, weigh stations and cameras.")),
        Link(
            "/settings/notifications",
            _("Notifications"),
            _("Who is told of alerts, and over which channel."),
        ),
        Link("/settings/retention", _("Retention"), _("How long what is stored.")),
        Link("/settings/audit", _("Audit log"), _("Who did what."), "admin"),
        Link("/settings/about", _("About"), _("Version, licences, programming interface.")),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    company: Company
    name: str
    now: datetime
    where: ZoneInfo
    page: str = "settings"

    @property
    def title(self) -> str:
        return self.name

    @property
    def zone(self) -> str:
        return words.zone_name(self.where, self.now)

    @property
    def links(self) -> list[Link]:
        return [link for link in links() if self.company.may(link.least)]


@dataclass(frozen=True, slots=True)
class StoredRow:
    """How long something is stored, in words."""

    rule: StorageRule
    what: str
    how_long: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionView(View):
    rows: Sequence[StoredRow]

    @property
    def for_ever(self) -> list[str]:
        """What no job removes."""
        return [
            _("Weighings, feed, barn records and all other events"),
            _("Hours and days of readings, figures of batches"),
            _("Images of weighings and cameras"),
            _("The audit log"),
        ]


def stored_row(rule: StorageRule) -> StoredRow:
    what = {
        "telemetry_readings": _("Readings of sensors"),
        "telemetry_agg": _("Minutes of readings; hours and days stay for ever"),
        "ingestion_dedupe": _("Ids of events, so that none is stored twice"),
        "sync_events": _("Which batches came from which edge"),
        "edge_hours": _("What came from each edge in each hour"),
        "dead_letter_orders": _("Orders about dead letters; the audit log stays for ever"),
        "alert_episodes": _("Alerts, since they ended"),
        "alert_windows": _("Maintenance windows, since they ended"),
        "alert_states": _("Series that alert rules look at, since they were last heard"),
        "alert_rechecks": _("Late readings that alert rules look at again"),
        "alert_values": _("What was found of edges, feed, weighings and cameras"),
        "alert_readings": _("Readings that alert rules have yet to look at"),
        "alert_messages": _("Who was told of which alert"),
        "alert_mail_counts": _("How many mails of alerts were sent in each hour"),
        "reports": _("Reports that were mailed"),
        "camera_chunks": _("Parts of images that did not arrive whole"),
        "camera_transfers": _("How images of cameras arrived"),
        "camera_commands": _("Commands to cameras, since they ended"),
        "camera_quarantine": _("Messages of cameras that could not be taken"),
    }.get(rule.table, rule.table)
    if rule.days is None:
        return StoredRow(rule, what, _("for ever"))
    text = ngettext("%(count)s day", "%(count)s days", int(rule.days))
    return StoredRow(rule, what, text % {"count": words.number(rule.days)})


@dataclass(frozen=True, slots=True, kw_only=True)
class AboutView(View):
    version: str
    database: str
