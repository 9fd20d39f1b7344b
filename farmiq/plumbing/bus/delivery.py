"""Pure: a message as the broker delivered it, and what it carries about its failures.

Whoever sets a message aside notes in its headers where it came from, how often it was tried and
why it was not taken. The body is never touched.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pamqp import commands, encode

Properties = commands.Basic.Properties

ATTEMPTS = "retry-attempts"
REASON = "retry-reason"
QUEUE = "retry-queue"
EXCHANGE = "retry-exchange"
ROUTING_KEY = "retry-routing-key"
FAILED_AT = "retry-failed-at"
DEATHS = "retry-deaths"
# How often, and when last, it was redriven without a person; a person's redrive starts anew.
REDRIVEN = "retry-redriven"
REDRIVEN_AT = "retry-redriven-at"
# What was left out on the way because it could not be read or written again. It stays with a
# message that is redriven: what is missing is missing.
UNREADABLE = "retry-unreadable"
OURS = (
    ATTEMPTS, REASON, QUEUE, EXCHANGE, ROUTING_KEY, FAILED_AT, DEATHS, REDRIVEN, REDRIVEN_AT,
)  # fmt: skip
# A header is for reading, and all headers of a message have to fit into one frame.
MAX_REASON = 500
# All properties of a message stand in one frame, and ours are added: far below a frame's 128 KiB.
MAX_HEADER_BYTES = 64 * 1024
# A count from outside may be any number, and no queue tries so often.
MAX_ATTEMPTS = 1_000_000
_BROKERS = "x-death"
_RETURNED = "x-delivery-count"

_COPIED = (
    "content_type", "content_encoding", "priority", "correlation_id", "reply_to", "message_id",
    "timestamp", "message_type", "app_id",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Delivery:
    """`exchange` and `routing_key` are where it was first published, also after retries.

    `unreadable` names the properties that could not be decoded; they are not in `properties`.
    """

    body: bytes
    tag: int
    exchange: str
    routing_key: str
    redelivered: bool
    properties: Properties
    received_at: float
    unreadable: tuple[str, ...] = ()

    @property
    def headers(self) -> Mapping[str, Any]:
        return self.properties.headers or {}

    @property
    def attempts(self) -> int:
        """Return how many attempts failed before; a header that is no count means 0."""
        return self._count(ATTEMPTS)

    @property
    def redriven(self) -> int:
        """Return how often it was redriven without a person."""
        return self._count(REDRIVEN)

    @property
    def returned(self) -> int:
        """Return how often somebody held it and gave it back, as a quorum queue counts."""
        return self._count(_RETURNED)

    def _count(self, header: str) -> int:
        count = self.headers.get(header)
        return count if isinstance(count, int) and 0 < count < MAX_ATTEMPTS else 0


def origin(delivered: str, header: str, headers: Mapping[str, Any]) -> str:
    """Return where a message was first published; after a failure its headers have it."""
    original = headers.get(header)
    return original if isinstance(original, str) else delivered


def failed_properties(
    delivery: Delivery, *, queue: str, attempts: int, reason: str, at: datetime
) -> Properties:
    """The properties it travels on with: its own, and the account of its failure."""
    headers = {
        **without_deaths(delivery.headers),
        ATTEMPTS: attempts,
        REASON: printable(reason),
        QUEUE: queue,
        EXCHANGE: delivery.exchange,
        ROUTING_KEY: delivery.routing_key,
        FAILED_AT: _text(at),
    }
    return with_headers(delivery.properties, headers, unreadable=delivery.unreadable)


def _text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def afresh(delivery: Delivery, *, redriven_at: datetime | None = None) -> Properties:
    """Return the properties that it had before its first failure.

    With `redriven_at` nobody asked for it, and the message carries how often that was.
    """
    headers = {
        name: value
        for name, value in delivery.headers.items()
        if name not in OURS and not name.startswith(("x-death", "x-first-death", "x-last-death"))
    }
    if redriven_at is not None:
        headers |= {REDRIVEN: delivery.redriven + 1, REDRIVEN_AT: _text(redriven_at)}
    return with_headers(delivery.properties, headers, unreadable=delivery.unreadable)


def without_deaths(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The broker's own account of deaths goes under another name.

    Under its own, a message that died in a queue once and expires later on its way back there is
    taken for one that goes in circles, and the broker drops it.
    """
    copied = {name: value for name, value in headers.items() if name != _BROKERS}
    if _BROKERS in headers:
        copied[DEATHS] = headers[_BROKERS]
    return copied


def without_counts(headers: Mapping[str, Any]) -> dict[str, Any]:
    """As `without_deaths`, and as if nobody had ever held and returned the message."""
    return {name: value for name, value in without_deaths(headers).items() if name != _RETURNED}


def with_headers(
    properties: Properties, headers: Mapping[str, Any], *, unreadable: Sequence[str] = ()
) -> Properties:
    """A copy that is kept on disk. `expiration` and `user_id` were for the first way only."""
    copied = {name: getattr(properties, name) for name in _COPIED}
    fit, unfit = _fit(headers)
    if lost := [*unreadable, *unfit]:
        fit[UNREADABLE] = printable("; ".join(lost))
    return Properties(**copied, headers=fit, delivery_mode=2)


def _fit(headers: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Those that can be written again, and the names of the others.

    Not every value that can be read can be written: a wide float is written as a narrow one.
    """
    fit: dict[str, Any] = {}
    unfit: list[str] = []
    room = MAX_HEADER_BYTES
    # Our own first, so that they have room.
    for name in sorted(headers, key=lambda header: header not in (*OURS, UNREADABLE)):
        value = headers[name]
        writable = bytearray(value) if isinstance(value, bytes) else value
        try:
            size = len(name.encode()) + len(encode.encode_table_value(writable))
        except (TypeError, ValueError, ArithmeticError, RecursionError, struct.error):
            unfit.append(f"header {name}")
            continue
        if size > room:
            unfit.append(f"header {name} of {size} bytes")
            continue
        room -= size
        fit[name] = writable
    return fit, unfit


def printable(reason: str) -> str:
    """Short, and encodable whatever a message made an error say."""
    return reason.encode("utf-8", "replace").decode()[:MAX_REASON]
