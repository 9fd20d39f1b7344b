"""Publishing of events on the bus, for every service of the cloud that makes events."""

import time
from collections.abc import Sequence

import prometheus_client

from farmiq.messages import bus, catalogue
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import log, tracing
from farmiq.plumbing.bus import amqp

# The one that passes on what edges sent; all others make their events themselves.
INGESTION = "cloud-ingestion"

FAILED = prometheus_client.Counter(
    "farmiq_bus_publish_failed_total",
    "Batches that the bus did not confirm: away, or refused until a person acts",
    ["service", "outcome"],
)


async def publish(
    publisher: amqp.Publisher, events: Sequence[BusEvent], *, timeout_s: float, batch_id: str = ""
) -> None:
    """Publish the events in their order; returns when the bus has confirmed all of them.

    Raises amqp.BusDownError. Call it inside the transaction that stores what the events say: a
    crash before the commit repeats them with the same ids, which consumers ignore (C-10).
    """
    started_ns = time.time_ns()
    try:
        await publisher.publish([_outgoing(event) for event in events], timeout_s=timeout_s)
    except amqp.BusDownError as error:
        outcome = "refused" if error.needs_person else "away"
        FAILED.labels(service=publisher.name, outcome=outcome).inc()
        if error.needs_person:
            _log_rejected(publisher.name, events, str(error))
        raise
    if tracing.is_on():
        hop = tracing.INGEST if publisher.name == INGESTION else tracing.PUBLISH
        named = ((event.event_id, event.event_type, event.trace_id) for event in events)
        tracing.record(hop, publisher.name, named, started_ns=started_ns, batch_id=batch_id)


def _log_rejected(service: str, events: Sequence[BusEvent], reason: str) -> None:
    """Trying again does not help: what, which, why; the counter above raises the alert (RB-23)."""
    some = events[: log.MAX_EVENTS_IN_A_LINE]
    log.get(service).error(
        "bus.publish_refused",
        reason=reason,
        count=len(events),
        event_id=[str(event.event_id) for event in some],
        trace_id=[event.trace_id for event in some],
    )


def _outgoing(event: BusEvent) -> amqp.Outgoing:
    headers = {"schema_version": "1.0", "trace_id": event.trace_id}
    if tracing.is_on():
        traced = tracing.traceparent(event.event_id, event.trace_id, tracing.PUBLISH.name)
        headers |= {"traceparent": traced} if traced else {}
    return amqp.Outgoing(
        exchange=catalogue.BUS[event.event_type].exchange,
        routing_key=event.event_type,
        body=bus.write(event),
        message_id=str(event.event_id),
        headers=headers,
    )
