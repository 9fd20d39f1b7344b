"""S-01: a device speaks under its own name and hears its own topics, on a real broker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import pytest

from farmiq.edge.devices import credentials, registration
from farmiq.edge.devices import device as permissions
from farmiq.edge.devices import service as devices
from farmiq.edge.devices.broker import users as users_of
from farmiq.edge.devices.device import Device, Login
from farmiq.lab import stack
from farmiq.messages import topics
from farmiq.messages.topics import SessionTopic
from farmiq.plumbing import db, ids
from farmiq.plumbing.broker import log as broker_log
from farmiq.plumbing.broker import users as broker_files
from farmiq.plumbing.broker.follow import Follower
from farmiq.plumbing.messaging import mqtt
from tests.conftest import Database
from tests.support import databases
from tests.support.devices import at
from tests.support.until import until

# Names that differ by little, and names that a broker writes otherwise than MQTT does.
PEOPLE = [
    Device(tenant_id="t", farm_id="f", barn_id="b", device_id="d"),
    Device(tenant_id="t", farm_id="f", barn_id="b", device_id="d.1"),
    Device(tenant_id="t", farm_id="f", barn_id="b", device_id="d:1"),
    Device(tenant_id="t", farm_id="f", barn_id="b", device_id="dd", station_id="s"),
    Device(tenant_id="t", farm_id="f", barn_id="b", device_id="D", station_id="s.1"),
    Device(tenant_id="t", farm_id="f", barn_id="b.d", device_id="d."),
    Device(tenant_id="t", farm_id="f.b", barn_id="d", device_id="x"),
    Device(tenant_id="t.f", farm_id="b", barn_id="d", device_id="y..z", station_id="s"),
    Device(tenant_id="T", farm_id="f", barn_id="b", device_id="e-1"),
    Device(tenant_id="t", farm_id="f", barn_id="b2", device_id="e_2"),
]
SESSION = ids.new()
# By login: what the device knows, and what the broker knows of it.
PASSWORDS: dict[str, str] = {}
_HASHED: dict[str, tuple[str, str]] = {}


def own(device: Device) -> list[str]:
    """What a device really sends."""
    where = device.where
    found = [
        topics.telemetry(where, "temperature"),
        topics.telemetry(where, "silo.weight"),
        topics.event(where, "feed.dispensed"),
        topics.status(where),
    ]
    if device.station:
        name = "weighvision.session.created"
        found.append(topics.session(SessionTopic(*device.station, SESSION, name)))
    return found


def down(device: Device) -> list[str]:
    return [topics.receipts(device.where), topics.command(device.where, "ping")]


def odd(rng: Random, device: Device) -> str:
    """A topic of the device's, bent until it may be anybody's."""
    levels = rng.choice(own(device) + down(device)).split("/")
    spot = rng.randrange(len(levels))
    match rng.randrange(6):
        case 0:
            levels[spot] = rng.choice(["", ".", "x", "d", "t", "iot", "$SYS", "a:b"])
        case 1:
            levels.insert(spot, rng.choice(["", "x", "."]))
        case 2:
            del levels[spot]
        case 3:
            return ".".join(levels)
        case 4:
            levels[spot] = levels[spot].swapcase() or "x"
        case _:
            joined = levels[spot : spot + 2]
            levels[spot : spot + 2] = [".".join(joined)]
    return "/".join(levels)


def may(device: Device, topic: str) -> bool:
    """MQTT's own rule for the filters that a device may publish on."""
    levels = topic.split("/")
    return any(
        len(levels) == len(pattern)
        and all(want in ("+", level) for want, level in zip(pattern, levels, strict=True))
        for pattern in (each.split("/") for each in permissions.publishes(device))
    )


@dataclass
class Gate:
    """A broker that knows PEOPLE, and a listener that hears everything under iot/."""

    broker: stack.Stack
    listener: mqtt.Client
    heard: list[tuple[str, bytes]]

    def address(self, device: Device) -> str:
        host, port = mqtt.address(self.broker.environment["FARMIQ_EDGE_MQTT_URL"])
        user = quote(device.broker_user, safe="")
        return f"mqtt://{user}:{PASSWORDS[device.broker_user]}@{host}:{port}"

    def connected(self, device: Device, **options: Any) -> Any:
        return mqtt.connected(
            self.address(device),
            client_id=f"d-{ids.new().hex}",
            persistent_session=False,
            **options,
        )

    def admit(self, people: list[Device]) -> None:
        environment = self.broker.environment
        logins = [Login(each, *_hashes(each)) for each in people]
        names = environment["FARMIQ_EDGE_BROKER_OWN_USERS"].split(",")
        file = Path(environment["FARMIQ_EDGE_BROKER_USERS_FILE"])
        broker_files.replace(file, permissions.nats_users(logins, own=names))
        broker_files.reload(Path(environment["FARMIQ_EDGE_BROKER_PID_FILE"]))

    async def until_marked(self) -> None:
        """Everything published before this call has been heard."""
        mark = ids.new().hex.encode()
        async with mqtt.connected(
            self.broker.environment["FARMIQ_DEVICES_MQTT_URL"],
            client_id=f"mark-{mark.decode()}",
            persistent_session=False,
        ) as link:
            await link.until_up()
            await link.publish("iot/telemetry/mark/f/b/d/x", mark)
        await until(lambda: any(body == mark for _, body in self.heard))


def _hashes(device: Device) -> tuple[str, str]:
    if device.broker_user not in PASSWORDS:
        made = credentials.new()
        PASSWORDS[device.broker_user] = made.plain
        _HASHED[device.broker_user] = (made.bcrypt, made.pbkdf2)
    return _HASHED[device.broker_user]


@pytest.fixture
async def gate(broker: stack.Stack, tasks: asyncio.TaskGroup) -> AsyncIterator[Gate]:
    url = broker.environment["FARMIQ_EDGE_MQTT_URL"]
    async with mqtt.connected(url, client_id="listener", topics=["iot/#"]) as listener:
        made = Gate(broker, listener, [])
        made.admit(PEOPLE)
        await listener.until_up()
        listening = tasks.create_task(_hear(made))
        yield made
        listening.cancel()


async def _hear(gate: Gate) -> None:
    while True:
        messages = await gate.listener.batch(max_messages=500, linger_s=0.01)
        gate.heard += [(each.topic, each.payload) for each in messages]
        gate.listener.ack(messages)


async def test_thousands_of_publishes_under_foreign_names_reach_nobody(gate: Gate) -> None:
    rng = Random(7)
    tried: dict[str, list[str]] = {}
    async with AsyncExitStack() as links:
        for device in PEOPLE:
            others = [each for each in PEOPLE if each is not device]
            foreign = [topic for each in others for topic in own(each) + down(each)]
            bent = [odd(rng, rng.choice(PEOPLE)) for _ in range(200)]
            asked = [*own(device), *down(device), *foreign, *bent]
            tried[device.broker_user] = [topic for topic in asked if topic]
            link = await links.enter_async_context(gate.connected(device))
            await link.until_up()
            body = device.broker_user.encode()
            for start in range(0, len(asked), 100):
                part = tried[device.broker_user][start : start + 100]
                await asyncio.gather(*(link.publish(topic, body) for topic in part))
    await gate.until_marked()
    assert sum(len(each) for each in tried.values()) > 2_500
    by_user = {device.broker_user: device for device in PEOPLE}
    heard = [(by_user[body.decode()], topic) for topic, body in gate.heard if b"/" in body]
    assert [(who.broker_user, topic) for who, topic in heard if not may(who, topic)] == []
    for device in PEOPLE:
        mine = {topic for who, topic in heard if who is device}
        assert set(own(device)) <= mine


FILTERS = [
    "#", "+/#", "+/+/+/+/+/+", "+/+/+/+/+/+/+", "iot/#", "iot/+/t/f/b/d", "iot/ack/#",
    "iot/ack/t/f/b/+", "iot/ack/+/f/b/d", "iot/ack/t/f/b/d.1", "iot/command/t/f/b/+/#",
    "iot/command/#", "iot/telemetry/t/f/b/d/#", "iot/status/#", "$SYS/#", "$SYS/ACCOUNT/#",
    "$JS/#", "$JS/API/#", "$MQTT/#", "$MQTT/sub/#", "$MQTT/msgs/#", "_INBOX/#", "/#", "+",
]  # fmt: skip


async def test_no_subscription_brings_anything_but_ones_own(gate: Gate) -> None:
    (one, other), got = PEOPLE[:2], list[str]()
    async with gate.connected(one, topics=permissions.subscribes(one)) as link:
        await link.until_up()
        for wide in FILTERS:
            answers = await _subscribe(link, wide)
            assert answers == [0x80], wide
        gateway = gate.broker.environment["FARMIQ_EDGE_MQTT_URL"]
        async with mqtt.connected(gateway, client_id="gw", persistent_session=False) as edge:
            await edge.until_up()
            for each in (other, PEOPLE[2], one):
                for topic in down(each):
                    await edge.publish(topic, b"for you")
        while len(got) < len(down(one)):
            got += [each.topic for each in await link.batch(max_messages=10, linger_s=0.2)]
    assert sorted(got) == sorted(down(one))


async def _subscribe(link: mqtt.Client, topic: str) -> list[int]:
    answered: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
    usual = link._paho.on_subscribe

    def note(_c: Any, _u: Any, _mid: int, reasons: list[Any], _p: Any) -> None:
        answered.set_result([each.value for each in reasons])

    link._paho.on_subscribe = note
    link._paho.subscribe(topic, 1)
    try:
        return await asyncio.wait_for(answered, 60)
    finally:
        link._paho.on_subscribe = usual


async def test_a_retained_message_and_a_will_under_a_foreign_name_reach_nobody(gate: Gate) -> None:
    one, other = PEOPLE[:2]
    will = mqtt.Will(topics.status(other.where), b"forged will")
    async with gate.connected(one, will=will) as link:
        await link.until_up()
        await link.publish(topics.status(other.where), b"forged", retain=True)
        connection = link.connection
        link._wire.socket.shutdown(2)
        await until(lambda: link.problem() is not None or link.connection != connection)
    mine = mqtt.Will(topics.status(one.where), b"own will")
    async with gate.connected(one, will=mine) as link:
        await link.until_up()
        link._wire.socket.shutdown(2)
        await until(lambda: any(body == b"own will" for _, body in gate.heard))
    assert not any(b"forged" in body for _, body in gate.heard)
    url = gate.broker.environment["FARMIQ_EDGE_MQTT_URL"]

    async def kept() -> list[bytes]:
        """What a newcomer is told; the broker may keep it a moment after it has passed it on."""
        async with mqtt.connected(
            url,
            client_id=f"later-{ids.new().hex}",
            topics=["iot/status/#"],
            persistent_session=False,
        ) as later:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5):
                    return [
                        each.payload for each in await later.batch(max_messages=10, linger_s=0.5)
                    ]
        return []

    assert await until(kept) == [b"own will"]


async def test_a_revoked_device_is_cut_and_the_others_stay(gate: Gate) -> None:
    gone, stays = PEOPLE[0], PEOPLE[1]
    async with gate.connected(gone) as one, gate.connected(stays) as two:
        await one.until_up()
        await two.until_up()
        connection = two._connection
        gate.admit(PEOPLE[1:])
        await until(lambda: one.problem() is not None)
        await until(lambda: "refused" in (one.problem() or ""))
        await two.publish(topics.status(stays.where), b"here")
        assert (two._connection, gate.listener.problem()) == (connection, None)
        gate.admit(PEOPLE)
        await until(lambda: one.problem() is None)


async def test_another_secret_ends_the_old_one_with_its_connection(gate: Gate) -> None:
    device = PEOPLE[0]
    async with gate.connected(device) as link:
        await link.until_up()
        del PASSWORDS[device.broker_user]
        gate.admit(PEOPLE)
        await until(lambda: "refused" in (link.problem() or ""))
    async with gate.connected(device) as link:
        await link.until_up()


@pytest.mark.parametrize("login", ["", "t%2Fd:wrong@", "nobody:x@", "t%2Fd:@"])
async def test_nobody_connects_without_a_login(gate: Gate, login: str) -> None:
    host, port = mqtt.address(gate.broker.environment["FARMIQ_EDGE_MQTT_URL"])
    async with mqtt.connected(f"mqtt://{login}{host}:{port}", client_id="nobody") as link:
        await until(lambda: "refused" in (link.problem() or ""))


async def test_a_device_cannot_speak_the_brokers_own_protocol(gate: Gate) -> None:
    """Its login is for MQTT: with the NATS protocol it could read what others are delivered."""
    ports = Path(gate.broker.environment["FARMIQ_EDGE_BROKER_USERS_FILE"]).parent / "nats.conf"
    (line,) = [each for each in ports.read_text().splitlines() if each.startswith("port: ")]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(line.split()[1]))
    await reader.readline()
    user, word = PEOPLE[0].broker_user, PASSWORDS[PEOPLE[0].broker_user]
    writer.write(f'CONNECT {{"user":"{user}","pass":"{word}","verbose":true}}\r\n'.encode())
    assert b"Authorization Violation" in await reader.readline()
    writer.close()


async def test_what_the_broker_refuses_becomes_a_security_alert(
    gate: Gate, edge_db: Database
) -> None:
    follower = Follower(Path(gate.broker.environment["FARMIQ_EDGE_BROKER_LOG_FILE"]))
    async with db.pool(edge_db.url, name="test") as pool:
        async with gate.connected(PEOPLE[0]) as link:
            await link.until_up()
            # Until the broker has read who may come in, it refuses everybody.
            follower.look()
            for _ in range(5):
                await link.publish(topics.status(PEOPLE[1].where), b"forged")
        found = 0
        while found < 5:
            found += int(str((await devices.watch_log(pool, follower))["refusals"]))
            await asyncio.sleep(0.01)
    with databases.connected(edge_db.admin_url) as connection:
        rows = connection.execute("select kind, subject, severity, seen_count, message from alerts")
        ((kind, subject, severity, count, message),) = rows.fetchall()
    assert (kind, subject, severity, count) == (broker_log.PERMISSION, "127.0.0.1", "security", 5)
    assert "iot.status.t.f.b.d//1" in message


async def test_the_registry_is_written_to_the_broker_and_kept_there(
    broker: stack.Stack, edge_db: Database, tmp_path: Path
) -> None:
    file = tmp_path / "users.conf"
    async with db.pool(edge_db.url, name="test") as pool:
        users = users_of(pool, file, own=["GATEWAY"], pid_file=None)
        assert (await users.refresh())["users"]
        assert (await users.refresh()) == {"users": 0}
        async with db.transaction(pool) as tx:
            await registration.add(tx, at(PEOPLE[0].where), actor="test")
        assert (await users.refresh())["users"]
        assert '"t/d"' in file.read_text()
        file.write_text("somebody changed it")
        await users.refresh()
        assert '"t/d"' in file.read_text()
        assert users.problem is None
        lost = users_of(pool, file, own=["GATEWAY"], pid_file=tmp_path / "no.pid")
        file.unlink()
        await lost.refresh()
        assert "names no running broker" in (lost.problem or "")
        nowhere = users_of(pool, tmp_path / "no" / "where.conf", own=["GATEWAY"], pid_file=None)
        await nowhere.refresh()
        assert "No such file" in (nowhere.problem or "")
    assert broker.environment["FARMIQ_EDGE_BROKER_OWN_USERS"] == "GATEWAY,DEVICES,LOG,KEEPER"


def test_without_a_shared_login_the_broker_asks_who_may_connect(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with stack.start(root, engines=("mqtt-edge",), shared_login=False) as started:
        environment = started.environment
        assert "@" not in environment["FARMIQ_DEVICES_MQTT_URL"]
        assert not {name for name in environment if name.endswith(("_USERS_FILE", "_OWN_USERS"))}
        key = Path(environment["FARMIQ_EDGE_BROKER_CALLOUT_KEY_FILE"])
        assert key.stat().st_mode & 0o777 == 0o600
        assert "devices" not in (key.parent / "nats.conf").read_text().partition("users = ")[2]
    with stack.start(root, engines=("mqtt-edge",)) as started:
        assert started.environment["FARMIQ_EDGE_BROKER_OWN_USERS"] == "GATEWAY,DEVICES,LOG,KEEPER"
        text = Path(started.environment["FARMIQ_EDGE_BROKER_USERS_FILE"]).read_text()
        assert "$DEVICES" in text
