"""The `farmiq` command. Heavy imports stand inside the commands, so that --help is quick.

Exit codes: 0 good, 1 failed, 2 asked wrongly, 3 works but needs attention.
"""

import asyncio
import gc
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from farmiq.cli import (
    agent,
    alert,
    backup,
    batch,
    bench,
    camera,
    camera_gateway,
    delete,
    demo,
    device,
    dlq,
    edge,
    farm,
    feed,
    install,
    key,
    kpi,
    losses,
    masterdata,
    media,
    metric,
    outbox,
    people,
    quarantine,
    record,
    report,
    silo,
    simulated_cameras,
    terminal,
    topology,
    upgrade,
    vision,
    weighings,
)
from farmiq.cli import resync as resync_command
from farmiq.cli import stack as stack_commands
from farmiq.cli import stations as stations_command
from farmiq.cli import support as support_command
from farmiq.cli import trace as trace_command

app = terminal.Group(
    "FarmIQ: from the barn to the screen; nothing lost, nothing twice, and proof of it.\n\n"
    "Start with `farmiq demo`. To install a machine: `farmiq install edge`, `cloud` or `device`. "
    "By hand: `farmiq config edge`, `farmiq migrate edge`, `farmiq run edge`.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
# What a person wants; `farmiq --help` shows the commands under these.
RUN, LOOK, MEND = "Run it", "Look at it", "Mend what is stuck"
SET_UP, DEVELOP = "Set up a site", "Develop and try out"

simulated = terminal.Group(None, invoke_without_command=True, no_args_is_help=False)
simulated.command("cameras")(simulated_cameras.cameras)
simulated.command("check-cameras")(simulated_cameras.check_cameras)
keys = terminal.Group("Keys of edges that do not enrol (see `edge`).")

app.command(shared=terminal.NO_OPTIONS, rich_help_panel=RUN)(demo.demo)
app.command(shared=terminal.JSON, rich_help_panel=LOOK)(stack_commands.doctor)
app.command(rich_help_panel=LOOK)(trace_command.trace)
app.command("support-bundle", rich_help_panel=LOOK)(support_command.support_bundle)
app.command(rich_help_panel=MEND)(resync_command.resync)
app.command(rich_help_panel=MEND)(backup.restore)
app.command(rich_help_panel=LOOK)(backup.drill)
for _panel, _groups in {
    RUN: {"agent": agent.app, "backup": backup.app, "stack": stack_commands.app},
    LOOK: {
        "batch": batch.app, "record": record.app, "feed": feed.app, "kpi": kpi.app,
        "report": report.app, "losses": losses.app, "weighings": weighings.app,
        "alert": alert.app, "media": media.app, "vision": vision.app,
    },
    MEND: {
        "outbox": outbox.app, "quarantine": quarantine.app, "dlq": dlq.app,
        "camera-gateway": camera_gateway.app,
    },
    SET_UP: {
        "company": people.company, "user": people.user, "edge": edge.app, "device": device.app,
        "camera": camera.app, "masterdata": masterdata.app, "farm": farm.app, "silo": silo.app,
        "metric": metric.app, "key": key.app, "keys": keys, "topology": topology.app,
        "delete": delete.app, "upgrade": upgrade.app,
    },
    DEVELOP: {"simulate": simulated, "bench": bench.app},
}.items():  # fmt: skip
    for _name, _group in _groups.items():
        app.add_typer(_group, name=_name, rich_help_panel=_panel)

OutFile = Annotated[Path | None, typer.Option("--out", help="Write to this file instead.")]


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        from farmiq import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def options(
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of the command itself; what it does, stands in its help."""
    del show_version
    terminal.reset_shared()


# Allocations between two searches for garbage: imports make hardly any, and searching takes a sixth
# of their time.
GARBAGE = 100_000


def main() -> None:
    """Print errors of the machine as a sentence; a traceback is for our own mistakes."""
    gc.set_threshold(GARBAGE)
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        terminal.end_quietly()
    except ExceptionGroup as error:
        if error.split(BrokenPipeError)[1] is None:
            terminal.end_quietly()
        raise


@app.command(shared=terminal.STACK, rich_help_panel=RUN)
def run(
    what: Annotated[
        str, typer.Argument(help="A service (see `farmiq flow`), a site: edge or cloud, or all.")
    ],
) -> int:
    """Run one service, a site, or everything in this process, until Ctrl-C or SIGTERM.

    Settings come from the environment; `farmiq config edge` prints them all. Each site answers
    /healthz, /readyz, /metrics and /version on its HTTP port.
    """
    from farmiq import process

    try:
        return asyncio.run(process.run_services(what, terminal.environment()))
    except KeyError as error:
        terminal.fail(error.args[0], code=2)


@app.command(shared=terminal.JSON, rich_help_panel=LOOK)
def flow() -> None:
    """Show every service in flow order, with what it reads and what it writes."""
    from dataclasses import asdict

    from farmiq import services

    listed = [asdict(service) for service in (services.AGENT, *services.SERVICES)]
    terminal.print_result(listed, services.flow().rstrip("\n"))


@app.command(rich_help_panel=SET_UP)
def migrate(
    site: Annotated[str, typer.Argument(help="edge, cloud or all.")] = "all",
    *,
    phase: Annotated[
        str,
        typer.Option(help="pre (before the new code runs), post (after the old is gone) or all."),
    ] = "all",
) -> None:
    """Bring a site's database up to date; safe to repeat.

    With the services stopped, or on a first install: all. To upgrade without stopping: pre with
    the new version, then replace the services one by one, then post.

    Connects as the owner of the tables: FARMIQ_EDGE_DB_ADMIN_URL, FARMIQ_CLOUD_DB_ADMIN_URL.
    """
    from farmiq.plumbing import migrations
    from farmiq.services import SQL

    sites = list(SQL) if site == "all" else [site]
    if unknown := [name for name in sites if name not in SQL]:
        terminal.fail(f"there is no site {unknown[0]!r}; choose edge, cloud or all", code=2)
    terminal.check_known(phase, migrations.PHASES, f"there is no phase {phase!r}; choose")
    environment = terminal.environment()
    done: dict[str, list[str]] = {}
    for name in sites:
        url = terminal.needed(f"FARMIQ_{name.upper()}_DB_ADMIN_URL", environment)
        try:
            done[name] = applied = migrations.apply(url, SQL[name], phase=phase)
        except migrations.MigrationError as error:
            terminal.fail(f"{name}: {error}")
        if not terminal.wants_json():
            typer.echo(f"{name}: " + (f"applied {', '.join(applied)}" if applied else "up to date"))
    terminal.print_result({"applied": done})


@app.command(shared=terminal.NO_OPTIONS, rich_help_panel=SET_UP)
def config(
    site: Annotated[str, typer.Argument(help="device, edge, cloud or admin.")],
) -> None:
    """Print a commented template of all settings of a site, ready to be filled in."""
    from farmiq import config as settings

    known = list(settings.TEMPLATES)
    terminal.check_known(site, known, f"there is no site {site!r}; choose one of")
    typer.echo(settings.template(site), nl=False)


app.command(shared=terminal.JSON, rich_help_panel=SET_UP)(install.install)
app.command(shared=terminal.JSON, rich_help_panel=SET_UP)(install.prepare)

# Panels are shown in the order of their first command.
app.command(shared=terminal.JSON, rich_help_panel=DEVELOP)(demo.smoke)
app.command(rich_help_panel=DEVELOP)(stations_command.stations)


@app.command(shared=terminal.JSON, rich_help_panel=DEVELOP)
def version() -> None:
    """Print the version."""
    from farmiq import __version__

    terminal.print_result({"version": __version__}, __version__)


@app.command(shared=terminal.NO_OPTIONS, rich_help_panel=DEVELOP)
def asyncapi(*, out: OutFile = None) -> None:
    """Print the AsyncAPI 3.0 document of all MQTT topics and all events of the bus, as JSON."""
    from farmiq.contracts import asyncapi as contract

    _write_json(contract.document(), out)


@app.command(shared=terminal.NO_OPTIONS, rich_help_panel=DEVELOP)
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


@app.command(shared=terminal.NO_OPTIONS, rich_help_panel=DEVELOP)
def metrics(*, out: OutFile = None) -> None:
    """Print the catalogue of all metrics of all services, as Markdown: name, type, labels, meaning.

    What a running process counts now: /metrics on its HTTP port.
    """
    from farmiq.contracts import metrics as contract

    if out is None:
        typer.echo(contract.document(), nl=False)
    else:
        out.write_text(contract.document(), encoding="utf-8")


@keys.command("new", shared=terminal.JSON)
def keys_new(
    private: Annotated[Path, typer.Option(help="Where the edge's private key goes (0600).")],
    public: Annotated[Path, typer.Option(help="The cloud's set of public keys; added to.")],
) -> None:
    """Make a key pair by hand: the edge signs with the private part, the cloud trusts the public.

    `farmiq edge enroll` does without copying files, and such a key can be rotated and revoked.
    """
    from farmiq.plumbing import tokens

    try:
        key_id = tokens.write_new_key(private, public)
    except FileExistsError:
        terminal.fail(f"{private} exists; a key is never overwritten. Choose another file.")
    terminal.print_result(
        {"key_id": key_id, "private": private, "public": public},
        f"key {key_id}: private in {private}, public added to {public}",
    )


@simulated.callback(shared=terminal.STACK_AND_JSON)
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
    life: Annotated[
        Path | None, typer.Option(help="Life of the farm (the demo's): go on from its history.")
    ] = None,
) -> int:
    """Simulate a farm over real MQTT: sensors with daily curves; the last barn's link is flaky.

    Battery cameras: `farmiq simulate cameras`; weigh stations: `farmiq stations`.

    Publishes to FARMIQ_DEVICES_MQTT_URL (the running demo's, if it is not set). Each device
    connects with its own login (--logins, FARMIQ_DEVICES_LOGINS_FILE, or the demo's); if the
    address has a user, all share that one.
    """
    if context.invoked_subcommand is not None:
        return 0
    from farmiq.lab.simulate import farm, runner
    from farmiq.plumbing import log

    log.configure("warning")
    environment = terminal.environment()
    url = terminal.needed("FARMIQ_DEVICES_MQTT_URL", environment)
    flocks = runner.read_flocks(life) if life else {}
    devices = farm.farm(tenant, barns=barns, steady=steady, flocks=flocks, interval_s=interval)
    given = logins or (None if "@" in url else environment.get("FARMIQ_DEVICES_LOGINS_FILE"))
    summary = asyncio.run(
        runner.run_sensors(
            devices,
            url,
            journal,
            interval_s=interval,
            day_s=day,
            seconds=seconds,
            say=terminal.progress(),
            logins=runner.read_sensor_logins(Path(given), devices) if given else None,
        )
    )
    terminal.print_result(
        summary,
        f"sent {summary['sent']}, acknowledged {summary['ok']}, stored {summary['stored']}, "
        f"refused {summary['refused']}, still waiting {summary['waiting']}",
    )
    return 3 if summary["waiting"] else 0


def _write_json(value: Any, out: Path | None) -> None:
    if out is None:
        terminal.print_json(value)
    else:
        out.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
