"""Pure: a dead letter of the bus, which ones a filter matches, and which go without a person."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from farmiq.cloud import bus
from farmiq.messages.text import storable
from farmiq.messages.wording import phrase, worded
from farmiq.plumbing.bus import delivery as deliveries
from farmiq.plumbing.bus.delivery import Delivery

QUEUES = (bus.UNROUTED_QUEUE, *dict.fromkeys(work.dead_letters for work in bus.WORKS))
ORIGINS = frozenset(work.queue for work in bus.WORKS)
EXCHANGES = frozenset(exchange.name for exchange in bus.EXCHANGES)
UNWANTED = "no queue wants this event"
GAVE_UP = "the broker gave up on it: "
# Its consumer ended again and again while it held the letter: restarted without its database, say.
CONSUMER_ENDED = f"{GAVE_UP}delivery_limit"
# Without a person a letter is redriven so long after its last redrive, and no more often.
REDRIVE_AFTER_S = (0.0, 600.0)
MAX_REASONS = 50
OTHER_REASONS = "other reasons"
# Of each group pages show so many letters, each with the beginning of its bytes.
MAX_SHOWN = 20
MAX_SHOWN_CHARS = 2000
_SHOWN_REASONS = 3

_MAX_LENGTH = 200
_FIRST_YEAR, _LAST_YEAR = 1970, 2200
# Parts that differ between letters of a kind: ids, numbers, quoted texts.
_SPECIFIC = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\d+")


@dataclass(frozen=True, slots=True)
class BusDeadLetter:
    """`origin` is the queue whose consumer did not take it, None if no queue ever wanted it.

    `unreadable` names properties that it had and nobody could decode; it goes on without them.
    """

    queue: str
    origin: str | None
    exchange: str
    routing_key: str
    reason: str
    attempts: int
    failed_at: str | None
    event_id: str | None
    event_type: str | None
    tenant_id: str | None
    size_bytes: int
    unreadable: str | None
    redriven: int = 0
    redriven_at: str | None = None

    @property
    def kind(self) -> str:
        """The reason without what is specific to one letter: letters of a kind are a group."""
        parts = _SPECIFIC.sub("…", self.reason).split("; ")
        return "; ".join(dict.fromkeys(parts))[:_MAX_LENGTH]

    def described(self) -> dict[str, Any]:
        return asdict(self)


def read(queue: str, delivery: Delivery) -> BusDeadLetter:
    headers = delivery.headers
    death = _first_death(headers)
    event = _event(delivery.body)
    return BusDeadLetter(
        queue=queue,
        origin=_text(headers.get(deliveries.QUEUE)) or _text(death.get("queue")),
        exchange=_clean(delivery.exchange),
        routing_key=_clean(delivery.routing_key),
        reason=_clean(_reason(headers, death)),
        attempts=delivery.attempts,
        failed_at=_text(headers.get(deliveries.FAILED_AT)),
        event_id=_short(event.get("event_id")) or _short(delivery.properties.message_id),
        event_type=_short(event.get("event_type")),
        tenant_id=_short(event.get("tenant_id")),
        size_bytes=len(delivery.body),
        unreadable=_text("; ".join(delivery.unreadable))
        or _text(headers.get(deliveries.UNREADABLE)),
        redriven=delivery.redriven,
        redriven_at=_text(headers.get(deliveries.REDRIVEN_AT)),
    )


def _reason(headers: Mapping[str, Any], death: Mapping[str, Any]) -> str:
    if reason := _text(headers.get(deliveries.REASON)):
        return reason
    if broker := _text(death.get("reason")):
        return f"{GAVE_UP}{broker}"
    return UNWANTED


def _first_death(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """The broker's own account, if it moved the message itself."""
    deaths = headers.get("x-death")
    return (
        deaths[-1] if isinstance(deaths, list) and deaths and isinstance(deaths[-1], dict) else {}
    )


def _event(body: bytes) -> Mapping[str, Any]:
    try:
        event = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return {}
    return event if isinstance(event, dict) else {}


def _text(value: object) -> str | None:
    return _clean(value) or None if isinstance(value, str) else None


def _clean(text: str) -> str:
    """Text that a database and a terminal can show; bodies and properties may have any."""
    return storable(text.replace("\0", ""), max_length=None)


def _short(value: object) -> str | None:
    text = _text(value)
    return text[:_MAX_LENGTH] if text else None


def redrive_at(letter: BusDeadLetter, tenants: Collection[str]) -> datetime | None:
    """When a letter may go back without a person; None if only a person can say so.

    `tenants` are those that are registered now. The database of the consumers is taken to be back,
    since the caller has just read these from it.
    """
    is_over = (
        letter.tenant_id in tenants
        if letter.reason == bus.unknown_tenant(letter.tenant_id)
        else letter.reason == CONSUMER_ENDED
    )
    if not is_over or letter.redriven >= len(REDRIVE_AFTER_S):
        return None
    last_at = instant(letter.redriven_at)
    if last_at is None:  # never redriven, or the header is not ours
        return datetime(1970, 1, 1, tzinfo=UTC)
    return last_at + timedelta(seconds=REDRIVE_AFTER_S[letter.redriven])


def instant(text: str | None) -> datetime | None:
    """A time of a header; None if it is none of this or the next century."""
    try:
        at = datetime.fromisoformat(text or "").astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return at if _FIRST_YEAR <= at.year <= _LAST_YEAR else None


@dataclass(slots=True)
class Remaining:
    """Letters of one owner in one queue that wait for a person, counted by kind."""

    count: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, count: int = 1) -> str:
        """Returns under which kind they are counted."""
        self.count += count
        known = kind in self.kinds or len(self.kinds) < MAX_REASONS
        counted_as = kind if known else OTHER_REASONS
        self.kinds[counted_as] += count
        return counted_as

    def message(self, queue: str, *, tenant_id: str | None) -> str:
        """What people are told: how many, why, and the command to use once that is repaired."""
        service = queue.split(".")[1]
        shown = self.kinds.most_common(_SHOWN_REASONS)
        reasons = "; ".join(f"{kind} ({count})" for kind, count in shown)
        more = "; …" if len(self.kinds) > len(shown) else ""
        events = phrase("events", "1 event waits")
        if self.count != 1:
            events = phrase("events", "%(number)s events wait", number=self.count)
        whose = f" --tenant {tenant_id}" if tenant_id else ""
        return worded(
            "%(events)s in the dead letters of %(service)s: %(reasons)s. Repair the cause, then: "
            "%(command)s",
            events=events,
            service=service,
            reasons=f"{reasons}{more}",
            command=f"farmiq dlq redrive --queue {queue}{whose}",
        )


@dataclass(frozen=True, slots=True)
class BusFilter:
    """Letters to match; None does not filter. `tenant_id` is set by the person's rights."""

    queue: str | None = None
    reason: str | None = None
    event_type: str | None = None
    tenant_id: str | None = None
    event_ids: frozenset[str] = field(default_factory=frozenset)

    @property
    def is_given(self) -> bool:
        """Whether a person has chosen letters; `tenant_id` comes from their rights."""
        return bool(self.queue or self.reason or self.event_type or self.event_ids)

    def matches(self, letter: BusDeadLetter) -> bool:
        return (
            self.queue in (None, letter.queue)
            and (self.reason is None or self.reason in letter.reason or self.reason == letter.kind)
            and self.event_type in (None, letter.event_type)
            and self.tenant_id in (None, letter.tenant_id)
            and (not self.event_ids or letter.event_id in self.event_ids)
        )

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(queue for queue in QUEUES if self.queue in (None, queue))


@dataclass(slots=True)
class Group:
    """Letters of one queue and kind, counted."""

    queue: str
    kind: str
    count: int = 0
    oldest: str | None = None
    newest: str | None = None
    event_types: set[str] = field(default_factory=set)
    shown: list[dict[str, Any]] = field(default_factory=list)

    def add(self, letter: BusDeadLetter) -> None:
        self.count += 1
        if letter.failed_at is not None:
            self.oldest = min(self.oldest or letter.failed_at, letter.failed_at)
            self.newest = max(self.newest or letter.failed_at, letter.failed_at)
        if letter.event_type is not None and len(self.event_types) < len(ORIGINS):
            self.event_types.add(letter.event_type)

    def show(self, letter: BusDeadLetter, body: bytes) -> None:
        """Remember the letter for pages, if it is one of the first."""
        if len(self.shown) >= MAX_SHOWN:
            return
        text = body[: 4 * MAX_SHOWN_CHARS].decode(errors="replace")
        self.shown.append(
            {
                "event_id": letter.event_id,
                "event_type": letter.event_type,
                "failed_at": letter.failed_at,
                "attempts": letter.attempts,
                "size_bytes": letter.size_bytes,
                "reason": storable(_clean(letter.reason)),
                "body": _clean(text)[:MAX_SHOWN_CHARS],
            }
        )

    def described(self) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "reason": self.kind,
            "count": self.count,
            "oldest": self.oldest,
            "newest": self.newest,
            "event_types": sorted(self.event_types),
        }
