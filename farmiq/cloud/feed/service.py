"""Feed: lots and intakes that edges send and people enter, and the stock that follows from them.

people --POST--> [feed] --posted_events, farmiq.feed.exchange--> its own queue
farmiq.feed.exchange --queue--> [feed] --feed_events--> people, figures

A lot or an intake that somebody posts takes the same way as one of an edge: over the bus.
"""

from farmiq.cloud import bus, entries, sink
from farmiq.cloud.feed.api import Api
from farmiq.cloud.sink import Sink
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-feed-service"

EVENTS = Sink("feed", bus.FEED, sink.insert_into("feed_events"))


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    await entries.run(settings, server, EVENTS, Api)
