"""Inference in the cloud: what models made of images.

farmiq.inference.exchange --ingest.queue--> [inference] --inference_events-->
"""

from farmiq.cloud import bus, landing
from farmiq.cloud.landing import Landing
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-inference-service"

LANDING = Landing("inference", bus.INFERENCE, landing.in_table("inference_events"))


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    await landing.run(settings, server, LANDING)
