"""Telemetry in the cloud: readings from the bus into tables, acknowledged after the commit.

farmiq.telemetry.exchange --ingest.queue, agg.queue--> [telemetry] --telemetry_readings,
telemetry_latest, telemetry_aggregates, telemetry_latest_aggregates--> console
"""

from farmiq.cloud import bus, sink
from farmiq.cloud.sink import Sink
from farmiq.cloud.telemetry import store
from farmiq.config import CloudSettings
from farmiq.messages.bus import BusEvent
from farmiq.messages.check import InvalidError
from farmiq.plumbing import http

NAME = "cloud-telemetry-service"


def _require_device(event: BusEvent) -> None:
    if not isinstance(event.device_id, str):
        raise InvalidError(["a reading without a device_id belongs to no series"])


READINGS = Sink("telemetry", bus.TELEMETRY, store.store_readings, check=_require_device)
AGGREGATES = Sink("telemetry", bus.AGGREGATES, store.store_aggregates)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    await sink.run(settings, server, READINGS, AGGREGATES)
