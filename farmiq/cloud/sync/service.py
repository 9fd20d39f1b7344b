"""Sync in the cloud: the batches that edges delivered.

farmiq.sync.exchange --ingest.queue--> [sync] --sync_events-->
"""

from farmiq.cloud import bus, landing
from farmiq.cloud.forgetting import Forgotten
from farmiq.cloud.landing import Landing
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-sync-service"

LANDING = Landing("sync", bus.SYNC, landing.in_table("sync_events"))


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    batches = Forgotten("sync_events", "stored_at", settings.sync_events_days)
    await landing.run(settings, server, LANDING, forgotten=(batches,))
