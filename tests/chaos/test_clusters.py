"""Three nodes of RabbitMQ and of NATS, killed one after the other under load: nothing lost.

sensors --mqtt--> NATS, three nodes --> two gateways --> edge --http--> three clouds
                                                                          |
                         tables <-- the same three clouds <-- RabbitMQ, three nodes
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
import pytest

from farmiq.lab import stack
from farmiq.messages import topics
from farmiq.plumbing.broker import store
from tests.chaos.conftest import provisioned
from tests.chaos.rounds import delivered_again, grown
from tests.support import clusters, devices
from tests.support.balancer import balanced
from tests.support.clusters import Cluster, Node
from tests.support.engines import state_dir
from tests.support.farm import Farm
from tests.support.ports import free_port
from tests.support.until import until

CLOUDS = ("cloud", "cloud-2", "cloud-3")
GATEWAYS = ("edge-ingress-gateway", "gateway-2")
BESIDE = (
    "edge-devices-registry",
    "edge-sync-forwarder",
    "edge-telemetry-timeseries",
    "edge-feed-intake",
    "edge-barn-records",
)
# What the broker holds of devices and their sessions.
STREAMS = (topics.LOG, store.QUEUE, store.RETAINED, "$MQTT_sess")
# Readings that were acknowledged while a node was away: the others did its work.
WITHOUT_IT = 100
EVERY_S = 60.0


@dataclass
class Place:
    """A farm on clusters, and the verbs to break them."""

    farm: Farm
    rabbitmq: Cluster
    nats: Cluster

    @property
    def nodes(self) -> list[Node]:
        """One of each cluster in turn."""
        return [
            node for pair in zip(self.rabbitmq.nodes, self.nats.nodes, strict=True) for node in pair
        ]

    async def lose(self, node: Node, *, also: tuple[str, ...] = ()) -> float:
        """Kill a node, and replicas of services beside it; start them again when others worked.

        Returns after how long all that was on its way is in the cloud.
        """
        acknowledged = self.acknowledged()
        await asyncio.to_thread(node.kill)
        began = time.monotonic()
        for name in also:
            self.farm.kill(name)
        sent = set(self.farm.sent().events["sent"])
        await until(lambda: self._has_arrived(sent), within_s=240)
        recovery_s = time.monotonic() - began
        await until(lambda: self.acknowledged() >= acknowledged + WITHOUT_IT, within_s=240)
        node.start()
        for name in also:
            self.farm.start(_service(name), called=name)
        await asyncio.to_thread(node.await_answer)
        await until(self.in_step, within_s=240)
        if also:
            await self.farm.until_ready(*also)
        return recovery_s

    def _has_arrived(self, sent: set[str]) -> bool:
        """All have an answer, and those of a good one are in the cloud."""
        answers = self.farm.sent().events
        good = answers["ok"] | answers["stored"]
        answered = good | answers["unknown"] | answers["refused"]
        return sent <= answered and sent & good <= self.farm.in_the_cloud()

    def acknowledged(self) -> int:
        """Readings that a device knows to be stored at the edge."""
        return self.farm.sent().count("stored")

    async def in_step(self) -> bool:
        """Every queue and every stream is whole at all three nodes."""
        url = self.farm.environment["FARMIQ_EDGE_BROKER_NATS_URL"]
        return await self._queues_in_step() and await clusters.in_step(url, STREAMS)

    async def _queues_in_step(self) -> bool:
        url = self.farm.environment["FARMIQ_RABBITMQ_API_URL"]
        try:
            async with httpx2.AsyncClient(timeout=20) as client:
                queues = (await client.get(f"{url}/api/queues")).raise_for_status().json()
        except httpx2.HTTPError:
            return False
        return bool(queues) and all(
            len(queue.get("online", ())) == len(clusters.NODES) for queue in queues
        )


def _service(name: str) -> str:
    return "cloud" if name in CLOUDS else "edge-ingress-gateway" if name in GATEWAYS else name


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    logins = tmp_path / "logins.json"

    def register(url: str) -> None:
        made = devices.register(
            url, [devices.at(each, wants_receipts=True) for each in devices.HILLSIDE]
        )
        logins.write_text(json.dumps({"devices": [login.as_json() for login in made]}))

    root = tmp_path / "stack"
    databases = ("postgres-edge", "postgres-cloud")
    with (
        stack.start(root, engines=databases, downloads=state_dir() / "engines") as engines,
        clusters.rabbitmq_cluster(tmp_path) as rabbitmq,
        clusters.nats_cluster(tmp_path) as broker,
    ):
        given = {**engines.environment, **rabbitmq.environment, **broker.environment}
        farm = provisioned(tmp_path, given, register=register)
        farm.ports |= {name: free_port() for name in (*CLOUDS, *GATEWAYS, "balancer")}
        farm.environment |= {
            "FARMIQ_CLOUD_URL": farm.url("balancer"),
            "FARMIQ_DEVICES_LOGINS_FILE": str(logins),
        }
        try:
            yield Place(farm, rabbitmq, broker)
        finally:
            farm.stop()
    stack.remove(root)


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.xdist_group("chaos")
async def test_node_after_node_is_killed_and_nothing_is_lost(
    place: Place, record_property: Callable[[str, object], None]
) -> None:
    farm = place.farm
    async with balanced(*(farm.ports[name] for name in CLOUDS), port=farm.ports["balancer"]):
        for name in (*CLOUDS, *GATEWAYS, *BESIDE):
            farm.start(_service(name), called=name)
        await farm.until_ready()
        simulator = farm.simulate("--barns", "4", "--interval", "0.25", "--steady")
        await until(lambda: place.acknowledged() >= WITHOUT_IT, within_s=120)
        await until(place.in_step, within_s=120)
        before = delivered_again(farm)
        recoveries = []
        for turn, node in enumerate(place.nodes):
            next_at = time.monotonic() + EVERY_S
            # A replica of the cloud and a gateway die with every other node.
            also = (CLOUDS[turn % 3], GATEWAYS[turn // 2 % 2]) if turn % 2 else ()
            recoveries.append(await place.lose(node, also=also))
            await until(partial(_is_over, next_at), within_s=EVERY_S + 1)
        again = grown(before, delivered_again(farm))
        farm.stop_one("simulator")
        assert simulator.returncode in {0, 3}, farm.log("simulator")
        await farm.until_quiet()
    edge, cloud = farm.findings()
    doubled = farm.doubled()
    record_property(
        "fault",
        {
            "kind": "a node of a cluster is killed", "events": edge.sent,
            "lost": len({*edge.lost, *cloud.lost}),
            "twice": len({*edge.twice, *cloud.twice, *doubled}), "recovery_s": max(recoveries),
        },
    )  # fmt: skip
    record_property("recovery of each, s", [round(each, 1) for each in recoveries])
    assert edge.clean, edge
    assert cloud.clean, cloud
    assert doubled == ()
    assert again >= 1, "nothing was delivered again: this proved nothing"


def _is_over(moment: float) -> bool:
    return time.monotonic() >= moment
