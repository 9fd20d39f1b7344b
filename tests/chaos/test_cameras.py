"""Cameras by the hundred, and everything on their way killed in the middle of images."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from farmiq.lab import stack
from farmiq.lab.simulate import fleet
from farmiq.lab.simulate.camera_faults import Faults
from farmiq.lab.simulate.fleet import Timing
from farmiq.plumbing import migrations
from farmiq.services import SQL
from tests.conftest import Database
from tests.support.camera_farm import FIRMWARE, GATEWAY, CameraFarm, Watched, farm_of
from tests.support.engines import state_dir

LOSSY = Faults(loss=0.3, duplicates=0.1, reorder=0.5)
# A whole fleet on two cores: cameras wait for their answers a while.
PATIENT = replace(FIRMWARE, answer_s=60.0, awake_s=900.0)
MAX_MORE_BYTES = 64 * 2**20
ROUNDS = 3


@pytest.fixture
def cameras(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[CameraFarm]:
    """On engines of its own, which may be killed."""
    root = tmp_path / "stack"
    names = ("mqtt-cloud", "postgres-cloud", "s3", "rabbitmq")
    with stack.start(
        root, engines=names, downloads=state_dir() / "engines", say=lambda _: None
    ) as started:
        given = started.environment
        database = Database(given["FARMIQ_CLOUD_DB_URL"], given["FARMIQ_CLOUD_DB_ADMIN_URL"])
        migrations.apply(database.admin_url, SQL["cloud"])
        with farm_of(started, tmp_path, database, {}, free_port) as made:
            yield made
    stack.remove(root)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.req("DB2-13", "DB2-14")
async def test_two_hundred_cameras_at_once_with_a_third_of_chunks_lost(
    cameras: CameraFarm, capsys: pytest.CaptureFixture[str]
) -> None:
    most: dict[int, Watched] = {}
    for count in (20, 200):
        await cameras.start()
        faults = replace(LOSSY, seed=count)
        async with cameras.cameras(count, faults, firmware=PATIENT) as made:
            most[count] = await cameras.watched(made, wakes=1)
        cameras.farm.stop_one(GATEWAY)
    await cameras.check(captured=220)
    with capsys.disabled():
        for count, seen in most.items():
            memory_mb = seen.memory_bytes // 2**20
            print(f"\n{count} cameras, {seen.awake} awake at once: gateway {memory_mb} MB")  # noqa: T201
    assert most[200].memory_bytes - most[20].memory_bytes <= MAX_MORE_BYTES


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", [GATEWAY, "mqtt-cloud", "postgres-cloud", "s3"])
@pytest.mark.req("DB2-13", "DB2-14")
async def test_killed_in_mid_image(cameras: CameraFarm, victim: str) -> None:
    await cameras.start()
    timing = Timing(every_s=0.5, between_frames_s=0.05)
    async with cameras.cameras(15, LOSSY, timing=timing) as made:
        work = asyncio.create_task(fleet.simulate(made, wakes=ROUNDS))
        for _ in range(ROUNDS):
            await cameras.until_in_mid_image()
            await cameras.kill(victim)
        await work
    await cameras.check(captured=15 * ROUNDS)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("victim", [GATEWAY, "mqtt-cloud"])
@pytest.mark.req("DB2-11", "DB2-14")
async def test_killed_while_cameras_wait_to_be_asked(cameras: CameraFarm, victim: str) -> None:
    """What is on a card is asked for, whoever died; half of the cameras give chunks no names."""
    await cameras.start()
    firmware = replace(FIRMWARE, volunteers=False, listens_s=3.0)
    async with cameras.cameras(
        8,
        replace(LOSSY, deaths=0.3),
        firmware=firmware,
        timing=Timing(every_s=0.5, between_frames_s=0.05),
        dialects=("standard",),
    ) as made:
        work = asyncio.create_task(fleet.simulate(made, wakes=4))
        for _ in range(ROUNDS):
            await cameras.until_in_mid_image()
            await cameras.kill(victim)
        await work
    await cameras.check(captured=32)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.req("DB2-13", "DB2-15")
async def test_every_image_of_every_camera_has_the_same_name(
    cameras: CameraFarm, seed: int
) -> None:
    """Answers name an image by its name alone; many are repeated, and cards hold several images."""
    await cameras.start()
    faults = replace(LOSSY, seed=seed, duplicates=0.4, deaths=0.4, same_names=1.0, lost_clocks=0.3)
    async with cameras.cameras(12, faults) as made:
        await fleet.simulate(made, wakes=4)
    await cameras.check(captured=48)
    assert cameras.account().acts["died"] > 0
