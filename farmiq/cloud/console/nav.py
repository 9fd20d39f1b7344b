"""The way to the pages: one list, for the bar on a wide screen and the tabs of a phone."""

from farmiq.cloud import entries as posted
from farmiq.cloud.console.company.view import Company
from farmiq.ui.entry.kinds import OFFLINE_FORMS
from farmiq.ui.i18n import marked
from farmiq.ui.nav import Entry

ENTRIES = (
    Entry("today", marked("Today"), "/", "today", on_phone=True),
    Entry("batches", marked("Batches"), "/batches", "batches", on_phone=True),
    Entry("weighings", marked("Weighings"), "/weighings", "scale", on_phone=True),
    Entry("alerts", marked("Alerts"), "/alerts", "bell", on_phone=True),
    Entry("telemetry", marked("Telemetry"), "/telemetry", "gauge"),
    Entry("sites", marked("Sites"), "/sites", "camera"),
    Entry("devices", marked("Devices"), "/devices", "device"),
    Entry("delivery", marked("Delivery"), "/delivery", "truck"),
    Entry("programs", marked("Programs"), "/programs", "flask"),
    Entry("reports", marked("Reports"), "/reports", "file"),
    Entry("settings", marked("Settings"), "/settings", "settings"),
)


def entries() -> list[Entry]:
    """All of them, in the language of the page."""
    return [entry.translated() for entry in ENTRIES]


def offline_forms(company: Company) -> list[str]:
    """Forms that the browser keeps for times without a link: those that the person may fill in."""
    if not company.may(posted.ROLE):
        return []
    return [address for addresses in OFFLINE_FORMS.values() for address in addresses]
