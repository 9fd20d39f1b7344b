"""Weigh sessions in the cloud: begun, weighed, photographed, ended.

farmiq.weighvision.exchange --ingest.queue--> [weighvision] --weighvision_events-->
"""

from farmiq.cloud import bus, landing
from farmiq.cloud.landing import Landing
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-weighvision-service"

LANDING = Landing("weighvision", bus.WEIGHVISION, landing.in_table("weighvision_events"))


async def run(settings: CloudSettings, door: http.Door) -> None:
    await landing.run(settings, door, LANDING)
