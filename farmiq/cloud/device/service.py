"""Devices in the cloud: how they are, and what they dropped on purpose.

farmiq.device.exchange --ingest.queue--> [device] --device_events-->
"""

from farmiq.cloud import bus, landing
from farmiq.cloud.landing import Landing
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-device-service"

LANDING = Landing("device", bus.DEVICE, landing.in_table("device_events"))


async def run(settings: CloudSettings, door: http.Door) -> None:
    await landing.run(settings, door, LANDING)
