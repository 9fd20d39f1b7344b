"""Vhosts of RabbitMQ, lent to the next test where only the work queues of the bus are on them.

To make these queues and to delete them costs the broker far more than to empty them. Nothing is
trusted: what is declared is compared, and a vhost with a queue for retries or dead letters, whose
messages move by themselves, or with a consumer, is deleted.
"""

import asyncio
import contextlib
import json
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from aiormq.exceptions import ChannelNotFoundEntity

from farmiq.cloud import bus
from farmiq.plumbing import ids
from farmiq.plumbing.bus import amqp

# And whether anything is declared there: an empty one needs no emptying.
_idle: list[tuple[str, bool]] = []


@contextlib.contextmanager
def made(engines: Mapping[str, str]) -> Iterator[str]:
    """The address of a vhost with nothing declared on it."""
    name = _make(engines)
    yield _address(engines, name)
    _delete(engines, name)


@contextlib.contextmanager
def lend(engines: Mapping[str, str]) -> Iterator[str]:
    """The address of a vhost on which at most the work queues are, all empty."""
    name = _emptied(engines) or _make(engines)
    yield _address(engines, name)
    declared = ask(engines, "GET", f"definitions/{name}")
    if _has_only_work_queues(declared):
        _idle.append((name, bool(declared["queues"])))
    else:
        _delete(engines, name)


def ask(
    engines: Mapping[str, str], method: str, path: str, body: dict[str, str] | None = None
) -> Any:
    """Ask the management API; returns what its answer says."""
    parts = urlsplit(engines["FARMIQ_RABBITMQ_API_URL"])
    login = b64encode(f"{parts.username}:{parts.password}".encode()).decode()
    request = urllib.request.Request(
        f"http://{parts.hostname}:{parts.port}/api/{path}",
        method=method,
        data=json.dumps(body or {}).encode() if method != "GET" else None,
        headers={"Authorization": f"Basic {login}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return json.loads(answer.read() or b"null")


def _make(engines: Mapping[str, str]) -> str:
    name = f"test-{ids.new().hex}"
    ask(engines, "PUT", f"vhosts/{name}")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    ask(engines, "PUT", f"permissions/{name}/farmiq", everything)
    return name


def _delete(engines: Mapping[str, str], name: str) -> None:
    ask(engines, "DELETE", f"vhosts/{name}")


def _address(engines: Mapping[str, str], name: str) -> str:
    return urlunsplit(urlsplit(engines["FARMIQ_AMQP_URL"])._replace(path=f"/{name}"))


def _emptied(engines: Mapping[str, str]) -> str | None:
    """Of those that are not lent one from which nobody consumes any more."""
    while _idle:
        name, has_queues = _idle.pop()
        if not has_queues or asyncio.run(empty(_address(engines, name))):
            return name
        _delete(engines, name)
    return None


def _has_only_work_queues(declared: dict[str, Any]) -> bool:
    exchanges = {each.name: each.arguments for each in bus.EXCHANGES}
    queues = {each.name: each.arguments for each in bus.TOPOLOGY.queues}
    bindings = {(*pair, each.name) for each in bus.TOPOLOGY.queues for pair in each.bindings}
    return (
        all(each["arguments"] == exchanges.get(each["name"]) for each in declared["exchanges"])
        and all(each["arguments"] == queues.get(each["name"]) for each in declared["queues"])
        and all(
            (each["source"], each["routing_key"], each["destination"]) in bindings
            for each in declared["bindings"]
        )
        and not declared["policies"]
    )


async def empty(url: str) -> bool:
    """Throw away what is left in the work queues; False if somebody consumes from one."""
    async with amqp.connection(url, name="vhosts") as opened:
        channel = await opened.channel()
        for wanted in bus.TOPOLOGY.queues:
            try:
                queue = await channel.declare_queue(wanted.name, passive=True)
            except ChannelNotFoundEntity:
                channel = await opened.channel()
                continue
            if queue.declaration_result.message_count:
                await queue.purge()
                queue = await channel.declare_queue(wanted.name, passive=True)
            found = queue.declaration_result
            if found.message_count or found.consumer_count:
                return False
    return True
