"""The load: simulated climate sensors, their readings put into the broker by C publishers."""

import asyncio
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from farmiq.edge.devices import registration
from farmiq.edge.devices.device import parse_device
from farmiq.lab.simulate import farm
from farmiq.lab.stack import Stack
from farmiq.lab.stack.mosquitto import Installation
from farmiq.plumbing import ids
from farmiq.plumbing.messaging import mqtt

TENANT_ID = "bench"
DEVICES = 8
PATIENCE_S = 600.0


def devices(tenant_id: str = TENANT_ID, *, barns: int = DEVICES) -> list[farm.Device]:
    """One climate sensor each of so many barns."""
    everything = farm.farm(tenant_id, barns=barns, steady=True)
    return [device for device in everything if device.metrics == farm.CLIMATE]


async def register(admin_url: str, sensors: Sequence[farm.Device]) -> None:
    """The door takes messages of registered devices only. Safe to repeat."""
    wanted = [parse_device({**asdict(one.place), "wants_receipts": True}) for one in sensors]
    async with await psycopg.AsyncConnection.connect(admin_url) as connection:
        known = {
            line
            for line, *_ in await registration.find_registered(connection, list(enumerate(wanted)))
        }
        lacking = [device for line, device in enumerate(wanted) if line not in known]
        await registration.add_all(connection, lacking, actor="bench")


def message(device: farm.Device, seq: int, *, at: datetime | None = None) -> farm.Sending:
    """A reading of this moment, or of another one."""
    return farm.message(
        device,
        device.metrics[0],
        at=at or datetime.now(UTC),
        event_id=ids.new(),
        seq=seq,
        chance=0.5,
    )


def messages(count: int) -> list[farm.Sending]:
    sensors = devices()
    return [message(sensors[n % len(sensors)], n // len(sensors)) for n in range(count)]


async def make_session(url: str, client_id: str, topics: Sequence[str]) -> None:
    """Let the broker keep messages for this client from now on."""
    async with mqtt.connected(url, client_id=client_id, topics=topics) as session:
        await session.until_up()


async def end_session(url: str, client_id: str) -> None:
    """A clean connection under the same name makes the broker forget the session."""
    async with mqtt.connected(url, client_id=client_id, persistent_session=False) as session:
        await session.until_up()


def prepare(engines: Stack, sending: Sequence[farm.Sending]) -> dict[str, Path]:
    """What is to be published: a file of lines for every topic."""
    folder = engines.root / "load"
    folder.mkdir(exist_ok=True)
    by_topic: dict[str, list[bytes]] = {}
    for one in sending:
        by_topic.setdefault(one.topic, []).append(one.raw)
    prepared = {topic: folder / f"{number}.lines" for number, topic in enumerate(by_topic)}
    for topic, file in prepared.items():
        file.write_bytes(b"\n".join(by_topic[topic]) + b"\n")
    return prepared


async def publish(
    engines: Stack, programs: Installation, sending: dict[str, Path], *, window: int = 8000
) -> None:
    """QoS 1, as fast as the broker takes it, by one C publisher for every topic.

    `window` is how many messages of all publishers together may be unacknowledged: each of them
    waits for a flush of the broker's disk.
    """
    each = max(1, min(1000, window // len(sending)))
    await asyncio.to_thread(_publish, engines, programs, sending, each)


def _publish(engines: Stack, programs: Installation, sending: dict[str, Path], window: int) -> None:
    login = _login(engines.environment["FARMIQ_DEVICES_MQTT_URL"])
    environment = programs.environment(engines.root)
    started = []
    for topic, file in sending.items():
        options = ["-q", "1", "-M", str(window), "-t", topic, "-l"]
        command = [str(programs.publisher), *login, *options]
        with file.open("rb") as source:
            started.append(subprocess.Popen(command, stdin=source, env=environment))  # noqa: S603
    if any(publisher.wait(PATIENCE_S) for publisher in started):
        raise RuntimeError("a publisher of the bench failed; the broker's log may say why")


def subscriber(
    programs: Installation, url: str, client_id: str, topics: Sequence[str]
) -> list[str]:
    """The command line of a C subscriber that takes over a session."""
    wanted = [part for topic in topics for part in ("-t", topic)]
    return [str(programs.subscriber), *_login(url), "-q", "1", "-c", "-i", client_id, *wanted]


def _login(url: str) -> list[str]:
    parts = urlsplit(url)
    return [
        "-h", parts.hostname or "", "-p", str(parts.port),
        "-u", parts.username or "", "-P", parts.password or "",
    ]  # fmt: skip
