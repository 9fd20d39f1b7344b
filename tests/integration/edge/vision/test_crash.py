"""SIGKILL at every step of an inference: afterwards every session has one result and one event."""

import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from farmiq.edge.vision import models
from tests.integration.edge.media.conftest import later
from tests.integration.edge.vision.conftest import Barn, animal
from tests.integration.edge.vision.test_training import closed_sessions, retired_models
from tests.integration.edge.weighvision.conftest import rows
from tests.support import preloaded
from tests.support.until import until

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start(barn: Barn, engines: dict[str, str], free_port: Callable[[], int]) -> Iterator[Start]:
    """Starts the service as a process; what still runs at the end is stopped."""
    started: list[subprocess.Popen[bytes]] = []
    environment = {
        "FARMIQ_EDGE_DB_URL": barn.database.url,
        "FARMIQ_EDGE_MQTT_URL": "mqtt://unused",
        "FARMIQ_EDGE_S3_URL": engines["FARMIQ_EDGE_S3_URL"],
        "FARMIQ_EDGE_KEY_FILE": str(barn.settings.edge_key_file),
        "FARMIQ_CLOUD_URL": "http://127.0.0.1:9",
        "VISION_MODELS_DIR": str(barn.settings.vision_models()),
        "VISION_TRAIN_ROUND_SECONDS": "0.5",
    }

    def run(**more: str) -> "subprocess.Popen[bytes]":
        port = {"FARMIQ_EDGE_HTTP_PORT": str(free_port())}
        started.append(preloaded.run("edge-vision-inference", {**environment, **port, **more}))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=20)


@pytest.mark.parametrize(
    "point",
    ["vision.after_claim", "vision.after_measure", "vision.before_commit", "vision.after_commit"],
)
@pytest.mark.req("MD-07")
async def test_death_while_inferring_gives_one_result_and_one_event(
    barn: Barn, start: Start, point: str
) -> None:
    weighings = [await barn.weigh(animal()) for _ in range(3)]
    first = start(FARMIQ_CRASH_AT=f"{point}:2")
    await until(lambda: first.poll() is not None)
    assert first.returncode == -signal.SIGKILL
    later(barn.database, "10 minutes")
    start()
    await until(lambda: all(len(barn.results(one)) == 1 for one in weighings))
    await until(lambda: len(barn.events()) == len(weighings))
    assert {event["session_id"] for event in barn.events()} == {one.session_id for one in weighings}


async def test_death_after_training_leaves_one_model_in_use(barn: Barn, start: Start) -> None:
    closed_sessions(barn, 40)
    first = start(FARMIQ_CRASH_AT="vision.after_train")
    await until(lambda: first.poll() is not None)
    assert first.returncode == -signal.SIGKILL
    states = "select state from vision_models"
    assert not rows(barn.database, states)
    start()
    await until(lambda: rows(barn.database, states) == [("active",)])


async def test_death_while_a_retired_model_is_deleted_leaves_nothing_of_it(
    barn: Barn, start: Start
) -> None:
    old, *rest = await retired_models(barn, models.MAX_RETIRED + 1)
    first = start(FARMIQ_CRASH_AT="vision.after_model_objects")
    await until(lambda: first.poll() is not None)
    assert first.returncode == -signal.SIGKILL
    versions = "select version from vision_models order by 1"
    assert rows(barn.database, versions)[0] == (old,)
    start()
    await until(lambda: rows(barn.database, versions) == [(version,) for version in rest])
