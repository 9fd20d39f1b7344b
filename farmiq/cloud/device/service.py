"""Devices in the cloud: how they are, and what they dropped on purpose.

farmiq.device.exchange --ingest.queue--> [device] --device_events--> console
"""

from collections.abc import Sequence

from farmiq.cloud import bus, landing
from farmiq.cloud.landing import Landing
from farmiq.config import CloudSettings
from farmiq.messages.bus import BusEvent
from farmiq.plumbing import db, http

NAME = "cloud-device-service"

_keep_events = landing.in_table("device_events")


async def record(tx: db.Connection, events: Sequence[BusEvent]) -> int:
    """Keep the events; the page of readings says which device is revoked."""
    new = await _keep_events(tx, events)
    await landing.notify_pages(tx, "telemetry_changed", events)
    return new


LANDING = Landing("device", bus.DEVICE, record)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    await landing.run(settings, server, LANDING)
