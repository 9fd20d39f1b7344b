"""A service that is killed between two effects of a posting: nothing is lost, nothing twice."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.integration.cloud.conftest import CloudSite
from tests.integration.cloud.postings.conftest import PLACE, seed
from tests.support import preloaded
from tests.support.until import until

POINTS = [
    "posting.before_commit",
    "posting.after_publish",
    "sink.before_commit",
    "sink.after_commit",
]
DEAD = {**PLACE, "record_type": "mortality", "value": 3}


class Service:
    """`farmiq run cloud-barn-service` on the test's own engines."""

    def __init__(self, cloud: CloudSite, folder: Path) -> None:
        self._cloud, self._folder = cloud, folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, *, crash_at: str = "") -> "subprocess.Popen[bytes]":
        settings = self._cloud.settings
        environment = {
            "FARMIQ_CLOUD_DB_URL": settings.db_url.get_secret_value(),
            "FARMIQ_AMQP_URL": settings.amqp_url.get_secret_value(),
            "FARMIQ_EDGE_KEYS_FILE": str(settings.edge_keys_file),
            "FARMIQ_CLOUD_HTTP_PORT": str(settings.http_port),
            "FARMIQ_CRASH_AT": crash_at,
        }
        process = preloaded.run("cloud-barn-service", environment, log=self._folder / "barn.log")
        self._running.append(process)
        return process

    def stop(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
def service(cloud: CloudSite, tmp_path: Path) -> Iterator[Service]:
    made = Service(cloud, tmp_path)
    yield made
    made.stop()


async def entered(cloud: CloudSite, token: str, key: str) -> dict[str, Any]:
    """Post until there is an answer, as a client does that was not answered."""
    url = f"http://127.0.0.1:{cloud.settings.http_port}/api/v1/barn/records"
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key}

    async def answer() -> Any:
        async with httpx2.AsyncClient(timeout=60) as client:
            try:
                response = await client.post(url, json=DEAD, headers=headers)
            except httpx2.TransportError:
                return None
        return response.json() if response.status_code == 201 else None

    found: dict[str, Any] = await until(answer)
    return found


@pytest.mark.parametrize("point", POINTS)
async def test_record_is_stored_once_though_its_service_was_killed(
    cloud: CloudSite, service: Service, point: str
) -> None:
    token = seed(cloud)["ann"]
    killed = service.start(crash_at=point)
    posting = asyncio.create_task(entered(cloud, token, "k"))
    await until(lambda: killed.poll() is not None)
    service.start()

    answer = await posting
    more = [await entered(cloud, token, f"k-{number}") for number in range(3)]

    def stored() -> list[Any]:
        return [row[0] for row in cloud.rows("select record_id from barn_events")]

    await until(lambda: len(stored()) >= 4)
    assert sorted(stored()) == sorted(record["record_id"] for record in (answer, *more))
    assert cloud.rows("select count(*) from posted_events where published_at is null") == [(0,)]
