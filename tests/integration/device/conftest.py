"""An edge of the test's own for a station: a real broker, receipts, a media store."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from farmiq.lab import stack
from tests.support.small_edge import Gateway, MediaStore


@dataclass
class Edge:
    gateway: Gateway
    media: MediaStore
    mqtt_url: str
    gateway_url: str
    broker: stack.Stack


@pytest.fixture
async def edge(broker: stack.Stack, tasks: asyncio.TaskGroup) -> AsyncIterator[Edge]:
    gateway, media = Gateway(), MediaStore()
    given = broker.environment
    url = given["FARMIQ_EDGE_MQTT_URL"]
    tasks.create_task(gateway.run(url))
    await gateway.up.wait()
    async with media.serving():
        yield Edge(gateway, media, given["FARMIQ_DEVICES_MQTT_URL"], url, broker)
