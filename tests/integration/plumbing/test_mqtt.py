"""MQTT on real brokers: nothing acknowledged is lost, nothing unacknowledged is forgotten.

Every promise of the client is shown on NATS and on Mosquitto; what only one of them can be asked
for (surviving a power cut, refusing a subscription) says so by its fixture.
"""

import asyncio
import contextlib
import itertools
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from farmiq.lab.stack import broker as engine
from farmiq.lab.stack import processes
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.messaging.mqtt import Client, DisconnectedError, Message, Will
from farmiq.plumbing.tls import Tls
from tests.support import brokers
from tests.support.until import until

UP = "iot/telemetry/#"
TOPIC = "iot/telemetry/t/f/b/d/m"


@dataclass(frozen=True)
class Broker:
    """A broker of this test's own, and who connects to it."""

    server: brokers.Broker

    def gateway(self, **options: Any) -> AbstractAsyncContextManager[Client]:
        usual: dict[str, Any] = {"client_id": "gateway-1", "topics": [UP]}
        return connected(self.server.gateway_url, **{**usual, **options})

    def device(self, **options: Any) -> AbstractAsyncContextManager[Client]:
        usual: dict[str, Any] = {"client_id": "device-1", "persistent_session": False}
        return connected(self.server.devices_url, **{**usual, **options})

    async def kill(self) -> None:
        await self.server.kill()

    async def restart(self) -> None:
        await self.server.restart()


@pytest.fixture(params=["nats", "mosquitto"])
def own(
    request: pytest.FixtureRequest, tmp_path: Path, free_port: Callable[[], int]
) -> Iterator[Broker]:
    if request.param == "nats":
        with brokers.nats(tmp_path) as server:
            yield Broker(server)
    else:
        with brokers.mosquitto(tmp_path, free_port()) as server:
            yield Broker(server)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ACK_WAIT_S", 3)


@pytest.fixture
def impatient(soon: None, own: Broker) -> Broker:  # noqa: ARG001 - before the broker starts
    """Soon repeats what is not acknowledged; Mosquitto does so on the next connection only."""
    return own


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Broker]:
    """NATS: it has on disk what it has acknowledged, and refuses what a user may not have."""
    with brokers.nats(tmp_path) as server:
        yield Broker(server)


@contextlib.asynccontextmanager
async def connected(url: str, **options: Any) -> AsyncIterator[Client]:
    async with (
        mqtt.connected(url, backoff=Backoff(base_s=0.05, cap_s=0.2), **options) as client,
        asyncio.timeout(150),
    ):
        await client.until_up()
        yield client


async def take(client: Client, count: int) -> list[Message]:
    taken: list[Message] = []
    async with asyncio.timeout(60):
        while len(taken) < count:
            taken += await client.batch(max_messages=count - len(taken), linger_s=0.0)
    return taken


async def take_all(client: Client, *wanted: str) -> list[Message]:
    """Everything that came until all wanted ones had; a slow machine may see some of them twice."""
    taken: list[Message] = []
    async with asyncio.timeout(60):
        while not set(wanted) <= set(names(taken)):
            taken += await client.batch(max_messages=1, linger_s=0.0)
    return taken


async def take_until(client: Client, *wanted: str) -> list[str]:
    """The distinct names that came until all wanted ones had; each is acknowledged."""
    seen: dict[str, None] = {}
    async with asyncio.timeout(60):
        while not set(wanted) <= set(seen):
            messages = await client.batch(max_messages=1, linger_s=0.0)
            seen |= dict.fromkeys(names(messages))
            client.ack(messages)
    return list(seen)


async def publish(client: Client, *names: str) -> None:
    await asyncio.gather(*(client.publish(TOPIC, name.encode()) for name in names))


def names(messages: list[Message]) -> list[str]:
    return [message.payload.decode() for message in messages]


async def test_message_of_a_device_arrives_unchanged(own: Broker) -> None:
    async with own.gateway() as gateway, own.device() as device:
        await device.publish("iot/telemetry/t/f/b/d.1/water.flow", bytes(range(256)))
        (message,) = await take(gateway, 1)

        assert message.topic == "iot/telemetry/t/f/b/d.1/water.flow"
        assert message.payload == bytes(range(256))
        assert (message.qos, message.retained, message.repeated) == (1, False, False)
        assert gateway.problem() is None
        gateway.ack([message])


async def test_a_batch_waits_for_what_follows_and_is_bounded(own: Broker) -> None:
    async with own.gateway() as gateway, own.device() as device:
        await publish(device, *(str(number) for number in range(10)))
        await until(lambda: gateway.waiting == 10)

        first = await gateway.batch(max_messages=4, linger_s=5.0)
        rest = await gateway.batch(max_messages=100, linger_s=0.01)

        assert names(first + rest) == [str(number) for number in range(10)]
        assert (len(first), len(rest), gateway.waiting) == (4, 6, 0)


async def test_only_unacknowledged_messages_are_redelivered(
    impatient: Broker,
) -> None:
    async with impatient.gateway() as gateway, impatient.device() as device:
        await publish(device, "a", "b", "c", "d")
        messages = await take_all(gateway, "a", "b", "c", "d")
        gateway.ack([message for message in messages if message.payload in (b"a", b"c")])

    async with impatient.gateway() as gateway:
        assert sorted(await take_until(gateway, "b", "d")) == ["b", "d"]

    async with impatient.gateway() as gateway, impatient.device() as device:
        await publish(device, "e")
        assert await take_until(gateway, "e") == ["e"]


async def test_an_acknowledgement_of_an_earlier_connection_is_dropped(impatient: Broker) -> None:
    async with impatient.gateway() as gateway, impatient.device() as device:
        await publish(device, "a")
        (before,) = await take(gateway, 1)
        await impatient.restart()
        (after,) = await take(gateway, 1)
        assert after.payload == before.payload
        assert after.connection != before.connection
        gateway.ack([before])

    async with impatient.gateway() as gateway:
        (again,) = await take(gateway, 1)
        assert again.payload == b"a"


async def test_published_message_survives_a_power_cut_of_the_broker(durable: Broker) -> None:
    async with durable.gateway():
        pass  # the session stays at the broker
    sent = [str(number) for number in range(50)]
    async with durable.device() as device:
        await publish(device, *sent)  # returns after the PUBACKs
        await durable.kill()

    await durable.restart()
    async with durable.gateway() as gateway:
        assert set(names(await take_all(gateway, *sent))) == set(sent)


async def test_a_killed_broker_is_found_again_and_nothing_acknowledged_is_lost(
    durable: Broker,
) -> None:
    async with durable.gateway() as gateway, durable.device() as device:
        await publish(device, "before")
        gateway.ack(await take(gateway, 1))
        await durable.kill()
        await until(lambda: device.problem() and gateway.problem())
        with pytest.raises(DisconnectedError):
            await device.publish(TOPIC, b"while it is away")

        await durable.restart()
        await until(lambda: not (device.problem() or gateway.problem()))
        await publish(device, "after")
        # The broker may not have kept the acknowledgement: it may repeat, but it must not lose.
        assert set(await take_until(gateway, "after")) <= {"before", "after"}


async def test_a_batch_is_never_empty_even_if_the_connection_is_lost_meanwhile(
    impatient: Broker,
) -> None:
    async with impatient.gateway() as gateway, impatient.device() as device:
        await publish(device, "a")
        await until(lambda: gateway.waiting)
        lingering = asyncio.create_task(gateway.batch(max_messages=10, linger_s=1.0))
        await impatient.restart()

        assert set(names(await lingering)) == {"a"}


async def test_a_publish_under_way_when_the_broker_dies_is_not_called_done(durable: Broker) -> None:
    async with durable.gateway(), durable.device() as device:
        waiting = [asyncio.create_task(device.publish(TOPIC, b"x")) for _ in range(300)]
        await durable.kill()
        results = await asyncio.gather(*waiting, return_exceptions=True)

        unkndurable = [one for one in results if one is not None]
        assert all(isinstance(one, DisconnectedError) for one in unkndurable)
        acknowledged = len(results) - len(unkndurable)
        await durable.restart()
    async with durable.gateway() as gateway:
        assert len(await take(gateway, acknowledged)) == acknowledged


async def test_more_than_may_wait_pauses_reading_and_loses_nothing(own: Broker) -> None:
    sent = [str(number) for number in range(80)]
    async with own.gateway(max_waiting=5) as gateway, own.device() as device:
        await publish(device, *sent)
        await until(lambda: gateway.waiting >= 5)
        most = 0
        taken: list[str] = []
        while len(taken) < len(sent):
            most = max(most, gateway.waiting)
            taken += await take_until(gateway, sent[len(taken)])

        assert taken == sent
        assert most == 5


async def test_a_restarted_broker_is_found_again_and_the_session_goes_on(own: Broker) -> None:
    """What was not acknowledged before comes after; what was published since comes too."""
    async with own.gateway() as gateway, own.device() as device:
        await publish(device, "before")
        await take(gateway, 1)
        await own.restart()
        await device.until_up()
        await until(lambda: not (device.problem() or gateway.problem()))
        await publish(device, "after")

        assert set(await take_until(gateway, "before", "after")) == {"before", "after"}


async def test_resumed_session_is_known_before_its_first_message(own: Broker) -> None:
    """What was left comes at once, and after newer messages: whoever needs an order must know."""
    async with own.gateway() as gateway, own.device() as device:
        await gateway.until_up()
        assert gateway.resumed_at is None
        await publish(device, "left")
        await take(gateway, 1)
    async with own.device() as device:
        await publish(device, "newer")
    async with own.gateway() as gateway:
        await take(gateway, 1)
        assert gateway.resumed_at is not None


async def test_a_message_of_the_largest_size_arrives_whole(own: Broker) -> None:
    sent = [bytes([number]) * 256 * 1024 for number in range(3)]
    async with own.gateway() as gateway, own.device() as device:
        for payload in sent:
            await device.publish(TOPIC, payload)
        got = await take(gateway, 3)

        assert [message.payload for message in got] == sent
        assert [message.size for message in got] == [256 * 1024] * 3


async def test_a_message_that_is_too_long_is_cut_and_the_next_one_is_whole(
    own: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a broker sends, memory is bounded; the sender hears of it like of any wrong one."""
    monkeypatch.setattr(mqtt, "MAX_PACKET", 100_000)
    async with own.gateway() as gateway, own.device() as device:
        await device.publish(TOPIC, b"x" * 300_000)
        await device.publish(TOPIC, b"next")
        cut, following = await take(gateway, 2)
        gateway.ack([cut, following])

        assert cut.size == 300_000
        assert 99_000 < len(cut.payload) < 100_000
        assert (following.payload, following.size) == (b"next", 4)


async def test_acknowledgements_leave_between_publishes_never_inside_of_one(own: Broker) -> None:
    """A client takes and gives at the same time: each of its packets reaches the broker whole."""
    async with (
        own.gateway(topics=["iot/telemetry/#"]) as gateway,
        own.device() as device,
        asyncio.timeout(60),
    ):
        await publish(device, *(f"up-{number}" for number in range(400)))
        taken: list[Message] = []
        giving = [
            asyncio.create_task(gateway.publish(f"iot/ack/t/f/b/{number}", b"d" * 20_000))
            for number in range(100)
        ]
        while len(taken) < 400:
            batch = await gateway.batch(max_messages=7, linger_s=0.0)
            gateway.ack(batch)
            taken += batch
        await asyncio.gather(*giving)
    async with own.gateway() as gateway, own.device() as device:
        await publish(device, "last")
        assert await take_until(gateway, "last") == ["last"]


async def test_large_messages_pause_reading_by_their_bytes(own: Broker) -> None:
    """However few they are: memory is bounded in bytes, and nothing is lost."""
    sent = [f"{number:02}" + "x" * 100_000 for number in range(20)]
    async with own.gateway(max_waiting_bytes=250_000) as gateway, own.device() as device:
        await publish(device, *sent)
        await until(lambda: gateway.waiting >= 3)
        assert gateway.waiting == 3
        taken: list[Message] = []
        async with asyncio.timeout(60):
            while len(taken) < len(sent):
                batch = await gateway.batch(max_messages=2, linger_s=0.0)
                gateway.ack(batch)
                taken += batch

        assert names(taken) == sent


async def test_a_publish_that_is_never_acknowledged_is_given_up(
    own: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is there and says nothing must not hold its publisher for ever."""
    monkeypatch.setattr(mqtt, "PUBLISH_TIMEOUT_S", 0.5)
    silent = processes.look(own.server.pid)
    assert silent is not None
    async with own.device() as device:
        processes.send(silent, signal.SIGSTOP)
        try:
            await until(lambda: brokers.is_stopped(own.server.pid))
            with pytest.raises(DisconnectedError, match="no acknowledgement within"):
                await device.publish(TOPIC, b"into the silence")
        finally:
            processes.send(silent, signal.SIGCONT)
        assert device.problem() is None


async def test_wrong_password_is_a_problem(own: Broker) -> None:
    parts = urlsplit(own.server.gateway_url)
    url = f"mqtt://gateway:wrong@{parts.hostname}:{parts.port}"

    async with mqtt.connected(url, client_id="gateway-1", topics=[UP]) as client:
        await until(lambda: "refused" in (client.problem() or ""))
        assert client.problem() == "broker: refused: Not authorized"
        with pytest.raises(DisconnectedError, match="Not authorized"):
            await client.publish(TOPIC, b"x")


async def test_client_without_a_login_is_rejected(own: Broker) -> None:
    parts = urlsplit(own.server.gateway_url)

    async with mqtt.connected(f"mqtt://{parts.hostname}:{parts.port}", client_id="x") as client:
        await until(lambda: "refused" in (client.problem() or ""))


async def test_subscription_that_is_not_allowed_is_a_problem(durable: Broker) -> None:
    url = durable.server.devices_url

    async with mqtt.connected(url, client_id="device-1", topics=["iot/telemetry/#"]) as client:
        await until(lambda: "subscription refused" in (client.problem() or ""))


async def test_client_without_a_broker_reports_it_and_goes_on_trying(
    free_port: Callable[[], int],
) -> None:
    url = f"mqtt://127.0.0.1:{free_port()}"

    async with mqtt.connected(url, client_id="gateway-1") as client:
        await until(lambda: "refused" in (client.problem() or "").lower())


async def test_will_is_published_when_a_client_vanishes(own: Broker) -> None:
    will = Will("iot/status/t/f/b/d", b"gone", retain=False)
    async with own.gateway(topics=["iot/status/#"]) as gateway:
        async with own.device(will=will) as device:
            assert device._wire is not None
            device._wire.socket.shutdown(2)
            (said,) = await take(gateway, 1)
        assert (said.topic, said.payload) == ("iot/status/t/f/b/d", b"gone")


async def test_client_that_vanishes_twice_leaves_two_wills(own: Broker) -> None:
    made = itertools.count(1)
    will = Will("iot/status/t/f/b/d", lambda: b"gone %d" % next(made), retain=False)
    async with (
        own.gateway(topics=["iot/status/#"]) as gateway,
        own.device(will=will) as device,
    ):
        for time in (1, 2):
            await device.until_up()
            assert device._wire is not None
            connection = device.connection
            device._wire.socket.shutdown(2)
            (said,) = await take(gateway, 1)
            assert said.payload == b"gone %d" % time
            await until(lambda: device.connection != connection)  # noqa: B023 - awaited here


# --- TLS


@dataclass(frozen=True)
class Secured:
    url: str
    tls: Tls
    other_tls: Tls


@pytest.fixture(params=["nats", "mosquitto"])
def secured(
    request: pytest.FixtureRequest, tmp_path: Path, free_port: Callable[[], int]
) -> Iterator[Secured]:
    authority, other = trustme.CA(), trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    issued.private_key_and_cert_chain_pem.write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    ca, other_ca = tmp_path / "ca.pem", tmp_path / "other.pem"
    authority.cert_pem.write_to_path(ca)
    other.cert_pem.write_to_path(other_ca)
    port = free_port()
    if request.param == "nats":
        text = f"""
            server_name: "tls"
            host: 127.0.0.1
            port: {free_port()}
            jetstream {{ store_dir: "{tmp_path / "store"}" }}
            mqtt {{
              host: 127.0.0.1
              port: {port}
              tls {{ cert_file: "{cert}", key_file: "{key}" }}
            }}
        """
        server = brokers.start_nats(tmp_path, text)
    else:
        more = ("allow_anonymous true", f"certfile {cert}", f"keyfile {key}")
        server = brokers.start_mosquitto(tmp_path, port, more)
    yield Secured(f"mqtts://localhost:{port}", Tls(ca), Tls(other_ca))
    server.terminate()
    server.wait(10)


async def test_a_burst_over_tls_arrives_whole(secured: Secured) -> None:
    """One TLS record holds many packets: none of them may wait for the next record."""
    sent = [str(number) for number in range(300)]
    async with (
        connected(secured.url, client_id="gateway-1", topics=[UP], tls=secured.tls) as gateway,
        connected(secured.url, client_id="device-1", tls=secured.tls) as device,
    ):
        await publish(device, *sent)
        messages = await take(gateway, len(sent))
        gateway.ack(messages)

        assert names(messages) == sent


async def test_a_pause_over_tls_loses_nothing(secured: Secured) -> None:
    sent = [str(number) for number in range(60)]
    async with (
        connected(
            secured.url, client_id="gateway-1", topics=[UP], tls=secured.tls, max_waiting=4
        ) as gateway,
        connected(secured.url, client_id="device-1", tls=secured.tls) as device,
    ):
        await publish(device, *sent)
        taken: list[Message] = []
        async with asyncio.timeout(60):
            while len(taken) < len(sent):
                batch = await gateway.batch(max_messages=2, linger_s=0.0)
                gateway.ack(batch)
                taken += batch

        assert names(taken) == sent


# The client library leaves a socket that failed its handshake to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning")
async def test_a_server_of_another_authority_is_not_trusted(secured: Secured) -> None:
    async with connected(secured.url, client_id="good", tls=secured.tls):
        pass  # it is up
    async with mqtt.connected(secured.url, client_id="bad", tls=secured.other_tls) as client:
        await until(lambda: "authority that is not trusted here" in (client.problem() or ""))


# --- a broker that sends what ours does not let through


CONNACK, SUBACK = b"\x20\x02\x00\x00", b"\x90\x03\x00\x01\x01"
ODD = b"iot/telemetry/\xff\xfe"
PUBLISH = bytes([0x32, 2 + len(ODD) + 2 + 1, 0, len(ODD)]) + ODD + b"\x00\x07x"


async def test_a_topic_that_is_not_text_still_arrives(free_port: Callable[[], int]) -> None:
    heard = bytearray()

    async def odd_broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await reader.read(1000)
            writer.write(CONNACK)
            await reader.read(1000)
            writer.write(SUBACK + PUBLISH)
            while part := await reader.read(1000):
                heard.extend(part)

    port = free_port()
    async with (
        await asyncio.start_server(odd_broker, "127.0.0.1", port),
        connected(f"mqtt://127.0.0.1:{port}", client_id="g", topics=[UP]) as client,
    ):
        (message,) = await take(client, 1)
        client.ack([message])
        await until(lambda: b"\x40\x02\x00\x07" in heard)

        assert message.topic == "iot/telemetry/\\xff\\xfe"
        assert message.payload == b"x"


@pytest.mark.parametrize("url", ["tcp://127.0.0.1", "127.0.0.1:1883", "", "mqtt://h:abc"])
def test_an_address_that_cannot_be_one_is_refused_in_words(url: str) -> None:
    with pytest.raises(ValueError, match="address of an MQTT broker"):
        mqtt.address(url)


def test_an_address_without_a_port_has_the_usual_one() -> None:
    assert mqtt.address("mqtt://barn") == ("barn", 1883)
    assert mqtt.address("mqtts://barn") == ("barn", 8883)
