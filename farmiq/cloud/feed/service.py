"""Feed: lots and intakes that edges send and people enter, and the stock that follows from them.

people --POST--> [feed] --posted_events, farmiq.feed.exchange--> its own queue
farmiq.feed.exchange --queue--> [feed] --feed_events--> people, figures

A lot or an intake that somebody posts takes the same way as one of an edge: over the bus.
"""

from farmiq.cloud import posting, sinks
from farmiq.cloud.feed.api import Api
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-feed-service"


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    await posting.run(settings, server, sinks.FEED, Api)
