"""A broker that fills up is told of, and whoever sends too many bytes is held back."""

import httpx2
import pytest

from farmiq import doctor
from farmiq.edge.broker import BOUNDS
from farmiq.edge.devices import broker as kept
from farmiq.lab import stack
from farmiq.plumbing import db, ids
from farmiq.plumbing.broker import store as broker_store
from farmiq.plumbing.broker.flood import Flow
from farmiq.plumbing.broker.load import Guard, Load
from farmiq.plumbing.broker.store import Store, Use
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.tls import Tls
from tests.conftest import Database
from tests.support import databases
from tests.support.until import until


async def test_store_that_fills_up_is_an_alert_until_it_has_room_again(edge_db: Database) -> None:
    def alerts() -> list[tuple[str, bool]]:
        with databases.connected(edge_db.admin_url) as connection:
            query = "select severity, closed_at is null from alerts where kind = 'broker.store'"
            return connection.execute(query).fetchall()

    async with db.pool(edge_db.url, name="test") as pool, httpx2.AsyncClient() as web:
        store = Store(pool, web, nats_url=None, monitor_url="http://127.0.0.1:9", bounds=BOUNDS)
        seen = []
        for used in (None, 45, 51, 45, 39):
            store.use = None if used is None else Use(used, 100)
            await kept.check_store(pool, store)
            seen.append(alerts())
    assert seen == [[], [], [("critical", True)], [("critical", True)], [("critical", False)]]


async def test_sender_of_few_long_messages_is_held_back(broker: stack.Stack) -> None:
    held: list[tuple[str, str]] = []

    async def hold_back(user: str, flow: Flow) -> float:
        held.append((user, flow.what))
        return 60.0

    async with httpx2.AsyncClient(trust_env=False) as web:
        load = Load(web, broker.environment["FARMIQ_EDGE_BROKER_MONITOR_URL"])
        guard = Guard(
            load,
            Flow(per_second=200, burst=4_000),
            Flow(1_000, 300_000, "bytes"),
            ours=["gateway"],
            hold_back=hold_back,
        )
        await guard.look()
        async with mqtt.connected(
            broker.environment["FARMIQ_DEVICES_MQTT_URL"],
            client_id=f"d-{ids.new().hex}",
            persistent_session=False,
        ) as link:
            await link.until_up()
            await link.publish("iot/telemetry/t/f/b/d/m", b"x" * 200_000)
            await guard.look()
            assert held == []
            await link.publish("iot/telemetry/t/f/b/d/m", b"x" * 200_000)

            async def looked() -> bool:
                await guard.look()
                return bool(held)

            await until(looked)
    assert held == [("devices", "bytes")]


async def test_doctor_says_how_full_a_broker_is(
    broker: stack.Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = broker.environment["FARMIQ_EDGE_BROKER_MONITOR_URL"]
    detail, remedy = await doctor.check_broker_store("edge", url, Tls())
    assert remedy == ""
    assert detail.startswith("holds 0% of the 4096 MiB")
    monkeypatch.setattr(broker_store, "WARN_SHARE", 0.0)
    _, remedy = await doctor.check_broker_store("edge", url, Tls())
    assert remedy != ""
    _, remedy = await doctor.check_broker_store("cloud", "http://127.0.0.1:9", Tls())
    assert "FARMIQ_CLOUD_BROKER_MONITOR_URL" in remedy


async def test_what_short_connections_sent_is_counted_once_after_they_are_over(
    broker: stack.Stack,
) -> None:
    topic = f"iot/telemetry/t/f/b/{ids.new().hex}/m"

    async def send() -> None:
        async with mqtt.connected(
            broker.environment["FARMIQ_DEVICES_MQTT_URL"],
            client_id=ids.new().hex,
            persistent_session=False,
        ) as link:
            await link.until_up()
            await link.publish(topic, b"x" * 200_000)

    async with httpx2.AsyncClient(trust_env=False) as web:
        load = Load(web, broker.environment["FARMIQ_EDGE_BROKER_MONITOR_URL"])
        await send()
        await load.look()
        counted = 0

        async def all_of_them() -> bool:
            nonlocal counted
            counted += (await load.look()).size_bytes["devices"]
            return counted >= 800_000

        for _ in range(4):
            await send()
        await until(all_of_them)
        await all_of_them()
        assert counted < 1_000_000
