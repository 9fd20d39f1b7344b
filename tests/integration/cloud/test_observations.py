"""Images of cameras are judged once each, whatever they are and whoever dies over them."""

import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from farmiq.cloud.camera.observations import service
from farmiq.lab.simulate import pictures as simulated
from farmiq.lab.simulate.dishes import Dish
from farmiq.plumbing import db
from farmiq.plumbing.images import gallery, pictures
from farmiq.plumbing.sandbox import Result, WorkerGoneError
from farmiq.plumbing.storage import objects
from tests.conftest import Database
from tests.sql.camera.farm import Farm
from tests.support import preloaded
from tests.support.until import until

AT = "2026-03-10T08:00:00+07:00"
POINTS = ["observations.after_claim", "observations.after_put"]
DISH = simulated.dish(camera_id="c", number=1, at=datetime(2026, 3, 10, tzinfo=UTC))


@pytest.fixture
def farm(cloud_db: Database) -> Iterator[Farm]:
    with Farm.connected(cloud_db, at=AT) as made:
        yield made


@pytest.fixture
def bucket(engines: dict[str, str]) -> objects.Bucket:
    return objects.Bucket(engines["FARMIQ_CLOUD_S3_URL"])


@pytest.fixture
async def pool(cloud_db: Database) -> AsyncIterator[db.Pool]:
    async with db.pool(cloud_db.url, name="test") as opened:
        yield opened


async def complete(
    farm: Farm, bucket: objects.Bucket, data: bytes | None, device: UUID, **telemetry: Any
) -> tuple[str, str]:
    """A wake whose image the gateway has stored: the image and its key. None: it is gone again."""
    name = f"IMG_{telemetry.get('number', 0)}.jpg"
    image_id = farm.wake(device, AT, name, **telemetry)["image_id"]
    key = f"camera/{farm.company}/{device}/{image_id}.jpg"
    if data is not None:
        await bucket.put(key, data, content_type=pictures.JPEG)
    farm.call("fn_image_completion_handler", image_id=image_id, image_url=key)
    return image_id, key


@pytest.mark.req("DS-13")
async def test_every_image_gets_a_verdict_once_and_a_small_copy_if_it_shows_anything(
    farm: Farm, bucket: objects.Bucket, pool: db.Pool
) -> None:
    device = farm.device(farm.site(), "0 * * * *")
    kinds = [DISH, b"\xff\xd8 no picture \xff\xd9", None]
    made = [await complete(farm, bucket, each, device, number=n) for n, each in enumerate(kinds)]
    assert await service.assess_images(pool, bucket) == {"count": 3}
    found = farm.rows(
        "select quality, size_bytes, width_px, thumbnail_url, quality_reason is null"
        " from petri_observations order by created_at"
    )
    small = gallery.small_key(made[0][1])
    assert found[0] == ("ok", len(DISH), pictures.look(DISH).width_px, small, True)
    assert found[1:] == [
        ("unreadable", 16, None, None, False), ("missing", None, None, None, False),
    ]  # fmt: skip
    assert pictures.look(await bucket.get(small)).mime_type == pictures.JPEG
    assert await service.assess_images(pool, bucket) == {"count": 0}
    assert farm.value("select count(*) from device_images where status = 'complete'") == 3


async def test_a_store_that_is_away_delays_and_counts_against_no_image(
    farm: Farm, bucket: objects.Bucket, pool: db.Pool, free_port: Callable[[], int]
) -> None:
    await complete(farm, bucket, DISH, farm.device(farm.site()))
    away = objects.Bucket(f"http://key:secret@127.0.0.1:{free_port()}/b")
    assert await service.assess_images(pool, away) == {"count": 0}
    assert farm.value("select judge_attempts, quality from petri_observations") == (0, None)
    farm.at(farm.now() + timedelta(minutes=1))
    assert await service.assess_images(pool, bucket) == {"count": 1}


async def test_an_image_that_kills_whoever_looks_at_it_is_given_up(
    farm: Farm, bucket: objects.Bucket, pool: db.Pool
) -> None:
    await complete(farm, bucket, DISH, farm.device(farm.site()))
    for _ in range(service.MAX_ATTEMPTS):
        await service.claim(pool)
        assert await service.claim(pool) is None, "one at a time"
        farm.at(farm.now() + timedelta(minutes=2))
    assert await service.assess_images(pool, bucket) == {"count": 1}
    verdict = "select quality, quality_reason from petri_observations"
    assert farm.value(verdict) == ("unreadable", service.GIVEN_UP)


async def test_killed_at_every_point_each_image_is_judged_once(
    farm: Farm, bucket: objects.Bucket, pool: db.Pool, engines: dict[str, str],
    free_port: Callable[[], int],
) -> None:  # fmt: skip
    await complete(farm, bucket, DISH, farm.device(farm.site()))
    for point in POINTS:
        dying = start(farm, engines, free_port(), crash_at=point)
        await until(partial(_ended, dying), within_s=90)
        assert dying.returncode == -signal.SIGKILL, point
        assert farm.value("select quality from petri_observations") is None
        farm.at(farm.now() + timedelta(minutes=2))
    assert await service.assess_images(pool, bucket) == {"count": 1}
    assert farm.value("select quality, judge_attempts from petri_observations") == ("ok", 3)


def start(
    farm: Farm, engines: dict[str, str], port: int, *, crash_at: str
) -> "subprocess.Popen[bytes]":
    environment = {
        "FARMIQ_CLOUD_DB_URL": farm.database.url,
        "FARMIQ_AMQP_URL": engines["FARMIQ_AMQP_URL"],
        "FARMIQ_CLOUD_S3_URL": engines["FARMIQ_CLOUD_S3_URL"],
        "FARMIQ_CLOUD_HTTP_PORT": str(port),
        "FARMIQ_CRASH_AT": crash_at,
    }
    return preloaded.run(service.NAME, environment)


def _ended(process: "subprocess.Popen[bytes]") -> bool:
    return process.poll() is not None


async def test_image_whose_decoder_was_ended_is_judged_later(
    farm: Farm, bucket: objects.Bucket, pool: db.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: Any, **__: Any) -> Result:
        raise WorkerGoneError("ended from outside")

    await complete(farm, bucket, DISH, farm.device(farm.site(), "0 * * * *"))
    with monkeypatch.context() as short_of_memory:
        short_of_memory.setattr(service.WORKER, "call", ended)
        assert await service.assess_images(pool, bucket) == {"count": 0}
    quality = "select quality, judge_attempts from petri_observations"
    assert farm.rows(quality) == [(None, 1)]
    farm.owner.execute("update petri_observations set judging_until = null")
    assert await service.assess_images(pool, bucket) == {"count": 1}
    assert farm.rows(quality) == [("ok", 2)]


async def test_dish_is_compared_with_its_first_image_and_a_second_reference_loses(
    farm: Farm, bucket: objects.Bucket, pool: db.Pool
) -> None:
    dish, device = Dish("3"), farm.device(farm.site(), "0 * * * *")
    for number, day in enumerate((0.0, 6.0)):
        await complete(farm, bucket, dish.render(day, number=number), device, number=number)
    late = await service.claim(pool)
    assert late is not None
    # It was looked at before there was a reference, and is stored after there is one.
    first = await service.assess(bucket, late, None)
    assert first.dish.reference is not None
    assert await service.assess_images(pool, bucket) == {"count": 1}
    with pytest.raises(service.OtherReferenceError):
        await service.store_assessed(pool, late, first, None)
    await service.release(pool, late, retry_s=0)
    assert await service.assess_images(pool, bucket) == {"count": 1}
    seen = farm.rows(
        "select covered_change, covered_quality, dish_problem, dish_series_id is not null"
        " from petri_observations order by image_id = (select reference_image_id from dish_series)"
    )
    assert farm.value("select count(*) from dish_series") == 1
    assert seen[1] == (0.0, 1.0, None, True)
    assert seen[0][0] == pytest.approx(-dish.covered(6.0), abs=0.06)
    farm.owner.execute("update petri_observations set quality = null, judge_attempts = 0")
    assert await service.assess_images(pool, bucket) == {"count": 2}
    assert farm.value("select count(*) from dish_series") == 1
