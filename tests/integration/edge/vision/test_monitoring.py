"""Images without a weighing become readings of their camera, and an alert if its view changed."""

import signal
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from farmiq.edge.vision import monitoring
from farmiq.farm.vision.monitor import AGREE, LEARNED_AFTER
from tests.integration.edge.media.conftest import later
from tests.integration.edge.vision.conftest import Barn
from tests.integration.edge.weighvision.conftest import Weighing, rows
from tests.support import preloaded
from tests.support.until import until
from tests.unit.farm.test_vision_monitor import pen

BEGIN = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=3)
READINGS = "select metric_type, count(*) from telemetry_raw group by 1 order by 1"
OPEN = "select message from alerts where kind = 'camera.view' and closed_at is null"


async def send(barn: Barn, minute: int, data: bytes) -> None:
    media_id = await barn.store(Weighing(), data, session_id=None)
    captured = "update media_objects set captured_at = %s where id = %s returning 1"
    assert rows(barn.database, captured, BEGIN + timedelta(minutes=minute), media_id)
    assert await barn.inference.infer_next()


@pytest.mark.req("MD-07")
async def test_images_without_a_session_are_readings_of_their_camera(barn: Barn) -> None:
    for number in range(LEARNED_AFTER + 2):
        await send(barn, number, pen(number))
    seen = LEARNED_AFTER + 2
    assert rows(barn.database, READINGS) == [
        ("camera.activity", seen - 1), ("camera.light", seen), ("camera.occupancy", 2),
    ]  # fmt: skip
    sent = "select count(*) from sync_outbox where event_type = 'telemetry.ingested'"
    assert rows(barn.database, sent) == [(2 * seen + 1,)]
    ((value, unit),) = rows(
        barn.database,
        "select metric_value, unit from telemetry_latest where metric_type = 'camera.occupancy'",
    )
    assert unit == monitoring.UNIT
    assert 2 < value < 25

    for number in range(AGREE):
        await send(barn, 100 + number, pen(number, shift_px=25))
    ((message,),) = rows(barn.database, OPEN)
    assert "moved" in message
    # An older one that comes late tells of itself alone.
    view = rows(barn.database, "select captured_at, view from camera_views")
    await send(barn, 50, pen(3))
    assert rows(barn.database, "select captured_at, view from camera_views") == view
    for number in range(AGREE):
        await send(barn, 120 + number, pen(number))
    assert rows(barn.database, OPEN) == []
    await send(barn, 130, b"\xff\xd8\xff no picture")
    reasons = rows(
        barn.database, "select distinct split_part(reason, ':', 1) from inference_results"
    )
    assert sorted(reasons) == [("no_session",), ("not_decodable",)]


@pytest.mark.parametrize("point", ["vision.before_commit", "vision.after_commit"])
async def test_death_while_monitoring_gives_each_reading_once(
    barn: Barn, engines: dict[str, str], free_port: Callable[[], int], point: str
) -> None:
    await barn.store(Weighing(), pen(1), session_id=None)
    environment = {
        "FARMIQ_EDGE_DB_URL": barn.database.url,
        "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
        "FARMIQ_EDGE_S3_URL": engines["FARMIQ_EDGE_S3_URL"],
        "FARMIQ_EDGE_KEY_FILE": str(barn.settings.edge_key_file),
        "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
        "FARMIQ_EDGE_HTTP_PORT": str(free_port()),
        "FARMIQ_CRASH_AT": point,
    }
    dying: subprocess.Popen[bytes] = preloaded.run("edge-vision-inference", environment)
    await until(lambda: dying.poll() is not None)
    assert dying.returncode == -signal.SIGKILL
    later(barn.database, "10 minutes")
    await barn.inference.infer_pending()
    assert rows(barn.database, READINGS) == [("camera.light", 1)]
    assert rows(barn.database, "select count(*) from camera_views") == [(1,)]
