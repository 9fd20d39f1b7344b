"""Cameras of the esp32cam dialect that follow the public order of messages (C-117)."""

from datetime import datetime, timedelta

import pytest

from farmiq.cloud.camera.gateway import commands
from tests.integration.cloud.camera_gateway.conftest import Site, now
from tests.integration.cloud.camera_gateway.firmware import Camera, picture
from tests.support.until import until

pytestmark = pytest.mark.req("DB2-10", "DB2-11", "DB2-12", "DB2-14")

UNASKED = "select captures_unasked from camera_states"


async def sends_when_told(
    camera: Camera, image: bytes, name: str, at: datetime | None = None
) -> None:
    """An image as the public firmware sends it: announced, and sent when it is asked for."""
    await camera.announce(image, name, at or now())
    channel, told = await camera.until_told("send_image")
    assert (channel, told) == ("cmd", {"device_id": camera.mac, "send_image": name})
    await camera.send(image, name)
    channel, told = await camera.until_told("ACK_OK")
    assert (channel, told["device_id"], told["image_name"]) == ("ack", camera.mac, name)
    assert told["ACK_OK"]["next_wake_time"]


async def test_camera_that_waits_for_orders_captures_sends_and_is_acknowledged(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "CAPTURE_QUIET_S", 0.5)
    await site.gateway()
    camera = await site.camera(dialect="esp32cam")
    for wake in range(2):
        await camera.hello()
        told = await camera.listen()
        assert told == ("cmd", {"device_id": camera.mac, "capture_image": True})
        image = picture(4_000, seed=wake)
        await sends_when_told(camera, image, f"{wake}.jpg")
        assert await site.stored(camera, f"{wake}.jpg") == image
        assert site.rows(UNASKED) == [(False,)]
    assert site.rows("select count(*) from device_images") == [(2,)]


async def test_pending_images_are_sent_one_by_one_before_the_image_of_this_wake(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "CAPTURE_QUIET_S", 0.5)
    await site.gateway()
    camera = await site.camera(dialect="esp32cam")
    await camera.hello(pending=2)
    channel, told = await camera.listen()
    assert (channel, set(told)) == ("ack", {"device_id", "ACK_OK"})
    for hours in (2, 1):
        at = now() - timedelta(hours=hours)
        await sends_when_told(camera, picture(3_000, seed=hours), f"old-{hours}.jpg", at)
    assert await camera.listen() == ("cmd", {"device_id": camera.mac, "capture_image": True})
    await sends_when_told(camera, picture(3_000, seed=9), "new.jpg")
    states = "select status, count(*) from device_images group by 1"
    assert site.rows(states) == [("complete", 3)]


async def test_camera_that_captures_without_a_command_gets_no_capture_image(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.gateway()
    camera = await site.camera(dialect="esp32cam")
    await camera.wake(picture(3_000), "1.jpg", now())
    await until(lambda: site.rows(UNASKED) == [(True,)])
    monkeypatch.setattr(commands, "CAPTURE_QUIET_S", 0.0)
    await camera.wake(picture(3_000, seed=1), "2.jpg", now())
    assert not any("capture_image" in body for _, body in camera.heard)
    assert site.rows("select 1 from camera_commands where name = 'capture_image'") == []


async def test_send_image_is_not_sent_to_a_camera_that_sends_already(site: Site) -> None:
    await site.gateway()
    camera = await site.camera(dialect="esp32cam")
    image = picture(3_000)
    await camera.hello()
    await camera.send(image, "1.jpg", [1])
    await camera.announce(image, "1.jpg", now())
    await camera.until_safe(image, "1.jpg")
    assert not any("send_image" in body for _, body in camera.heard)
