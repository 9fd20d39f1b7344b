"""`farmiq topology`: the bus as code."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import unquote, urlsplit

import typer

from farmiq.cli import terminal

if TYPE_CHECKING:
    from farmiq.cloud.topology import Difference, State
    from farmiq.plumbing.bus.rabbit import Api

app = terminal.Group(
    "Exchanges, queues, retries, dead letters, caps and logins of cloud-rabbitmq.\n\n"
    "Needs FARMIQ_RABBITMQ_API_URL (an administrator's), or a running demo. "
    "Caps follow BUS_OUTAGE_DAYS and BUS_SCALE, retries BUS_RETRY_SECONDS."
)
WithUsers = Annotated[
    bool,
    typer.Option(
        "--users", help="Also the logins of the services, difference with what it needs only."
    ),
]
Vhost = Annotated[
    str | None,
    typer.Option(help="Virtual host of the bus; default: the one in FARMIQ_AMQP_URL, else /."),
]


@app.command("diff")
def diff(
    *,
    users: WithUsers = False,
    vhost: Vhost = None,
) -> int:
    """Show how the broker differs from what it should be. Exit code 3: it does."""
    differences = compare(terminal.environment(), users=users, vhost=vhost)
    _print(differences)
    return 3 if any(difference.action != "extra" for difference in differences) else 0


@app.command("apply")
def apply(
    *,
    users: WithUsers = False,
    rotate: Annotated[
        list[str] | None, typer.Option(help="Give this login a new password, also if it has one.")
    ] = None,
    passwords: Annotated[
        Path | None,
        typer.Option(help="JSON file of passwords by login, for those that are to be chosen."),
    ] = None,
    vhost: Vhost = None,
    phase: Annotated[
        str,
        typer.Option(
            help="pre (only add, while the old version runs), post (remove bindings that this "
            "version replaced, after the old one is gone) or all."
        ),
    ] = "all",
) -> int:
    """Give the broker what it lacks; safe to repeat, the second time changes nothing.

    Nothing is deleted but bindings that this version replaced, and not in phase pre. A queue or
    exchange that exists with other arguments is a conflict: it is named, nothing else of it is
    touched, and the exit code is 3. Passwords of new logins are printed this once, that of `cloud`
    as the setting for `farmiq run cloud`.
    """
    from farmiq.cloud import broker
    from farmiq.plumbing import migrations

    terminal.check_known(phase, migrations.PHASES, f"there is no phase {phase!r}; choose")
    environment = terminal.environment()
    with _api(environment, vhost) as api:
        want = _wanted(environment, api, users=users)
        differences = [
            difference
            for difference in _differences(api, want, users=users)
            if phase == "all" or (difference.action == "remove") == (phase == "post")
        ]
        chosen = json.loads(passwords.read_text(encoding="utf-8")) if passwords else {}
        generated = _give_passwords(api, want, rotate=set(rotate or ()), chosen=chosen)
        for difference in differences:
            broker.apply(api, want, difference)
        url = api.amqp_url("cloud", generated["cloud"]) if "cloud" in generated else None
    _print(differences, passwords=generated)
    if url is not None and not terminal.wants_json():
        typer.echo(f'FARMIQ_AMQP_URL="{url}"')
    return 3 if any(difference.action == "conflict" for difference in differences) else 0


def compare(
    environment: Mapping[str, str], *, users: bool = False, vhost: str | None = None
) -> "list[Difference]":
    """How the broker differs from what this version wants."""
    with _api(environment, vhost) as api:
        return _differences(api, _wanted(environment, api, users=users), users=users)


def _api(environment: Mapping[str, str], vhost: str | None) -> "Api":
    """Ask about a vhost. FARMIQ_AMQP_URL need not be known yet: `apply --users` makes its login."""
    from farmiq.config import CloudSettings
    from farmiq.plumbing.bus.rabbit import Api

    known = unquote(urlsplit(environment.get("FARMIQ_AMQP_URL", "")).path[1:])
    return Api(
        terminal.needed("FARMIQ_RABBITMQ_API_URL", environment),
        vhost=vhost or known or "/",
        tls=CloudSettings.load_some(environment).tls,
    )


def _wanted(environment: Mapping[str, str], api: "Api", *, users: bool) -> "State":
    from farmiq.cloud import broker
    from farmiq.config import CloudSettings

    return broker.wanted(CloudSettings.load_some(environment), api, users=users)


def _differences(api: "Api", want: "State", *, users: bool) -> "list[Difference]":
    from farmiq.cloud import broker

    return broker.differences(api, want, users=users)


def _give_passwords(
    api: "Api", want: "State", *, rotate: set[str], chosen: Mapping[str, str]
) -> dict[str, str]:
    """New logins and those to rotate get theirs; returns the generated ones."""
    if unknown := (rotate | set(chosen)) - set(want.logins):
        terminal.fail(f"there is no login {min(unknown)!r}: {', '.join(want.logins)}", code=2)
    needing = sorted((set(want.logins) - api.users()) | rotate)
    generated = {name: secrets.token_urlsafe(24) for name in needing if name not in chosen}
    for name in needing:
        api.set_user(name, password=chosen.get(name) or generated[name])
    return generated


def _print(differences: "list[Difference]", *, passwords: Mapping[str, str] | None = None) -> None:
    from dataclasses import asdict

    lines = [
        f"{difference.action:<9} {difference.kind:<9} {difference.name}"
        + (f"  ({difference.detail})" if difference.detail else "")
        for difference in differences
    ]
    lines += [f"password  {name}  {password}" for name, password in (passwords or {}).items()]
    if not differences:
        lines.append("the broker is as it should be")
    document = {
        "differences": [asdict(difference) for difference in differences],
        "passwords": dict(passwords or {}),
    }
    terminal.print_result(document, *lines)
