"""Feed in the cloud: intakes and lots.

farmiq.feed.exchange --ingest.queue--> [feed] --feed_events-->
"""

from farmiq.cloud import bus, landing
from farmiq.cloud.landing import Landing
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-feed-service"

LANDING = Landing("feed", bus.FEED, landing.in_table("feed_events"))


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    await landing.run(settings, server, LANDING)
