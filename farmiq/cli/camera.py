"""`farmiq camera`: programs, sites and cameras of a company, and the accounts of their wakes.

Everything goes through the cloud's API, in the name of a person: it checks and decides.
"""

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.plumbing.tls import Tls

app = terminal.Group(
    "Battery cameras: who they are, when they wake, what became of it.\n\n"
    "On the first day: `farmiq company add hill --name Hill`, `farmiq user add you@hill.farm "
    "--tenant hill --role admin`; then with `--as you@hill.farm`: `camera program add Trial "
    "--type control`, `camera site add Barn --program Trial --timezone Asia/Bangkok`, `camera "
    'device add Device-001 --mac a0:b1:c2:d3:e4:f5 --site Barn --cron "0 8,16 * * *"`.\n\n'
    "They ask the API of FARMIQ_CLOUD_URL. Who asks: FARMIQ_CLOUD_TOKEN (as `farmiq user token` "
    "prints it), or --as on a machine that has FARMIQ_CLOUD_DB_ADMIN_URL. "
    "See docs/integrate/camera-api.md.",
)
program = terminal.Group("Programs: what sites are compared by.", shared=terminal.JSON)
site = terminal.Group("Sites: where cameras stand; their own time zone.", shared=terminal.JSON)
device = terminal.Group("Cameras.", shared=terminal.JSON)
session = terminal.Group("Days of sites, and how complete they are.", shared=terminal.JSON)
schedule = terminal.Group(
    "When cameras wake; a change counts from their site's midnight.",
    shared=terminal.JSON,
)
image = terminal.Group("Images of wakes.", shared=terminal.JSON)
for _name, _group in (
    ("program", program), ("site", site), ("device", device), ("session", session),
    ("schedule", schedule), ("image", image),
):  # fmt: skip
    app.add_typer(_group, name=_name)

Active = Annotated[bool | None, typer.Option("--active/--inactive", help="Whether it counts.")]
Zone = Annotated[str, typer.Option(help="IANA zone of its days, such as Asia/Bangkok.")]
NameOrId = Annotated[str, typer.Argument(help="Its name or id.")]
Name = Annotated[str, typer.Argument(help="What people call it.")]
NewName = Annotated[str | None, typer.Option("--name", help="What people call it from now on.")]
Cron = Annotated[str, typer.Argument(help='Five fields in the site\'s time, such as "0 8 * * *".')]
Slot = Annotated[int | None, typer.Option(help="The slot that its images show.")]
Limit = Annotated[int, typer.Option(min=1, max=500, help="At most so many.")]


@dataclass(frozen=True)
class Cloud:
    """The API as one person calls it."""

    url: str
    token: str
    company: str | None
    tls: "Tls"

    def request(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Fails with what the cloud says."""
        import httpx2

        given = {**query, "company": self.company}
        try:
            answer = httpx2.request(
                method,
                f"{self.url}/api/v1/camera/{path}",
                params={name.rstrip("_"): value for name, value in given.items() if value},
                json=body,
                headers={"Authorization": f"Bearer {self.token}"},
                verify=self.tls.client(),
                timeout=30,
            )
            answered = answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            terminal.fail(f"{self.url} does not answer as a FarmIQ cloud: {error}")
        if not answer.is_success:
            terminal.fail(_why(answered, answer.text))
        return answered

    def all(self, path: str, many: str) -> Iterator[Mapping[str, Any]]:
        cursor = None
        while True:
            page = self.request("GET", path, limit=500, cursor=cursor)
            yield from page[many]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def find(self, kind: str, name_or_id: str) -> str:
        """The id of what has this name, or is this id."""
        try:
            return str(UUID(name_or_id))
        except ValueError:
            pass
        rows = self.all(f"{kind}s", f"{kind}s")
        matches = [row for row in rows if row[f"{kind}_name"] == name_or_id]
        if not matches:
            terminal.fail(
                f"there is no {kind} {name_or_id!r}; `farmiq camera {kind} ls` lists them"
            )
        return str(matches[0][f"{kind}_id"])

    def path(self, kind: str, name_or_id: str) -> str:
        return f"{kind}s/{self.find(kind, name_or_id)}"


def _why(body: Any, text: str) -> str:
    error = body.get("error", {}) if isinstance(body, dict) else {}
    details = (f"{detail.get('field')}: {detail['reason']}" for detail in error.get("details", ()))
    return "\n".join([error.get("message", text[:300]), *details])


# E-mail of who asks, and the company that a super admin looks at.
_asker: ContextVar[tuple[str | None, str | None]] = ContextVar("asker", default=(None, None))


@app.callback(shared=terminal.STACK)
def reach(
    *,
    as_: Annotated[
        str | None, typer.Option("--as", help="E-mail of the person in whose name it is done.")
    ] = None,
    company: Annotated[
        str | None, typer.Option(help="company_id, for a super admin who looks at another.")
    ] = None,
) -> None:
    _asker.set((as_, company))


def _cloud() -> Cloud:
    from datetime import timedelta

    from farmiq.config import CloudSettings

    email, company = _asker.get()
    environment = terminal.environment()
    url = terminal.needed("FARMIQ_CLOUD_URL", environment).rstrip("/")
    token = environment.get("FARMIQ_CLOUD_TOKEN")
    if email:
        from farmiq.cloud.identity.accounts import open_sign_in

        with terminal.connect(terminal.CLOUD_OWNER) as connection:
            token = open_sign_in(
                connection, email, lasts=timedelta(minutes=2), actor=terminal.actor()
            )
    if not token:
        terminal.fail("say who asks: --as EMAIL, or FARMIQ_CLOUD_TOKEN from `farmiq user token`")
    return Cloud(url, token, company, CloudSettings.load_some(environment).tls)


@program.command("add")
def program_add(
    name: Name, *, kind: Annotated[str, typer.Option("--type", help="control or experimental.")]
) -> None:
    """Add a program (admins)."""
    body = {"program_name": name, "program_type": kind}
    _print(_cloud().request("POST", "programs", body))


@site.command("add")
def site_add(
    name: Name,
    *,
    program: Annotated[str, typer.Option(help="Its program's name or id.")],
    timezone: Zone,
) -> None:
    """Add a site (admins). Its days are days of its own time zone."""
    cloud = _cloud()
    of = cloud.find("program", program)
    body = {"program_id": of, "site_name": name, "timezone": timezone}
    _print(cloud.request("POST", "sites", body))


@device.command("add")
def device_add(
    name: Name,
    *,
    mac: Annotated[str, typer.Option(help="Its hardware address, in any usual spelling.")],
    site: Annotated[str | None, typer.Option(help="Its site's name or id; may come later.")] = None,
    cron: Annotated[
        str | None, typer.Option(help='When it wakes, in the site\'s time: "0 8,16 * * *".')
    ] = None,
    dialect: Annotated[str, typer.Option(help="standard or esp32cam.")] = "standard",
    slot: Slot = None,
) -> None:
    """Add a camera (technicians). Its wakes are expected from the next day that opens."""
    cloud = _cloud()
    at = cloud.find("site", site) if site else None
    body = _given(site_id=at, wake_schedule_cron=cron, slot_index=slot)
    body |= {"device_name": name, "mac": mac, "dialect": dialect}
    _print(cloud.request("POST", "devices", body))


def _program(row: Mapping[str, Any]) -> tuple[str]:
    return (f"{row['program_id']}  {row['program_type']:<12}  {row['program_name']}{_off(row)}",)


def _site(row: Mapping[str, Any]) -> tuple[str]:
    return (f"{row['site_id']}  {row['timezone']:<20}  {row['site_name']}{_off(row)}",)


def _device(row: Mapping[str, Any]) -> tuple[str]:
    where = row["site_name"] or "no site yet"
    cron = row["wake_schedule_cron"] or "no schedule"
    return (f"{row['device_id']}  {row['mac']}  {row['device_name']}  {where}  {cron}{_off(row)}",)


def _off(row: Mapping[str, Any]) -> str:
    return "" if row["is_active"] else "  (not active)"


def _add_ls_and_show(
    kind: str, group: terminal.Group, cells: Callable[[Any], tuple[str]], ls: str, show: str
) -> None:
    @group.command("ls", help=ls)
    def list_all() -> None:
        terminal.print_list(list(_cloud().all(f"{kind}s", f"{kind}s")), cells)

    @group.command("show", help=show)
    def show_one(name_or_id: NameOrId) -> None:
        cloud = _cloud()
        _print(cloud.request("GET", cloud.path(kind, name_or_id)))


_add_ls_and_show("program", program, _program, "List the programs.", "Show one program.")
_add_ls_and_show("site", site, _site, "List the sites.", "Show one site.")
_add_ls_and_show(
    "device",
    device,
    _device,
    "List the cameras, retired ones too.",
    "Show one camera: where it is, when it wakes, when it was last heard of.",
)


@program.command("update")
def program_update(
    name_or_id: NameOrId,
    *,
    name: NewName = None,
    kind: Annotated[str | None, typer.Option("--type", help="control or experimental.")] = None,
    active: Active = None,
) -> None:
    """Change a program (admins); what is not said stays."""
    cloud = _cloud()
    body = _given(program_name=name, program_type=kind, is_active=active)
    _print(cloud.request("PATCH", cloud.path("program", name_or_id), body))


@site.command("update")
def site_update(
    name_or_id: NameOrId,
    *,
    name: NewName = None,
    program: Annotated[str | None, typer.Option(help="Its new program's name or id.")] = None,
    timezone: Annotated[str | None, typer.Option(help="From its next day on.")] = None,
    active: Active = None,
) -> None:
    """Change a site (admins); what is not said stays. No day of an inactive one is opened."""
    cloud = _cloud()
    of = cloud.find("program", program) if program else None
    body = _given(site_name=name, program_id=of, timezone=timezone, is_active=active)
    _print(cloud.request("PATCH", cloud.path("site", name_or_id), body))


@device.command("update")
def device_update(
    name_or_id: NameOrId,
    *,
    name: NewName = None,
    site: Annotated[str | None, typer.Option(help="The site it moved to, by name or id.")] = None,
    slot: Slot = None,
    dialect: Annotated[str | None, typer.Option(help="standard or esp32cam.")] = None,
) -> None:
    """Change a camera (technicians); when it wakes: `farmiq camera schedule change`."""
    cloud = _cloud()
    at = cloud.find("site", site) if site else None
    body = _given(device_name=name, site_id=at, slot_index=slot, dialect=dialect)
    _print(cloud.request("PATCH", cloud.path("device", name_or_id), body))


@device.command("retire")
def device_retire(name_or_id: NameOrId) -> None:
    """A camera is no more (technicians): its wakes stay, its MAC address is free for another."""
    cloud = _cloud()
    _print(cloud.request("POST", f"{cloud.path('device', name_or_id)}/retire", {}))


@session.command("ls")
def session_ls(
    *,
    site: Annotated[str | None, typer.Option(help="Only this site's, by name or id.")] = None,
    since: Annotated[str | None, typer.Option("--from", help="Such as 2026-05-31.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="The last day.")] = None,
    limit: Limit = 50,
) -> int:
    """List days of sites, newest first. Exit code 3: one of them is less than half complete."""
    cloud = _cloud()
    at = cloud.find("site", site) if site else None
    days = cloud.request("GET", "sessions", site=at, from_=since, to=until, limit=limit)["sessions"]
    terminal.print_list(days, _session)
    return 3 if any(row["completeness"]["band"] == "alert" for row in days) else 0


@session.command("show")
def session_show(
    session_id: Annotated[str, typer.Argument(help="session_id, as `session ls` prints it.")],
) -> None:
    """Show a day of a site: how complete it is, and each camera's share."""
    day = _cloud().request("GET", f"sessions/{_id(session_id)}")
    terminal.print_result(
        day,
        f"{day['site_name']}, {day['timezone']}, {day['status']}\n{day['text']}",
        *(f"  {row['text']}" for row in day["devices"]),
    )


@schedule.command("preview")
def schedule_preview(name_or_id: NameOrId, cron: Cron) -> None:
    """Say when another schedule of a camera would take effect; nothing is kept."""
    cloud = _cloud()
    path = f"{cloud.path('device', name_or_id)}/schedule-changes/preview"
    preview = cloud.request("POST", path, {"new_wake_schedule_cron": cron})
    terminal.print_result(preview, preview["text"])


@schedule.command("change")
def schedule_change(name_or_id: NameOrId, cron: Cron) -> None:
    """Ask for another schedule of a camera (technicians); the last one asked for wins."""
    cloud = _cloud()
    path = f"{cloud.path('device', name_or_id)}/schedule-changes"
    change = cloud.request("POST", path, {"new_wake_schedule_cron": cron})
    terminal.print_result(change, f"{change['change_id']}  {change['text']}")


@schedule.command("ls")
def schedule_ls(name_or_id: NameOrId) -> None:
    """List what was asked for, and what became of it."""
    cloud = _cloud()
    path = f"{cloud.path('device', name_or_id)}/schedule-changes"
    terminal.print_list(list(cloud.all(path, "changes")), _change)


@schedule.command("cancel")
def schedule_cancel(
    change: Annotated[str, typer.Argument(help="change_id, as `schedule ls` prints it.")],
) -> None:
    """Take back a change that was not applied yet (technicians)."""
    row = _cloud().request("POST", f"schedule-changes/{_id(change)}/cancel", {})
    terminal.print_result(row, *_change(row))


@image.command("ls")
def image_ls(
    *,
    status: Annotated[str | None, typer.Option(help="receiving, complete or failed.")] = None,
    quality: Annotated[
        str | None, typer.Option(help="ok, blurred, dark, bright, unreadable or missing.")
    ] = None,
    limit: Limit = 50,
) -> None:
    """List images of wakes and how good they are, newest capture first."""
    filters = {"status": status, "quality": quality, "limit": limit}
    terminal.print_list(_cloud().request("GET", "images", **filters)["images"], image_line)


@image.command("resend")
def image_resend(
    image_id: Annotated[str, typer.Argument(help="image_id, as `image ls` prints it.")],
) -> None:
    """Ask its camera for an image again (operators); it is sent for when the camera wakes."""
    row = _cloud().request("POST", f"images/{_id(image_id)}/resend", {})
    terminal.print_result(row, *image_line(row))


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _id(text: str) -> UUID:
    return terminal.check_uuid(text, "is no id; the `ls` of its kind prints them")


def _print(fields: Mapping[str, Any]) -> None:
    known = {name: value for name, value in fields.items() if value is not None}
    shown = {
        name: terminal.local(value) if name.endswith("_at") else value
        for name, value in known.items()
    }
    terminal.print_result(fields, *(f"{name:<24} {value}" for name, value in shown.items()))


def _session(row: Mapping[str, Any]) -> tuple[str]:
    shown = row["completeness"]["shown_pct"]
    percent = "n/a" if shown is None else f"{shown}%"
    line = (
        f"{row['session_id']}  {row['session_date']}  {percent:>4}  "
        f"{row['completed_wake_count']}/{row['expected_wake_count']}  {row['status']:<11}  "
        f"{row['site_name']}"
    )
    return (line,)


def _change(row: Mapping[str, Any]) -> tuple[str]:
    cron = row["new_wake_schedule_cron"]
    return (f"{row['change_id']}  from {row['effective_date']}  {row['state']:<10}  {cron}",)


def image_line(row: Mapping[str, Any]) -> tuple[str]:
    again = "  (asked for again)" if row["resend_requested_at"] else ""
    quality = row["quality"] or "-"
    captured_at = terminal.local(row["captured_at"])
    line = (
        f"{row['image_id']}  {captured_at}  {row['status']:<9}  {quality:<10}  "
        f"{row['device_name']}  {row['image_name']}{again}"
    )
    return (line,)
