"""Weigh sessions in the cloud: created, weighed, photographed, finalized or cancelled.

farmiq.weighvision.exchange --ingest.queue--> [weighvision] --weighvision_events, weight_sessions-->
console
"""

from farmiq.cloud import bus, sink
from farmiq.cloud.sink import Sink
from farmiq.cloud.weighvision import store
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-weighvision-service"

SINK = Sink("weighvision", bus.WEIGHVISION, store.apply_events)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    await sink.run(settings, server, SINK)
