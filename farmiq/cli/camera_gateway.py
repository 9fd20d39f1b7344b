"""`farmiq camera-gateway`: logins of cameras, how they are, what they hear, what was refused."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from farmiq.cli import camera_quarantine, rosters, terminal

if TYPE_CHECKING:
    from farmiq.cloud.camera.registration import Camera
    from farmiq.plumbing import db

app = terminal.Group(
    "Battery cameras at the cloud's broker.\n\n"
    "Needs FARMIQ_CLOUD_DB_URL or a running demo. More in docs/operate/cameras.md.",
)
app.add_typer(camera_quarantine.app, name="quarantine")
Mac = Annotated[str, typer.Argument(help="MAC address, in any spelling.")]
Command = Literal["send_image", "capture_image", "next_wake"]


@app.command()
def login(
    mac: Mac,
    *,
    company: Annotated[
        str | None, typer.Option(help="Tenant whose camera it is, if several registered it.")
    ] = None,
    move: Annotated[
        bool, typer.Option("--move", help="Take it from the company whose camera was heard.")
    ] = False,
) -> None:
    """Make a camera's login, or replace it. The password is printed this once.

    An older one ends within seconds: the gateway writes the broker's users. Every company may
    register a MAC address; the camera is that company's which was given its login.
    """
    from farmiq.cloud.camera import registration

    user = _plain(mac)
    made = terminal.in_transaction(
        lambda tx: registration.make_login(
            tx, user, made_by=terminal.actor(), tenant_id=company, move=move
        ),
        terminal.CLOUD,
    )
    terminal.print_result({"username": user, "password": made}, f"username {user}\npassword {made}")


@app.command("import")
def import_(
    file: rosters.File,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the logins go (CSV, 0600); default: standard output."),
    ] = None,
    dry_run: rosters.DryRun = False,
) -> int:
    """Register all cameras of a list and make their logins, or do nothing of it.

    Columns: tenant_id, mac, device_name (needed); site_name, wake_schedule_cron, dialect,
    slot_index, x_position, y_position, firmware. Every problem is listed with its line.
    """
    import psycopg

    from farmiq.cloud.camera import registration
    from farmiq.roster import RosterError

    async def work(tx: "db.Connection", text: str) -> "list[tuple[Camera, str]]":
        cameras = registration.read(text)
        if problems := await registration.problems(tx, cameras):
            raise RosterError(problems)
        if dry_run:
            return []
        return await registration.register(tx, cameras, made_by=terminal.actor())

    try:
        return rosters.register(
            file, work, out=out, dry_run=dry_run, database=terminal.CLOUD,
            logins=_logins, what="cameras",
        )  # fmt: skip
    except psycopg.errors.UniqueViolation as error:
        terminal.fail(f"somebody was quicker: {error.diag.message_detail}; nothing was registered")


def _logins(made: "Sequence[tuple[Camera, str]]") -> str:
    from farmiq.plumbing import sheet

    header = ("username", "password", "tenant_id", "device_name", "site_name", "dialect")
    rows = (
        (camera.mac, secret, *(getattr(camera, name) for name in header[2:]))
        for camera, secret in made
    )
    return sheet.lines([header, *rows])


@app.command()
def revoke(mac: Mac) -> None:
    """End a camera's login; the broker cuts its connection within seconds."""
    from farmiq.cloud.camera import registration

    user = _plain(mac)
    terminal.in_transaction(lambda tx: registration.revoke_login(tx, user), terminal.CLOUD)
    terminal.print_result({"revoked": user}, f"{user} may not connect any more")


@app.command("ls")
def ls() -> int:
    """List cameras. Exit code 3: one of them is silent."""
    from farmiq.cloud.camera import registration

    rows = terminal.in_transaction(registration.list_cameras, terminal.CLOUD)
    terminal.print_list(rows, _cells)
    return 3 if any(row["state"] == "silent" for row in rows) else 0


@app.command("tell")
def send_command(
    mac: Mac,
    command: Annotated[Command, typer.Argument(help="What the camera is to do.")],
    *,
    image: Annotated[str | None, typer.Option(help="For send_image: the image's name.")] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="For next_wake: ISO 8601, such as 2026-05-31T06:00:00Z or …+07:00; without a "
            "zone it is UTC. The camera hears it as its dialect writes it."
        ),
    ] = None,
) -> None:
    """Queue a command; it is sent when the camera is next awake, within a day."""
    from farmiq.cloud.camera import command_queue
    from farmiq.cloud.camera.gateway import camera_store, store

    user, wake_at = _plain(mac), _moment(at)

    async def queue(tx: "db.Connection") -> Any:
        cameras = await camera_store.by_mac(tx, [user])
        if user not in cameras:
            return None
        problems = command_queue.problems(
            command,
            image_name=image,
            wake_at=wake_at,
            dialect=cameras[user].dialect,
            now=await store.now(tx),
        )
        if problems:
            terminal.fail("; ".join(f"{name} {why}" for name, why in problems), code=2)
        return await command_queue.queue(
            tx,
            cameras[user].device_id,
            name=command,
            created_by=terminal.actor(),
            image_name=image,
            wake_at=wake_at,
        )

    made = terminal.in_transaction(queue, terminal.CLOUD)
    if made is None:
        terminal.fail(f"no camera {user} is registered")
    terminal.print_result({"command_id": str(made)}, str(made))


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        terminal.fail(f"--at {text!r} is not a time such as 2026-05-31T06:00:00Z", code=2)


def _paused(until_at: datetime | None) -> str:
    return f"  paused until {terminal.local(until_at)}" if until_at else ""


def _plain(mac: str) -> str:
    from farmiq.cloud.camera.mac import normal

    try:
        return normal(mac)
    except ValueError as error:
        terminal.fail(f"{mac!r} {error}", code=2)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["mac"],
        (row["state"] or "unknown") if row["last_seen_at"] else "unseen",
        f"seen {terminal.local(row['last_seen_at'])}",
        ("login" if row["made_at"] and not row["revoked_at"] else "no login")
        + ("" if row["proven_at"] else ", unproven"),
        row["dialect"],
        f"{row['company']}/{row['name']}{_paused(row['paused_until'])}",
    )
