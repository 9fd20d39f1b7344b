"""One sender cannot fill the broker: a real NATS server with a small store."""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from farmiq.edge.broker import BOUNDS, LOG
from farmiq.edge.devices import broker as device_broker
from farmiq.lab.stack import broker as engine
from farmiq.lab.stack import engines, files
from farmiq.lab.stack.engine import NotReadyError, await_answer
from farmiq.plumbing import db, ids
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.broker import log as broker_log
from farmiq.plumbing.broker import store as broker_store
from farmiq.plumbing.broker.store import Bounds, Store
from farmiq.plumbing.messaging import mqtt, nats, stream
from tests.conftest import Database
from tests.support import brokers
from tests.support.until import until

STORE_BYTES = 24 * 2**20
LONG = b"x" * 400_000


@dataclass
class Small:
    """A broker with a store of 24 MiB; the device's login may publish as a device does."""

    folder: Path
    ports: tuple[int, int, int]
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def nats_url(self) -> str:
        return f"nats://keeper:pw@127.0.0.1:{self.ports[1]}"

    def url(self, user: str) -> str:
        return f"mqtt://{user}:pw@127.0.0.1:{self.ports[0]}"

    def start(self) -> None:
        found = engines.LIST[0]
        assert isinstance(found, engine.Broker)
        mqtt_port, nats_port, monitor_port = self.ports
        text = engine.configuration(
            name="small", store=self.folder / "store", mqtt_port=mqtt_port, nats_port=nats_port,
            monitor_port=monitor_port, sync="2m",
            users=[(user, "pw") for user in (found.reader, found.writer, engine.STORE_USER)],
        )  # fmt: skip
        text = text.replace(str(engine.STORE_LIMIT_BYTES), str(STORE_BYTES))
        files.write_private(self.folder / "nats.conf", text)
        self.process = brokers.start_nats(self.folder, text)
        await_answer(self._answer, within_s=20, give_up=lambda: None)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(20)

    def _answer(self) -> str:
        try:
            httpx2.get(f"http://127.0.0.1:{self.ports[2]}/healthz", trust_env=False)
        except httpx2.HTTPError as error:
            raise NotReadyError(str(error)) from error
        return "NATS"

    def refused(self) -> list[broker_log.Refusal]:
        text = (self.folder / "nats.log").read_text()
        return [found for line in text.splitlines() if (found := broker_log.read(line))]


@pytest.fixture
def small(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[Small]:
    made = Small(tmp_path, (free_port(), free_port(), free_port()))
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
async def make_store(small: Small, edge_db: Database) -> AsyncIterator[Callable[[Bounds], Store]]:
    async with (
        db.pool(edge_db.url, name="test") as pool,
        httpx2.AsyncClient(trust_env=False) as web,
    ):
        yield lambda bounds: Store(
            pool,
            web,
            nats_url=small.nats_url,
            monitor_url=f"http://127.0.0.1:{small.ports[2]}",
            bounds=bounds,
        )


@pytest.fixture
def store(make_store: Callable[[Bounds], Store]) -> Store:
    return make_store(BOUNDS)


def device(small: Small, *, name: str = "") -> contextlib.AbstractAsyncContextManager[mqtt.Client]:
    return mqtt.connected(
        small.url("devices"),
        client_id=name or f"d-{ids.new().hex}",
        persistent_session=False,
        backoff=Backoff(cap_s=0.5),
    )


async def retained(small: Small) -> set[str]:
    """Topics whose last message a newcomer is told; a short status is always among them."""
    async with device(small) as link:
        await link.until_up()
        await link.publish("iot/status/t/f/b/d", b"here", retain=True)
    async with mqtt.connected(
        small.url("gateway"), client_id=f"later-{ids.new().hex}", topics=["iot/#"],
        persistent_session=False,
    ) as later:  # fmt: skip
        found: set[str] = set()
        while "iot/status/t/f/b/d" not in found:
            found |= {each.topic for each in await later.batch(max_messages=500, linger_s=0.2)}
        return found


async def bounded(store: Store) -> None:
    await store.look()
    assert store.problem is None


async def test_retained_messages_of_one_device_leave_the_broker_healthy(
    small: Small, store: Store
) -> None:
    async with device(small, name="greedy") as greedy:
        await greedy.until_up()
        await bounded(store)
        for number in range(150):
            topic = f"iot/telemetry/t/f/b/d/m{number}"
            await greedy.publish(topic, LONG, retain=True)
        await greedy.publish("iot/status/t/f/b/d", LONG, retain=True)
    assert await retained(small) == {"iot/status/t/f/b/d"}
    small.stop()
    small.start()
    assert await retained(small) == {"iot/status/t/f/b/d"}
    await bounded(store)
    assert (await store.look(), store.use and store.use.share < 0.05) == ({}, True)
    (alert,) = device_broker.rejection_alerts(
        one for one in small.refused() if one.kind == broker_log.RETAINED
    )
    assert ("greedy" in alert.message, alert.severity) == (True, "warning")


async def test_broker_that_retained_messages_have_filled_lets_devices_in_again(
    small: Small, store: Store
) -> None:
    """As a version before left it: nobody gets an answer to CONNECT."""
    async with device(small) as greedy:
        await greedy.until_up()
        with contextlib.suppress(mqtt.DisconnectedError):
            for number in range(150):
                await greedy.publish(f"iot/telemetry/t/f/b/d/m{number}", LONG, retain=True)
    async with device(small) as link:
        await until(lambda: "unable to connect" in (small.folder / "nats.log").read_text())
        assert link.problem() is not None
        await bounded(store)
        await link.until_up()
    await store.look()
    assert store.use is not None
    assert store.use.share < broker_store.CALM_SHARE


async def test_services_that_bound_the_broker_at_once_change_it_one_after_the_other(
    small: Small, make_store: Callable[[Bounds], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two updates of a stream at once made the server store each message twice, in 2 of 20."""
    request, changing, seen = stream.request, 0, list[int]()

    async def observed(
        server: nats.Connection, subject: str, body: dict[str, Any], *, unless: int = 0
    ) -> dict[str, Any]:
        nonlocal changing
        if not subject.startswith(("STREAM.CREATE.", "STREAM.UPDATE.")):
            return await request(server, subject, body, unless=unless)
        changing += 1
        seen.append(changing)
        # The others have their turn meanwhile.
        await asyncio.sleep(0.02)
        answer = await request(server, subject, body, unless=unless)
        changing -= 1
        return answer

    monkeypatch.setattr(stream, "request", observed)
    async with device(small) as link, nats.connected(small.nats_url) as server:
        await link.until_up()
        stores = [make_store(replace(BOUNDS, log=LOG)) for _ in range(4)]
        await asyncio.gather(*(store.look() for store in stores))
        assert [store.problem for store in stores] == [None] * 4
        assert set(seen) == {1}
        await link.publish("iot/telemetry/t/f/b/d/m", b"warm")
        assert (await stream.info(server, LOG.name)).messages == 1


async def test_full_queue_lets_clients_in_and_takes_messages_again_when_it_is_taken(
    small: Small, store: Store
) -> None:
    up = ["iot/telemetry/#"]
    async with mqtt.connected(small.url("gateway"), client_id="gw", topics=up) as gateway:
        await gateway.until_up()
    await bounded(store)
    async with device(small) as sender:
        await sender.until_up()
        sending = asyncio.gather(
            *(sender.publish("iot/telemetry/t/f/b/d/m", LONG) for _ in range(150))
        )
        with pytest.raises(mqtt.DisconnectedError):
            await sending
    await store.look()
    assert store.use is not None
    assert broker_store.WARN_SHARE < store.use.share < 0.8
    async with mqtt.connected(small.url("gateway"), client_id="gw", topics=up) as gateway:
        await gateway.until_up()
        taking = asyncio.create_task(_take(gateway))
        async with device(small) as sender:
            await sender.until_up()

            async def taken() -> bool:
                with contextlib.suppress(mqtt.DisconnectedError):
                    await sender.until_up()
                    await sender.publish("iot/telemetry/t/f/b/d/m", LONG)
                    return True
                return False

            await until(taken)
        taking.cancel()


async def _take(gateway: mqtt.Client) -> None:
    while True:
        gateway.ack(await gateway.batch(max_messages=10, linger_s=0.01))
