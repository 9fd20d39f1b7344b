"""SIGKILL at every step of an inference: afterwards every session has one result and one event."""

import signal
import subprocess
from collections.abc import Callable

import pytest

from tests.integration.edge.media.conftest import later
from tests.integration.edge.vision.conftest import Barn, animal
from tests.support import preloaded
from tests.support.until import until


@pytest.mark.parametrize(
    "point",
    ["vision.after_claim", "vision.after_measure", "vision.before_commit", "vision.after_commit"],
)
@pytest.mark.req("MD-07")
async def test_death_while_inferring_gives_one_result_and_one_event(
    barn: Barn, engines: dict[str, str], free_port: Callable[[], int], point: str
) -> None:
    weighings = [await barn.weigh(animal()) for _ in range(3)]
    environment = {
        "FARMIQ_EDGE_DB_URL": barn.database.url,
        "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
        "FARMIQ_EDGE_S3_URL": engines["FARMIQ_EDGE_S3_URL"],
        "FARMIQ_EDGE_KEY_FILE": str(barn.settings.edge_key_file),
        "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
    }

    def start(**more: str) -> "subprocess.Popen[bytes]":
        port = {"FARMIQ_EDGE_HTTP_PORT": str(free_port())}
        return preloaded.run("edge-vision-inference", {**environment, **port, **more})

    first = start(FARMIQ_CRASH_AT=f"{point}:2")
    await until(lambda: first.poll() is not None)
    assert first.returncode == -signal.SIGKILL
    later(barn.database, "10 minutes")
    second = start()
    try:
        await until(lambda: all(len(barn.results(one)) == 1 for one in weighings))
        await until(lambda: len(barn.events()) == len(weighings))
    finally:
        second.terminate()
        second.wait(timeout=20)
    assert {event["session_id"] for event in barn.events()} == {one.session_id for one in weighings}
