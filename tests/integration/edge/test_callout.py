"""The broker asks who may connect: a login under client ids of its own, and no other."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from farmiq import doctor
from farmiq.config import EdgeSettings
from farmiq.edge.devices import registration
from farmiq.edge.devices import service as devices
from farmiq.edge.devices.registration import Credentials
from farmiq.lab import stack
from farmiq.lab.stack import broker as engine
from farmiq.messages import topics
from farmiq.messages.topics import Place
from farmiq.plumbing import db, http
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.broker import callout as broker_callout
from farmiq.plumbing.messaging import mqtt, nats
from farmiq.plumbing.tls import Tls
from tests.conftest import Database
from tests.support import databases
from tests.support.devices import at, register
from tests.support.until import until

ONE, OTHER = Place("t-1", "f-1", "b-1", "one"), Place("t-2", "f-2", "b-2", "one")
GATEWAY = "edge-ingress-gateway"


@dataclass
class Site:
    """A broker that asks, and the registry that answers."""

    broker: stack.Stack
    database: Database
    settings: EdgeSettings
    logins: list[Credentials]

    def url(self, login: Credentials) -> str:
        host, port = mqtt.address(self.broker.environment["FARMIQ_EDGE_MQTT_URL"])
        user = quote(login.device.broker_user, safe="")
        return f"mqtt://{user}:{login.password}@{host}:{port}"

    def connected(self, login: Credentials, client_id: str, **options: Any) -> Any:
        usual: dict[str, Any] = {"persistent_session": False, "backoff": Backoff(cap_s=0.2)}
        return mqtt.connected(self.url(login), client_id=client_id, **{**usual, **options})

    @contextlib.asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        server = http.HttpServer(
            title="test", version="0", actions_per_minute=60, request_within_s=10
        )
        task = asyncio.create_task(devices.run(self.settings, server))

        async def is_ready() -> bool:
            return "devices.callout" in server.checks and not await server.problems()

        try:
            await until(is_ready)
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    def alerts(self) -> list[Any]:
        with databases.connected(self.database.admin_url) as connection:
            query = "select subject, message from alerts where kind = 'broker.client_id' order by 1"
            return connection.execute(query).fetchall()

    async def sessions(self) -> int:
        """That the broker keeps, of whoever."""
        async with nats.connected(self.broker.environment["FARMIQ_EDGE_BROKER_NATS_URL"]) as server:
            found = json.loads(await server.request("$JS.API.STREAM.INFO.$MQTT_sess"))
        return int(found["state"]["messages"])


@pytest.fixture
def site(edge_db: Database, tmp_path: Path, free_port: Callable[[], int]) -> Any:
    logins = register(edge_db.admin_url, [at(ONE), at(OTHER)])
    root = tmp_path / "broker"
    with stack.start(
        root, engines=("mqtt-edge",), shared_login=False, say=lambda _: None
    ) as broker:
        settings = EdgeSettings.load(
            {
                **broker.environment,
                "FARMIQ_EDGE_DB_URL": edge_db.url,
                "FARMIQ_EDGE_HTTP_PORT": str(free_port()),
                "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
                "FARMIQ_EDGE_KEY_FILE": "none",
            }
        )
        yield Site(broker, edge_db, settings, logins)


def write(log: Path, line: str) -> None:
    with log.open("a") as opened:
        opened.write(f"[1] 2026/11/15 12:51:03 [ERR] {line}\n")


async def refused(link: mqtt.Client) -> None:
    await until(lambda: "refused" in (link.problem() or ""))


async def test_client_id_of_the_gateway_or_of_another_tenant_is_refused(site: Site) -> None:
    one, other = site.logins
    url = site.broker.environment["FARMIQ_EDGE_MQTT_URL"]
    async with (
        site.answering(),
        mqtt.connected(url, client_id=GATEWAY, topics=topics.UP) as gateway,
        site.connected(other, "t-2/one/agent-1") as victim,
    ):
        await gateway.until_up()
        await victim.until_up()
        connections = gateway.connection, victim.connection
        for client_id in (GATEWAY, "t-2/one/agent-1", "t-2/one", "agent-one"):
            async with site.connected(one, client_id) as link:
                await refused(link)
        for client_id in ("t-1/one", "t-1/one/agent-1", ""):
            async with site.connected(one, client_id) as link:
                await link.until_up()
                await link.publish(topics.telemetry(ONE, "temperature"), b"{}")
        await victim.publish(topics.status(OTHER), b"{}")
        assert (gateway.connection, victim.connection) == connections
        await until(site.alerts)
    assert {subject for subject, _ in site.alerts()} == {"t-1/one"}
    assert "begins with t-1/one/" in site.alerts()[0][1]


async def test_revoked_login_is_cut_and_another_secret_ends_the_old_one(site: Site) -> None:
    one, other = site.logins
    async with (
        site.answering(),
        site.connected(one, "t-1/one") as gone,
        site.connected(other, "t-2/one") as stays,
        db.pool(site.database.url, name="test") as pool,
    ):
        await gone.until_up()
        await stays.until_up()
        connection = stays.connection
        async with db.transaction(pool) as tx:
            await registration.revoke(tx, one.device.key, actor="test")
        await refused(gone)
        async with db.transaction(pool) as tx:
            again = await registration.add(tx, at(ONE), actor="test")
        async with site.connected(again, "t-1/one/2") as back:
            await back.until_up()
        assert stays.connection == connection
        async with db.transaction(pool) as tx:
            await registration.rotate(tx, other.device.key, actor="test")
        await refused(stays)


async def test_login_added_just_now_is_let_in_at_its_first_try(site: Site) -> None:
    async with site.answering():
        for number in range(5):
            place = replace(ONE, device_id=f"new-{number}")
            (login,) = register(site.database.admin_url, [at(place)])
            assert await mqtt.end_session(site.url(login), f"t-1/new-{number}/once") is True
            wrong = replace(login, password="guessed")
            assert await mqtt.end_session(site.url(wrong), f"t-1/new-{number}/once") is False


async def test_sessions_of_one_login_are_bounded_and_the_oldest_ends(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_callout, "GRACE_S", 0.0)
    monkeypatch.setattr(broker_callout, "OPEN_FRESH_S", 0.0)
    one, _ = site.logins
    async with (
        site.answering(),
        site.connected(one, "t-1/one/lives", persistent_session=True) as lives,
    ):
        await lives.until_up()
        connection = lives.connection
        for _ in range(broker_callout.MAX_SESSIONS + 2):
            async with site.connected(one, "") as link:
                await link.until_up()
        for number in range(20):
            async with site.connected(one, f"t-1/one/{number}", persistent_session=True) as link:
                await link.until_up()

        async def bounded() -> bool:
            return await site.sessions() <= broker_callout.MAX_SESSIONS + 1

        # One more is that of the registry itself.
        await until(bounded)
        async with site.connected(one, "t-1/one/19", persistent_session=True) as link:
            await link.until_up()
            assert link.resumed_at is not None
        assert lives.connection == connection


async def test_subscriptions_of_one_connection_are_bounded(site: Site) -> None:
    """Each costs the broker memory, and a session keeps them while its device is away."""
    one, _ = site.logins
    asked = engine.MAX_SUBSCRIPTIONS + 100
    async with site.answering(), site.connected(one, "t-1/one", persistent_session=True) as link:
        await link.until_up()
        answers = await subscribed(
            link, [(topics.command(ONE, f"name-{number}"), 0) for number in range(asked)]
        )
        taken = answers.count(0)
        assert 8 <= taken <= engine.MAX_SUBSCRIPTIONS
        assert answers == [0] * taken + [0x80] * (asked - taken)


async def subscribed(link: mqtt.Client, filters: list[tuple[str, int]]) -> list[int]:
    """What the broker answers: the QoS of each filter, or 0x80 where it refuses."""
    answered: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
    link._paho.on_subscribe = lambda _c, _u, _mid, reasons, _p: answered.set_result(
        [each.value for each in reasons]
    )
    link._paho.subscribe(filters)
    return await asyncio.wait_for(answered, 60)


async def test_only_who_was_refused_is_told_of_and_nobody_for_whom_nobody_answered(
    site: Site,
) -> None:
    one, other = site.logins
    wrong = replace(other, password="guessed")
    own = site.settings.mqtt_url.get_secret_value().replace("gateway:", "gateway:not")

    def logins() -> list[Any]:
        with databases.connected(site.database.admin_url) as connection:
            query = "select message from alerts where kind = 'broker.login'"
            return connection.execute(query).fetchall()

    log = Path(site.broker.environment["FARMIQ_EDGE_BROKER_LOG_FILE"])
    async with site.answering():
        # As the broker has it after nobody has answered for long.
        write(log, '10.0.0.9:1 - mid:9 - "x" - authentication error - User "t-1/one"')
        async with site.connected(one, "t-1/one") as link:
            await link.until_up()
        async with site.connected(wrong, "t-2/one") as link:
            await refused(link)
        await until(lambda: any("t-2/one" in message for (message,) in logins()))
        async with mqtt.connected(own, client_id="x", backoff=Backoff(cap_s=9.0)) as link:
            await refused(link)
        await until(lambda: any('"gateway"' in message for (message,) in logins()))
    assert not any("t-1/one" in message for (message,) in logins())


async def test_doctor_of_a_weigh_station_is_let_in_and_leaves_its_agent_alone(site: Site) -> None:
    one, other = site.logins
    async with (
        site.answering(),
        site.connected(one, "t-1/one/agent", persistent_session=True) as agent,
    ):
        await agent.until_up()
        connection = agent.connection
        for _ in range(broker_callout.MAX_SESSIONS + 1):
            detail, remedy = await doctor.check_broker(site.url(one), Tls(), "AGENT_MQTT_URL")
            assert (remedy, detail) == ("", "answers and lets us in")
        async with site.connected(other, "agent-one") as stranger:
            await refused(stranger)
        await until(site.alerts)
        assert agent.connection == connection
    assert {subject for subject, _ in site.alerts()} == {"t-2/one"}


async def test_who_is_connected_stays_while_nobody_answers_the_broker(site: Site) -> None:
    one, other = site.logins
    async with contextlib.AsyncExitStack() as links:
        async with site.answering():
            link = await links.enter_async_context(site.connected(one, "t-1/one"))
            await link.until_up()
            connection = link.connection
        await link.publish(topics.telemetry(ONE, "temperature"), b"{}")
        async with site.answering(), site.connected(other, "t-2/one") as late:
            await late.until_up()
            assert link.connection == connection
