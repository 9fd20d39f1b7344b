"""A cluster of brokers: what was acknowledged is read, though the node that had it first dies.

tests/chaos/test_clusters.py kills each of them.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from farmiq.edge.broker import BOUNDS, LOG
from farmiq.messages import topics
from farmiq.plumbing import db
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.broker import store
from farmiq.plumbing.messaging import mqtt, nats, stream
from farmiq.plumbing.messaging.stream import LostError, Position
from tests.conftest import Database
from tests.support import clusters
from tests.support.until import until

TOPIC = "iot/telemetry/t-1/f-1/b-1/d-1"
STREAMS = (topics.LOG, store.QUEUE, store.RETAINED)


class Read:
    """All that a gateway read of the log, in order; it goes on from its position."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []

    async def run(self, url: str) -> None:
        position: Position | None = None
        async with stream.reader(url, stream=topics.LOG) as reader:
            while True:
                start = await reader.start(position)
                assert (start.rewound, start.lost) == ("", 0)
                try:
                    while True:
                        batch = await reader.batch(max_messages=100)
                        self.payloads += [message.payload for message in batch]
                        last = batch[-1]
                        position = Position(start.created, last.seq, last.stored_at_ns)
                except LostError:
                    continue


async def send(device: mqtt.Client, numbers: range) -> None:
    """Each until it is acknowledged, as a device does."""
    for number in numbers:
        while True:
            await device.until_up()
            try:
                await device.publish(TOPIC, b"%d" % number)
                break
            except mqtt.DisconnectedError:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def reading(url: str) -> AsyncIterator[Read]:
    read = Read()
    task = asyncio.create_task(read.run(url))
    try:
        yield read
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _leader(nats_url: str) -> int:
    async with nats.connected(nats_url) as server:
        info = await stream.request(server, f"STREAM.INFO.{topics.LOG}", {})
    return int(info["cluster"]["leader"].rpartition("-")[2])


@pytest.mark.timeout(180)
async def test_acknowledged_messages_outlive_the_leader_of_the_log(
    tmp_path: Path, edge_db: Database
) -> None:
    with clusters.nats_cluster(tmp_path, shared_login=True) as cluster:
        given = cluster.environment
        nats_url = given["FARMIQ_EDGE_BROKER_NATS_URL"]
        async with (
            db.pool(edge_db.url, name="test") as pool,
            httpx2.AsyncClient(trust_env=False) as web,
        ):
            bounded = store.Store(
                pool,
                web,
                nats_url=nats_url,
                monitor_url=given["FARMIQ_EDGE_BROKER_MONITOR_URL"],
                bounds=replace(BOUNDS, log=LOG, replicas=3),
            )
            while not bounded.is_bounded.is_set():
                await bounded.look()
            async with (
                mqtt.connected(
                    given["FARMIQ_DEVICES_MQTT_URL"], client_id="d", backoff=Backoff(cap_s=0.5)
                ) as device,
                reading(given["FARMIQ_EDGE_INGRESS_URL"]) as read,
            ):
                await send(device, range(20))
                node = cluster.nodes[await _leader(nats_url) - 1]
                await asyncio.to_thread(node.kill)
                await send(device, range(20, 40))
                node.start()
                # A client gets in at this very node again, and it has all that the others have.
                await asyncio.to_thread(node.await_answer)
                await until(lambda: clusters.in_step(nats_url, STREAMS), within_s=60)
                expected = [b"%d" % number for number in range(40)]
                await until(lambda: set(read.payloads) >= set(expected), within_s=60)
            # One that was sent again may be there twice; the order is as it was sent.
            assert list(dict.fromkeys(read.payloads)) == expected
            await bounded.look()
            assert bounded.problem is None
