"""Media in the cloud: which images the edges have.

farmiq.media.exchange --store.queue--> [media] --media_events-->
"""

from farmiq.cloud import bus, landing
from farmiq.cloud.landing import Landing
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-media-store"

LANDING = Landing("media", bus.MEDIA, landing.in_table("media_events"))


async def run(settings: CloudSettings, door: http.Door) -> None:
    await landing.run(settings, door, LANDING)
