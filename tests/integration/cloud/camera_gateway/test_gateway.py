"""Images in chunks over a real broker into a real database and bucket."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from tests.integration.cloud.camera_gateway.conftest import Site, now
from tests.integration.cloud.camera_gateway.firmware import Camera, picture
from tests.support.until import until

NAME = "IMG_001.jpg"


async def has_stored(site: Site, camera: Camera, image: bytes) -> bool:
    return await site.stored(camera) == image


@pytest.mark.req("DB2-10", "DB2-12", "DB2-14", "DS-02")
@pytest.mark.parametrize(
    ("dialect", "encoding"),
    [("standard", "array"), ("standard", "base64"), ("standard", "binary"), ("esp32cam", "array")],
)
async def test_image_is_stored_byte_for_byte_and_then_acknowledged(
    site: Site, dialect: str, encoding: str
) -> None:
    await site.gateway()
    camera = await site.camera(dialect=dialect, encoding=encoding)
    image = picture(7_300)
    answer = await camera.wake(image, NAME, now())
    assert await site.stored(camera) == image
    told = answer["ACK_OK"] if dialect == "esp32cam" else answer
    assert told["next_wake_time" if dialect == "esp32cam" else "next_wake"]
    assert site.rows("select payload_status, temperature from device_wake_payloads") == [
        ("complete", 21.5)
    ]
    assert site.rows("select count(*) from camera_chunks") == [(0,)]
    ((seen,),) = site.rows("select last_seen_at from devices")
    assert seen is not None


@pytest.mark.req("DB2-13")
@pytest.mark.parametrize("dialect", ["standard", "esp32cam"])
async def test_images_with_a_third_of_chunks_lost_are_complete(site: Site, dialect: str) -> None:
    await site.gateway()
    images = {n: picture(12_000 + n) for n in range(6)}
    cameras = [
        await site.camera(
            dialect=dialect, loss=0.3, encoding="base64" if dialect == "standard" else "array"
        )
        for _ in images
    ]
    at = now()
    await asyncio.gather(*(camera.wake(images[n], NAME, at) for n, camera in enumerate(cameras)))
    for n, camera in enumerate(cameras):
        assert await site.stored(camera) == images[n]
    assert site.rows(
        "select count(*), sum((payload_status = 'complete')::int) from device_wake_payloads"
    ) == [(6, 6)]
    assert any("missing_chunks" in body for camera in cameras for _, body in camera.heard)


async def test_chunks_repeated_in_any_order_before_their_announcement_are_complete(
    site: Site,
) -> None:
    await site.gateway()
    camera = await site.camera()
    image = picture(5_000)
    await camera.send(image, NAME, [4, 2, 2])
    await camera.announce(image, NAME, now(), chunk_size=1000)
    await camera.send(image, NAME, [4, 3, 1, 0, 0])
    await camera.until_safe(image, NAME)
    assert await site.stored(camera) == image
    assert site.rows("select count(*) from camera_quarantine") == [(0,)]


@pytest.mark.req("DB2-15")
async def test_failed_image_continues_in_the_next_wake_in_the_same_row(site: Site) -> None:
    await site.gateway(CAMERA_TIMEOUT_SECONDS="5", CAMERA_MISSING_SECONDS="0.2")
    camera = await site.camera()
    image, at = picture(6_000), now()
    await camera.announce(image, NAME, at)
    await camera.send(image, NAME, [0, 1, 2])
    await until(lambda: site.rows("select 1 from device_images where status = 'failed'"))
    assert site.rows("select error_code from device_images") == [("TIMEOUT",)]
    assert site.rows("select alert_type from device_alerts") == [("image_transmission_failed",)]
    await camera.hello(pending=1)
    assert await camera.until_told("send_image") == ("cmd", {"send_image": NAME})
    await camera.announce(image, NAME, at)
    await camera.send(image, NAME, [3, 4, 5])
    await camera.until_safe(image, NAME)
    assert await site.stored(camera) == image
    assert site.rows("select status, retry_count from device_images") == [("complete", 1)]
    await until(lambda: site.rows("select 1 from camera_commands where state = 'done'"))


@pytest.mark.req("DB2-14")
async def test_stored_image_repeated_in_part_is_answered_with_ack_ok(site: Site) -> None:
    await site.gateway()
    camera = await site.camera()
    image, at = picture(4_000), now()
    await camera.wake(image, NAME, at)
    await camera.announce(image, NAME, at)
    await camera.until_safe(image, NAME)
    await camera.send(image, NAME, [2])
    await camera.until_safe(image, NAME)
    assert site.rows("select count(*) from device_images") == [(1,)]
    assert site.rows("select count(*) from camera_transfers") == [(1,)]


@pytest.mark.req("DB2-14")
@pytest.mark.parametrize("at", [None, "1970-01-01T00:00:07Z", "now"])
async def test_stored_image_repeated_in_other_chunks_is_acknowledged_and_stored_once(
    site: Site, at: str | None
) -> None:
    await site.gateway()
    camera = await site.camera()
    image, when = picture(4_000), now() if at == "now" else at
    await camera.wake(image, NAME, when)
    camera.chunk_size = 700
    await camera.announce(image, NAME, when, chunk_size=700)
    await camera.until_safe(image, NAME)
    await camera.send(image, NAME)
    await camera.until_safe(image, NAME)
    await camera.send(image, None, [2, 3])
    await camera.until_safe(image, NAME)
    await until(lambda: site.rows("select count(*) from camera_transfers") == [(1,)])
    assert site.rows("select count(*) from device_images") == [(1,)]
    assert site.rows("select count(*) from camera_quarantine") == [(0,)]
    new = picture(4_000, seed=1)
    await camera.wake(new, NAME, now())
    # What the first one was answered last may have been heard only now.
    await until(lambda: has_stored(site, camera, new))
    assert site.rows("select count(*) from device_images") == [(2,)]


async def test_redelivered_chunk_of_the_image_before_is_not_mixed_into_the_next(
    site: Site,
) -> None:
    await site.gateway()
    camera = await site.camera()
    first, second = picture(4_000), picture(4_000, seed=1)
    await camera.wake(first, "a.jpg", now() - timedelta(minutes=1))
    await camera.announce(second, "b.jpg", now())
    await camera.send(first, None, [0, 1, 2, 3])
    await camera.send(second, None, [1, 2, 3])
    await camera.until_told("missing_chunks")
    await camera.send(second, None, [0])
    await camera.until_safe(second, "b.jpg")
    assert await site.stored(camera, "b.jpg") == second
    assert site.rows("select count(*) from camera_quarantine") == [(0,)]


@pytest.mark.req("DB2-12")
async def test_camera_error_without_an_image_counts_as_a_failed_wake(site: Site) -> None:
    await site.gateway()
    camera = await site.camera(dialect="esp32cam")
    said = {"device_id": camera.mac, "capture_timestamp": now().isoformat(), "error": "sensor"}
    await camera.say("data", said)
    await until(lambda: site.rows("select 1 from device_images where status = 'failed'"))
    assert site.rows("select payload_status from device_wake_payloads") == [("failed",)]
    assert site.rows("select error_code, error_message from device_images") == [
        ("CAMERA_ERROR", "the camera says error sensor")
    ]
    assert site.rows("select failed_wake_count from site_device_sessions") == [(1,)]


async def test_image_name_used_every_day_is_another_image_every_day(site: Site) -> None:
    await site.gateway()
    camera = await site.camera()
    for day in (2, 1, 0):
        image = picture(3_000, seed=day)
        await camera.wake(image, NAME, now() - timedelta(days=day))
        await until(partial(has_stored, site, camera, image))
    assert site.rows("select count(*) from device_images where status = 'complete'") == [(3,)]


@pytest.mark.req("DB2-11", "DB2-15")
async def test_twenty_pending_images_are_requested_one_after_another(site: Site) -> None:
    await site.gateway()
    camera = await site.camera(encoding="base64")
    at = now() - timedelta(days=1)
    waiting = {f"OFF_{n:03}.jpg": picture(1_500, seed=n) for n in range(20)}
    left = list(waiting)
    await camera.hello(pending=len(left))
    while left:
        _, body = await camera.listen()
        if "send_image" in body:
            name = left[0]
            await camera.announce(waiting[name], name, at + timedelta(minutes=len(left)))
            await camera.send(waiting[name], name)
        elif "ACK_OK" in body:
            assert body["image_name"] == left.pop(0)
    for name, image in waiting.items():
        assert await site.stored(camera, name) == image
    assert sum("send_image" in body for _, body in camera.heard) == 20


async def test_corrupt_image_is_requested_again_and_then_fails(
    site: Site,
) -> None:
    # No round of missing chunks comes in between: the only request is the one for the whole image.
    await site.gateway(CAMERA_MISSING_SECONDS="600")
    camera = await site.camera()
    cut = picture(3_000)[:-2] + b"\0\1"
    await camera.announce(cut, NAME, now())
    await camera.send(cut, NAME)
    _, body = await camera.until_told("missing_chunks")
    assert body["missing_chunks"] == [0, 1, 2]
    await camera.send(cut, NAME)
    await until(lambda: site.rows("select 1 from device_images where status = 'failed'"))
    ((code, why),) = site.rows("select error_code, error_message from device_images")
    assert (code, "cut off" in why) == ("CORRUPT", True)
    assert await site.stored(camera) is None
