"""The way to the edge's pages: those that the key may read."""

from farmiq.edge.console.tenant import Tenant
from farmiq.ui.entry.kinds import OFFLINE_FORMS
from farmiq.ui.i18n import marked
from farmiq.ui.nav import Entry

# With the area of the API that a key must be for; None: every key.
ENTRIES = (
    (Entry("today", marked("Today"), "/", "today", on_phone=True), ()),
    (Entry("records", marked("Records"), "/records", "file", on_phone=True), ("barn", "feed")),
    (
        Entry("weighings", marked("Weighings"), "/weighings", "scale", on_phone=True),
        ("weighvision",),
    ),
    (Entry("readings", marked("Readings"), "/readings", "gauge", on_phone=True), ("telemetry",)),
    (Entry("devices", marked("Devices"), "/devices", "device"), ("devices",)),
    (
        Entry("delivery", marked("Delivery"), "/delivery", "truck"),
        ("sync", "quarantine", "losses"),
    ),
)
FOR_ADMINS = (Entry("keys", marked("Keys"), "/keys", "settings"),)


def entries(tenant: Tenant) -> list[Entry]:
    """In the language of the page."""
    reachable = [
        entry for entry, areas in ENTRIES if not areas or any(tenant.reads(area) for area in areas)
    ]
    if tenant.role == "admin" and tenant.areas is None:
        reachable += FOR_ADMINS
    return [entry.translated() for entry in reachable]


def offline_forms(tenant: Tenant) -> list[str]:
    """Forms that the browser keeps for times without a link: those that the key may fill in."""
    return [
        address
        for area, addresses in OFFLINE_FORMS.items()
        if tenant.may(area, "operator")
        for address in addresses
    ]
