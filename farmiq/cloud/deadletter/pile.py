"""The piles of dead letters on the bus: count them, look at them, redrive, discard.

A letter is acknowledged only after it is confirmed where it goes and noted in the audit; whatever
breaks in between leaves it where it was, so it may be delivered twice and is never lost.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass

import aiormq
import psycopg
from aio_pika.abc import AbstractConnection

from farmiq import crash
from farmiq.cloud import bus
from farmiq.cloud.deadletter import letter as letters
from farmiq.cloud.deadletter import store
from farmiq.cloud.deadletter.letter import Group, Letter, Wish
from farmiq.cloud.deadletter.store import Deed
from farmiq.plumbing import consume, db
from farmiq.plumbing import delivery as deliveries
from farmiq.plumbing.consume import Inbox
from farmiq.plumbing.delivery import Delivery

# So many are published together; a crash in between delivers at most these twice.
TOGETHER = 50


@dataclass(frozen=True, slots=True)
class Order:
    """What to do with the letters that are meant, by whom, how many at most and how fast."""

    action: str
    wish: Wish
    actor: str
    limit: int
    rate_per_s: float
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """`done` is redriven, discarded, failed, or what a dry run would have done.

    `why` it failed; `note` is what else should be known.
    """

    done: str
    letter: Letter
    why: str | None = None
    note: str | None = None

    @property
    def told(self) -> str:
        return ": ".join(filter(None, (self.done, self.why, self.note)))


async def groups(opened: AbstractConnection, wish: Wish) -> list[Group]:
    """All letters that are meant, counted by pile and kind."""
    found: dict[tuple[str, str], Group] = {}
    async for letter, _ in look(opened, wish):
        key = (letter.pile, letter.kind)
        found.setdefault(key, Group(*key)).add(letter)
    return sorted(found.values(), key=lambda each: (each.pile, -each.count))


async def look(opened: AbstractConnection, wish: Wish) -> AsyncIterator[tuple[Letter, bytes]]:
    """The letters that are meant, oldest first, each with its bytes. They stay where they are."""
    for pile in await _existing(opened, wish):
        async for _, window in consume.browse(opened, pile):
            for each in window:
                letter = letters.of(pile, each)
                if wish.means(letter):
                    yield letter, each.body


async def carry_out(
    opened: AbstractConnection, pool: db.Pool, order: Order
) -> AsyncGenerator[Outcome, None]:
    """Redrive or discard, a few at a time and no faster than asked."""
    outbox = await consume.confirming(opened)
    left = order.limit
    for pile in await _existing(opened, order.wish):
        async for inbox, window in consume.browse(opened, pile):
            meant = [(letters.of(pile, each), each) for each in window]
            meant = [item for item in meant if order.wish.means(item[0])][:left]
            left -= len(meant)
            # No more at once than a second may have: a slow order must not begin with a burst.
            together = max(1, min(TOGETHER, int(order.rate_per_s)))
            for start in range(0, len(meant), together):
                some = meant[start : start + together]
                began = time.monotonic()
                for outcome in await _some(outbox, inbox, pool, order, some):
                    yield outcome
                if not order.dry_run:
                    spent_s = time.monotonic() - began
                    await asyncio.sleep(max(0.0, len(some) / order.rate_per_s - spent_s))
            if left <= 0:
                return


async def _existing(opened: AbstractConnection, wish: Wish) -> list[str]:
    found = []
    for pile in wish.piles:
        channel = await opened.channel()
        try:
            await channel.declare_queue(pile, passive=True)
        except aiormq.exceptions.ChannelNotFoundEntity:
            continue
        await channel.close()
        found.append(pile)
    return found


Meant = Sequence[tuple[Letter, Delivery]]


async def _some(
    outbox: aiormq.abc.AbstractChannel, inbox: Inbox, pool: db.Pool, order: Order, meant: Meant
) -> list[Outcome]:
    if order.dry_run:
        return [Outcome(f"would {order.action}", letter) for letter, _ in meant]
    outcomes = await _send(outbox, meant) if order.action == "redrive" else _dropped(meant)
    outcomes = await _noted(pool, order, meant, outcomes)
    crash.here("dlq.after_publish")
    for (_, delivery), outcome in zip(meant, outcomes, strict=True):
        if outcome.why is None:
            await inbox.ack(delivery)
    return outcomes


async def _noted(
    pool: db.Pool, order: Order, meant: Meant, outcomes: list[Outcome]
) -> list[Outcome]:
    """All together; if the audit cannot take one, each alone, and that one stays where it is."""
    try:
        async with db.transaction(pool) as tx:
            await store.note(tx, _deeds(order, meant, outcomes))
    except (psycopg.DataError, psycopg.IntegrityError, UnicodeError) as error:
        if len(meant) == 1:
            why = f"the audit cannot take it: {db.first_line(error)}"
            return [Outcome("failed", meant[0][0], why)]
        return [
            found
            for item, outcome in zip(meant, outcomes, strict=True)
            for found in await _noted(pool, order, [item], [outcome])
        ]
    return outcomes


def _dropped(meant: Meant) -> list[Outcome]:
    return [Outcome("discarded", letter) for letter, _ in meant]


def _deeds(order: Order, meant: Meant, outcomes: list[Outcome]) -> list[Deed]:
    return [
        Deed(
            actor=order.actor,
            action=order.action,
            letter=letter,
            outcome=outcome.told,
            body=delivery.body,
            keep_body=order.action == "discard",
        )
        for (letter, delivery), outcome in zip(meant, outcomes, strict=True)
    ]


async def _send(outbox: aiormq.abc.AbstractChannel, meant: Meant) -> list[Outcome]:
    answers = await asyncio.gather(
        *(_send_one(outbox, letter, delivery) for letter, delivery in meant),
        return_exceptions=True,
    )
    return [_outcome(letter, answer) for (letter, _), answer in zip(meant, answers, strict=True)]


def _outcome(letter: Letter, answer: BaseException | None) -> Outcome:
    if answer is None:
        without = letter.unreadable and f"without what could not be read: {letter.unreadable}"
        return Outcome("redriven", letter, note=without)
    if isinstance(answer, aiormq.exceptions.DeliveryError):
        return Outcome("failed", letter, "its queue is full")
    if isinstance(answer, (aiormq.exceptions.PublishError, NoWayBack)):
        return Outcome("failed", letter, f"there is no queue {letter.origin or letter.exchange}")
    if isinstance(answer, (TypeError, ValueError)):
        return Outcome("failed", letter, f"it cannot be written as a message: {answer}"[:300])
    raise answer


class NoWayBack(Exception):  # noqa: N818 - a verdict on one letter
    """The letter names a queue or an exchange that is none of ours."""


async def _send_one(outbox: aiormq.abc.AbstractChannel, letter: Letter, delivery: Delivery) -> None:
    """To the queue whose consumer did not take it; an event that nobody wanted, to its exchange."""
    properties = deliveries.afresh(delivery)
    if letter.origin is None and letter.exchange in letters.EXCHANGES:
        await consume.publish(
            outbox, delivery.routing_key, delivery.body, properties, exchange=letter.exchange
        )
    elif letter.origin in letters.ORIGINS:
        await consume.publish(
            outbox, letter.origin, delivery.body, properties, exchange=bus.RETRY_EXCHANGE
        )
    else:
        raise NoWayBack
