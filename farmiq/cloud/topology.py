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
from farmiq.messages import kpi, telemetry

# Whoever may be looked into by hand needs room for a long weekend of mistakes, not for a week.
MAX_SET_ASIDE = 1_000_000
MAX_RETRYING = 100_000
# From here on a quorum queue gives up on a message after 20 deliveries unless it is told not to.
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
    """A broker's vhost, as far as it is ours. Bindings are (exchange, queue, routing key)."""

    exchanges: Mapping[str, Definition]
    queues: Mapping[str, Definition]
    bindings: frozenset[tuple[str, str, str]]
    policies: Mapping[str, Definition]
    logins: Mapping[str, Definition]


@dataclass(frozen=True, slots=True)
class Difference:
    """`action`: create or change can be applied; conflict needs a person; extra is left alone."""

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
        exchanges={each.name: each.arguments for each in whole.exchanges},
        queues={each.name: dict(each.arguments) for each in whole.queues},
        bindings=frozenset(
            (exchange, queue.name, key)
            for queue in whole.queues
            for exchange, key in queue.bindings
        ),
        policies={
            each.name: {"pattern": each.pattern, "definition": each.definition}
            for each in policies(days=days, scale=scale, version=version)
        },
        logins={each.name: _shown(each) for each in logins()} if with_logins else {},
    )


def policies(*, days: float, scale: float, version: int) -> Iterator[Policy]:
    for work in bus.WORKS:
        cap = bus.most_waiting(work, days=days, scale=scale)
        name = work.queue.removesuffix(".queue")
        yield Policy(name, _exactly(work.queue), {"max-length": cap})
    retries = {"max-length": round(MAX_RETRYING * scale)}
    yield Policy("farmiq.retries", r"^farmiq\.[a-z-]+\.[a-z]+-retry-[0-9]+m?s\.queue$", retries)
    # Without reject-publish a full queue would drop its oldest, and those are kept for a person.
    aside: Definition = {"max-length": round(MAX_SET_ASIDE * scale), "overflow": "reject-publish"}
    looked_at_often = {"delivery-limit": -1} if version >= NO_LIMIT_SINCE else {}
    yield Policy("farmiq.aside", r"^farmiq\.[a-z-]+\.dlq\.queue$", aside | looked_at_often)
    # No cap for what nobody wants: full, it would block whole batches for one type (C-10).
    if looked_at_often:
        yield Policy("farmiq.unrouted", _exactly(UNROUTED_QUEUE), looked_at_often)


def logins() -> Iterator[Login]:
    domains = tuple(
        each.name
        for each in bus.EXCHANGES
        if each.name not in (RETRY_EXCHANGE, bus.UNROUTED_EXCHANGE)
    )
    yield Login("cloud-ingestion", write=domains)
    for service in dict.fromkeys(work.service for work in bus.WORKS):
        yield _consumer(service, [work for work in bus.WORKS if work.service == service])
    aside = (UNROUTED_QUEUE, *dict.fromkeys(work.dead_letters for work in bus.WORKS))
    yield Login("cloud-deadletter-service", write=(RETRY_EXCHANGE, *domains), read=aside)
    everything = (*(work.queue for work in bus.WORKS), *aside)
    yield Login("cloud", write=(RETRY_EXCHANGE, *domains), read=everything)


# What services other than cloud-ingestion make themselves (RB-03).
_MAKES = {
    "cloud-telemetry-service": telemetry.AGGREGATED,
    "cloud-analytics-service": kpi.DAILY_UPDATED,
}


def _consumer(service: str, works: list[Work]) -> Login:
    keys = {RETRY_EXCHANGE: rf"^farmiq\.{re.escape(service)}\."}
    if made := _MAKES.get(service):
        keys[f"farmiq.{made.partition('.')[0]}.exchange"] = f"^{re.escape(made)}$"
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
            Difference("create", "binding", _spoken(each))
            for each in sorted(want.bindings - have.bindings)
        ),
        *(
            Difference("extra", "binding", _spoken(each))
            for each in sorted(have.bindings - want.bindings)
        ),
        *_named("policy", have.policies, want.policies, changeable=True),
        *_named("login", have.logins, want.logins, changeable=True),
    ]


def _spoken(binding: tuple[str, str, str]) -> str:
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
