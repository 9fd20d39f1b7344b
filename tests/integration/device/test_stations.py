"""Simulated stations: real agent processes on real serial lines and MQTT, and what breaks."""

import asyncio
import hashlib
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest

from farmiq.lab.simulate import backlog, link, stations, weighings
from farmiq.lab.simulate.stations import Birds, Habits, Post, SimulatedStation
from farmiq.lab.simulate.weighings import Session
from farmiq.messages import weighvision
from farmiq.plumbing.messaging import mqtt
from tests.integration.device.conftest import Edge
from tests.support.station import WHO
from tests.support.until import until


def post(edge: Edge, *, mqtt_url: str | None = None, edge_url: str | None = None) -> Post:
    return Post(
        place=WHO.place,
        station_id=WHO.station_id,
        mqtt_url=mqtt_url or edge.mqtt_url,
        edge_url=edge_url or edge.media.url,
        token="of-this-test",
    )


def sessions(edge: Edge) -> list[Session]:
    """As the edge has them: from events, each once, and the bytes in its store."""
    events: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for each in edge.gateway.distinct().values():
        if each.session_id:
            kind = each.body["event_type"].rpartition(".")[2]
            events[each.session_id][kind].append(each.body["payload"])
    return [_session(edge, key, found) for key, found in events.items()]


def _session(edge: Edge, key: str, found: dict[str, list[dict[str, Any]]]) -> Session:
    ends = found["finalized"]
    assert len(ends) + len(found["cancelled"]) <= 1
    images = [edge.media.objects[each["media_id"]] for each in found["captured"]]
    return Session(
        session_id=key,
        status="finalized" if ends else "cancelled" if found["cancelled"] else "created",
        weight_kg=ends[0]["final_weight_kg"] if ends else None,
        image_count=ends[0]["image_count"] if ends else None,
        sha256s=tuple(hashlib.sha256(each).hexdigest() for each in images),
    )


def is_whole(edge: Edge, station: SimulatedStation) -> bool:
    found = weighings.compare(station.visits, sessions(edge))
    return not found.lost and not found.changed


def _is_weighed(station: SimulatedStation) -> bool:
    return (
        station.stage is not None and station.stage.here is not None and bool(station.stage.given)
    )


@pytest.mark.req("WV-01", "WV-05", "WV-10", "WV-35")
async def test_herd_is_weighed_by_a_real_agent(edge: Edge, tmp_path: Path) -> None:
    station = SimulatedStation(
        post(edge),
        tmp_path,
        Habits(gap_s=1.0, stands_s=4.0, calm=True),
        settings={"AGENT_EMPTY_SCALE_HOURS": "24"},
    )

    def loose() -> list[dict[str, Any]]:
        pictured = edge.gateway.of("weighvision.image.captured")
        return [each.body["payload"] for each in pictured if not each.session_id]

    async with stations.running(station):
        await until(lambda: edge.gateway.statuses and station.hears, within_s=40)
        await station.run(visits=2)
        assert sum(each.due for each in station.visits) == 2
        await until(lambda: is_whole(edge, station), within_s=40)
        # Nobody comes any more: the scale alone is of use, too.
        await until(loose, within_s=40)
    assert {each["purpose"] for each in loose()} == {weighvision.EMPTY_SCALE}
    assert len({each["media_id"] for each in loose()}) == 1
    found = weighings.compare(station.visits, sessions(edge))
    assert found.clean, found
    assert found.stored == 2
    assert stations.read(station.journal) == station.visits
    stored = [hashlib.sha256(each).hexdigest() for each in edge.media.objects.values()]
    assert weighings.doubled(stored) == ()


async def test_what_was_weighed_on_the_days_before_is_delivered_once(
    edge: Edge, tmp_path: Path
) -> None:
    birds = Birds(mean_kg=lambda _: 2.0, spread=0.1, seed=1)
    station = SimulatedStation(post(edge), tmp_path, Habits(gap_s=60), birds=birds)
    for _ in range(2):
        await backlog.fill(station, birds, 3)
    assert len(station.visits) == 3
    async with stations.running(station):
        await until(lambda: is_whole(edge, station), within_s=40)
    found = weighings.compare(station.visits, sessions(edge), tolerance_kg=0.001)
    assert found.clean, found
    assert found.stored == 3
    today = datetime.now(UTC).date().isoformat()
    ended = edge.gateway.of(weighvision.SESSION_FINALIZED)
    assert all(each.body["ts"] < today for each in ended)


@pytest.mark.req("WV-06", "WV-15")
async def test_scheduled_pictures_go_on_two_topics(edge: Edge, tmp_path: Path) -> None:
    """With a session where somebody stands, on the events topic where nobody does."""
    station = SimulatedStation(
        post(edge),
        tmp_path,
        Habits(gap_s=2.0, stands_s=4.0, calm=True),
        settings={"AGENT_CAPTURE": "schedule", "AGENT_SCHEDULE_MINUTES": "0.01"},
    )
    async with stations.running(station):
        coming = asyncio.create_task(station.run())

        def both() -> bool:
            pictured = edge.gateway.of("weighvision.image.captured")
            return {bool(each.session_id) for each in pictured} == {True, False}

        await until(both, within_s=60)
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
    pictured = edge.gateway.of("weighvision.image.captured")
    assert {each.topic.split("/")[1] for each in pictured if each.session_id} == {"weighvision"}
    assert {each.topic.split("/")[1] for each in pictured if not each.session_id} == {"event"}


@pytest.mark.long
@pytest.mark.req("WV-18", "WV-24")
async def test_link_loss_power_cuts_and_a_wrong_clock_lose_nothing(
    edge: Edge, tmp_path: Path
) -> None:
    """Link out, agent killed in a session, clock in 1970, link back: every due visit once."""
    host, port = mqtt.address(edge.mqtt_url)
    media = urlsplit(edge.media.url)
    async with (
        link.linked(host, port) as wire,
        link.linked("127.0.0.1", media.port or 0) as upload,
    ):
        parts = urlsplit(edge.mqtt_url)
        login = parts.netloc.rpartition("@")[0]
        prefix = f"{login}@" if login else ""
        url = urlunsplit(parts._replace(netloc=f"{prefix}127.0.0.1:{wire.port_here}"))
        station = SimulatedStation(
            post(edge, mqtt_url=url, edge_url=f"http://127.0.0.1:{upload.port_here}"),
            tmp_path,
            Habits(gap_s=1.0, stands_s=4.0, seed=7),
            movable=True,
        )
        async with stations.running(station):
            await until(lambda: edge.gateway.statuses and station.hears, within_s=40)
            await station.run(visits=3)
            for each in (wire, upload):
                each.swallowing = each.refusing = True
                each.cut()
            await station.run(visits=4, began=3)
            station.move_clock(-50 * 365 * 86_400)
            for number in range(3):
                coming = asyncio.create_task(station.run(visits=1, began=7 + number))
                await until(lambda: _is_weighed(station) or coming.done(), within_s=30)  # noqa: B023
                station.kill()
                station.start()
                await coming
                await until(lambda: station.hears, within_s=30)
            await station.run(visits=3, began=10)
            station.move_clock(86_400)
            for each in (wire, upload):
                each.heal()
            await station.run(visits=3, began=13)
            await until(lambda: is_whole(edge, station), within_s=90)
    found = weighings.compare(station.visits, sessions(edge))
    assert found.clean, found
    assert station.kills == 3
    assert found.sent >= 8


@pytest.mark.long
@pytest.mark.req("WV-18")
async def test_broker_killed_between_animals_loses_none(edge: Edge, tmp_path: Path) -> None:
    station = SimulatedStation(post(edge), tmp_path, Habits(gap_s=1.0, stands_s=4.0, calm=True))
    async with stations.running(station):
        await until(lambda: edge.gateway.statuses and station.hears, within_s=40)
        await station.run(visits=2)
        await asyncio.to_thread(edge.broker.kill, "mqtt-edge")
        await station.run(visits=3, began=2)
        await asyncio.to_thread(edge.broker.restart, "mqtt-edge")
        await station.run(visits=1, began=5)
        await until(lambda: is_whole(edge, station), within_s=90)
    found = weighings.compare(station.visits, sessions(edge))
    assert found.clean, found
    assert found.sent == found.stored == 6


@pytest.mark.long
@pytest.mark.req("WV-20")
async def test_station_that_is_full_refuses_and_goes_on(edge: Edge, tmp_path: Path) -> None:
    """A quota of one MiB while the edge is away; afterwards it weighs again."""
    edge.gateway.silent = True
    station = SimulatedStation(
        post(edge, edge_url="http://127.0.0.1:1"),
        tmp_path,
        Habits(gap_s=0.2, stands_s=3.0, calm=True),
        settings={"AGENT_BUFFER_EVENTS": "10", "AGENT_PICTURE_PATIENCE_SECONDS": "0"},
    )
    async with stations.running(station):
        await until(lambda: edge.gateway.statuses and station.hears, within_s=40)

        def says_full() -> bool:
            return "capture.refused" in (tmp_path / "agent.log").read_text()

        coming = asyncio.create_task(station.run())
        await until(says_full, within_s=60)
        assert station.is_up
        edge.gateway.silent = False
        before = len(edge.gateway.of("weighvision.session.created"))
        await until(
            lambda: len(edge.gateway.of("weighvision.session.created")) > before, within_s=60
        )
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
