"""`farmiq camera`: programs, sites and cameras of a company, and the accounts of their wakes.

Everything goes through the cloud's API, in the name of a person: it checks and decides.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from farmiq.cli import terminal
from farmiq.cli.terminal import AsJson, StackName

if TYPE_CHECKING:
    from farmiq.plumbing.tls import Tls

NEEDS_ATTENTION = 3

app = typer.Typer(
    no_args_is_help=True,
    help="Battery cameras: who they are, when they wake, what became of it.\n\n"
    "On the first day: `farmiq company add hill --name Hill`, `farmiq user add you@hill.farm "
    "--tenant hill --role admin`; then with `--as you@hill.farm`: `camera program add Trial "
    "--type control`, `camera site add Barn --program Trial --timezone Asia/Bangkok`, `camera "
    'device add Device-001 --mac a0:b1:c2:d3:e4:f5 --site Barn --cron "0 8,16 * * *"`.\n\n'
    "They ask the API of FARMIQ_CLOUD_URL. Who asks: FARMIQ_CLOUD_TOKEN (as `farmiq user token` "
    "prints it), or --as on a machine that has FARMIQ_CLOUD_DB_ADMIN_URL. "
    "See docs/integrate/camera-api.md.",
)
program = typer.Typer(no_args_is_help=True, help="Programs: what sites are compared by.")
site = typer.Typer(no_args_is_help=True, help="Sites: where cameras stand; their own time zone.")
device = typer.Typer(no_args_is_help=True, help="Cameras.")
session = typer.Typer(no_args_is_help=True, help="Days of sites, and how complete they are.")
schedule = typer.Typer(
    no_args_is_help=True, help="When cameras wake; a change counts from their site's midnight."
)
image = typer.Typer(no_args_is_help=True, help="Images of wakes.")
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

    def find(self, many: str, name: str, name_or_id: str) -> str:
        """The id of what has this name, or is this id."""
        try:
            return str(UUID(name_or_id))
        except ValueError:
            pass
        matches = [row for row in self.all(many, many) if row[f"{name}_name"] == name_or_id]
        if not matches:
            terminal.fail(
                f"there is no {name} {name_or_id!r}; `farmiq camera {name} ls` lists them"
            )
        return str(matches[0][f"{name}_id"])


def _why(body: Any, text: str) -> str:
    error = body.get("error", {}) if isinstance(body, dict) else {}
    details = (f"{detail.get('field')}: {detail['reason']}" for detail in error.get("details", ()))
    return "\n".join([error.get("message", text[:300]), *details])


@app.callback()
def reach(
    ctx: typer.Context,
    *,
    as_: Annotated[
        str | None, typer.Option("--as", help="E-mail of the person in whose name it is done.")
    ] = None,
    company: Annotated[
        str | None, typer.Option(help="company_id, for a super admin who looks at another.")
    ] = None,
    stack: StackName = None,
) -> None:
    ctx.obj = lambda: _cloud(as_, company, stack)


def _cloud(email: str | None, company: str | None, stack: str | None) -> Cloud:
    from farmiq.config import CloudSettings

    environment = terminal.environment(stack)
    url = terminal.needed(environment, "FARMIQ_CLOUD_URL").rstrip("/")
    token = environment.get("FARMIQ_CLOUD_TOKEN")
    if email:
        token = _sign_in(terminal.needed(environment, "FARMIQ_CLOUD_DB_ADMIN_URL"), email)
    if not token:
        terminal.fail("say who asks: --as EMAIL, or FARMIQ_CLOUD_TOKEN from `farmiq user token`")
    return Cloud(url, token, company, CloudSettings.load_some(environment).tls)


def _sign_in(url: str, email: str) -> str:
    from datetime import timedelta

    import psycopg

    from farmiq.cloud.identity.accounts import open_sign_in

    with psycopg.connect(url) as connection:
        return open_sign_in(connection, email, lasts=timedelta(minutes=2))


@program.command("add")
def program_add(
    ctx: typer.Context,
    name: Name,
    *,
    kind: Annotated[str, typer.Option("--type", help="control or experimental.")],
    as_json: AsJson = False,
) -> None:
    """Add a program (admins)."""
    body = {"program_name": name, "program_type": kind}
    _print(ctx.obj().request("POST", "programs", body), as_json=as_json)


@program.command("ls")
def program_ls(ctx: typer.Context, *, as_json: AsJson = False) -> None:
    """List the programs."""
    _list(ctx.obj().all("programs", "programs"), _program, as_json=as_json)


@program.command("show")
def program_show(ctx: typer.Context, name_or_id: NameOrId, *, as_json: AsJson = False) -> None:
    """Show one program."""
    cloud: Cloud = ctx.obj()
    _print(
        cloud.request("GET", f"programs/{cloud.find('programs', 'program', name_or_id)}"),
        as_json=as_json,
    )


@program.command("update")
def program_update(
    ctx: typer.Context,
    name_or_id: NameOrId,
    *,
    name: NewName = None,
    kind: Annotated[str | None, typer.Option("--type", help="control or experimental.")] = None,
    active: Active = None,
    as_json: AsJson = False,
) -> None:
    """Change a program (admins); what is not said stays."""
    cloud: Cloud = ctx.obj()
    body = _given(program_name=name, program_type=kind, is_active=active)
    path = f"programs/{cloud.find('programs', 'program', name_or_id)}"
    _print(cloud.request("PATCH", path, body), as_json=as_json)


@site.command("add")
def site_add(
    ctx: typer.Context,
    name: Name,
    *,
    program: Annotated[str, typer.Option(help="Its program's name or id.")],
    timezone: Zone,
    as_json: AsJson = False,
) -> None:
    """Add a site (admins). Its days are days of its own time zone."""
    cloud: Cloud = ctx.obj()
    of = cloud.find("programs", "program", program)
    body = {"program_id": of, "site_name": name, "timezone": timezone}
    _print(cloud.request("POST", "sites", body), as_json=as_json)


@site.command("ls")
def site_ls(ctx: typer.Context, *, as_json: AsJson = False) -> None:
    """List the sites."""
    _list(ctx.obj().all("sites", "sites"), _site, as_json=as_json)


@site.command("show")
def site_show(ctx: typer.Context, name_or_id: NameOrId, *, as_json: AsJson = False) -> None:
    """Show one site."""
    cloud: Cloud = ctx.obj()
    _print(
        cloud.request("GET", f"sites/{cloud.find('sites', 'site', name_or_id)}"), as_json=as_json
    )


@site.command("update")
def site_update(
    ctx: typer.Context,
    name_or_id: NameOrId,
    *,
    name: NewName = None,
    program: Annotated[str | None, typer.Option(help="Its new program's name or id.")] = None,
    timezone: Annotated[str | None, typer.Option(help="From its next day on.")] = None,
    active: Active = None,
    as_json: AsJson = False,
) -> None:
    """Change a site (admins); what is not said stays. No day of an inactive one is opened."""
    cloud: Cloud = ctx.obj()
    of = cloud.find("programs", "program", program) if program else None
    body = _given(site_name=name, program_id=of, timezone=timezone, is_active=active)
    path = f"sites/{cloud.find('sites', 'site', name_or_id)}"
    _print(cloud.request("PATCH", path, body), as_json=as_json)


@device.command("add")
def device_add(
    ctx: typer.Context,
    name: Name,
    *,
    mac: Annotated[str, typer.Option(help="Its hardware address, in any usual spelling.")],
    site: Annotated[str | None, typer.Option(help="Its site's name or id; may come later.")] = None,
    cron: Annotated[
        str | None, typer.Option(help='When it wakes, in the site\'s time: "0 8,16 * * *".')
    ] = None,
    dialect: Annotated[str, typer.Option(help="standard or esp32cam.")] = "standard",
    slot: Annotated[int | None, typer.Option(help="The slot that its images show.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add a camera (technicians). Its wakes are expected from the next day that opens."""
    cloud: Cloud = ctx.obj()
    at = cloud.find("sites", "site", site) if site else None
    body = _given(site_id=at, wake_schedule_cron=cron, slot_index=slot)
    body |= {"device_name": name, "mac": mac, "dialect": dialect}
    _print(cloud.request("POST", "devices", body), as_json=as_json)


@device.command("ls")
def device_ls(ctx: typer.Context, *, as_json: AsJson = False) -> None:
    """List the cameras, retired ones too."""
    _list(ctx.obj().all("devices", "devices"), _device, as_json=as_json)


@device.command("show")
def device_show(ctx: typer.Context, name_or_id: NameOrId, *, as_json: AsJson = False) -> None:
    """Show one camera: where it is, when it wakes, when it was last heard of."""
    cloud: Cloud = ctx.obj()
    _print(
        cloud.request("GET", f"devices/{cloud.find('devices', 'device', name_or_id)}"),
        as_json=as_json,
    )


@device.command("update")
def device_update(
    ctx: typer.Context,
    name_or_id: NameOrId,
    *,
    name: NewName = None,
    site: Annotated[str | None, typer.Option(help="The site it moved to, by name or id.")] = None,
    slot: Annotated[int | None, typer.Option(help="The slot that its images show.")] = None,
    dialect: Annotated[str | None, typer.Option(help="standard or esp32cam.")] = None,
    as_json: AsJson = False,
) -> None:
    """Change a camera (technicians); when it wakes: `farmiq camera schedule change`."""
    cloud: Cloud = ctx.obj()
    at = cloud.find("sites", "site", site) if site else None
    body = _given(device_name=name, site_id=at, slot_index=slot, dialect=dialect)
    path = f"devices/{cloud.find('devices', 'device', name_or_id)}"
    _print(cloud.request("PATCH", path, body), as_json=as_json)


@device.command("retire")
def device_retire(ctx: typer.Context, name_or_id: NameOrId, *, as_json: AsJson = False) -> None:
    """A camera is no more (technicians): its wakes stay, its MAC address is free for another."""
    cloud: Cloud = ctx.obj()
    path = f"devices/{cloud.find('devices', 'device', name_or_id)}/retire"
    _print(cloud.request("POST", path, {}), as_json=as_json)


@session.command("ls")
def session_ls(
    ctx: typer.Context,
    *,
    site: Annotated[str | None, typer.Option(help="Only this site's, by name or id.")] = None,
    since: Annotated[str | None, typer.Option("--from", help="Such as 2026-05-31.")] = None,
    until: Annotated[str | None, typer.Option("--to", help="The last day.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List days of sites, newest first. Exit code 3: one of them is less than half complete."""
    cloud: Cloud = ctx.obj()
    at = cloud.find("sites", "site", site) if site else None
    sessions = cloud.request("GET", "sessions", site=at, from_=since, to=until, limit=limit)[
        "sessions"
    ]
    _list(sessions, _session, as_json=as_json)
    if any(row["completeness"]["band"] == "alert" for row in sessions):
        raise typer.Exit(NEEDS_ATTENTION)


@session.command("show")
def session_show(
    ctx: typer.Context,
    session_id: Annotated[str, typer.Argument(help="session_id, as `session ls` prints it.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Show a day of a site: how complete it is, and each camera's share."""
    day = ctx.obj().request("GET", f"sessions/{_id(session_id)}")
    if as_json:
        terminal.print_json(day)
        return
    typer.echo(f"{day['site_name']}, {day['timezone']}, {day['status']}\n{day['text']}")
    for row in day["devices"]:
        typer.echo(f"  {row['text']}")


@schedule.command("preview")
def schedule_preview(
    ctx: typer.Context, name_or_id: NameOrId, cron: Cron, *, as_json: AsJson = False
) -> None:
    """Say when another schedule of a camera would take effect; nothing is kept."""
    cloud: Cloud = ctx.obj()
    path = f"devices/{cloud.find('devices', 'device', name_or_id)}/schedule-changes/preview"
    preview = cloud.request("POST", path, {"new_wake_schedule_cron": cron})
    terminal.print_result(preview, preview["text"], as_json=as_json)


@schedule.command("change")
def schedule_change(
    ctx: typer.Context, name_or_id: NameOrId, cron: Cron, *, as_json: AsJson = False
) -> None:
    """Ask for another schedule of a camera (technicians); the last one asked for wins."""
    cloud: Cloud = ctx.obj()
    path = f"devices/{cloud.find('devices', 'device', name_or_id)}/schedule-changes"
    change = cloud.request("POST", path, {"new_wake_schedule_cron": cron})
    terminal.print_result(change, f"{change['change_id']}  {change['text']}", as_json=as_json)


@schedule.command("ls")
def schedule_ls(ctx: typer.Context, name_or_id: NameOrId, *, as_json: AsJson = False) -> None:
    """List what was asked for, and what became of it."""
    cloud: Cloud = ctx.obj()
    path = f"devices/{cloud.find('devices', 'device', name_or_id)}/schedule-changes"
    _list(cloud.all(path, "changes"), _change, as_json=as_json)


@schedule.command("cancel")
def schedule_cancel(
    ctx: typer.Context,
    change: Annotated[str, typer.Argument(help="change_id, as `schedule ls` prints it.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Take back a change that was not applied yet (technicians)."""
    row = ctx.obj().request("POST", f"schedule-changes/{_id(change)}/cancel", {})
    terminal.print_result(row, _change(row), as_json=as_json)


@image.command("ls")
def image_ls(
    ctx: typer.Context,
    *,
    status: Annotated[str | None, typer.Option(help="receiving, complete or failed.")] = None,
    quality: Annotated[
        str | None, typer.Option(help="ok, blurred, dark, bright, unreadable or missing.")
    ] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List images of wakes and how good they are, newest capture first."""
    filters = {"status": status, "quality": quality, "limit": limit}
    images = ctx.obj().request("GET", "images", **filters)["images"]
    _list(images, _image, as_json=as_json)


@image.command("resend")
def image_resend(
    ctx: typer.Context,
    image_id: Annotated[str, typer.Argument(help="image_id, as `image ls` prints it.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Ask its camera for an image again (operators); it is sent for when the camera wakes."""
    row = ctx.obj().request("POST", f"images/{_id(image_id)}/resend", {})
    terminal.print_result(row, _image(row), as_json=as_json)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _id(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        terminal.fail(f"{text!r} is no id; the `ls` of its kind prints them", code=2)


def _print(fields: Mapping[str, Any], *, as_json: bool) -> None:
    known = ((name, value) for name, value in fields.items() if value is not None)
    terminal.print_result(
        fields, "\n".join(f"{name:<24} {value}" for name, value in known), as_json=as_json
    )


def _list(rows: Any, line: Any, *, as_json: bool) -> None:
    terminal.print_list(list(rows), lambda row: (line(row),), as_json=as_json)


def _program(row: Mapping[str, Any]) -> str:
    return f"{row['program_id']}  {row['program_type']:<12}  {row['program_name']}{_off(row)}"


def _site(row: Mapping[str, Any]) -> str:
    return f"{row['site_id']}  {row['timezone']:<20}  {row['site_name']}{_off(row)}"


def _device(row: Mapping[str, Any]) -> str:
    where = row["site_name"] or "no site yet"
    cron = row["wake_schedule_cron"] or "no schedule"
    return f"{row['device_id']}  {row['mac']}  {row['device_name']}  {where}  {cron}{_off(row)}"


def _off(row: Mapping[str, Any]) -> str:
    return "" if row["is_active"] else "  (not active)"


def _session(row: Mapping[str, Any]) -> str:
    shown = row["completeness"]["shown_pct"]
    percent = "n/a" if shown is None else f"{shown}%"
    return (
        f"{row['session_id']}  {row['session_date']}  {percent:>4}  "
        f"{row['completed_wake_count']}/{row['expected_wake_count']}  {row['status']:<11}  "
        f"{row['site_name']}"
    )


def _change(row: Mapping[str, Any]) -> str:
    cron = row["new_wake_schedule_cron"]
    return f"{row['change_id']}  from {row['effective_date']}  {row['state']:<10}  {cron}"


def _image(row: Mapping[str, Any]) -> str:
    again = "  (asked for again)" if row["resend_requested_at"] else ""
    quality = row["quality"] or "-"
    return (
        f"{row['image_id']}  {row['captured_at']}  {row['status']:<9}  {quality:<10}  "
        f"{row['device_name']}  {row['image_name']}{again}"
    )
