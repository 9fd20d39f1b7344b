"""Killed (-9) at every step of capture, mint, mark and compact: nothing kept is lost."""

import asyncio
import hashlib
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from farmiq import crash
from tests.integration.device.conftest import Edge
from tests.integration.device.processes import Station, killed
from tests.support.until import until

POINTS = [name for name in crash.POINTS if name.startswith("agent.")]


@pytest.fixture
def weigh_station(tmp_path: Path, edge: Edge) -> Iterator[Station]:
    found = Station(tmp_path, edge)
    yield found
    found.stop()


def _everything_arrived(weigh_station: Station) -> bool:
    pictures = {each["image"]: each["sha256"] for each in weigh_station.kept() if "image" in each}
    announced = {
        each.body["payload"]["media_id"]
        for each in weigh_station.edge.gateway.of("weighvision.image.captured")
    }
    return not weigh_station.missing() and pictures.keys() <= announced


@pytest.mark.usefixtures("again")
@pytest.mark.req("WV-25", "WV-18", "WV-27")
@pytest.mark.parametrize("point", [each for each in POINTS if each != "agent.in_dropping"])
async def test_agent_killed_at_any_crash_point_loses_nothing(
    point: str, weigh_station: Station
) -> None:
    """Three weighings, killed at the point in the second; a new agent brings all of it."""
    await _run_until_killed(point, weigh_station)
    weigh_station.start(sessions=1)
    await until(lambda: any(each["kept"] == "done" for each in weigh_station.kept()), within_s=90)
    await until(lambda: _everything_arrived(weigh_station), within_s=90)
    assert weigh_station.doubled() == [], weigh_station.log()
    _check_pictures(weigh_station)
    await _check_numbers(weigh_station)


async def _run_until_killed(point: str, weigh_station: Station) -> None:
    compacting = point == "agent.in_compact"
    if compacting:
        first = weigh_station.start(sessions=2, AGENT_STORED_HOURS=0)
        await until(lambda: len(weigh_station.edge.gateway.distinct()) >= 12, within_s=90)
        first.terminate()
        first.wait(60)
    process = weigh_station.start(
        crash_at=point if compacting else f"{point}:2",
        pictures=2,
        AGENT_STORED_HOURS=0 if compacting else 24,
    )
    await until(lambda: process.poll() is not None, within_s=90)
    assert killed(process), weigh_station.log()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_station_that_stopped_or_died_is_offline(
    weigh_station: Station, how: signal.Signals
) -> None:
    statuses = weigh_station.edge.gateway.statuses
    process = weigh_station.start(sessions=0)
    await until(lambda: statuses and statuses[-1].body["payload"]["state"] == "online")
    process.send_signal(how)
    await until(lambda: statuses[-1].body["payload"]["state"] == "offline")
    assert process.wait(60) == (0 if how is signal.SIGTERM else -how)


async def test_command_runs_the_agent_and_its_status_is_good(
    weigh_station: Station, free_port: Callable[[], int]
) -> None:
    port = free_port()
    process = weigh_station.start_command(AGENT_STATUS_PORT=port)
    answered: list[dict[str, object]] = []

    def good() -> bool:
        found = weigh_station.ask("status", "--json", AGENT_STATUS_PORT=port)
        answered.append(json.loads(found.stdout or "{}"))
        return found.returncode == 0 and answered[-1]["connected"] is True

    await until(lambda: asyncio.to_thread(good), within_s=90)
    process.terminate()
    assert process.wait(60) == 0
    assert answered[-1]["station_id"] == "s-1"
    gone = await asyncio.to_thread(weigh_station.ask, "status", AGENT_STATUS_PORT=port)
    assert gone.returncode == 3
    assert "not running" in gone.stdout


@pytest.mark.usefixtures("again")
@pytest.mark.req("WV-20", "WV-25")
async def test_agent_killed_while_dropping_reports_every_drop(weigh_station: Station) -> None:
    """A full buffer, no broker: what gave way stands in the ledger, once, or did not give way."""
    away = {"AGENT_MQTT_URL": "mqtt://nobody@127.0.0.1:9", "AGENT_BUFFER_EVENTS": 40}
    process = weigh_station.start(
        crash_at="agent.in_dropping:3", sessions=6, weights=9, pictures=1, **away
    )
    await until(lambda: process.poll() is not None, within_s=90)
    assert killed(process), weigh_station.log()
    weigh_station.start(sessions=1, weights=1, AGENT_BUFFER_EVENTS=40)
    await until(lambda: any(each["kept"] == "done" for each in weigh_station.kept()), within_s=90)
    gateway = weigh_station.edge.gateway

    def told() -> int:
        lines = gateway.of("device.buffer.dropped")
        return sum(int(each.body["payload"]["count"]) for each in lines)

    await until(lambda: told() == len(weigh_station.missing()) > 0, within_s=90)
    assert {each["kept"] for each in weigh_station.missing()} == {"weight"}
    assert weigh_station.doubled() == []
    await _check_numbers(weigh_station, dropped=told())


def _check_pictures(weigh_station: Station) -> None:
    objects = weigh_station.edge.media.objects
    for each in weigh_station.kept():
        if "image" in each:
            assert hashlib.sha256(objects[each["image"]]).hexdigest() == each["sha256"]
    announced = weigh_station.edge.gateway.of("weighvision.image.captured")
    assert {each.body["payload"]["media_id"] for each in announced} <= set(objects)


async def _check_numbers(weigh_station: Station, *, dropped: int = 0) -> None:
    """No seq twice, and none missing but those of the ledger.

    What nobody was told is kept, for the agent died first, may come after all that somebody was.
    """

    def numbers() -> list[int]:
        arrived = weigh_station.edge.gateway.distinct().values()
        return sorted(each.body["seq"] for each in arrived)

    await until(lambda: numbers()[-1] - len(numbers()) == dropped)
    assert len(set(numbers())) == len(numbers())
