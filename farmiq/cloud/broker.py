"""The broker of the bus: which of our objects it has, and how the rest is created (RB-31).

`topology.py` says what there should be; here the management API is called.
"""

from typing import Any

from farmiq.cloud import topology
from farmiq.cloud.topology import Difference, State
from farmiq.config import CloudSettings
from farmiq.plumbing.bus.rabbit import Api


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
    """Which of our objects the broker has."""
    known = api.users()
    keys: dict[str, dict[str, str]] = {}
    for item in api.topic_permissions() if users else ():
        keys.setdefault(item["user"], {})[item["exchange"]] = item["write"]
    return State(
        exchanges={
            item["name"]: _exchange(item) for item in api.exchanges() if _is_ours(item["name"])
        },
        queues={item["name"]: item["arguments"] for item in api.queues() if _is_ours(item["name"])},
        bindings=frozenset(
            (item["source"], item["destination"], item["routing_key"])
            for item in api.bindings()
            if _is_ours(item["source"]) and item["destination_type"] == "queue"
        ),
        policies={
            item["name"]: {"pattern": item["pattern"], "definition": item["definition"]}
            for item in api.policies()
            if _is_ours(item["name"])
        },
        logins={
            item["user"]: {
                **{name: item[name] for name in ("configure", "write", "read")},
                "keys": keys.get(item["user"], {}),
            }
            for item in (api.permissions() if users else ())
            if item["user"] in users & known
        },
    )


def _is_ours(name: str) -> bool:
    return name.startswith("farmiq.")


def _exchange(exchange: dict[str, Any]) -> dict[str, Any]:
    """Its arguments; an exchange of another kind differs in any case."""
    odd = {} if exchange["type"] == "topic" and exchange["durable"] else {"type": exchange["type"]}
    return {**exchange["arguments"], **odd}


def apply(api: Api, want: State, difference: Difference) -> None:
    """Create, change or remove it if that is possible; a conflict is left to a person."""
    if difference.action == "remove":
        exchange, key, queue = _parse_binding(difference.name)
        api.unbind(exchange, queue, key)
    if difference.action not in ("create", "change"):
        return
    match difference.kind:
        case "exchange":
            api.make_exchange(difference.name, dict(want.exchanges[difference.name]))
        case "queue":
            api.make_queue(difference.name, dict(want.queues[difference.name]))
        case "binding":
            exchange, key, queue = _parse_binding(difference.name)
            api.bind(exchange, queue, key)
        case "policy":
            api.set_policy(difference.name, **want.policies[difference.name])
        case "login":
            _allow(api, difference.name, dict(want.logins[difference.name]))


def _parse_binding(text: str) -> tuple[str, str, str]:
    exchange, _, rest = text.partition(" --")
    key, _, queue = rest.rpartition("--> ")
    return exchange, key, queue


def _allow(api: Api, name: str, rights: dict[str, Any]) -> None:
    keys = rights.pop("keys")
    api.allow(name, rights)
    api.remove_keys(name)
    for exchange, write in keys.items():
        api.allow_keys(name, exchange=exchange, write=write)
