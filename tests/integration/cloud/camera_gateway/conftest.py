"""A gateway on real engines: NATS, PostgreSQL, S3; and cameras at a site."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from farmiq.cloud.camera.gateway import service
from farmiq.config import CloudSettings
from farmiq.lab import stack
from farmiq.plumbing import http
from farmiq.plumbing.storage import objects
from tests.conftest import Database
from tests.integration.cloud.camera_gateway.firmware import Camera, switched_on
from tests.sql.camera.farm import Farm
from tests.support import databases
from tests.support.until import until

if TYPE_CHECKING:
    from tests.integration.cloud.camera_gateway.processes import Gateways


@pytest.fixture
def camera_broker(tmp_path: Path) -> Iterator[stack.Stack]:
    with stack.start(tmp_path / "b", engines=("mqtt-cloud",), say=lambda _: None) as started:
        yield started


@dataclass
class Site:
    """`environment` is what a gateway is started with."""

    farm: Farm
    site_id: UUID
    environment: dict[str, str]
    tasks: asyncio.TaskGroup
    cameras: AsyncExitStack
    bucket: objects.Bucket
    macs: list[str] = field(default_factory=list)

    @property
    def settings(self) -> CloudSettings:
        return CloudSettings.load(self.environment)

    async def gateway(self, **changes: str) -> "asyncio.Task[None]":
        """One more gateway in the background; ready when the broker and the turn are."""
        # Nobody is there to take over: it keeps its turn also when the machine is slow.
        patient = {"CAMERA_LEASE_SECONDS": "30"}
        settings = CloudSettings.load({**self.environment, **patient, **changes})
        server = http.HttpServer(
            title="test", version="0", actions_per_minute=60, request_within_s=10
        )
        running = self.tasks.create_task(service.run(settings, server))

        async def ready() -> bool:
            # Until it has a broker or stands by, it has not begun.
            started = "camera.broker" in server.checks or await server.notes()
            return bool(started and not await server.problems()) or running.done()

        await until(ready)
        return running

    async def camera(self, *, site: UUID | None = None, **options: Any) -> Camera:
        """A registered camera that is switched on."""
        dialect = options.get("dialect", "standard")
        device_id = self.farm.device(site or self.site_id, "0 * * * *", dialect=dialect)
        mac = device_id.hex[-12:].upper()
        url = self.environment["FARMIQ_CAMERAS_MQTT_URL"]
        return await self.cameras.enter_async_context(switched_on(url, mac, device_id, **options))

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.farm.rows(query, *values)

    async def stored(self, camera: Camera, name: str = "IMG_001.jpg") -> bytes | None:
        """The bytes of a camera's newest image of this name, from the bucket."""
        found = self.rows(
            "select image_url from device_images where device_id = %s and image_name = %s "
            "and status = 'complete' order by created_at desc limit 1",
            camera.device_id,
            name,
        )
        return await self.bucket.find(found[0][0]) if found else None


@pytest.fixture
async def site(
    cloud_db: Database,
    engines: dict[str, str],
    camera_broker: stack.Stack,
    free_port: Callable[[], int],
    tasks: asyncio.TaskGroup,
) -> AsyncIterator[Site]:
    environment = {
        **camera_broker.environment,
        "FARMIQ_CLOUD_DB_URL": cloud_db.url,
        "FARMIQ_CLOUD_DB_ADMIN_URL": cloud_db.admin_url,
        "FARMIQ_CLOUD_S3_URL": engines["FARMIQ_CLOUD_S3_URL"],
        "FARMIQ_AMQP_URL": engines["FARMIQ_AMQP_URL"],
        "FARMIQ_CLOUD_HTTP_PORT": str(free_port()),
        "CAMERA_MISSING_SECONDS": "0.5",
        "CAMERA_LEASE_SECONDS": "2",
    }
    with (
        databases.connected(cloud_db.admin_url, autocommit=True) as owner,
        databases.connected(cloud_db.url, autocommit=True) as login,
    ):
        farm = Farm.make(cloud_db, owner, login)
        async with AsyncExitStack() as cameras:
            bucket = objects.Bucket(environment["FARMIQ_CLOUD_S3_URL"])
            yield Site(farm, farm.site(), environment, tasks, cameras, bucket)


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def gateways(site: Site, tmp_path: Path, free_port: Callable[[], int]) -> Iterator["Gateways"]:
    from tests.integration.cloud.camera_gateway.processes import Gateways  # noqa: PLC0415

    made = Gateways(site, tmp_path, free_port)
    yield made
    made.stop()
