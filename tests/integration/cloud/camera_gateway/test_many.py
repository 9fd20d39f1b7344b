"""Many cameras at once, and engines that go away: everything arrives, memory stays (P12)."""

import asyncio

import pytest

from farmiq.lab import stack
from farmiq.lab.simulate.link import linked
from tests.integration.cloud.camera_gateway.conftest import Site, now
from tests.integration.cloud.camera_gateway.firmware import Camera, picture
from tests.integration.cloud.camera_gateway.processes import Gateways
from tests.support.until import until

NAME = "IMG_001.jpg"


async def all_wake(site: Site, cameras: list[Camera]) -> None:
    images = [picture(30_000 + n) for n in range(len(cameras))]
    at = now()
    await asyncio.gather(
        *(camera.wake(image, NAME, at) for camera, image in zip(cameras, images, strict=True))
    )
    for camera, image in zip(cameras, images, strict=True):
        assert await site.stored(camera) == image


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.req("DB2-13")
async def test_two_hundred_cameras_with_a_third_of_chunks_lost_are_complete(
    site: Site, gateways: Gateways
) -> None:
    gateways.start("gateway")
    await gateways.until("gateway", "active")
    cameras = [await site.camera(loss=0.3, encoding="base64", patience_s=300) for _ in range(200)]
    await all_wake(site, cameras[:20])
    few_mb = gateways.resident_mb("gateway")
    await all_wake(site, cameras)
    many_mb = gateways.resident_mb("gateway")
    assert many_mb - few_mb < 64, (few_mb, many_mb)
    wakes = "select payload_status, count(*) from device_wake_payloads group by 1"
    assert site.rows(wakes) == [("complete", 220)]


async def test_broker_killed_in_the_middle_of_an_image_loses_nothing(
    site: Site, camera_broker: stack.Stack
) -> None:
    await site.gateway()
    camera = await site.camera(encoding="base64")
    image, at = picture(20_000), now()
    await camera.announce(image, NAME, at)
    await camera.send(image, NAME, range(10))
    await asyncio.to_thread(camera_broker.kill, "mqtt-cloud")
    await asyncio.to_thread(camera_broker.restart, "mqtt-cloud")
    await camera.link.until_up()
    await camera.send(image, NAME, range(10, 20))
    await camera.until_safe(image, NAME)
    assert await site.stored(camera) == image
    assert site.rows("select count(*) from device_images") == [(1,)]


async def test_image_is_not_acknowledged_while_the_bucket_is_unavailable(site: Site) -> None:
    host, _, rest = site.environment["FARMIQ_CLOUD_S3_URL"].partition("@")
    address, _, bucket = rest.partition("/")
    name, _, port = address.partition(":")
    async with linked(name, int(port)) as link:
        await site.gateway(FARMIQ_CLOUD_S3_URL=f"{host}@127.0.0.1:{link.port_here}/{bucket}")
        camera = await site.camera(encoding="base64")
        image = picture(20_000)
        link.refusing = True
        link.cut()
        await camera.announce(image, NAME, now())
        await camera.send(image, NAME)
        await until(lambda: site.rows("select 1 from camera_transfers where received_count = 20"))
        await until(lambda: site.rows("select 1 from camera_transfers where due_at > now()"))
        assert site.rows("select status from device_images") == [("receiving",)]
        link.heal()
        await camera.until_safe(image, NAME)
    assert await site.stored(camera) == image
