"""`farmiq camera-gateway`: logins of cameras, how they are, what they hear, what was refused."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from farmiq.cli import terminal
from farmiq.cli.terminal import AsJson, StackName

if TYPE_CHECKING:
    from farmiq.plumbing import db

T = TypeVar("T")

app = typer.Typer(
    no_args_is_help=True,
    help="Battery cameras at the cloud's broker.\n\n"
    "Needs FARMIQ_CLOUD_DB_URL or a running demo. More in docs/cameras.md.",
)
Mac = Annotated[str, typer.Argument(help="MAC address, in any spelling.")]
Command = Literal["send_image", "capture_image", "next_wake"]


@app.command()
def login(mac: Mac, *, stack: StackName = None, as_json: AsJson = False) -> None:
    """Make a camera's login, or replace it. The password is printed this once.

    An older one ends within seconds: the gateway writes the broker's users.
    """
    from farmiq.cloud.camera.gateway import logins

    user = _plain(mac)
    try:
        made = _in_cloud(stack, lambda tx: logins.make(tx, user, made_by=terminal.actor()))
    except logins.NoCamera as error:
        terminal.fail(str(error))
    terminal.tell(
        {"username": user, "password": made}, f"username {user}\npassword {made}", as_json=as_json
    )


@app.command()
def revoke(mac: Mac, *, stack: StackName = None, as_json: AsJson = False) -> None:
    """End a camera's login; the broker cuts its connection within seconds."""
    from farmiq.cloud.camera.gateway import logins

    user = _plain(mac)
    try:
        _in_cloud(stack, lambda tx: logins.revoke(tx, user))
    except logins.NoCamera as error:
        terminal.fail(str(error))
    terminal.tell({"revoked": user}, f"{user} may not connect any more", as_json=as_json)


@app.command("ls")
def ls(*, stack: StackName = None, as_json: AsJson = False) -> None:
    """List cameras. Exit code 3: one of them is silent."""
    from farmiq.cloud.camera.gateway import logins

    rows = _in_cloud(stack, logins.ls)
    if as_json:
        terminal.print_json(rows)
    elif not rows:
        typer.echo("no cameras")
    for row in [] if as_json else rows:
        seen = f"{row['last_seen_at']:%Y-%m-%d %H:%M}Z" if row["last_seen_at"] else "never"
        login_ = "login" if row["made_at"] and not row["revoked_at"] else "no login"
        typer.echo(
            f"{row['mac']}  {row['state'] or 'unknown':<7} seen {seen:<17} {login_:<8}  "
            f"{row['dialect']:<8}  {row['company']}/{row['name']}"
        )
    raise typer.Exit(3 if any(row["state"] == "silent" for row in rows) else 0)


@app.command()
def tell(
    mac: Mac,
    command: Annotated[Command, typer.Argument(help="What the camera is to do.")],
    *,
    image: Annotated[str | None, typer.Option(help="For send_image: the image's name.")] = None,
    at: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%dT%H:%M:%S"], help="For next_wake, in UTC.")
    ] = None,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Queue a command; the camera is told when it is next awake, within a day."""
    from datetime import UTC

    from farmiq.cloud.camera.gateway import commands, store

    if (command == "next_wake") != (at is not None):
        terminal.fail("next_wake needs --at, and nothing else takes it", code=2)
    user = _plain(mac)

    async def queue(tx: "db.Connection") -> Any:
        found = await store.cameras(tx, [user])
        if user not in found:
            return None
        return await commands.queue(
            tx,
            found[user].device_id,
            name=command,
            created_by=terminal.actor(),
            image_name=image,
            wake_at=at.replace(tzinfo=UTC) if at else None,
        )

    made = _in_cloud(stack, queue)
    if made is None:
        terminal.fail(f"no camera {user} is registered")
    terminal.tell({"command_id": str(made)}, str(made), as_json=as_json)


@app.command()
def quarantine(
    *,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="At most so many.")] = 50,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """List what cameras sent and could not be taken, newest first. Exit code 3: there is some."""
    from farmiq.cloud.camera.gateway import store

    rows = _in_cloud(stack, lambda tx: store.refused(tx, limit=limit))
    if as_json:
        terminal.print_json(rows)
    for row in [] if as_json else rows:
        typer.echo(
            f"{row['last_received_at']:%Y-%m-%d %H:%M:%S}Z  {row['kind']:<10} "
            f"{row['received_count']:>6} times  {row['topic']}  {'; '.join(row['reasons'])}"
        )
    raise typer.Exit(3 if rows else 0)


def _plain(mac: str) -> str:
    from farmiq.cloud.camera.mac import normal

    try:
        return normal(mac)
    except ValueError as error:
        terminal.fail(f"{mac!r} {error}", code=2)


def _in_cloud(stack: str | None, work: "Callable[[db.Connection], Awaitable[T]]") -> T:
    import asyncio

    import psycopg

    url = terminal.needed(terminal.environment(stack), "FARMIQ_CLOUD_DB_URL")

    async def once() -> T:
        async with await psycopg.AsyncConnection.connect(url, application_name="farmiq") as tx:
            return await work(tx)

    return asyncio.run(once())
