"""The way to the pages: one list, for the bar on a wide screen and the tabs of a phone."""

from dataclasses import dataclass

from farmiq.ui.i18n import gettext as _
from farmiq.ui.i18n import marked


@dataclass(frozen=True, slots=True)
class Entry:
    """`on_phone`: one of the tabs at the bottom; the others are behind More."""

    key: str
    name: str
    address: str
    icon: str
    on_phone: bool = False


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
    return [
        Entry(entry.key, _(entry.name), entry.address, entry.icon, entry.on_phone)
        for entry in ENTRIES
    ]
