"""Services of the cloud that store the events of one queue in one table: a list, not programs.

farmiq.{family}.exchange --farmiq.{service}.{purpose}.queue--> [sinks] --{family}_events--> console
"""

from collections.abc import Sequence

from farmiq.cloud import bus, retentions, sink
from farmiq.cloud.sink import Sink
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db

_store_device_events = sink.insert_into("device_events")


async def store_device_events(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """The page of readings shows which devices are revoked, so it is notified."""
    new = await _store_device_events(tx, events)
    await sink.notify_pages(tx, "telemetry_changed", events)
    return new


_store_inference_events = sink.insert_into("inference_events")


async def store_inference_events(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """The page of a weighing shows its estimate, so it is notified."""
    new = await _store_inference_events(tx, events)
    await sink.notify_pages(tx, "weighvision_changed", events)
    return new


INFERENCE = Sink("inference", bus.INFERENCE, store_inference_events)
DEVICE = Sink("device", bus.DEVICE, store_device_events)
SYNC = Sink(
    "sync",
    bus.SYNC,
    sink.insert_into("sync_events"),
    retention=retentions.sync_events,
)
