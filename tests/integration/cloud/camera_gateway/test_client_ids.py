"""The cameras' broker asks the gateway who may connect: a camera under ids of its own alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from farmiq.cloud.camera import registration
from farmiq.lab import stack
from farmiq.plumbing import db
from farmiq.plumbing.backoff import Backoff
from farmiq.plumbing.messaging import mqtt
from tests.integration.cloud.camera_gateway.conftest import Site
from tests.support.until import until


@pytest.fixture
def camera_broker(tmp_path: Path) -> Iterator[stack.Stack]:
    """Without a login for all cameras: then it asks."""
    with stack.start(
        tmp_path / "b", engines=("mqtt-cloud",), shared_login=False, say=lambda _: None
    ) as started:
        yield started


async def connects(url: str, client_id: str) -> bool:
    """Whether the broker lets this login in under this client id."""
    async with mqtt.connected(
        url, client_id=client_id, persistent_session=False, backoff=Backoff(cap_s=0.2)
    ) as link:

        async def answered() -> bool:
            return link.problem() is None or "refused" in str(link.problem())

        await until(answered)
        return link.problem() is None


async def test_client_id_of_the_gateway_or_of_another_camera_is_rejected(site: Site) -> None:
    """Whoever connects under a client id takes its session, with what waits in it."""
    await site.gateway()
    mine, other = (
        site.farm.device(site.site_id, "0 * * * *", dialect="standard").hex[-12:].upper()
        for _ in range(2)
    )
    async with (
        db.pool(site.environment["FARMIQ_CLOUD_DB_URL"], name="test") as pool,
        db.transaction(pool) as tx,
    ):
        secret = await registration.make_login(tx, mine, made_by="test")
    host, port = mqtt.address(site.environment["FARMIQ_CLOUD_MQTT_URL"])
    url = f"mqtt://{mine}:{secret}@{host}:{port}"
    await until(lambda: connects(url, f"camera-{mine}"))
    assert await connects(url, "")
    for foreign in ("cloud-camera-gateway", f"camera-{other}", "esp32"):
        assert not await connects(url, foreign)
