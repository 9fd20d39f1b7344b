"""SIGKILL at every step of an image's way, at both ends: afterwards it is there once and whole."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from farmiq.cloud.identity.accounts import add_company
from farmiq.plumbing.storage import objects
from tests.conftest import Database
from tests.integration.edge.media.conftest import Edge, jpeg, later, rows
from tests.integration.edge.sync.owed import force
from tests.support import databases, preloaded
from tests.support.until import until


@dataclass
class Processes:
    environment: dict[str, str]
    free_port: Callable[[], int]
    running: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def start(self, name: str, *, port: int = 0, crash_at: str = "") -> "subprocess.Popen[bytes]":
        site = name.partition("-")[0].upper()
        environment = {
            **self.environment, "FARMIQ_CRASH_AT": crash_at,
            f"FARMIQ_{site}_HTTP_PORT": str(port or self.free_port()),
        }  # fmt: skip
        process = preloaded.run(name, environment)
        self.running.append(process)
        return process

    async def dies(self, process: "subprocess.Popen[bytes]") -> None:
        await until(lambda: process.poll() is not None, within_s=60)
        assert process.returncode == -signal.SIGKILL


@pytest.fixture
def processes(
    edge: Edge, engines: dict[str, str], free_port: Callable[[], int]
) -> Iterator[Processes]:
    made = Processes(
        {
            "FARMIQ_EDGE_DB_URL": edge.database.url,
            "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
            "FARMIQ_EDGE_S3_URL": engines["FARMIQ_EDGE_S3_URL"],
            "FARMIQ_EDGE_KEY_FILE": str(edge.settings.edge_key_file),
            "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
            "MEDIA_LEASE_SECONDS": "1",
            "MEDIA_CHECK_SECONDS": "0.1",
            "SYNC_BREAKER_MAX_SECONDS": "1",
        },
        free_port,
    )
    yield made
    for process in made.running:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=20)


@pytest.mark.parametrize(
    "point", ["media.after_look", "media.before_stored_commit", "media.after_stored_commit"]
)
async def test_death_while_storing_gives_one_image_and_one_event(
    edge: Edge, processes: Processes, point: str
) -> None:
    media_ids = [await edge.upload(jpeg(colour)) for colour in ("red", "blue")]
    for media_id in media_ids:
        await edge.announce(media_id)
    await processes.dies(processes.start("edge-media-store", crash_at=point))
    processes.start("edge-media-store")
    await until(lambda: [edge.status(each) for each in media_ids] == ["stored"] * 2, within_s=60)
    assert sorted(owed["media_id"] for owed in edge.owed()) == sorted(map(str, media_ids))


@pytest.mark.parametrize("point", ["media.after_copy_aside", "media.after_aside_commit"])
async def test_death_while_setting_aside_loses_nothing(
    edge: Edge, processes: Processes, point: str
) -> None:
    body = edge.body()
    said = (await edge.ask(body)).json()
    media_id = UUID(said["media_id"])
    assert (await edge.put(said, b"no image")).status_code == 200
    await edge.announce(media_id)
    await processes.dies(processes.start("edge-media-store", crash_at=point))
    processes.start("edge-media-store")
    await until(lambda: edge.column("refused_reason", media_id), within_s=60)
    assert await edge.bucket.get(edge.column("aside_key", media_id)) == b"no image"
    # Asked again, the place is free for the right bytes, wherever the other one died.
    again = (await edge.ask({**body, "mediaId": str(media_id)})).json()
    assert (await edge.put(again, jpeg())).status_code == 200
    assert (await edge.ask({**body, "mediaId": str(media_id)})).json()["stored"]


@pytest.mark.req("RT-08")
async def test_death_between_object_and_row_is_finished_by_the_next(
    edge: Edge, processes: Processes
) -> None:
    media_id = await edge.store(jpeg())
    key = edge.column("object_key", media_id)
    with databases.connected(edge.database.admin_url) as owner:
        owner.execute("update media_objects set synced_at = now()")
    later(edge.database, "200 days")
    await processes.dies(processes.start("edge-media-store", crash_at="media.after_delete"))
    assert await edge.bucket.head(key) is None
    assert len(rows(edge.database, "select from media_objects")) == 1
    processes.start("edge-media-store")
    await until(lambda: rows(edge.database, "select from media_objects") == [], within_s=60)


@dataclass
class Cloud:
    database: Database
    bucket: objects.Bucket
    port: int

    def stored(self) -> list[Any]:
        found = rows(
            self.database, "select object_key from media_objects where stored_at is not null"
        )
        return [key for (key,) in found]


@pytest.fixture
def cloud(  # noqa: PLR0917 - what a cloud stands on
    processes: Processes,
    cloud_db: Database,
    vhost: str,
    engines: dict[str, str],
    tmp_path: Path,
    free_port: Callable[[], int],
) -> Cloud:
    with databases.connected(cloud_db.admin_url) as connection:
        add_company(connection, "t-cam", name="Cam")
    port = free_port()
    processes.environment |= {
        "FARMIQ_CLOUD_DB_URL": cloud_db.url,
        "FARMIQ_AMQP_URL": vhost,
        "FARMIQ_EDGE_KEYS_FILE": str(tmp_path / "keys.json"),
        "FARMIQ_CLOUD_S3_URL": engines["FARMIQ_CLOUD_S3_URL"],
        "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{port}",
    }
    return Cloud(cloud_db, objects.Bucket(engines["FARMIQ_CLOUD_S3_URL"]), port)


async def test_an_outage_of_the_cloud_drains_by_itself(
    edge: Edge, processes: Processes, cloud: Cloud
) -> None:
    """The cloud is killed, images come meanwhile; when it is back, all are there, byte for byte."""
    pictures = {await edge.store(jpeg(colour)): jpeg(colour) for colour in ("red", "blue", "white")}
    force(edge.database, "update sync_outbox set status = 'acked'")
    away = processes.start("cloud-media-store", port=cloud.port)
    await until(lambda: answers(cloud.port), within_s=60)
    away.send_signal(signal.SIGKILL)
    away.wait()
    processes.start("edge-media-store")
    error = "select count(*) from media_objects where sync_error is not null"
    await until(lambda: rows(edge.database, error)[0][0] > 0, within_s=60)
    assert cloud.stored() == []
    processes.start("cloud-media-store", port=cloud.port)
    await until(lambda: len(cloud.stored()) == 3, within_s=60)
    unsynced = "select from media_objects where synced_at is null"
    await until(lambda: rows(edge.database, unsynced) == [], within_s=60)
    for media_id, data in pictures.items():
        assert await cloud.bucket.get(edge.column("object_key", media_id)) == data
    assert "media.not_taken" not in {kind for kind, _ in edge.alerts()}


@pytest.mark.parametrize(
    ("victim", "point"),
    [
        ("edge-media-store", "media.after_put"),
        ("edge-media-store", "media.before_synced_commit"),
        ("cloud-media-store", "media.before_confirm_commit"),
        ("cloud-media-store", "media.after_confirm_commit"),
    ],
)
async def test_death_on_the_way_to_the_cloud_brings_it_there_once(
    edge: Edge, processes: Processes, cloud: Cloud, victim: str, point: str
) -> None:
    media_id = await edge.store(jpeg())
    force(edge.database, "update sync_outbox set status = 'acked'")
    ports = {"cloud-media-store": cloud.port}
    for name in ("cloud-media-store", "edge-media-store"):
        if name != victim:
            processes.start(name, port=ports.get(name, 0))
    dying = processes.start(victim, port=ports.get(victim, 0), crash_at=point)
    await processes.dies(dying)
    processes.start(victim, port=ports.get(victim, 0))
    await until(lambda: edge.column("synced_at", media_id) is not None, within_s=60)
    assert cloud.stored() == [edge.column("object_key", media_id)]
    assert await cloud.bucket.get(edge.column("object_key", media_id)) == jpeg()


def answers(port: int) -> bool:
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200
    except httpx2.HTTPError:
        return False
