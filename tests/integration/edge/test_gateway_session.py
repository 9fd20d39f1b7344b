"""The gateway's session at the broker: under a secret id, and told of when it is lost."""

from pathlib import Path

from farmiq.edge.devices import broker as device_broker
from farmiq.edge.ingress import source
from farmiq.edge.ingress.service import NAME, report_lost_session
from farmiq.edge.ingress.source import SessionWatch
from farmiq.lab import stack
from farmiq.messages import topics
from farmiq.plumbing import db
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.broker import log as broker_log
from farmiq.plumbing.broker.follow import Follower
from farmiq.plumbing.messaging import mqtt
from farmiq.plumbing.runtime import lease
from tests.conftest import Database
from tests.support import databases
from tests.support.until import until

ALERTS = "select kind, subject, severity, seen_count from alerts where kind = 'broker.session_lost'"


async def test_client_id_is_made_once_and_nobody_guesses_it(edge_db: Database) -> None:
    async with db.pool(edge_db.url, name="test") as pool:
        async with db.transaction(pool) as tx:
            await lease.take(tx, NAME, "here:1", lasts_s=60)
        made = await source.client_id(pool, name=NAME, given=None)
        assert made.startswith(f"{NAME}-")
        assert len(made) > len(NAME) + 16
        assert await source.client_id(pool, name=NAME, given=None) == made
        assert await source.client_id(pool, name=NAME, given="mine") == "mine"


async def test_session_that_somebody_ended_is_an_alert_and_so_is_who_took_its_place(
    edge_db: Database, broker: stack.Stack
) -> None:
    url = broker.environment["FARMIQ_EDGE_MQTT_URL"]
    follower = Follower(Path(broker.environment["FARMIQ_EDGE_BROKER_LOG_FILE"]))
    follower.look()

    def alerts() -> list[object]:
        with databases.connected(edge_db.admin_url) as connection:
            return list(connection.execute(ALERTS).fetchall())

    async with db.pool(edge_db.url, name="test") as pool:
        async with db.transaction(pool) as tx:
            await lease.take(tx, NAME, "here:1", lasts_s=60)
        for _ in range(2):
            async with mqtt.connected(
                url, client_id="gw", topics=topics.UP, backoff=Backoff(cap_s=0.1)
            ) as gateway:
                watch = SessionWatch(pool, gateway, name=NAME, on_lost=report_lost_session)
                await gateway.until_up()
                await watch.look()
                assert alerts() == []
        async with mqtt.connected(
            url, client_id="gw", topics=topics.UP, backoff=Backoff(cap_s=0.1)
        ) as gateway:
            watch = SessionWatch(pool, gateway, name=NAME, on_lost=report_lost_session)
            await gateway.until_up()
            await watch.look()
            connection = gateway.connection
            devices = broker.environment["FARMIQ_DEVICES_MQTT_URL"]
            assert await mqtt.end_session(devices, "gw")

            async def told() -> bool:
                await watch.look()
                return gateway.connection != connection and bool(alerts())

            await until(told)
    assert alerts() == [("broker.session_lost", NAME, "security", 1)]
    lines: list[str] = []

    def taken_over() -> bool:
        lines.extend(follower.look()[0])
        return any("Replacing old client" in line for line in lines)

    await until(taken_over)
    found = [one for line in lines if (one := broker_log.read(line)) is not None]
    assert {one.kind for one in found} == {broker_log.TAKEOVER}
    (alert,) = device_broker.rejection_alerts(found)
    assert ("gw" in alert.message, alert.severity) == (True, "security")
