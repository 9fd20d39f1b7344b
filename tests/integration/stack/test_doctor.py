"""`farmiq doctor` on a site: no local stack, settings that name servers."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from farmiq import __version__, doctor
from farmiq.edge.telemetry import jobs
from farmiq.lab import stack
from farmiq.plumbing import db, http, tokens
from farmiq.plumbing.runtime import schedule
from tests.conftest import Database
from tests.support import preloaded
from tests.support.until import until


@pytest.fixture
async def edge(  # noqa: PLR0917 - what an edge stands on
    edge_db: Database,
    broker: stack.Stack,
    tmp_path: Path,
    free_port: Callable[[], int],
    tasks: asyncio.TaskGroup,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, str]:
    """The settings of a healthy edge, whose HTTP address also stands for the cloud's."""
    tokens.write_new_key(tmp_path / "key.json", tmp_path / "keys.json")
    port = free_port()
    environment = {
        "FARMIQ_STATE_DIR": str(tmp_path / "no stacks"),
        "FARMIQ_EDGE_DB_URL": edge_db.url,
        "FARMIQ_EDGE_MQTT_URL": broker.environment["FARMIQ_EDGE_MQTT_URL"],
        "FARMIQ_EDGE_HTTP_PORT": str(port),
        "FARMIQ_CLOUD_URL": f"http://127.0.0.1:{port}",
        "FARMIQ_EDGE_KEY_FILE": str(tmp_path / "key.json"),
        "DISK_WARN_PERCENT": "100",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    schedule.RUNS.clear()  # of other tests in this process
    async with db.pool(edge_db.url, name="test") as pool:
        await jobs.create_partitions(pool, retention_days=1)
    server = http.HttpServer(title="edge", version=__version__)
    tasks.create_task(http.serve(server, host="127.0.0.1", port=port))

    async def answers() -> bool:
        checks = await doctor.examine(environment)
        return all(check.healthy for check in checks if check.name == "edge clock")

    await until(answers)
    return environment


async def run() -> tuple[int | None, Any]:
    """Exit code and rows of `farmiq doctor`, as a process of its own with this environment."""
    done = await asyncio.to_thread(preloaded.command, "doctor", "--json", environment={})
    return done.returncode, {row["name"]: row for row in json.loads(done.stdout)}


@pytest.mark.usefixtures("edge")
async def test_healthy_edge_is_good_and_exits_0() -> None:
    code, found = await run()

    assert {name for name, row in found.items() if not row["healthy"]} == set()
    assert code == 0
    assert set(found) == {
        "edge database", "edge broker", "edge services", "edge outbox", "edge quarantine",
        "edge key", "edge disk", "edge clock", "edge months", "edge version", "edge jobs",
        "edge drill",
    }  # fmt: skip


@pytest.mark.usefixtures("edge")
async def test_doctor_names_each_problem_with_a_remedy_and_exits_3(
    edge_db: Database, free_port: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("FARMIQ_EDGE_HTTP_PORT", str(free_port()))
    monkeypatch.setenv("FARMIQ_EDGE_KEY_FILE", "/nowhere/key.json")
    monkeypatch.setenv("FARMIQ_EDGE_MQTT_URL", f"mqtt://127.0.0.1:{free_port()}")
    with psycopg.connect(edge_db.url) as connection:
        connection.execute(
            "insert into quarantine (quarantine_id, topic, raw, message_sha256, raw_size_bytes, "
            "reasons) values (gen_random_uuid(), 't', 'x', 'y', 1, '{r}')"
        )

    code, found = await run()

    assert code == 3
    assert {name for name, row in found.items() if not row["healthy"]} == {
        "edge broker", "edge services", "edge quarantine", "edge key",
    }  # fmt: skip
    assert "farmiq run edge" in found["edge services"]["remedy"]
    assert "FARMIQ_EDGE_MQTT_URL" in found["edge broker"]["remedy"]
    assert "farmiq quarantine ls" in found["edge quarantine"]["remedy"]


async def test_images_that_nobody_looks_at_are_told_with_the_service(
    edge: dict[str, str], edge_db: Database, engines: dict[str, str]
) -> None:
    settings = {**edge, "FARMIQ_EDGE_S3_URL": engines["FARMIQ_EDGE_S3_URL"]}

    async def vision() -> doctor.Check:
        return next(row for row in await doctor.examine(settings) if row.name == "edge vision")

    assert (await vision()).healthy
    with psycopg.connect(edge_db.url) as connection:
        connection.execute(
            "insert into inference_jobs (id, tenant_id, farm_id, barn_id, device_id, media_id, "
            "created_at, last_image_at, last_error) select gen_random_uuid(), 't', 'f', 'b', 'd', "
            "gen_random_uuid(), at, at, 'the store is away' from (select fn_now() - interval '1 h')"
            " as waiting(at)"
        )
    found = await vision()
    assert (found.healthy, found.detail.endswith("looked at: the store is away")) == (False, True)
    assert found.detail.startswith("1 weighings")
    assert "edge-vision-inference" in found.remedy


async def test_missing_settings_are_named() -> None:
    (found,) = await doctor.examine({"FARMIQ_EDGE_DB_URL": "postgresql://127.0.0.1:1/edge"})

    assert not found.healthy
    assert "FARMIQ_CLOUD_URL is not set" in found.detail
    assert "farmiq config edge" in found.remedy


async def test_cloud_without_its_queues_is_told_how_to_make_them(
    cloud_db: Database, vhost: str, free_port: Callable[[], int]
) -> None:
    found = await doctor.examine(
        {
            "FARMIQ_CLOUD_DB_URL": cloud_db.url,
            "FARMIQ_AMQP_URL": vhost,
            "FARMIQ_CLOUD_HTTP_PORT": str(free_port()),
        }
    )

    checks = {check.name: check for check in found}
    assert checks["cloud database"].healthy
    assert checks["cloud clock"].healthy
    assert "farmiq topology apply" in checks["cloud bus"].remedy
    assert "farmiq run cloud" in checks["cloud services"].remedy


async def test_station_without_an_agent_is_told_how_to_start_it(
    edge: dict[str, str], tmp_path: Path, free_port: Callable[[], int]
) -> None:
    found = await doctor.examine(
        {
            "AGENT_TENANT_ID": "t", "AGENT_FARM_ID": "f", "AGENT_BARN_ID": "b",
            "AGENT_DEVICE_ID": "d", "AGENT_STATION_ID": "s", "AGENT_TOKEN": "x",
            "AGENT_MQTT_URL": edge["FARMIQ_EDGE_MQTT_URL"],
            "AGENT_EDGE_URL": edge["FARMIQ_CLOUD_URL"],
            "AGENT_BUFFER_DIR": str(tmp_path),
            "AGENT_STATUS_PORT": str(free_port()),
        }
    )  # fmt: skip

    checks = {check.name: check for check in found}
    assert not checks["agent"].healthy
    assert "farmiq agent run" in checks["agent"].remedy
    assert checks["agent broker"].healthy
    assert checks["agent clock"].healthy


def test_clock_that_is_far_off_is_bad() -> None:
    offsets_s = (2.0, -2.0, -31.0, 86_400.0)

    found = [not doctor.check_clock(each, "the cloud")[1] for each in offsets_s]

    assert found == [True, True, False, False]
