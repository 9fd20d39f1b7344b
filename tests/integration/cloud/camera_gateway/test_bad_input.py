"""What cameras should not send: refused with the reason in sight, and nobody else is disturbed."""

import json
from typing import Any

import pytest

from farmiq.cloud.camera.gateway.answers import ENDED
from tests.integration.cloud.camera_gateway.conftest import Site, now
from tests.integration.cloud.camera_gateway.firmware import picture, switched_on
from tests.support.until import until

NAME = "IMG_001.jpg"


async def refused(site: Site, kind: str) -> list[str]:
    found = await until(
        lambda: site.rows("select reasons from camera_quarantine where kind = %s", kind)
    )
    return [reason for (reasons,) in found for reason in reasons]


async def test_message_of_unknown_camera_is_visible_to_services_only(site: Site) -> None:
    await site.gateway()
    url = site.environment["FARMIQ_CAMERAS_MQTT_URL"]
    async with switched_on(url, "AABBCCDDEEFF", site.site_id) as stranger:
        await stranger.hello()
        await stranger.hello()
        assert "no camera AABBCCDDEEFF" in (await refused(site, "unknown"))[0]
    await until(lambda: site.rows("select 1 from camera_quarantine where received_count = 2"))
    assert site.rows("select company_id, mac from camera_quarantine") == [(None, "AABBCCDDEEFF")]
    with site.farm.person() as somebody:
        assert somebody.execute("select 1 from camera_quarantine").fetchall() == []


async def test_message_of_camera_without_site_is_quarantined_with_an_alert(site: Site) -> None:
    await site.gateway()
    camera = await site.camera()
    site.farm.owner.execute("delete from device_assignments")
    site.farm.owner.execute("update devices set site_id = null")
    site.farm.owner.execute("delete from device_assignments")
    await camera.hello(pending=1)
    await camera.announce(picture(1000), NAME, now())
    assert "assign it" in (await refused(site, "unassigned"))[0]
    assert site.rows("select alert_type from device_alerts") == [("unassigned_device",)]
    assert site.rows("select last_seen_at is not null from devices") == [(True,)]
    # What it would send could not be taken.
    assert site.rows("select name from camera_commands") == []
    with site.farm.person() as somebody:
        assert len(somebody.execute("select 1 from camera_quarantine").fetchall()) == 1


async def test_message_in_another_dialect_is_rejected(site: Site) -> None:
    await site.gateway()
    camera = await site.camera()
    camera.dialect = "esp32cam"
    await camera.hello()
    assert "registered with the dialect standard" in (await refused(site, "dialect"))[0]


BAD: list[Any] = [
    {"image_name": NAME, "total_chunks": 2**31},
    {"image_name": "../../x", "total_chunks": 2},
    {"image_name": "a\0b", "total_chunks": 2},
    {"image_name": "a" * 4096, "total_chunks": 2},
    {"image_name": NAME, "total_chunks": "two"},
    {"image_name": NAME, "total_chunks": 2, "temperature": float("nan")},
    {"chunk_id": 2**31, "payload": [1]},
    {"chunk_id": "one", "payload": [1]},
    {"chunk_id": 1, "payload": [-1]},
    b"\xff\xfe\x00",
    b"",
    b"{" * 10_000,
]


# Integers that no float holds, and of more digits than Python writes.
BAD_HELLOS: list[Any] = [
    {"alive": 1, "battery_voltage": 10**400},
    {"alive": 1, "wifi_rssi": -(10**400)},
    {"alive": 1, "pending_count": 10**400},
    b'{"alive": 1, "battery_voltage": 1' + 5_000 * b"0" + b"}",
    {"alive": 1, "battery_voltage": "full"},
    {"alive": 1, "pending_count": -1},
    [1],
]


async def test_image_of_healthy_camera_beside_bad_messages_is_stored(site: Site) -> None:
    await site.gateway()
    bad, good = await site.camera(), await site.camera()
    for body in BAD:
        await bad.say("data", body)
    for body in BAD_HELLOS:
        await bad.say("status", body)
    image = picture(5_000)
    await good.wake(image, NAME, now())
    assert await site.stored(good) == image
    await until(
        lambda: (
            site.rows("select count(*) from camera_quarantine") == [(len(BAD) + len(BAD_HELLOS),)]
        )
    )
    assert site.rows("select count(*) from camera_quarantine where kind <> 'format'") == [(0,)]


async def test_announcement_that_contradicts_an_open_image_is_rejected(site: Site) -> None:
    await site.gateway()
    camera = await site.camera()
    image, at = picture(4_000), now()
    await camera.announce(image, NAME, at)
    await camera.announce(picture(9_000), NAME, at)
    assert "total_chunks of this image was 4 and is 9 now" in await refused(site, "conflict")
    await camera.send(image, NAME, [0, 1])
    await camera.say("data", {"image_name": NAME, "chunk_id": 1, "payload": [1, 2, 3]})
    await until(
        lambda: site.rows("select 1 from camera_quarantine where reasons[1] like '%%other bytes'")
    )
    await camera.say("data", {"image_name": NAME, "chunk_id": 4, "payload": [1]})
    assert "chunk_id is 4: this image has 0 to 3" in await refused(site, "limits")
    await camera.send(image, NAME, [2, 3])
    await camera.until_safe(image, NAME)
    assert await site.stored(camera) == image


@pytest.mark.req("DB2-12")
@pytest.mark.timeout(600)
async def test_thousand_announcements_leave_two_open_images_and_four_with_chunks(
    site: Site,
) -> None:
    await site.gateway()
    counted = ENDED.labels(outcome="too_many_open")._value
    before = counted.get()
    bad, good = await site.camera(encoding="base64"), await site.camera()
    for n in range(1000):
        image = picture(2_000, seed=n)
        await bad.announce(image, f"N{n}.jpg", now())
        if n % 10 == 0:
            await bad.send(image, f"N{n}.jpg", [0])
    image = picture(5_000)
    await good.wake(image, NAME, now())
    assert await site.stored(good) == image
    count = "select count(*) from camera_transfers where state = "
    await until(lambda: site.rows(f"{count} 'failed'") == [(998,)], within_s=120)
    assert site.rows(f"{count} 'receiving'") == [(2,)]
    await until(lambda: counted.get() - before == 998)
    ((held,),) = site.rows("select count(distinct transfer_id) from camera_chunks")
    assert held <= 4
    ((reasons,),) = site.rows(
        "select json_agg(distinct reason) from camera_transfers where state = 'failed'"
    )
    assert "TOO_MANY_OPEN" in json.dumps(reasons)
    # One alert per camera, kind and day; the test may run around midnight.
    ((alerts,),) = site.rows("select count(*) from device_alerts")
    assert alerts in {1, 2}
