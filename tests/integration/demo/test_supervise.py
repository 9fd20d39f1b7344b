"""The demo's supervisor on real processes, engines and tables."""

import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from farmiq.lab import stack
from farmiq.lab.demo import run, supervise
from farmiq.lab.demo.observe import Observer
from farmiq.lab.demo.provision import TENANT_ID, Site
from farmiq.lab.demo.run import Child, DemoError, Farm
from farmiq.lab.demo.supervise import MAX_QUICK_DEATHS, Supervisor
from farmiq.lab.simulate.journal import Journal
from farmiq.lab.simulate.link import linked
from farmiq.lab.stack import processes
from farmiq.lab.stack.broker import connect
from farmiq.plumbing import ids
from tests.conftest import Database
from tests.support.until import until


@pytest.fixture
async def farm(
    tmp_path: Path, broker: stack.Stack, edge_db: Database, cloud_db: Database, vhost: str
) -> AsyncIterator[Farm]:
    """A broker, an edge that only sleeps, both databases and a journal."""
    observer = Observer(
        {
            "FARMIQ_EDGE_DB_ADMIN_URL": edge_db.admin_url,
            "FARMIQ_CLOUD_DB_ADMIN_URL": cloud_db.url,
            "FARMIQ_AMQP_URL": vhost,
        },
        edge_url="http://127.0.0.1:9",
        journal=tmp_path / "journal.jsonl",
        stations=tmp_path,
        captures=tmp_path / "captures.jsonl",
        since=datetime.now(UTC) - timedelta(seconds=1),
    )
    launch = processes.Launch(
        argv=(sys.executable, "-c", "import signal; signal.pause()"),
        environment={},
        folder=tmp_path,
        log=tmp_path / "edge.log",
    )
    edge = Child("edge", launch, processes.spawn(launch, detach=False))
    async with linked("127.0.0.1", 9) as link:
        yield Farm(Site({}, "", ""), broker, {"edge": edge}, observer, link, 0.0)
    await observer.aclose()
    _kill(edge)


async def test_killed_edge_is_started_again_and_that_is_said(farm: Farm) -> None:
    said: list[str] = []
    supervisor = Supervisor(farm, said.append)
    pid = farm.children["edge"].process.pid

    supervisor.kill_edge()
    supervisor.mend()

    assert farm.children["edge"].process.pid != pid
    assert farm.children["edge"].process.poll() is None
    assert said == ["edge was killed (signal 9): starting it again"]


async def test_process_that_dies_after_every_start_ends_the_demo(farm: Farm) -> None:
    supervisor = Supervisor(farm, lambda _: None)
    edge = farm.children["edge"]
    edge.started_at = time.monotonic()

    for _ in range(MAX_QUICK_DEATHS - 1):
        _kill(edge)
        supervisor.mend()
    _kill(edge)

    with pytest.raises(DemoError, match=r"ended 5 times right after its start; see .*edge\.log"):
        supervisor.mend()


async def test_edge_that_needs_longer_to_be_ready_is_waited_for(
    farm: Farm, tmp_path: Path, free_port: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while its database is frozen: it runs, and answers that it is not ready."""
    monkeypatch.setattr(run, "READY_S", 0.3)
    said: list[str] = []
    supervisor = Supervisor(farm, said.append)
    edge, port = farm.children["edge"], free_port()
    served = tmp_path / "served"
    served.mkdir()
    serve = (sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1")
    edge.launch = replace(edge.launch, argv=(*serve, "--directory", str(served)))
    edge.ready_url = f"http://127.0.0.1:{port}"

    supervisor.kill_edge()
    supervisor.mend()
    # So often it is not asked within that time: it is waited for again.
    await until(lambda: edge.log.read_text().count('"GET /readyz') > 5)
    assert len(said) == 1
    (served / "readyz").touch()
    await until(lambda: len(said) > 1)

    assert said[1].startswith("edge is ready again after")
    await supervisor.close()


def _kill(child: Child) -> None:
    child.process.kill()
    child.process.wait()


async def test_killed_broker_is_started_again(farm: Farm) -> None:
    said: list[str] = []
    supervisor = Supervisor(farm, said.append)
    farm.engines.kill("mqtt-edge")

    def answers_again() -> bool:
        supervisor.mend()
        return any("answers again" in each for each in said)

    await until(answers_again)
    connect(farm.engines.environment["FARMIQ_EDGE_MQTT_URL"])
    await supervisor.close()


async def test_frozen_engine_stands_still_until_it_is_thawed(farm: Farm) -> None:
    stat = Path(f"/proc/{farm.engines.pid('mqtt-edge')}/stat")

    farm.engines.freeze("mqtt-edge")
    await until(lambda: processes.parse_stat(stat.read_text()).state == "T")
    assert farm.engines.fallen() == []

    farm.engines.thaw("mqtt-edge")
    connect(farm.engines.environment["FARMIQ_EDGE_MQTT_URL"])


async def test_check_waits_for_each_confirmed_event_and_figures_count_this_run_alone(
    farm: Farm, tmp_path: Path, cloud_db: Database
) -> None:
    said: list[str] = []
    event_id = _confirmed(tmp_path)
    supervisor = Supervisor(farm, said.append)

    supervisor.check()
    # The one is of an earlier run: its id is as old as it is.
    await _store(cloud_db, UUID("00000000-0000-7000-8000-000000000000"), event_id)
    await until(lambda: bool(said))
    figures = await farm.observer.look()

    assert said[0].startswith("all 1 confirmed events are in the cloud: 0 lost")
    assert figures.cloud is not None
    assert (figures.sent, figures.cloud.stored) == (1, 1)
    await supervisor.close()


def _confirmed(folder: Path) -> UUID:
    """An event that the broker has confirmed."""
    event_id = ids.new()
    journal = Journal(folder / "journal.jsonl")
    journal.write("sent", str(event_id))
    journal.write("ok", str(event_id))
    journal.close()
    return event_id


async def _store(cloud_db: Database, *event_ids: UUID) -> None:
    async with await psycopg.AsyncConnection.connect(cloud_db.url) as connection:
        for event_id in event_ids:
            await connection.execute(
                """
                insert into telemetry_readings (tenant_id, event_id, farm_id, barn_id, device_id,
                  metric_type, metric_value, unit, occurred_at, trace_id)
                values (%s, %s, 'f', 'b', 'd', 'temperature', 1, 'C', now(), 't')
                """,
                (TENANT_ID, event_id),
            )


async def test_check_of_a_cut_link_has_its_deadline_after_the_link_is_back(
    farm: Farm, tmp_path: Path, cloud_db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "CHECK_WITHIN_S", 1e-9)
    said: list[str] = []
    event_id = _confirmed(tmp_path)
    supervisor = Supervisor(farm, said.append)
    supervisor.link_is_cut = True

    supervisor.check()
    await until(lambda: bool(said))
    await _store(cloud_db, event_id)
    supervisor.link_is_cut = False
    await until(lambda: len(said) > 1)

    assert said[0] == "the check waits for the link"
    assert said[1].startswith("all 1 confirmed events are in the cloud: 0 lost")


async def test_reading_of_an_aggregated_metric_is_not_lost(
    farm: Farm, tmp_path: Path, edge_db: Database
) -> None:
    said: list[str] = []
    event_id = _confirmed(tmp_path)
    async with await psycopg.AsyncConnection.connect(edge_db.admin_url) as connection:
        await connection.execute("insert into metric_settings values ('co2', 'agg')")
        await connection.execute(
            """
            insert into telemetry_raw (id, tenant_id, farm_id, barn_id, device_id, metric_type,
              metric_value, unit, occurred_at)
            values (%s, %s, 'f', 'b', 'd', 'co2', 1, 'ppm', now())
            """,
            (event_id, TENANT_ID),
        )

    await Supervisor(farm, said.append).check_events()

    assert said[0].startswith("all 0 confirmed events are in the cloud: 0 lost")
    assert said[0].endswith("; 1 more went as aggregates")


async def test_link_is_cut_and_mended_by_the_same_key(farm: Farm) -> None:
    supervisor = Supervisor(farm, lambda _: None)
    states = []

    for _ in range(2):
        supervisor.toggle_link()
        states.append(farm.link.refusing)

    assert states == [True, False]
    await supervisor.close()
