"""Pure: the way of an empty installation to its first reading, ticked by what is there."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from farmiq.cloud.console.today.queries import Progress
from farmiq.ui.i18n import gettext as _

# An edge reports every minute.
HEARD = timedelta(minutes=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`commands` are typed at the edge or the cloud, as `text` says; `href` leads to a page."""

    key: str
    title: str
    text: str
    is_done: bool
    commands: tuple[str, ...] = ()
    action: str = ""
    href: str = ""


def steps(progress: Progress, tenant_id: str, *, now: datetime) -> list[Step]:
    is_heard = progress.heard_at is not None and now - progress.heard_at < HEARD
    return [
        Step(
            key="farm",
            title=_("Add a farm and its barns"),
            text=_(
                "Each has a name and a time zone. Many at once come from files, by the command."
            ),
            is_done=progress.has_farm and progress.has_barn,
            commands=(f"farmiq masterdata import farms farms.csv --tenant {tenant_id}",),
            action=_("Add a barn"),
            href="/batches/barns/new",
        ),
        Step(
            key="edge",
            title=_("Invite an edge"),
            text=_(
                "The small machine in the barn that devices send to. The invitation is a code; "
                "type it there."
            ),
            is_done=progress.has_edge,
            commands=(
                f"farmiq edge invite --cluster my-edge --tenant {tenant_id}",
                "farmiq edge enroll --cloud https://… --code …",
                "farmiq run edge",
            ),
            action=_("Edges"),
            href="/settings/edges",
        ),
        Step(
            key="heard",
            title=_("See the edge report"),
            text=_("It reports every minute as soon as it runs and reaches the cloud."),
            is_done=is_heard,
            action=_("Delivery"),
            href="/delivery",
        ),
        Step(
            key="device",
            title=_("Add a device"),
            text=_("At the edge; it prints the login of the device and a command to try it."),
            is_done=progress.has_device,
            commands=(f"farmiq device add {tenant_id} my-farm barn-1 climate-1",),
        ),
        Step(
            key="reading",
            title=_("See the first reading"),
            text=_("This page changes by itself, seconds after the device has sent something."),
            is_done=progress.has_reading,
            commands=(f"iot/telemetry/{tenant_id}/my-farm/barn-1/climate-1/temperature",),
        ),
    ]
