"""The gateway reads the cameras' log: restored files, two gateways, purge."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from farmiq.cloud.camera.gateway import logins, service
from farmiq.lab import stack
from farmiq.plumbing.messaging import nats, stream
from tests.integration.cloud.camera_gateway.conftest import Site, now
from tests.integration.cloud.camera_gateway.firmware import picture
from tests.support.until import until

pytestmark = pytest.mark.req("DB2-13", "DB2-14")


async def log_info(site: Site) -> stream.Info:
    async with nats.connected(site.environment["FARMIQ_CLOUD_CAMERA_URL"]) as server:
        return await stream.info(server, logins.LOG.name)


async def stopped(gateway: "asyncio.Task[None]") -> None:
    gateway.cancel()
    await asyncio.wait([gateway])


async def restart_with(broker: stack.Stack, change: Callable[[], object]) -> None:
    await asyncio.to_thread(broker.kill, "mqtt-cloud")
    change()
    await asyncio.to_thread(broker.restart, "mqtt-cloud")


async def test_restored_broker_files_skip_no_message_and_store_none_twice(
    site: Site, camera_broker: stack.Stack, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    gateway, camera = await site.gateway(), await site.camera(encoding="base64")
    first, second, third = (picture(5_000, seed=seed) for seed in range(3))
    await camera.wake(first, "1.jpg", now())
    await stopped(gateway)
    (store,) = camera_broker.root.rglob("jetstream")
    await restart_with(camera_broker, lambda: shutil.copytree(store, copy))
    gateway = await site.gateway()
    await camera.link.until_up()
    await camera.wake(second, "2.jpg", now())
    await stopped(gateway)

    def restore() -> None:
        shutil.rmtree(store)
        shutil.copytree(copy, store)

    await restart_with(camera_broker, restore)
    before = service.REWOUND._value.get()
    await camera.link.until_up()
    await camera.hello()
    await camera.announce(third, "3.jpg", now())
    await camera.send(third, "3.jpg")
    await site.gateway()
    await camera.until_safe(third, "3.jpg")
    assert service.REWOUND._value.get() == before + 1
    for name, image in (("1.jpg", first), ("2.jpg", second), ("3.jpg", third)):
        assert await site.stored(camera, name) == image
    assert site.rows("select count(*) from device_images") == [(3,)]
    assert site.rows("select completed_wake_count from site_device_sessions") == [(3,)]


async def test_messages_of_qos_0_and_1_are_in_the_log_in_the_order_sent(site: Site) -> None:
    await stopped(await site.gateway())
    camera = await site.camera(encoding="base64")
    before = (await log_info(site)).last_seq
    topic = f"device/{camera.mac}/status"
    for number in range(20):
        body = b'{"alive": 1, "pending_count": %d}' % number
        await camera.link.publish(topic, body, qos=number % 2)
    await until(lambda: _has(site, before + 20))
    async with stream.reader(
        site.environment["FARMIQ_CLOUD_CAMERA_URL"], stream=logins.LOG.name
    ) as reader:
        await reader.start(None)
        found = await reader.batch(max_messages=100, linger_s=0.5)
    counts = [int(one.payload.split(b":")[-1].strip(b" }")) for one in found[-20:]]
    assert counts == list(range(20))


async def _has(site: Site, seq: int) -> bool:
    return (await log_info(site)).last_seq >= seq


async def test_stored_messages_are_purged_except_the_last(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "PURGE_AFTER_S", 0.0)
    monkeypatch.setattr(service, "PURGE_EVERY_S", 0.1)
    gateway, camera = await site.gateway(), await site.camera(encoding="base64")
    image = picture(9_000)
    await camera.wake(image, "1.jpg", now())

    async def purged() -> bool:
        info = await log_info(site)
        return info.last_seq > 1 and info.messages == 1

    await until(purged)
    await stopped(gateway)
    before = service.REWOUND._value.get()
    await site.gateway()
    await camera.wake(image, "2.jpg", now())
    assert await site.stored(camera, "2.jpg") == image
    assert service.REWOUND._value.get() == before
