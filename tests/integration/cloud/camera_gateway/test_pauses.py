"""A camera that floods its broker is paused there; the others go on, and nothing is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta

import psycopg

from farmiq.cloud.camera import registration
from farmiq.cloud.camera.gateway import jobs
from farmiq.plumbing import db
from farmiq.plumbing.broker import flood
from farmiq.plumbing.messaging import mqtt
from tests.integration.cloud.camera_gateway.conftest import Site, now
from tests.integration.cloud.camera_gateway.firmware import Camera, picture, switched_on
from tests.support.until import until

LIMITS = {"CAMERA_MESSAGES_PER_SECOND": "5", "CAMERA_MESSAGES_BURST": "200"}
IMAGE = picture(20_000)
AT = now()
PAUSED = "select paused_until > fn_now(), pauses from camera_logins where pauses > 0"
ALERTS = (
    "select device_id, resolved_at is null from device_alerts where alert_type = 'device_flooding'"
)


async def with_login(site: Site) -> Camera:
    """A camera that has a login of its own."""
    device_id = site.farm.device(site.site_id, "0 * * * *", dialect="standard")
    mac = device_id.hex[-12:].upper()
    async with await psycopg.AsyncConnection.connect(site.environment["FARMIQ_CLOUD_DB_URL"]) as tx:
        password = await registration.make_login(tx, mac, made_by="test")
    host, port = mqtt.address(site.environment["FARMIQ_CAMERAS_MQTT_URL"])
    url = f"mqtt://{mac}:{password}@{host}:{port}"
    return await site.cameras.enter_async_context(switched_on(url, mac, device_id))


@contextlib.asynccontextmanager
async def flooding(camera: Camera) -> AsyncIterator[None]:
    """The same chunks over and over, as of a firmware that lost its way."""

    async def send() -> None:
        while True:
            await camera.link.until_up()
            with contextlib.suppress(mqtt.DisconnectedError):
                await asyncio.gather(*(camera.send(IMAGE, "LOOP.jpg") for _ in range(5)))

    await camera.announce(IMAGE, "LOOP.jpg", AT)
    task = asyncio.create_task(send())
    yield
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_camera_that_floods_is_paused_and_others_are_not(site: Site) -> None:
    await site.gateway(**LIMITS)
    loops, well = await with_login(site), await with_login(site)
    connection = well.link.connection
    async with flooding(loops):
        await until(lambda: site.rows(PAUSED) == [(True, 1)])
        await until(lambda: "refused" in (loops.link.problem() or ""))
        await well.wake(IMAGE, "WELL.jpg", AT)
    assert await site.stored(well, "WELL.jpg") == IMAGE
    assert site.rows(ALERTS) == [(loops.device_id, True)]
    site.farm.at(site.farm.now() + timedelta(seconds=flood.FIRST_PAUSE_S + 1))
    await loops.link.until_up()
    await loops.wake(IMAGE, "LOOP.jpg", AT)
    assert await site.stored(loops, "LOOP.jpg") == IMAGE
    assert site.rows("select count(*) from device_images") == [(2,)]
    assert well.link.connection == connection
    site.farm.at(site.farm.now() + timedelta(seconds=flood.CALM_S + 1))
    async with db.pool(site.environment["FARMIQ_CLOUD_DB_URL"], name="test") as pool:
        await jobs.resolve_floods(pool)
    assert site.rows(ALERTS) == [(loops.device_id, False)]


async def test_shared_login_that_floods_is_not_paused(site: Site) -> None:
    await site.gateway(**LIMITS)
    camera, before = await site.camera(), jobs.SHARED._value.get()
    connection = camera.link.connection
    async with flooding(camera):
        await until(lambda: jobs.SHARED._value.get() > before)
    assert camera.link.connection == connection
    assert site.rows(PAUSED) == []
