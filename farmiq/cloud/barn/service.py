"""Barn records in the cloud: what people wrote down.

farmiq.barn.exchange --ingest.queue--> [barn] --barn_events-->
"""

from farmiq.cloud import bus, landing
from farmiq.cloud.landing import Landing
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-barn-service"

LANDING = Landing("barn", bus.BARN, landing.in_table("barn_events"))


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    await landing.run(settings, server, LANDING)
