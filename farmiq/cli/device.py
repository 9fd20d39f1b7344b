"""`farmiq device`: the registry of devices at the edge."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from farmiq.cli import rosters, terminal

if TYPE_CHECKING:
    from farmiq.edge.devices.registration import Credentials
    from farmiq.plumbing import db

app = terminal.Group(
    "Devices of the edge: who may send, from where, how they are, which commands they got.\n\n"
    "Needs FARMIQ_EDGE_DB_URL or a running demo. edge-devices-registry admits a device to the "
    "broker, or cuts it off, within seconds. More in docs/operate/devices.md."
)
Tenant = Annotated[str, typer.Argument(help="tenant_id")]
DeviceId = Annotated[str, typer.Argument(help="device_id")]
ENDED = ("applied", "failed", "expired")
LOOK_AGAIN_S = 0.1


@app.command("add")
def add(
    tenant: Tenant,
    farm: Annotated[str, typer.Argument(help="farm_id")],
    barn: Annotated[str, typer.Argument(help="barn_id")],
    device: DeviceId,
    *,
    kind: Annotated[
        str, typer.Option(help="sensor, silo, feeder, station, gateway or other.")
    ] = "sensor",
    station: Annotated[
        str | None, typer.Option(help="station_id, if it stands at a weigh station.")
    ] = None,
    firmware: Annotated[str | None, typer.Option(help="What runs on it.")] = None,
    place: Annotated[str | None, typer.Option(help="Where in the barn, in words.")] = None,
    zone: Annotated[str | None, typer.Option(help="Which zone of the barn.")] = None,
    receipts: Annotated[
        bool, typer.Option("--receipts", help="It waits for the edge's receipts (our agent does).")
    ] = False,
    derive_intake: Annotated[
        bool, typer.Option("--derive-intake", help="Feed intake is derived from its weights.")
    ] = False,
    heartbeat: Annotated[
        int, typer.Option(help="Seconds between its messages; twice that is late, five offline.")
    ] = 60,
) -> None:
    """Register a device and print its login, this once: only hashes of it are kept.

    User and password are for the broker; the token is for the uploads of its images (HTTP).
    A revoked device may be added again, at any place; it gets a new secret and token.
    """
    from farmiq.edge.devices import registration
    from farmiq.edge.devices.device import parse_device

    fields = {
        "tenant_id": tenant, "farm_id": farm, "barn_id": barn, "device_id": device,
        "station_id": station, "kind": kind, "firmware": firmware, "place": place, "zone": zone,
        "wants_receipts": receipts, "derive_intake": derive_intake, "heartbeat_s": heartbeat,
    }  # fmt: skip
    made = terminal.in_transaction(
        lambda tx: registration.add(tx, parse_device(fields), actor=terminal.actor())
    )
    _print_credentials(made)


@app.command("ls")
def ls(
    *,
    tenant: Annotated[str | None, typer.Option(help="Of this tenant only.")] = None,
    barn: Annotated[str | None, typer.Option(help="In this barn only.")] = None,
    state: Annotated[
        str | None,
        typer.Option(help="online, late, offline, error, revoked or 'never seen' only."),
    ] = None,
) -> int:
    """List the devices and how they are. Exit code 3: one is late, offline or in error."""
    from farmiq.edge.devices import store
    from farmiq.edge.devices.rules import SHOWN_STATES

    terminal.check_known(state, SHOWN_STATES, f"no device is ever {state!r}: choose")

    async def all_pages(tx: "db.Connection") -> list[dict[str, Any]]:
        devices: list[dict[str, Any]] = []
        after = ("", "")
        while page := await store.page(
            tx, after=after, limit=1000, tenant_id=tenant, barn_id=barn, state=state
        ):
            devices += page
            after = page[-1]["tenant_id"], page[-1]["device_id"]
        return devices

    rows = terminal.in_transaction(all_pages)
    filtered = tenant or barn or state
    empty = "no device is like that" if filtered else "`farmiq device add` registers one"
    terminal.print_list(rows, _cells, empty=empty)
    unwell = {"late", "offline", "error"}
    return 3 if any(row["state"] in unwell for row in rows) else 0


@app.command("show")
def show(tenant: Tenant, device: DeviceId) -> None:
    """Show one device: where it stands, how it is since when, its last commands."""
    from farmiq.edge.devices import store

    async def look(tx: "db.Connection") -> dict[str, Any] | None:
        details = await store.show(tx, (tenant, device))
        commands = await store.commands_of(tx, (tenant, device), limit=10)
        return details and {**details, "commands": commands}

    details = terminal.in_transaction(look)
    if details is None:
        terminal.fail(f"no device {device!r} of tenant {tenant!r} is known")
    commands = (
        f"command            {row['command_id']}  {row['name']}  {row['state']}"
        for row in details["commands"]
    )
    terminal.print_result(details, *terminal.fields({**details, "commands": None}), *commands)


@app.command("revoke")
def revoke(tenant: Tenant, device: DeviceId) -> None:
    """Cut a device off: its connection ends within seconds, messages and uploads are refused."""
    from farmiq.edge.devices import registration

    terminal.in_transaction(
        lambda tx: registration.revoke(tx, (tenant, device), actor=terminal.actor())
    )
    terminal.print_result(
        {"revoked": {"tenant_id": tenant, "device_id": device}}, f"revoked {tenant}/{device}"
    )


@app.command("rotate")
def rotate(tenant: Tenant, device: DeviceId) -> None:
    """Give a device a new secret and token and print them; the old end, with its connection."""
    from farmiq.edge.devices import registration

    made = terminal.in_transaction(
        lambda tx: registration.rotate(tx, (tenant, device), actor=terminal.actor())
    )
    _print_credentials(made)


@app.command("import")
def import_(
    file: rosters.File,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the logins go (JSON, 0600); default: standard output."),
    ] = None,
    dry_run: rosters.DryRun = False,
) -> int:
    """Register all devices of a list, or none of them.

    Columns: tenant_id, farm_id, barn_id, device_id (needed); station_id, kind, firmware, place,
    zone, wants_receipts, derive_intake, heartbeat_s. Every problem is listed with its line.
    """
    from farmiq.edge.devices import registration
    from farmiq.edge.devices.device import parse_csv
    from farmiq.roster import Problem, RosterError

    async def work(tx: "db.Connection", text: str) -> "list[Credentials]":
        rows = parse_csv(text)
        if taken := await registration.find_registered(tx, rows):
            raise RosterError([Problem(*row) for row in taken])
        if dry_run:
            return []
        return await registration.add_all(
            tx, [device for _, device in rows], actor=terminal.actor()
        )

    try:
        return rosters.register(
            file, work, out=out, dry_run=dry_run, database=terminal.EDGE,
            logins=_logins, what="devices",
        )  # fmt: skip
    except registration.DeviceExistsError as error:
        terminal.fail(f"somebody was quicker: {error}; nothing was registered")


@app.command("command")
def command(
    tenant: Tenant,
    device: DeviceId,
    name: Annotated[str, typer.Argument(help="What it is to do, such as ping or set_interval.")],
    *,
    args: Annotated[str, typer.Option(help="A JSON object.")] = "{}",
    ttl: Annotated[int, typer.Option(help="Seconds after which it must not be done.")] = 60,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until the device answers, or its time is over.")
    ] = False,
) -> int:
    """Tell a device to do something.

    queued: written down. sent: the broker has it. delivered, applied, failed: the device said so.
    expired: it said nothing in time. With --wait, exit code 1 if it failed, 3 if it expired.
    """
    from farmiq.edge.devices import registration, store

    try:
        arguments = json.loads(args)
    except ValueError:
        terminal.fail("--args is not JSON", code=2)
    if not isinstance(arguments, dict):
        terminal.fail("--args is not a JSON object", code=2)
    command_id = terminal.in_transaction(
        lambda tx: registration.command(
            tx, (tenant, device), name=name, args=arguments, ttl_s=ttl, actor=terminal.actor()
        )
    )

    async def look(tx: "db.Connection") -> dict[str, Any]:
        while True:
            row = await store.command(tx, command_id)
            row = row or {"state": "expired", "message": "forgotten"}
            if not wait or row["state"] in ENDED:
                return row
            await tx.commit()
            await asyncio.sleep(LOOK_AGAIN_S)

    row = terminal.in_transaction(look)
    message = f": {row['message']}" if row["message"] else ""
    terminal.print_result(row, f"{command_id}  {row['state']}{message}")
    return {"failed": 1, "expired": 3}.get(row["state"], 0)


@app.command("permissions", shared=terminal.STACK)
def permissions(
    *,
    broker: Annotated[str, typer.Option(help="nats or mosquitto.")] = "nats",
    passwords: Annotated[
        bool, typer.Option("--passwords", help="Mosquitto's password_file, not its acl_file.")
    ] = False,
    own: Annotated[
        str, typer.Option(help="NATS: names in own-users.conf of users who are no devices.")
    ] = "GATEWAY",
) -> None:
    """Print what every device may do, as a broker's own file; secrets appear as hashes."""
    from farmiq.edge.devices import device as made
    from farmiq.edge.devices import store

    if broker not in ("nats", "mosquitto"):
        terminal.fail(f"{broker!r} is no broker we know; choose nats or mosquitto", code=2)
    logins = terminal.in_transaction(store.logins)
    if broker == "nats":
        text = made.nats_users(logins, own=own.split(","))
    elif passwords:
        text = made.mosquitto_passwords(logins)
    else:
        text = made.mosquitto_acl(login.device for login in logins)
    typer.echo(text, nl=False)


@app.command("callout", shared=terminal.JSON)
def callout(
    key_file: Annotated[Path, typer.Argument(help="Where the key is, or is to be (0600).")],
    *,
    own: Annotated[
        str, typer.Option(help="Users of the broker who are not asked for, commas between.")
    ] = "gateway,keeper",
) -> None:
    """Make the key by which we answer a NATS broker who may connect; print what it has to know.

    A key that is there already is used. The same for the cameras' broker, with a key of its own.
    """
    from farmiq.plumbing.broker import nats_jwt

    if not key_file.exists():
        rosters.write_private(key_file, nats_jwt.Key.new().seed)
    try:
        key = nats_jwt.Key(key_file.read_text(encoding="ascii"))
    except ValueError as error:
        terminal.fail(f"{key_file}: {error}", code=2)
    people = ["callout", *own.split(",")]
    terminal.print_result(
        {"issuer": key.public, "account": "SYS", "auth_users": people},
        f"auth_callout {{ issuer: {key.public}, account: SYS, auth_users: {json.dumps(people)} }}",
    )


def _print_credentials(made: "Credentials") -> None:
    from farmiq.edge.devices import registration
    from farmiq.plumbing.messaging import mqtt_address

    environment = terminal.environment()
    # Where devices reach the broker, as far as this machine knows.
    names = ("FARMIQ_DEVICES_MQTT_URL", "FARMIQ_EDGE_MQTT_URL")
    broker_url = next((environment[name] for name in names if environment.get(name)), None)
    broker_url = broker_url or "mqtt://broker"
    url = mqtt_address.login_url(made.device.broker_user, made.password, url=broker_url)
    shown = {**made.as_json(), "url": url}
    host, port = mqtt_address.address(broker_url)
    terminal.print_result(
        shown,
        *(f"{name:<10} {shown[name]}" for name in ("user", "password", "token", "url")),
        *(f"{name:<10} {topic}" for name in ("publish", "subscribe") for topic in shown[name]),
        f"\ntry it:\n{registration.publish_line(made, host=host, port=port)}",
    )


def _logins(made: "Sequence[Credentials]") -> str:
    return json.dumps({"devices": [credentials.as_json() for credentials in made]}, indent=2) + "\n"


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    since = f"since {terminal.local(row['since'])}" if row["since"] else ""
    if until := row["paused_until"]:
        since = f"{since}, paused until {terminal.local(until)}".lstrip(", ")
    where = f"{row['tenant_id']}/{row['farm_id']}/{row['barn_id']}/{row['device_id']}"
    return row["state"], where, row["kind"], since
