"""What a camera is told of its next wake, as the gateway asks for it (C-118)."""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from farmiq.cloud.camera import waking
from farmiq.cloud.camera.gateway import commands
from farmiq.cloud.camera.protocol.wire import NextWake
from farmiq.cloud.camera.waking import Waking
from farmiq.config import CloudSettings
from farmiq.plumbing import db, ids
from tests.conftest import Database
from tests.sql.camera.farm import Farm

NOW = datetime(2026, 3, 10, 1, 57, tzinfo=UTC)  # 08:57 in Bangkok


@pytest.fixture
def farm(cloud_db: Database) -> Iterator[Farm]:
    with Farm.connected(cloud_db, at=NOW) as made:
        yield made


@pytest.fixture
def camera(farm: Farm) -> UUID:
    device = farm.device(farm.site(), "0 * * * *")
    farm.call("fn_midnight_session_opener_all")
    return device


@pytest.fixture
async def tx(cloud_db: Database) -> AsyncIterator[db.Connection]:
    async with db.pool(cloud_db.url, name="test") as pool, db.transaction(pool) as opened:
        yield opened


async def test_a_camera_that_woke_early_is_told_the_wake_after_the_one_it_took(
    farm: Farm, camera: UUID, tx: db.Connection
) -> None:
    at, zone = (await waking.next_wakes(tx, [camera], waking=Waking()))[camera]
    assert (at, zone) == (NOW + timedelta(minutes=3), "Asia/Bangkok")
    farm.wake(camera, NOW)
    at, _ = (await waking.next_wakes(tx, [camera], waking=Waking()))[camera]
    assert at == NOW + timedelta(minutes=63)


async def test_settings_say_how_soon_and_how_far_apart(camera: UUID, tx: db.Connection) -> None:
    settings = CloudSettings.load(
        {
            "FARMIQ_CLOUD_DB_URL": "postgresql://unused",
            "FARMIQ_AMQP_URL": "amqp://unused",
            "NEXT_WAKE_MIN_SECONDS": "600",
            "NEXT_WAKE_SPREAD_SECONDS": "120",
        }
    )
    given = Waking(settings.next_wake_min_s, settings.next_wake_spread_s)
    at, _ = (await waking.next_wakes(tx, [camera], waking=given))[camera]
    assert at is not None
    assert timedelta(0) <= at - (NOW + timedelta(minutes=63)) < timedelta(minutes=2)


async def test_no_camera_is_told_to_wake_at_a_time_that_has_passed(
    farm: Farm, camera: UUID, tx: db.Connection
) -> None:
    farm.owner.execute(
        "insert into camera_states (device_id, company_id, since, heard_at) "
        "values (%s, %s, fn_now(), fn_now())",
        (camera, farm.company),
    )
    for wake_at in (NOW - timedelta(minutes=1), NOW + timedelta(hours=1)):
        farm.owner.execute(
            "insert into camera_commands (command_id, company_id, device_id, name, wake_at,"
            " created_by, created_at) values (%s, %s, %s, 'next_wake', %s, 'ann', fn_now())",
            (ids.new(), farm.company, camera, wake_at),
        )
    sent = await commands.next_to_send(tx, awake_s=60)
    assert sent is not None
    assert sent.answer == NextWake(NOW + timedelta(hours=1), "Asia/Bangkok")
    assert await commands.expire(tx) == 1
