"""A device that floods its broker is paused there; the others go on, and nothing is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from uuid import UUID

import pytest

from farmiq.config import EdgeSettings
from farmiq.edge.devices import broker as device_broker
from farmiq.edge.devices import service as devices
from farmiq.edge.devices.registration import Credentials
from farmiq.edge.ingress import service as ingress
from farmiq.lab import stack
from farmiq.messages import topics
from farmiq.messages.topics import Place
from farmiq.plumbing import db, http, ids
from farmiq.plumbing.broker import flood
from farmiq.plumbing.messaging import mqtt
from tests.conftest import Database
from tests.integration.edge.test_ingress import message, rows
from tests.integration.edge.test_quarantine import ahead
from tests.support.devices import at, register
from tests.support.until import until

FLOODS, HEALTHY = (Place("t-1", "f-1", "b-1", name) for name in ("loop", "well"))
PAUSE_S = 3600.0
PAUSED = "select until_at > fn_now(), in_a_row from device_pauses where device_id = 'loop'"


async def is_ready(server: http.HttpServer) -> bool:
    started = {"ingress.broker", "devices.users"} & server.checks.keys()
    return bool(started) and not await server.problems()


@contextlib.asynccontextmanager
async def switched_on(broker: stack.Stack, login: Credentials) -> AsyncIterator[mqtt.Client]:
    host, port = mqtt.address(broker.environment["FARMIQ_EDGE_MQTT_URL"])
    user = login.device.broker_user.replace("/", "%2F")
    url = f"mqtt://{user}:{login.password}@{host}:{port}"
    async with mqtt.connected(
        url, client_id=f"d-{ids.new().hex}", persistent_session=False
    ) as link:
        yield link


async def send(link: mqtt.Client, place: Place) -> UUID:
    """Until the broker has acknowledged it, as a device does that keeps what it cannot send."""
    event_id = ids.new()
    raw = message(event_id, device_id=place.device_id)
    while True:
        await link.until_up()
        with contextlib.suppress(mqtt.DisconnectedError):
            await link.publish(topics.telemetry(place, "temperature"), raw)
            return event_id


async def test_a_device_that_floods_is_paused_and_the_others_are_not(
    edge_db: Database,
    broker: stack.Stack,
    free_port: Callable[[], int],
    tasks: asyncio.TaskGroup,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The first pause lasts until the test ends it.
    for name in ("FIRST_PAUSE_S", "MAX_PAUSE_S"):
        monkeypatch.setattr(flood, name, PAUSE_S)
    logins = register(edge_db.admin_url, [at(FLOODS), at(HEALTHY)])
    settings = EdgeSettings.load(
        {
            **broker.environment,
            "FARMIQ_EDGE_DB_URL": edge_db.url,
            "FARMIQ_EDGE_HTTP_PORT": str(free_port()),
            "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
            "FARMIQ_EDGE_KEY_FILE": "none",
            "DEVICE_MESSAGES_PER_SECOND": "5",
            "DEVICE_MESSAGES_BURST": "300",
        }
    )
    for service in (ingress, devices):
        server = http.HttpServer(
            title="test", version="0", actions_per_minute=60, request_within_s=10
        )
        tasks.create_task(service.run(settings, server))
        await until(partial(is_ready, server))
    async with switched_on(broker, logins[0]) as loop, switched_on(broker, logins[1]) as well:
        await well.until_up()
        connection = well.connection
        sent: list[UUID] = []

        async def send_on() -> None:
            while True:
                sent.append(await send(loop, FLOODS))

        flooding = [asyncio.create_task(send_on()) for _ in range(20)]
        await until(lambda: rows(edge_db, PAUSED) == [(True, 1)])
        await until(lambda: "refused" in (loop.problem() or ""))
        healthy = await send(well, HEALTHY)
        for one in flooding:
            one.cancel()
        await asyncio.gather(*flooding, return_exceptions=True)

        ahead(edge_db, seconds=PAUSE_S + 1)
        last = await send(loop, FLOODS)
        assert well.connection == connection

        def stored() -> bool:
            found = {row[0] for row in rows(edge_db, "select id from telemetry_raw")}
            return found >= {*sent, healthy, last}

        await until(stored)
    found = rows(edge_db, "select count(*), count(distinct id) from sync_outbox")
    assert found[0][0] == found[0][1]
    told = "select kind, subject, seen_count from alerts where closed_at is null"
    assert rows(edge_db, told) == [("device.flood", "t-1/f-1/b-1/loop", 1)]
    ahead(edge_db, seconds=PAUSE_S + flood.CALM_S + 30)
    async with db.pool(edge_db.url, name="test") as pool:
        await device_broker.close_flood_alerts(pool)
    assert rows(edge_db, told + " and kind = 'device.flood'") == []
