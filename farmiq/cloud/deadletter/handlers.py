"""The queues of dead letters on the bus: count, browse, redrive, discard.

A letter is acknowledged only after its new queue has confirmed it and the audit log has it. After a
crash in between it is still in its queue, so it may be delivered twice and is never lost.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import aiormq
import psycopg
from aio_pika.abc import AbstractConnection

from farmiq import crash
from farmiq.cloud import bus
from farmiq.cloud.deadletter import rules, store
from farmiq.cloud.deadletter.rules import BusDeadLetter, BusFilter, Group
from farmiq.cloud.deadletter.store import AuditEntry
from farmiq.plumbing import db
from farmiq.plumbing.bus import consume
from farmiq.plumbing.bus import delivery as deliveries
from farmiq.plumbing.bus.consume import Inbox
from farmiq.plumbing.bus.delivery import Delivery, Properties

# So many are published together; a crash in between delivers at most these twice.
BATCH = 50
# So long a person's order waits for the service's own look at the letters.
MAX_WAIT_S = 60.0

Letters = Sequence[tuple[BusDeadLetter, Delivery]]


@dataclass(frozen=True, slots=True)
class Order:
    """What to do with the letters, by whom, how many at most and how fast.

    `automatic`: no person asked for it, so the letters carry how often that happened. `note` is why
    a person discards them.
    """

    action: str
    chosen: BusFilter
    actor: str
    limit: int
    rate_per_s: float
    dry_run: bool
    automatic: bool = False
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """`done` is redriven, discarded, failed, or what a dry run would have done.

    `why` it failed; `note` is what else should be known.
    """

    done: str
    letter: BusDeadLetter
    why: str | None = None
    note: str | None = None

    @property
    def text(self) -> str:
        return ": ".join(filter(None, (self.done, self.why, self.note)))

    def described(self) -> dict[str, str | None]:
        shown = {"outcome": self.done, "queue": self.letter.queue, "event_id": self.letter.event_id}
        more = {"why": self.why, "note": self.note}
        return shown | {name: text for name, text in more.items() if text}


async def groups(opened: AbstractConnection, chosen: BusFilter) -> list[Group]:
    """The letters, counted by queue and kind."""
    by_key: dict[tuple[str, str], Group] = {}
    async for letter, _ in browse(opened, chosen):
        key = (letter.queue, letter.kind)
        by_key.setdefault(key, Group(*key)).add(letter)
    return sorted(by_key.values(), key=lambda group: (group.queue, -group.count))


async def browse(
    opened: AbstractConnection, chosen: BusFilter
) -> AsyncIterator[tuple[BusDeadLetter, bytes]]:
    """The letters, oldest first, each with its bytes. They stay where they are."""
    for queue in await _existing(opened, chosen):
        async for _, window in consume.browse(opened, queue):
            for delivery in window:
                letter = rules.read(queue, delivery)
                if chosen.matches(letter):
                    yield letter, delivery.body


async def move(
    opened: AbstractConnection, pool: db.Pool, order: Order
) -> AsyncGenerator[Outcome, None]:
    """Redrive or discard in small batches, at the rate of the order.

    Raises db.UNAVAILABLE also if others hold the letters for too long.
    """
    async with store.exclusive(pool, wait_s=MAX_WAIT_S):
        outbox = await consume.confirming(opened)
        left = order.limit
        for queue in await _existing(opened, order.chosen):
            async for inbox, window in consume.browse(opened, queue):
                letters = [(rules.read(queue, delivery), delivery) for delivery in window]
                letters = [item for item in letters if order.chosen.matches(item[0])][:left]
                left -= len(letters)
                async for outcome in move_letters(outbox, inbox, pool, order, letters):
                    yield outcome
                if left <= 0:
                    return


async def move_letters(
    outbox: aiormq.abc.AbstractChannel, inbox: Inbox, pool: db.Pool, order: Order, letters: Letters
) -> AsyncGenerator[Outcome, None]:
    """Do to these letters of one window what the order says, at its rate."""
    # At most what the rate allows in a second: a slow order must not start with a burst.
    size = max(1, min(BATCH, int(order.rate_per_s)))
    for start in range(0, len(letters), size):
        batch = letters[start : start + size]
        began = time.monotonic()
        for outcome in await _move_batch(outbox, inbox, pool, order, batch):
            yield outcome
        if not order.dry_run:
            spent_s = time.monotonic() - began
            await asyncio.sleep(max(0.0, len(batch) / order.rate_per_s - spent_s))


async def _existing(opened: AbstractConnection, chosen: BusFilter) -> list[str]:
    queues = []
    for queue in chosen.queues:
        channel = await opened.channel()
        try:
            await channel.declare_queue(queue, passive=True)
        except aiormq.exceptions.ChannelNotFoundEntity:
            continue
        await channel.close()
        queues.append(queue)
    return queues


async def _move_batch(
    outbox: aiormq.abc.AbstractChannel, inbox: Inbox, pool: db.Pool, order: Order, letters: Letters
) -> list[Outcome]:
    if order.dry_run:
        return [Outcome(f"would {order.action}", letter) for letter, _ in letters]
    if order.action == "redrive":
        redriven_at = datetime.now(UTC) if order.automatic else None
        outcomes = await _send(outbox, letters, redriven_at)
    else:
        outcomes = [Outcome("discarded", letter, note=order.note) for letter, _ in letters]
    outcomes = await _audited(pool, order, letters, outcomes)
    crash.here("dlq.after_publish")
    for (_, delivery), outcome in zip(letters, outcomes, strict=True):
        if outcome.why is None:
            await inbox.ack(delivery)
    return outcomes


async def _audited(
    pool: db.Pool, order: Order, letters: Letters, outcomes: list[Outcome]
) -> list[Outcome]:
    """Audit all together; if the table rejects one, one by one, and that one stays in its queue."""
    try:
        async with db.transaction(pool) as tx:
            await store.audit(tx, _entries(order, letters, outcomes))
    except (psycopg.DataError, psycopg.IntegrityError, UnicodeError) as error:
        if len(letters) == 1:
            why = f"the audit cannot take it: {db.first_line(error)}"
            return [Outcome("failed", letters[0][0], why)]
        return [
            audited
            for item, outcome in zip(letters, outcomes, strict=True)
            for audited in await _audited(pool, order, [item], [outcome])
        ]
    return outcomes


def _entries(order: Order, letters: Letters, outcomes: list[Outcome]) -> list[AuditEntry]:
    return [
        AuditEntry(
            actor=order.actor,
            action=order.action,
            letter=letter,
            outcome=outcome.text,
            body=delivery.body,
            with_body=order.action == "discard",
        )
        for (letter, delivery), outcome in zip(letters, outcomes, strict=True)
    ]


async def _send(
    outbox: aiormq.abc.AbstractChannel, letters: Letters, redriven_at: datetime | None
) -> list[Outcome]:
    answers = await asyncio.gather(
        *(
            _send_one(
                outbox, letter, delivery, deliveries.afresh(delivery, redriven_at=redriven_at)
            )
            for letter, delivery in letters
        ),
        return_exceptions=True,
    )
    return [_outcome(letter, answer) for (letter, _), answer in zip(letters, answers, strict=True)]


def _outcome(letter: BusDeadLetter, answer: BaseException | None) -> Outcome:
    if answer is None:
        without = letter.unreadable and f"without what could not be read: {letter.unreadable}"
        return Outcome("redriven", letter, note=without)
    if isinstance(answer, aiormq.exceptions.DeliveryError):
        return Outcome("failed", letter, "its queue is full")
    if isinstance(answer, (aiormq.exceptions.PublishError, NoQueueError)):
        return Outcome("failed", letter, f"there is no queue {letter.origin or letter.exchange}")
    if isinstance(answer, (TypeError, ValueError)):
        return Outcome("failed", letter, f"it cannot be written as a message: {answer}"[:300])
    raise answer


class NoQueueError(Exception):
    """The letter names a queue or an exchange that does not exist here."""


async def _send_one(
    outbox: aiormq.abc.AbstractChannel,
    letter: BusDeadLetter,
    delivery: Delivery,
    properties: Properties,
) -> None:
    """To the queue whose consumer rejected it; an event that no queue wanted, to its exchange."""
    if letter.origin is None and letter.exchange in rules.EXCHANGES:
        await consume.publish(
            outbox, delivery.routing_key, delivery.body, properties, exchange=letter.exchange
        )
    elif letter.origin in rules.ORIGINS:
        await consume.publish(
            outbox, letter.origin, delivery.body, properties, exchange=bus.RETRY_EXCHANGE
        )
    else:
        raise NoQueueError


async def renew(
    outbox: aiormq.abc.AbstractChannel, inbox: Inbox, letter: BusDeadLetter, delivery: Delivery
) -> None:
    """Put a copy at the end of its own queue and take the old one away.

    A broker may drop what was looked at and returned too often (RabbitMQ 4: twenty times).
    """
    account = {
        deliveries.QUEUE: letter.origin,
        deliveries.EXCHANGE: letter.exchange,
        deliveries.ROUTING_KEY: letter.routing_key,
        deliveries.REASON: letter.reason,
    }
    headers = {
        **deliveries.without_counts(delivery.headers),
        **{name: value for name, value in account.items() if value is not None},
    }
    properties = deliveries.with_headers(
        delivery.properties, headers, unreadable=delivery.unreadable
    )
    await consume.publish(
        outbox, letter.queue, delivery.body, properties, exchange=bus.RETRY_EXCHANGE
    )
    crash.here("dlq.after_renewal")
    await inbox.ack(delivery)
