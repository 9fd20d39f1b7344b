"""The `farmiq` command. Heavy imports stand inside the commands, so that --help is quick.

Exit codes: 0 good, 1 failed, 2 asked wrongly, 3 works but needs attention.
"""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from farmiq.cli import (
    agent,
    alert,
    bench,
    camera,
    camera_gateway,
    demo,
    device,
    dlq,
    edge,
    farm,
    key,
    losses,
    media,
    metric,
    outbox,
    quarantine,
    silo,
    simulated_cameras,
    terminal,
    topology,
    weighings,
)
from farmiq.cli import resync as resync_command
from farmiq.cli import stack as stack_commands
from farmiq.cli import stations as stations_command
from farmiq.cli import trace as trace_command
from farmiq.cli.terminal import AsJson, StackName

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=(
        "FarmIQ: from the barn to the screen; nothing lost, nothing twice, and proof of it.\n\n"
        "Start with `farmiq demo`. To install a site: `farmiq config edge`, `farmiq migrate edge`, "
        "`farmiq run edge`; the same for the cloud. On a weigh station: `farmiq agent run`."
    ),
)
app.add_typer(agent.app, name="agent")
app.add_typer(stack_commands.app, name="stack")
app.command()(demo.demo)
app.command()(demo.smoke)
app.command()(stack_commands.doctor)
app.command()(resync_command.resync)
app.command()(stations_command.stations)
app.command()(trace_command.trace)
company = typer.Typer(no_args_is_help=True, help="Companies: each is a tenant of the bus.")
app.add_typer(company, name="company")
user = typer.Typer(no_args_is_help=True, help="People who sign in to the console.")
app.add_typer(user, name="user")
simulated = typer.Typer(invoke_without_command=True)
simulated.command("cameras")(simulated_cameras.cameras)
simulated.command("check-cameras")(simulated_cameras.check_cameras)
app.add_typer(simulated, name="simulate")
keys = typer.Typer(no_args_is_help=True, help="Keys of edges that do not enrol (see `edge`).")
app.add_typer(keys, name="keys")
app.add_typer(key.app, name="key")
app.add_typer(alert.app, name="alert")
app.add_typer(losses.app, name="losses")
app.add_typer(farm.app, name="farm")
app.add_typer(metric.app, name="metric")
app.add_typer(quarantine.app, name="quarantine")
app.add_typer(bench.app, name="bench")
app.add_typer(device.app, name="device")
app.add_typer(camera.app, name="camera")
app.add_typer(camera_gateway.app, name="camera-gateway")
app.add_typer(edge.app, name="edge")
app.add_typer(silo.app, name="silo")
app.add_typer(media.app, name="media")
app.add_typer(weighings.app, name="weighings")
app.add_typer(outbox.app, name="outbox")
app.add_typer(topology.app, name="topology")
app.add_typer(dlq.app, name="dlq")

OutFile = Annotated[Path | None, typer.Option("--out", help="Write to this file instead.")]


# Errors of these say in a sentence what an engine or a setting did.
_EXPLAIN_THEMSELVES = ("farmiq.plumbing.rabbit", "farmiq.config.settings")


def main() -> None:
    """Whatever the machine answers is told in a sentence; a traceback is for our own mistakes."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, ValueError) as error:
        if isinstance(error, BrokenPipeError):
            terminal.end_quietly()
        _say_and_exit(error)
    except Exception as error:
        if isinstance(error, ExceptionGroup) and error.split(BrokenPipeError)[1] is None:
            terminal.end_quietly()
        if type(error).__module__ not in _EXPLAIN_THEMSELVES and (
            type(error).__module__.partition(".")[0] != "psycopg"
        ):
            raise
        _say_and_exit(error)


def _say_and_exit(error: Exception) -> NoReturn:
    text = (str(error) or type(error).__name__).strip()
    if type(error).__name__ in {"UndefinedTable", "UndefinedColumn", "UndefinedFunction"}:
        text += "\nThe database is older than this program: `farmiq migrate` brings it up to date."
    typer.secho(text, err=True, fg=typer.colors.RED)
    sys.exit(1)


@app.command()
def version(*, as_json: AsJson = False) -> None:
    """Print the version."""
    from farmiq import __version__

    terminal.tell({"version": __version__}, __version__, as_json=as_json)


@app.command()
def run(
    what: Annotated[
        str, typer.Argument(help="A service (see `farmiq flow`), a site: edge or cloud, or all.")
    ],
    stack: StackName = None,
) -> None:
    """Run one service, a site, or everything in this process, until Ctrl-C or SIGTERM.

    Settings come from the environment; `farmiq config edge` prints them all. Each site answers
    /healthz, /readyz, /metrics and /version on its HTTP port.
    """
    from farmiq import process
    from farmiq.config import SettingsError
    from farmiq.crash import UnknownPointError

    try:
        code = asyncio.run(process.run_services(what, terminal.environment(stack)))
    except (SettingsError, process.RefusedError) as error:
        terminal.fail(str(error))
    except UnknownPointError as error:
        terminal.fail(str(error), code=2)
    except KeyError as error:
        terminal.fail(error.args[0], code=2)
    raise typer.Exit(code)


@app.command()
def flow(*, as_json: AsJson = False) -> None:
    """Show every service in flow order, with what it reads and what it writes."""
    from dataclasses import asdict

    from farmiq import services

    if as_json:
        listed = (services.AGENT, *services.SERVICES)
        terminal.print_json([asdict(service) for service in listed])
    else:
        typer.echo(services.flow(), nl=False)


@app.command()
def migrate(
    site: Annotated[str, typer.Argument(help="edge, cloud or all.")] = "all",
    *,
    phase: Annotated[
        str,
        typer.Option(help="pre (before the new code runs), post (after the old is gone) or all."),
    ] = "all",
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Bring a site's database up to date; safe to repeat.

    With the services stopped, or on a first install: all. To upgrade without stopping: pre with
    the new version, then replace the services one by one, then post.

    Connects as the owner of the tables: FARMIQ_EDGE_DB_ADMIN_URL, FARMIQ_CLOUD_DB_ADMIN_URL.
    """
    from farmiq.plumbing import migrations
    from farmiq.process import SQL

    sites = list(SQL) if site == "all" else [site]
    if unknown := [name for name in sites if name not in SQL]:
        terminal.fail(f"there is no site {unknown[0]!r}; choose edge, cloud or all", code=2)
    if phase not in migrations.PHASES:
        terminal.fail(f"there is no phase {phase!r}; choose {', '.join(migrations.PHASES)}", code=2)
    environment = terminal.environment(stack)
    done: dict[str, list[str]] = {}
    for name in sites:
        url = terminal.needed(environment, f"FARMIQ_{name.upper()}_DB_ADMIN_URL")
        try:
            done[name] = applied = migrations.apply(url, SQL[name], phase=phase)
        except migrations.MigrationError as error:
            terminal.fail(f"{name}: {error}")
        if not as_json:
            typer.echo(f"{name}: " + (f"applied {', '.join(applied)}" if applied else "up to date"))
    if as_json:
        terminal.print_json({"applied": done})


@app.command()
def config(
    site: Annotated[str, typer.Argument(help="device, edge, cloud or admin.")],
) -> None:
    """Print a commented template of all settings of a site, ready to be filled in."""
    from farmiq import config as settings

    if site not in settings.TEMPLATES:
        terminal.fail(
            f"there is no site {site!r}; choose one of {', '.join(settings.TEMPLATES)}", code=2
        )
    typer.echo(settings.template(site), nl=False)


@app.command()
def asyncapi(*, out: OutFile = None) -> None:
    """Print the AsyncAPI 3.0 document of all MQTT topics and all events of the bus, as JSON."""
    from farmiq.contracts import asyncapi as contract

    _write_json(contract.document(), out)


@app.command()
def openapi(
    site: Annotated[str, typer.Argument(help="edge or cloud.")] = "cloud",
    *,
    out: OutFile = None,
) -> None:
    """Print the OpenAPI 3.1 document of a site's HTTP routes, as JSON."""
    from farmiq.contracts import openapi as contract

    if site not in contract.SITES:
        terminal.fail(f"there is no site {site!r}; choose edge or cloud", code=2)
    _write_json(contract.document(site), out)


@company.command("add")
def company_add(
    tenant: Annotated[
        str | None,
        typer.Argument(help="tenant_id of its events, for example hillside; default: its own id."),
    ] = None,
    *,
    name: Annotated[str, typer.Option(help="What people call it.")],
    timezone: Annotated[str, typer.Option(help="IANA zone of its days.")] = "UTC",
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Add a company, or change its name and time zone. Needs FARMIQ_CLOUD_DB_ADMIN_URL."""
    import psycopg

    from farmiq.cloud.identity.accounts import add_company
    from farmiq.messages.ids import ID_PATTERN

    if tenant is not None and not re.match(ID_PATTERN, tenant):
        terminal.fail(
            f"{tenant!r} cannot be a tenant_id: letters, digits and . _ : -, at most 128", code=2
        )
    with psycopg.connect(
        terminal.needed(terminal.environment(stack), "FARMIQ_CLOUD_DB_ADMIN_URL")
    ) as connection:
        try:
            company_id = add_company(connection, tenant, name=name, timezone=timezone)
        except ValueError as error:
            terminal.fail(str(error), code=2)
    tenant_id = tenant or str(company_id)
    terminal.tell(
        {"company_id": company_id, "tenant_id": tenant_id, "name": name, "timezone": timezone},
        f"{company_id}  {tenant_id}  {name}",
        as_json=as_json,
    )


@user.command("add")
def user_add(
    email: Annotated[str, typer.Argument(help="How the person signs in.")],
    *,
    tenant: Annotated[str, typer.Option(help="The company's tenant_id.")],
    role: Annotated[str, typer.Option(help="viewer, operator, technician or admin.")] = "viewer",
    super_admin: Annotated[
        bool, typer.Option("--super-admin", help="May look at every company, one at a time.")
    ] = False,
    password: Annotated[
        str,
        typer.Option(prompt=True, hide_input=True, envvar="FARMIQ_NEW_PASSWORD", help="Asked for."),
    ],
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Add a person, or change their password and rights. Needs FARMIQ_CLOUD_DB_ADMIN_URL."""
    import psycopg

    from farmiq.cloud.identity.accounts import add_user

    with psycopg.connect(
        terminal.needed(terminal.environment(stack), "FARMIQ_CLOUD_DB_ADMIN_URL")
    ) as connection:
        row = connection.execute(
            "select company_id from companies where tenant_id = %s", (tenant,)
        ).fetchone()
        if row is None:
            terminal.fail(f"there is no company {tenant!r}; add it with `farmiq company add`")
        try:
            user_id = add_user(
                connection,
                email,
                company_id=row[0],
                password=password,
                role=role,
                super_admin=super_admin,
            )
        except ValueError as error:
            terminal.fail(str(error), code=2)
    also = ", super admin" if super_admin else ""
    terminal.tell(
        {
            "user_id": user_id,
            "email": email,
            "tenant_id": tenant,
            "role": role,
            "super_admin": super_admin,
        },
        f"{user_id}  {email}  {role} of {tenant}{also}",
        as_json=as_json,
    )


@user.command("token")
def user_token(
    email: Annotated[str, typer.Argument(help="Whose rows are to be seen.")],
    *,
    hours: Annotated[float, typer.Option(min=0.01, max=8760, help="How long it is good.")] = 12,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Print a token for psql: `select begin_session('…')`, see docs/psql.md.

    It is as good as this person's password until it expires. Needs FARMIQ_CLOUD_DB_ADMIN_URL.
    """
    from datetime import timedelta

    import psycopg

    from farmiq.cloud.identity.accounts import open_sign_in

    with psycopg.connect(
        terminal.needed(terminal.environment(stack), "FARMIQ_CLOUD_DB_ADMIN_URL")
    ) as connection:
        try:
            token = open_sign_in(connection, email, lasts=timedelta(hours=hours))
        except ValueError as error:
            terminal.fail(str(error))
    terminal.tell({"email": email, "token": token}, token, as_json=as_json)


@keys.command("new")
def keys_new(
    private: Annotated[Path, typer.Option(help="Where the edge's private key goes (0600).")],
    public: Annotated[Path, typer.Option(help="The cloud's set of public keys; added to.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Make a key pair by hand: the edge signs with the private part, the cloud trusts the public.

    `farmiq edge enroll` does without copying files, and such a key can be rotated and revoked.
    """
    from farmiq.plumbing import tokens

    try:
        key_id = tokens.write_new_key(private, public)
    except FileExistsError:
        terminal.fail(f"{private} exists; a key is never overwritten. Choose another file.")
    terminal.tell(
        {"key_id": key_id, "private": private, "public": public},
        f"key {key_id}: private in {private}, public added to {public}",
        as_json=as_json,
    )


@simulated.callback()
def simulate(
    context: typer.Context,
    *,
    tenant: Annotated[str, typer.Option(help="Tenant of the simulated farm.")] = "hillside",
    barns: Annotated[int, typer.Option(min=1, max=500, help="Three devices each.")] = 4,
    interval: Annotated[float, typer.Option(min=0.01, help="Seconds between readings.")] = 1.0,
    steady: Annotated[bool, typer.Option("--steady", help="No flaky link.")] = False,
    day: Annotated[float, typer.Option(min=10, help="Seconds that a day's curve takes.")] = 86400.0,
    seconds: Annotated[float | None, typer.Option(help="How long; default: until Ctrl-C.")] = None,
    journal: Annotated[
        Path | None, typer.Option(help="Where to write what was sent and answered (JSON lines).")
    ] = None,
    logins: Annotated[
        Path | None,
        typer.Option(help="Logins of the devices, as `farmiq device import --out` writes them."),
    ] = None,
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a farm over real MQTT: sensors with daily curves; the last barn's link is flaky.

    Battery cameras: `farmiq simulate cameras`; weigh stations: `farmiq stations`.

    Publishes to FARMIQ_DEVICES_MQTT_URL (the running demo's, if it is not set). Each device
    connects with its own login (--logins, FARMIQ_DEVICES_LOGINS_FILE, or the demo's); if the
    address has a user, all share that one.
    """
    if context.invoked_subcommand is not None:
        return
    from farmiq.plumbing import log
    from farmiq.simulate import farm, runner

    log.configure("warning")
    environment = terminal.environment(stack)
    url = terminal.needed(environment, "FARMIQ_DEVICES_MQTT_URL")
    devices = farm.farm(tenant, barns=barns, steady=steady)
    given = logins or (None if "@" in url else environment.get("FARMIQ_DEVICES_LOGINS_FILE"))
    summary = asyncio.run(
        runner.run(
            devices,
            url,
            journal,
            interval_s=interval,
            day_s=day,
            seconds=seconds,
            say=terminal.progress(quiet=as_json),
            logins=runner.read_logins(Path(given), devices) if given else None,
        )
    )
    terminal.print_json(summary) if as_json else typer.echo(
        f"sent {summary['sent']}, acknowledged {summary['ok']}, stored {summary['stored']}, "
        f"refused {summary['refused']}, still waiting {summary['waiting']}"
    )
    raise typer.Exit(3 if summary["waiting"] else 0)


def _write_json(value: Any, out: Path | None) -> None:
    if out is None:
        terminal.print_json(value)
    else:
        out.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
