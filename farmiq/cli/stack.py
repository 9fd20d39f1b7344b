"""`farmiq stack …` and `farmiq doctor`: the engines at the terminal."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from farmiq.doctor import Check
    from farmiq.lab.stack import EngineState

app = terminal.Group(
    "The real engines on this machine, PostgreSQL, MQTT, RabbitMQ, S3: start, look, stop.",
    shared=terminal.JSON,
)

Name = Annotated[
    str,
    typer.Option(
        help="Which stack. Stacks of different names run side by side, each with its data."
    ),
]


@app.command()
def up(
    *,
    name: Name = "demo",
    shared_login: Annotated[
        bool,
        typer.Option(
            "--shared-login",
            help="One login of the edge's broker for all devices, for experiments on this machine; "
            "without it each device needs its own (`farmiq device add`).",
        ),
    ] = False,
) -> None:
    """Start all engines and leave them running until `farmiq stack down`.

    They listen on loopback only. The first start makes databases and passwords, and downloads
    RabbitMQ if it is not installed; later starts find the same data, passwords and ports.
    An engine whose FARMIQ_*_URL variable is set is not started: that server is used.
    In a stack that runs, only an engine that does not answer is restarted.
    """
    from farmiq import config
    from farmiq.lab import stack

    root = _root(name)
    states = stack.states(root)
    if not states or not all(state.healthy for state in states):
        say = terminal.progress()
        if any(state.healthy for state in states):
            stack.mend(root, say=say, shared_login=shared_login)
        else:
            _clear(root)
            stack.start(
                root,
                given=config.given_urls(),
                say=say,
                detach=True,
                shared_login=shared_login,
            )
    stack.announce(root)
    addresses = stack.attach(root)
    terminal.print_result(addresses, *(f"{name}={url}" for name, url in addresses.items()))


@app.command()
def status(*, name: Name = "demo") -> int:
    """Probe every engine now: version, port, memory, health. Exit code 3 if one is unwell."""
    from farmiq.lab import stack

    root = _root(name)
    states = stack.states(stack.find(name) or root)
    if terminal.wants_json():
        terminal.print_json([asdict(state) for state in states])
    elif states:
        _print_states(states)
    else:
        start = stack.command(root, "up")
        typer.echo(f"The stack {name} is not running. Start it with `{start}`.")
    return 3 if not states or not all(state.healthy for state in states) else 0


@app.command()
def down(
    *,
    name: Name = "demo",
    everything: Annotated[bool, typer.Option("--all", help="Every stack of this folder.")] = False,
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Also delete its data and passwords for good.")
    ] = False,
) -> None:
    """Stop the engines of a stack in good order; the data stays for the next start."""
    from farmiq.lab import stack

    done = {}
    for root in _all_roots() if everything else [_root(name)]:
        done[root.name] = stack.stop(root)
        if delete_data:
            stack.remove(root)
    if terminal.wants_json():
        typer.echo(json.dumps({"stopped": done, "deleted": delete_data}))
        return
    for stopped_name, stopped in done.items():
        did = f"stopped {', '.join(stopped)}" if stopped else "was not running"
        typer.echo(f"{stopped_name}: {did}{'; its data is deleted' if delete_data else ''}")
        other = None if stopped or everything else stack.find(stopped_name)
        if other is not None:
            # Never stopped from another folder: that demo may be in use.
            typer.echo(
                f"a stack of this name runs in {other}: `{stack.command(other, 'down')}` stops it"
            )


@app.command()
def fetch(
    *,
    browser: Annotated[
        bool, typer.Option(help="Also get what only tests use: Chromium, strace and promtool.")
    ] = False,
) -> None:
    """Get ahead of time what a first start would download; nothing is installed on the system."""
    from farmiq import config
    from farmiq.lab.stack import debian, mosquitto, rabbitmq

    downloads = config.state_dir() / "engines"
    say = terminal.progress()
    places = {
        "rabbitmq": str(rabbitmq.find(downloads, say=say).scripts),
        "mosquitto": str(mosquitto.find(downloads, say=say).broker),
    }
    if browser:
        for package in (debian.HEADLESS, debian.CHROMIUM):
            places[package] = str(debian.chromium_path(downloads, package=package, say=say))
        places["strace"] = str(debian.strace_path(downloads, say=say))
        places["promtool"] = str(debian.promtool_path(downloads, say=say))
    terminal.print_result(places, *(f"{program:<23}  {place}" for program, place in places.items()))


def doctor(
    *,
    name: Annotated[
        str | None, typer.Option(help="Look at this local stack, whatever the settings name.")
    ] = None,
) -> int:
    """Say how everything here fares and what to do about what is wrong.

    A local stack that runs is looked at, with the services of its demo. On an edge, a cloud or a
    weigh station, what the settings name is probed: databases, brokers, services, what waits, what
    was refused, disks and clocks. Else: which engines a start would use, and what is missing.

    Exit code 0: all is well; 3: something needs attention; 1: it could not be looked at.
    """
    from farmiq import config
    from farmiq.lab import stack

    if name is not None:
        _root(name)
    root = stack.find(name)
    engines = stack.states(root) if root is not None else []
    checks = []
    environment = terminal.environment(name) if root is not None else config.environment()
    if root is None or _is_owned(root):
        checks = _examined(environment)
    if not engines and not checks:
        engines = prospects()
    all_checks: list[EngineState | Check] = [*engines, *checks]
    if terminal.wants_json():
        terminal.print_json([asdict(check) for check in all_checks])
    else:
        if engines:
            _print_states(engines)
        _print_checks(checks)
    return 3 if not all(check.healthy for check in all_checks) else 0


def _examined(environment: "Mapping[str, str]") -> "list[Check]":
    import asyncio

    from farmiq import doctor as examination
    from farmiq.plumbing import log

    if not examination.is_configured(environment):
        return []
    log.configure("error")
    return asyncio.run(examination.examine(environment))


def _is_owned(root: "Path") -> bool:
    """A stack without an owner was left running by itself, without services."""
    from farmiq.lab.stack import record

    run = record.read_run(root)
    return run is not None and run.owned


def _print_checks(checks: "list[Check]") -> None:
    """A line each, and below it what to do; no table, so that a narrow window breaks nothing."""
    wide = max((len(check.name) for check in checks), default=0)
    for check in checks:
        colour = None if check.healthy else typer.colors.RED
        typer.secho(
            f" {check.name:<{wide}}  {'good' if check.healthy else 'BAD '}  {check.detail}",
            fg=colour,
        )
        if check.remedy:
            typer.secho(f" {'':<{wide}}        {check.remedy}", fg=typer.colors.YELLOW)


def prospects() -> "list[EngineState]":
    """Say for each engine what a start would use; healthy means that it could start."""
    from farmiq import config
    from farmiq.lab import stack
    from farmiq.lab.stack import engines

    given, downloads = config.given_urls(), config.state_dir() / "engines"
    states = []
    for engine in engines.LIST:
        version, problem = "", ""
        try:
            named = engines.addresses_given(engine, given)
            version = f"given by {', '.join(named)}" if named else engine.available(downloads)
        except stack.StackError as failure:
            problem = str(failure)
        states.append(
            stack.EngineState(
                name=engine.name,
                version=version,
                host="",
                port=0,
                pid=None,
                rss_bytes=0,
                healthy=not problem,
                detail="cannot be started" if problem else "not running, ready to start",
                remedy=problem,
            )
        )
    return states


def _root(name: str) -> "Path":
    from farmiq import config

    if not name.replace("-", "").replace("_", "").isalnum():
        raise typer.BadParameter(f"{name!r} cannot name a stack: use letters, digits, - and _.")
    return config.state_dir() / "stacks" / name


def _all_roots() -> "list[Path]":
    from farmiq import config

    return sorted(path for path in (config.state_dir() / "stacks").glob("*") if path.is_dir())


def _clear(root: "Path") -> None:
    """Stop what is left of a stack without an owner, so that all of it starts afresh."""
    from farmiq.lab import stack
    from farmiq.lab.stack import record

    run = record.read_run(root)
    if run is not None and not run.owned:
        stack.stop(root)


def _print_states(states: "list[EngineState]") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("engine", "version", "address", "pid", "memory", "health", box=None)
    for state in states:
        table.add_row(
            state.name,
            state.version,
            f"{state.host}:{state.port}" if state.host else "-",
            str(state.pid or "-"),
            f"{state.rss_bytes / 1e6:.0f} MB" if state.rss_bytes else "-",
            state.detail if state.healthy else f"[red]{escape(state.detail)}[/red]",
        )
    console = Console()
    console.print(table)
    for state in states:
        if state.remedy:
            console.print(f"{state.name}: {state.remedy}", style="yellow", markup=False)
