"""Battery cameras and the real gateway: whatever goes wrong, every image arrives once, whole."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from farmiq.lab import stack
from farmiq.lab.simulate import camera_faults, fleet
from farmiq.lab.simulate.camera import Camera, Firmware
from farmiq.lab.simulate.camera_faults import Faults
from farmiq.lab.simulate.fleet import Timing
from farmiq.plumbing import migrations
from farmiq.services import SQL
from tests.conftest import Database
from tests.support.camera_farm import GATEWAY, CameraFarm, farm_of
from tests.support.engines import state_dir
from tests.support.farm import TENANT
from tests.support.until import until

CAMERAS = 10
FAULTS = replace(camera_faults.ALL, loop_wakes=5, looping=0.1)


@pytest.fixture
def shared_login() -> bool:
    return True


@pytest.fixture
def cameras(
    shared_login: bool,  # noqa: FBT001 - a fixture
    engines: dict[str, str],
    cloud_db: Database,
    tmp_path: Path,
    free_port: Callable[[], int],
) -> Iterator[CameraFarm]:
    """Database and store are shared with other tests, the broker is not."""
    with (
        stack.start(
            tmp_path / "b", engines=("mqtt-cloud",), shared_login=shared_login, say=lambda _: None
        ) as started,
        farm_of(started, tmp_path, cloud_db, engines, free_port) as made,
    ):
        yield made


@pytest.mark.req("DB2-10", "DB2-12", "DB2-13", "DB2-14", "DB2-15", "DS-02")
async def test_ten_cameras_with_all_faults(cameras: CameraFarm) -> None:
    await cameras.start()
    async with cameras.cameras(CAMERAS, FAULTS) as made:
        await fleet.simulate(made, wakes=2)
    account = cameras.account()
    loops = sum(each.kit.loops for each in made)
    await cameras.check(captured=2 * CAMERAS + FAULTS.loop_wakes * loops)
    assert account.acts["died"] > 0
    assert account.unreadable == []


@pytest.mark.req("DB2-13", "DB2-14")
async def test_the_gateway_is_killed_in_mid_image(cameras: CameraFarm) -> None:
    await cameras.start()
    async with cameras.cameras(CAMERAS, Faults(loss=0.3, duplicates=0.1, reorder=0.5)) as made:
        work = asyncio.create_task(fleet.simulate(made, wakes=1))
        await cameras.until_in_mid_image()
        await cameras.kill(GATEWAY)
        await work
    await cameras.check(captured=CAMERAS)


@pytest.mark.req("DB2-14")
@pytest.mark.parametrize("then_killed", [False, True])
@pytest.mark.parametrize(
    ("count", "images", "in_vain"), [(5, 2, 4), pytest.param(10, 3, 6, marks=pytest.mark.long)]
)
async def test_a_gateway_that_was_frozen_takes_no_image_for_another_of_its_name(
    cameras: CameraFarm, count: int, images: int, in_vain: int, *, then_killed: bool
) -> None:
    """Cameras repeat what nobody answers, call every image the same, and go on to the next.

    What the frozen gateway had not read stands in the log before what is newer: it is frozen for
    `in_vain` wakes of cameras that wait half a second.
    """
    await cameras.start()
    faults = Faults(same_names=1.0, looping=1.0, loop_wakes=images - 1)
    hasty, patient = Firmware(answer_s=0.5), Firmware(answer_s=12.0)
    async with cameras.cameras(count, faults, firmware=hasty) as made:
        work = asyncio.create_task(fleet.simulate(made, wakes=1))
        await cameras.until_in_mid_image()
        with cameras.frozen(GATEWAY):
            await until(lambda: min(each.wakes for each in made) >= in_vain)
            if then_killed:
                cameras.farm.kill(GATEWAY)
        for each in made:
            each.camera = replace(each.camera, firmware=patient)
        if then_killed:
            await cameras.start()
        await work
    await cameras.check(captured=images * count)


@pytest.fixture
def own_database(
    engines: dict[str, str], tmp_path: Path, free_port: Callable[[], int]
) -> Iterator[CameraFarm]:
    """The database is this test's too, and may be killed; the store is shared."""
    names = ("mqtt-cloud", "postgres-cloud")
    with stack.start(
        tmp_path / "b", engines=names, downloads=state_dir() / "engines", say=lambda _: None
    ) as own:
        given = own.environment
        database = Database(given["FARMIQ_CLOUD_DB_URL"], given["FARMIQ_CLOUD_DB_ADMIN_URL"])
        migrations.apply(database.admin_url, SQL["cloud"])
        with farm_of(own, tmp_path, database, {**engines, **given}, free_port) as made:
            yield made


@pytest.mark.req("DB2-13", "DB2-14")
async def test_the_database_is_killed_in_mid_image(own_database: CameraFarm) -> None:
    await own_database.start()
    timing, hasty = Timing(between_frames_s=0.05), Firmware(answer_s=4.0)
    async with own_database.cameras(3, Faults(loss=0.3), timing=timing, firmware=hasty) as made:
        work = asyncio.create_task(fleet.simulate(made, wakes=1))
        await own_database.until_in_mid_image()
        await own_database.kill("postgres-cloud")
        await work
    await own_database.check(captured=3)


@pytest.mark.req("DB2-11", "DB2-15")
async def test_twenty_images_that_nobody_heard_of_are_asked_for_one_by_one(
    cameras: CameraFarm,
) -> None:
    """By a camera that sends old images only when it is told to; it speaks the standard dialect."""
    async with cameras.cameras(2, Faults(), timing=Timing(every_s=0.0)) as (_, camera):
        camera.camera = Camera(Firmware(answer_s=0.05, tries=1, listens_s=0.0, volunteers=False))
        await camera.live(wakes=20)
        assert camera.waiting == 20
        await cameras.start()
        camera.camera = replace(camera.camera, firmware=Firmware(volunteers=False, listens_s=1.0))
        await camera.deliver()
    await cameras.check(captured=20)


@pytest.mark.parametrize("shared_login", [False])
async def test_a_fleet_from_the_command_line_each_camera_with_its_own_login(
    cameras: CameraFarm,
) -> None:
    await cameras.start()
    folder = str(cameras.folder / "fleet")
    run = ("simulate", "cameras", "--count", "3", "--wakes", "1", "--loss", "0.3")
    told = cameras.farm.cli(*run, "--register", TENANT, "--witness", "--dir", folder, "--json")
    assert told.returncode == 0, told.stderr
    summary = json.loads(told.stdout)
    assert (summary["captured"], summary["acked"], summary["unreadable"]) == (3, 3, 0)
    checked = cameras.farm.cli("simulate", "check-cameras", "--dir", folder, "--json")
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["complete"] == 3
    (zones,) = cameras.farm.cloud("select count(distinct timezone)::integer from sites")
    assert zones == (3,)
