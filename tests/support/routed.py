"""What the bus of a test carries, as a queue sees it that is bound to everything."""

import contextlib
from collections.abc import AsyncIterator

import msgspec
from aio_pika.abc import AbstractIncomingMessage

from farmiq.messages.catalogue import BUS
from farmiq.plumbing.bus import amqp


class _Typed(msgspec.Struct, frozen=True):
    event_type: str


# (exchange, routing key, the event's own type) of every message.
Routes = set[tuple[str, str, str]]


@contextlib.asynccontextmanager
async def routes(amqp_url: str) -> AsyncIterator[Routes]:
    """The routes of all that is published from now on, whoever does; exchanges are there."""
    seen: Routes = set()

    async def look(message: AbstractIncomingMessage) -> None:
        event = msgspec.json.decode(message.body, type=_Typed)
        seen.add((message.exchange or "", message.routing_key or "", event.event_type))

    async with amqp.connection(amqp_url, name="test") as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        for exchange in {kind.exchange for kind in BUS.values()}:
            await queue.bind(exchange, "#")
        await queue.consume(look, no_ack=True)
        yield seen


def types(seen: Routes) -> set[str]:
    """The types that were published, each to its exchange and under its own name."""
    assert seen <= {(kind.exchange, name, name) for name, kind in BUS.items()}
    return {event_type for _, _, event_type in seen}
