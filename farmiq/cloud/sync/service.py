"""Sync in the cloud: the batches that edges delivered.

farmiq.sync.exchange --ingest.queue--> [sync] --sync_events-->
"""

from farmiq.cloud import bus, landing
from farmiq.cloud.landing import Landing
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-sync-service"

LANDING = Landing("sync", bus.SYNC, landing.in_table("sync_events"))


async def run(settings: CloudSettings, door: http.Door) -> None:
    await landing.run(settings, door, LANDING)
