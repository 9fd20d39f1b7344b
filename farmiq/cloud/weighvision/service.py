"""Weigh sessions in the cloud: begun, weighed, photographed, ended.

farmiq.weighvision.exchange --ingest.queue--> [weighvision] --weighvision_events, weight_sessions-->
console
"""

from farmiq.cloud import bus, landing
from farmiq.cloud.landing import Landing
from farmiq.cloud.weighvision import store
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-weighvision-service"

LANDING = Landing("weighvision", bus.WEIGHVISION, store.record)


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    await landing.run(settings, server, LANDING)
