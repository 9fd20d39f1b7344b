"""The broker of the bus: what it has of ours, and how it gets what it lacks (RB-31).

`topology.py` says what there should be; here the management API is asked and told.
"""

from typing import Any

from farmiq.cloud import topology
from farmiq.cloud.topology import Difference, State
from farmiq.config import CloudSettings
from farmiq.plumbing.rabbit import Api


def wanted(settings: CloudSettings, api: Api, *, users: bool) -> State:
    return topology.wanted(
        days=settings.bus_outage_days,
        scale=settings.bus_scale,
        delays_s=settings.bus_retry_s,
        version=api.version(),
        with_logins=users,
    )


def differences(api: Api, want: State, *, users: bool) -> list[Difference]:
    return topology.differences(read(api, users=set(want.logins) if users else set()), want)


def read(api: Api, *, users: set[str]) -> State:
    """What the broker has of ours."""
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


def make(api: Api, want: State, each: Difference) -> None:
    """What can be made or changed is; a conflict is left to a person."""
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


def _allow(api: Api, name: str, rights: dict[str, Any]) -> None:
    keys = rights.pop("keys")
    api.allow(name, rights)
    api.remove_keys(name)
    for exchange, write in keys.items():
        api.allow_keys(name, exchange=exchange, write=write)
