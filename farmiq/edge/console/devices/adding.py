"""The form by which a technician adds a device at the edge; its login is shown once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from fastapi import FastAPI, Request, Response

from farmiq.edge.api_keys import Role
from farmiq.edge.console.pages import Pages, Visit
from farmiq.edge.console.tenant import Tenant
from farmiq.edge.devices import registration
from farmiq.edge.devices.device import KINDS, InvalidDeviceError, parse_device
from farmiq.edge.devices.registration import Credentials, DeviceExistsError
from farmiq.plumbing import db
from farmiq.plumbing.messaging import mqtt_address
from farmiq.ui import look
from farmiq.ui.entry.fields import Errors, plain_reason
from farmiq.ui.i18n import gettext as _

PATH = "/devices/new"
ROLE: Role = "admin"
NOT_VALID = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class AddView:
    company: Tenant
    now: datetime
    barns: Sequence[str]
    values: Mapping[str, str]
    errors: Errors = field(default_factory=dict)
    made: Credentials | None = None
    command: str = ""
    page: str = "devices"

    @property
    def title(self) -> str:
        return _("Add a device")

    @property
    def kinds(self) -> list[tuple[str, str]]:
        words = {
            "sensor": _("Sensor"), "silo": _("Silo"), "feeder": _("Feeder"),
            "station": _("Weigh station"), "gateway": _("Gateway"), "other": _("Other"),
        }  # fmt: skip
        return [(kind, words.get(kind, kind)) for kind in KINDS]

    def value(self, name: str) -> str:
        return self.values.get(name, "")

    def error(self, name: str) -> str:
        return self.errors.get(name, "")


@dataclass(frozen=True)
class AddDevicePages:
    """`broker_url` is where devices connect, as far as this edge knows."""

    pages: Pages
    broker_url: str

    def add_to(self, app: FastAPI) -> None:
        look.add_pages(app, (PATH, self.show, "GET"), (PATH, self.add, "POST"))

    async def show(self, request: Request) -> Response:
        async with self.pages.visit(request, "devices", role=ROLE) as visit:
            view = await _view(visit, {"kind": "sensor"})
        return await self.pages.page("edge_device_form.html", visit.signed_in, view)

    async def add(self, request: Request) -> Response:
        """The login is on this answer only, so it is no redirect."""
        async with self.pages.visit(request, "devices", role=ROLE) as visit:
            form = await self.pages.form(request, visit.signed_in)
            farm_id, _slash, barn_id = form.get("place", "").partition("/")
            fields = {
                "tenant_id": visit.tenant.tenant_id, "farm_id": farm_id, "barn_id": barn_id,
                **{
                    name: form.get(name, "").strip()
                    for name in ("device_id", "kind", "station_id", "where")
                },
            }  # fmt: skip
            fields["place"] = fields.pop("where")
            try:
                device = parse_device(fields)
                actor = f"key {visit.signed_in.name}"
                async with visit.connection.transaction():
                    made = await registration.add(visit.connection, device, actor=actor)
            except InvalidDeviceError as error:
                shown_at = {"farm_id": "place", "barn_id": "place", "place": "where"}
                errors = {
                    shown_at.get(name, name): f"{plain_reason(why)}." for name, why in error.reasons
                }
                view = await _view(visit, form, errors=errors)
            except DeviceExistsError as error:
                view = await _view(
                    visit, form, errors={"device_id": f"{plain_reason(str(error))}."}
                )
            else:
                host, port = mqtt_address.address(self.broker_url)
                command = registration.publish_line(made, host=host, port=port)
                view = await _view(visit, {}, made=made, command=command)
        status = NOT_VALID if view.errors else 200
        return await self.pages.page("edge_device_form.html", visit.signed_in, view, status=status)


async def _view(
    visit: Visit,
    values: Mapping[str, str],
    *,
    errors: Errors | None = None,
    made: Credentials | None = None,
    command: str = "",
) -> AddView:
    barns = await db.fetch_all(
        visit.connection,
        """
        select farm_id, barn_id from devices where tenant_id = %s
        union select farm_id, '' from cloud_farms where tenant_id = %s
        order by 1, 2 limit 500
        """,
        visit.tenant.tenant_id,
        visit.tenant.tenant_id,
    )
    return AddView(
        company=visit.tenant,
        now=visit.now,
        barns=[f"{farm}/{barn}" for farm, barn in barns],
        values=values,
        errors=errors or {},
        made=made,
        command=command,
    )
