"""`farmiq topology`: the bus as code."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import unquote, urlsplit

import typer

from farmiq.cli import terminal
from farmiq.cli.terminal import AsJson, StackName

if TYPE_CHECKING:
    from farmiq.cloud.topology import Difference, State
    from farmiq.plumbing.rabbit import Api

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Exchanges, queues, retries, dead letters, caps and logins of cloud-rabbitmq.\n\n"
        "Needs FARMIQ_RABBITMQ_API_URL (an administrator's) and FARMIQ_AMQP_URL for the vhost, or "
        "a running demo. Caps follow BUS_OUTAGE_DAYS and BUS_SCALE, retries BUS_RETRY_SECONDS."
    ),
)
WithUsers = Annotated[
    bool,
    typer.Option("--users", help="Also the logins of the services, each with what it needs only."),
]


@app.command("diff")
def diff(*, users: WithUsers = False, stack: StackName = None, as_json: AsJson = False) -> None:
    """Show how the broker differs from what it should be. Exit code 3: it does."""
    environment = terminal.environment(stack)
    with _api(environment) as api:
        found = _differences(api, _wanted(environment, api, users=users), users=users)
    _print(found, as_json=as_json)
    if any(each.action != "extra" for each in found):
        raise typer.Exit(3)


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
    stack: StackName = None,
    as_json: AsJson = False,
) -> None:
    """Give the broker what it lacks; safe to repeat, the second time changes nothing.

    Nothing is ever deleted. A queue or exchange that exists with other arguments is a conflict:
    it is named, nothing else of it is touched, and the exit code is 3. Passwords of new logins are
    printed this once.
    """
    environment = terminal.environment(stack)
    with _api(environment) as api:
        want = _wanted(environment, api, users=users)
        found = _differences(api, want, users=users)
        chosen = json.loads(passwords.read_text(encoding="utf-8")) if passwords else {}
        generated = _give_passwords(api, want, rotate=set(rotate or ()), chosen=chosen)
        for each in found:
            _make(api, want, each)
    _print(found, as_json=as_json, passwords=generated)
    if any(each.action == "conflict" for each in found):
        raise typer.Exit(3)


def _api(environment: Mapping[str, str]) -> "Api":
    from farmiq.plumbing.rabbit import Api

    vhost = unquote(urlsplit(terminal.needed(environment, "FARMIQ_AMQP_URL")).path[1:]) or "/"
    return Api(terminal.needed(environment, "FARMIQ_RABBITMQ_API_URL"), vhost=vhost)


def _wanted(environment: Mapping[str, str], api: "Api", *, users: bool) -> "State":
    from farmiq.cloud import topology
    from farmiq.config import CloudSettings

    settings = CloudSettings.load_some(environment)
    return topology.wanted(
        days=settings.bus_outage_days,
        scale=settings.bus_scale,
        delays_s=settings.bus_retry_s,
        version=api.version(),
        with_logins=users,
    )


def _differences(api: "Api", want: "State", *, users: bool) -> "list[Difference]":
    from farmiq.cloud import topology

    return topology.differences(read(api, users=set(want.logins) if users else set()), want)


def read(api: "Api", *, users: set[str]) -> "State":
    """What the broker has of ours."""
    from farmiq.cloud.topology import State

    known = api.users()
    keys: dict[str, dict[str, str]] = {}
    for each in api.topic_permissions() if users else ():
        keys.setdefault(each["user"], {})[each["exchange"]] = each["write"]
    return State(
        exchanges={
            each["name"]: _exchange(each) for each in api.exchanges() if _is_ours(each["name"])
        },
        queues={each["name"]: each["arguments"] for each in api.queues() if _is_ours(each["name"])},
        bindings=frozenset(
            (each["source"], each["destination"], each["routing_key"])
            for each in api.bindings()
            if _is_ours(each["source"]) and each["destination_type"] == "queue"
        ),
        policies={
            each["name"]: {"pattern": each["pattern"], "definition": each["definition"]}
            for each in api.policies()
            if _is_ours(each["name"])
        },
        logins={
            each["user"]: {
                **{name: each[name] for name in ("configure", "write", "read")},
                "keys": keys.get(each["user"], {}),
            }
            for each in (api.permissions() if users else ())
            if each["user"] in users & known
        },
    )


def _is_ours(name: str) -> bool:
    return name.startswith("farmiq.")


def _exchange(each: dict[str, Any]) -> dict[str, Any]:
    """Its arguments; an exchange of another kind differs in any case."""
    odd = {} if each["type"] == "topic" and each["durable"] else {"type": each["type"]}
    return {**each["arguments"], **odd}


def _make(api: "Api", want: "State", each: "Difference") -> None:
    if each.action not in ("create", "change"):
        return
    match each.kind:
        case "exchange":
            api.make_exchange(each.name, dict(want.exchanges[each.name]))
        case "queue":
            api.make_queue(each.name, dict(want.queues[each.name]))
        case "binding":
            exchange, key, queue = _binding(each.name)
            api.bind(exchange, queue, key)
        case "policy":
            api.set_policy(each.name, **want.policies[each.name])
        case "login":
            _allow(api, each.name, dict(want.logins[each.name]))


def _binding(spoken: str) -> tuple[str, str, str]:
    exchange, _, rest = spoken.partition(" --")
    key, _, queue = rest.rpartition("--> ")
    return exchange, key, queue


def _allow(api: "Api", name: str, rights: dict[str, Any]) -> None:
    keys = rights.pop("keys")
    api.allow(name, rights)
    api.forget_keys(name)
    for exchange, write in keys.items():
        api.allow_keys(name, exchange=exchange, write=write)


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


def _print(
    found: "list[Difference]", *, as_json: bool, passwords: Mapping[str, str] | None = None
) -> None:
    from dataclasses import asdict

    if as_json:
        terminal.print_json(
            {"differences": [asdict(each) for each in found], "passwords": dict(passwords or {})}
        )
        return
    for each in found:
        detail = f"  ({each.detail})" if each.detail else ""
        typer.echo(f"{each.action:<9} {each.kind:<9} {each.name}{detail}")
    for name, password in (passwords or {}).items():
        typer.echo(f"password  {name}  {password}")
    if not found:
        typer.echo("the broker is as it should be")
