"""Barn records: what edges send and people enter becomes rows, and people read them.

people --POST--> [barn] --posted_events, farmiq.barn.exchange--> its own queue
farmiq.barn.exchange --queue--> [barn] --barn_events--> people, figures

A record that somebody posts takes the same way as one of an edge: over the bus, into barn_events.
"""

from farmiq.cloud import bus, entries, sink
from farmiq.cloud.barn.api import Api
from farmiq.cloud.sink import Sink
from farmiq.config import CloudSettings
from farmiq.plumbing import http

NAME = "cloud-barn-service"

EVENTS = Sink("barn", bus.BARN, sink.insert_into("barn_events"))


async def run(settings: CloudSettings, server: http.HttpServer) -> None:
    await entries.run(settings, server, EVENTS, Api)
