"""Pure: the whole bus as a broker should have it, and how a broker differs from that (RB-31).

Exchanges, queues and bindings are `bus.whole()`; here are also the policies (caps that can change
without a new queue) and the logins, each with what its service needs and no more (RB-03).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from farmiq.cloud import bus
from farmiq.cloud.bus import RETRY_EXCHANGE, UNROUTED_QUEUE, Work
from farmiq.messages import barn, feed, kpi, telemetry

# Dead letters wait for a person: room for a long weekend of mistakes, not for a week.
MAX_DEAD_LETTERS = 1_000_000
MAX_RETRYING = 100_000
# From this version on a quorum queue drops a message after 20 deliveries, unless configured not to.
NO_LIMIT_SINCE = 4

Definition = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    pattern: str
    definition: Definition


@dataclass(frozen=True, slots=True)
class Login:
    """What a service may do. `keys` restricts routing keys by exchange."""

    name: str
    write: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    keys: Mapping[str, str] = field(default_factory=dict)

    @property
    def permissions(self) -> dict[str, str]:
        return {"configure": "^$", "write": _any_of(self.write), "read": _any_of(self.read)}


@dataclass(frozen=True, slots=True)
class State:
    """A broker's vhost, as far as it is ours. Bindings are (exchange, queue, routing key).

    `former_bindings` are those of earlier versions, of which there should be none.
    """

    exchanges: Mapping[str, Definition]
    queues: Mapping[str, Definition]
    bindings: frozenset[tuple[str, str, str]]
    policies: Mapping[str, Definition]
    logins: Mapping[str, Definition]
    former_bindings: frozenset[tuple[str, str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Difference:
    """`action`: create, change or remove can be applied; conflict needs a person.

    What is extra is left alone.
    """

    action: str
    kind: str
    name: str
    detail: str = ""


def wanted(
    *,
    days: float,
    scale: float,
    delays_s: tuple[float, ...] = bus.DELAYS_S,
    version: int = 3,
    with_logins: bool = False,
) -> State:
    """What there should be on a broker of this major version."""
    whole = bus.whole(delays_s)
    return State(
        exchanges={item.name: item.arguments for item in whole.exchanges},
        queues={item.name: dict(item.arguments) for item in whole.queues},
        bindings=frozenset(
            (exchange, queue.name, key)
            for queue in whole.queues
            for exchange, key in queue.bindings
        ),
        policies={
            item.name: {"pattern": item.pattern, "definition": item.definition}
            for item in policies(days=days, scale=scale, version=version)
        },
        logins={item.name: _shown(item) for item in logins()} if with_logins else {},
        former_bindings=frozenset(
            (exchange, queue.name, key)
            for queue in whole.queues
            for exchange, key in queue.former_bindings
        ),
    )


def policies(*, days: float, scale: float, version: int) -> Iterator[Policy]:
    for work in bus.WORKS:
        cap = bus.max_waiting(work, days=days, scale=scale)
        name = work.queue.removesuffix(".queue")
        yield Policy(name, _exactly(work.queue), {"max-length": cap})
    retries = {"max-length": round(MAX_RETRYING * scale)}
    yield Policy("farmiq.retries", r"^farmiq\.[a-z-]+\.[a-z]+-retry-[0-9]+m?s\.queue$", retries)
    # Without reject-publish a full queue would drop its oldest, and those are for a person.
    dead_letters: Definition = {
        "max-length": round(MAX_DEAD_LETTERS * scale),
        "overflow": "reject-publish",
    }
    no_delivery_limit = {"delivery-limit": -1} if version >= NO_LIMIT_SINCE else {}
    yield Policy("farmiq.aside", r"^farmiq\.[a-z-]+\.dlq\.queue$", dead_letters | no_delivery_limit)
    # No limit for events that no queue wants: a full queue would block whole batches (C-10).
    if no_delivery_limit:
        yield Policy("farmiq.unrouted", _exactly(UNROUTED_QUEUE), no_delivery_limit)


def logins() -> Iterator[Login]:
    domains = tuple(
        item.name
        for item in bus.EXCHANGES
        if item.name not in (RETRY_EXCHANGE, bus.UNROUTED_EXCHANGE)
    )
    yield Login("cloud-ingestion", write=domains)
    for service in dict.fromkeys(work.service for work in bus.WORKS):
        yield _consumer(service, [work for work in bus.WORKS if work.service == service])
    dead_letters = (UNROUTED_QUEUE, *dict.fromkeys(work.dead_letters for work in bus.WORKS))
    yield Login("cloud-deadletter-service", write=(RETRY_EXCHANGE, *domains), read=dead_letters)
    everything = (*(work.queue for work in bus.WORKS), *dead_letters)
    yield Login("cloud", write=(RETRY_EXCHANGE, *domains), read=everything)


# Events that services other than cloud-ingestion publish (RB-03).
_PUBLISHES = {
    "cloud-telemetry-service": (telemetry.AGGREGATED,),
    "cloud-analytics-service": (kpi.DAILY_UPDATED,),
    "cloud-feed-service": (feed.INTAKE_RECORDED, feed.LOT_RECEIVED),
    "cloud-barn-service": (barn.RECORD_CREATED,),
}


def _consumer(service: str, works: list[Work]) -> Login:
    keys = {RETRY_EXCHANGE: rf"^farmiq\.{re.escape(service)}\."}
    if event_types := _PUBLISHES.get(service):
        exchange = f"farmiq.{event_types[0].partition('.')[0]}.exchange"
        keys[exchange] = _any_of(event_types)
    return Login(service, write=tuple(keys), read=tuple(work.queue for work in works), keys=keys)


def _shown(login: Login) -> Definition:
    return {**login.permissions, "keys": dict(login.keys)}


def _any_of(names: tuple[str, ...]) -> str:
    return f"^({'|'.join(map(re.escape, names))})$" if names else "^$"


def _exactly(name: str) -> str:
    return f"^{re.escape(name)}$"


def differences(have: State, want: State) -> list[Difference]:
    """How to get from one to the other, and what stands in the way."""
    return [
        *_named("exchange", have.exchanges, want.exchanges, changeable=False),
        *_named("queue", have.queues, want.queues, changeable=False),
        *(
            Difference("create", "binding", _binding_text(item))
            for item in sorted(want.bindings - have.bindings)
        ),
        *(
            Difference(
                "remove" if item in want.former_bindings else "extra",
                "binding",
                _binding_text(item),
            )
            for item in sorted(have.bindings - want.bindings)
        ),
        *_named("policy", have.policies, want.policies, changeable=True),
        *_named("login", have.logins, want.logins, changeable=True),
    ]


def _binding_text(binding: tuple[str, str, str]) -> str:
    exchange, queue, key = binding
    return f"{exchange} --{key}--> {queue}"


def _named(
    kind: str, have: Mapping[str, Definition], want: Mapping[str, Definition], *, changeable: bool
) -> Iterator[Difference]:
    for name, definition in want.items():
        if name not in have:
            yield Difference("create", kind, name)
        elif have[name] != definition:
            action = "change" if changeable else "conflict"
            yield Difference(action, kind, name, _changes(have[name], definition))
    yield from (Difference("extra", kind, name) for name in sorted(have.keys() - want.keys()))


def _changes(have: Definition, want: Definition) -> str:
    names = sorted(have.keys() | want.keys())
    return "; ".join(
        f"{name}: {have.get(name)!r}, should be {want.get(name)!r}"
        for name in names
        if have.get(name) != want.get(name)
    )
