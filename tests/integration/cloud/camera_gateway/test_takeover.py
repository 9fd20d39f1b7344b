"""Gateways die and others go on: nothing lost, nothing doubled, nothing acknowledged too early."""

import signal

import pytest

from farmiq import crash
from tests.integration.cloud.camera_gateway.conftest import Site, now
from tests.integration.cloud.camera_gateway.firmware import picture
from tests.integration.cloud.camera_gateway.processes import Gateways
from tests.support.until import until

NAME = "IMG_001.jpg"
POINTS = [
    "camera.before_commit",
    "camera.after_commit",
    "camera.after_put",
    "camera.before_complete_commit",
    "camera.after_complete_commit",
    "camera.after_ack",
]


def accounts(site: Site) -> list[tuple[int, ...]]:
    """Chunks of images: one that comes again after the end waits for an announcement."""
    return site.rows(
        """
        select (select count(*) from device_images), (select count(*) from device_images
          where status = 'complete'), (select count(*) from device_wake_payloads),
          (select count(*) from petri_observations),
          (select count(*) from camera_chunks join camera_transfers using (transfer_id)
          where image_id is not null),
          (select completed_wake_count from site_device_sessions)
        """
    )


def test_crash_points_of_the_gateway_are_all_tested() -> None:
    assert [point for point in crash.POINTS if point.startswith("camera.")] == POINTS


@pytest.mark.req("DB2-14")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", POINTS)
async def test_gateway_killed_at_any_crash_point_next_one_completes_the_image(
    site: Site, gateways: Gateways, point: str
) -> None:
    camera = await site.camera(encoding="base64")
    gateways.start("first", crash_at=point)
    image, at = picture(20_000), now()
    await until(
        lambda: (
            gateways.running["first"][0].poll() is not None or gateways.state("first") == "active"
        ),
        within_s=90,
    )
    await camera.hello()
    await camera.announce(image, NAME, at)
    await camera.send(image, NAME)
    died = await until(gateways.running["first"][0].poll, within_s=90)
    assert died == -signal.SIGKILL
    gateways.start("second", port=gateways.running["first"][1])
    await camera.until_safe(image, NAME)
    assert await site.stored(camera) == image
    await gateways.until("second", "active")
    await until(lambda: site.rows("select 1 from camera_transfers where due_at is null"))
    assert accounts(site) == [(1, 1, 1, 1, 0, 1)]


@pytest.mark.req("DB2-13")
async def test_second_gateway_takes_over_in_the_middle_of_an_image(
    site: Site, gateways: Gateways
) -> None:
    camera = await site.camera(encoding="base64")
    gateways.start("first")
    await gateways.until("first", "active")
    gateways.start("second")
    await gateways.until("second", "standby")
    image, at = picture(20_000), now()
    await camera.announce(image, NAME, at)
    await camera.send(image, NAME, range(10))
    await until(lambda: site.rows("select 1 from camera_transfers where received_count = 10"))
    gateways.kill("first")
    await camera.send(image, NAME, range(12, 20))
    await camera.until_safe(image, NAME)
    assert await site.stored(camera) == image
    await gateways.until("second", "active")
    assert accounts(site) == [(1, 1, 1, 1, 0, 1)]
    assert any("missing_chunks" in body for _, body in camera.heard)


async def test_gateway_frozen_during_takeover_changes_nothing_afterwards(
    site: Site, gateways: Gateways
) -> None:
    camera = await site.camera(encoding="base64")
    gateways.start("first")
    await gateways.until("first", "active")
    gateways.start("second")
    await gateways.until("second", "standby")
    image, at = picture(20_000), now()
    await camera.announce(image, NAME, at)
    await camera.send(image, NAME, range(10))
    zombie = gateways.running["first"][0]
    zombie.send_signal(signal.SIGSTOP)
    try:
        await camera.send(image, NAME, range(10, 20))
        await camera.until_safe(image, NAME)
    finally:
        zombie.send_signal(signal.SIGCONT)
    await gateways.until("first", "standby")
    assert await site.stored(camera) == image
    assert accounts(site) == [(1, 1, 1, 1, 0, 1)]
