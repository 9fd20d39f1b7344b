"""Publishing of events on the bus, for every service of the cloud that makes events."""

from collections.abc import Sequence

from farmiq.messages import bus, catalogue
from farmiq.messages.bus import BusEvent
from farmiq.plumbing.bus import amqp


async def publish(
    publisher: amqp.Publisher, events: Sequence[BusEvent], *, timeout_s: float
) -> None:
    """Publish the events in their order; returns when the bus has confirmed all of them.

    Raises amqp.BusDownError. Call it inside the transaction that stores what the events say: a
    crash before the commit repeats them with the same ids, which consumers ignore (C-10).
    """
    await publisher.publish([_outgoing(event) for event in events], timeout_s=timeout_s)


def _outgoing(event: BusEvent) -> amqp.Outgoing:
    return amqp.Outgoing(
        exchange=catalogue.BUS[event.event_type].exchange,
        routing_key=event.event_type,
        body=bus.write(event),
        message_id=str(event.event_id),
        headers={"schema_version": "1.0", "trace_id": event.trace_id},
    )
