"""Real agents, and everything between them and the cloud killed: each event once, each image whole.

They take minutes: `pytest -m long tests/chaos/test_stations.py -s` shows the figures.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest

from farmiq.lab.simulate import stations, weighings
from farmiq.lab.simulate.stations import Habits, SimulatedStation
from tests.chaos.conftest import Weighing
from tests.support.until import until
from tests.support.weighing_farm import IMPATIENT, fill, kept, stands_there

GATEWAY, MEDIA, SESSIONS = "edge-ingress-gateway", "edge-media-store", "edge-weighvision-session"
EDGE = (GATEWAY, MEDIA, SESSIONS, "edge-sync-forwarder")
HOUR_S = 3600
DROPPED = """
    select coalesce(sum((payload ->> 'count')::int), 0)::int, count(*)::int from device_events
    where event_type = 'device.buffer.dropped'
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.xdist_group("chaos")]


def a_station(
    weighing: Weighing, folder: Path, number: int, *, edge: str = "edge", **others: str
) -> SimulatedStation:
    found = SimulatedStation(
        weighing.account.post(number, edge=edge),
        folder / f"station-{number}",
        Habits(seed=number, gap_s=1.0, stands_s=4.0, calm=True),
        settings={**IMPATIENT, **others},
    )
    weighing.account.buffers.append(found.buffer)
    return found


@contextlib.asynccontextmanager
async def all_standing(herds: list[SimulatedStation]) -> AsyncIterator[None]:
    async with contextlib.AsyncExitStack() as stack:
        for each in herds:
            await stack.enter_async_context(stations.running(each))
        yield


def published(weighing: Weighing) -> int:
    """The broker has said that it has them, and no receipt has come."""
    return sum(each.counts["published"] for each in weighing.account.kept())


def tell(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with capsys.disabled():
        print(f"\n{line}")  # noqa: T201


@pytest.mark.req("WV-18", "WV-35", "SC-04", "SC-05", "RB-28")
@pytest.mark.parametrize("victims", ["broker", "edge", "both"])
async def test_killed_with_two_thousand_events_in_flight(
    weighing: Weighing, tmp_path: Path, victims: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four stations; the gateway is away until the broker holds 2,000 events without a receipt."""
    await weighing.start("cloud", *EDGE)
    patience = {"AGENT_WINDOW": "1000", "AGENT_RECEIPT_SECONDS": "30"}
    herds = [a_station(weighing, tmp_path, n, edge=MEDIA, **patience) for n in range(4)]
    given = {sha for each in herds for sha in await fill(each, sessions=55, weights=7)}
    weighing.farm.kill(GATEWAY)
    async with all_standing(herds):
        await until(lambda: published(weighing) >= 2000, within_s=120)
        in_flight, began = published(weighing), time.monotonic()
        if victims != "broker":
            weighing.farm.start(GATEWAY)
            taken = "select count(*)::int from ingress_dedupe"
            await until(lambda: weighing.farm.edge(taken)[0][0] > 200, within_s=60)
            in_flight = published(weighing)
            for name in EDGE:
                weighing.farm.kill(name)
        if victims != "edge":
            await asyncio.to_thread(weighing.engines.kill, "mqtt-edge")
            await asyncio.to_thread(weighing.engines.restart, "mqtt-edge")
        await weighing.start(*(EDGE if victims != "broker" else (GATEWAY,)))
        await weighing.account.check(given, within_s=240)
        took_s = time.monotonic() - began
    minted, again = weighing.account.minted(), weighing.account.sent_again()
    assert len(minted) == 4 * 55 * 10
    # Receipts overtake most: the broker has them on its disk.
    assert again > 0 or victims == "edge"
    tell(
        capsys,
        f"{victims} killed with {in_flight} in flight: {len(minted)} events and "
        f"{len(given)} images in the cloud once, {again} were sent again, {took_s:.0f} s",
    )


@pytest.mark.req("WV-18", "WV-35", "SC-04")
async def test_an_outage_of_three_days(
    weighing: Weighing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The station's wall clock goes from 75 hours ago to now while broker and edge are dead.

    It is killed once in between. Running time is not moved: what is dropped by age is (C-31)
    what was offered for so long, and this was not.
    """
    await weighing.start("cloud", "edge")
    station = a_station(weighing, tmp_path, 1)
    station.movable = True
    station.folder.mkdir(parents=True)
    station.move_clock(-75 * HOUR_S)
    async with stations.running(station):
        await until(lambda: station.hears, within_s=40)
        await station.run(visits=1)
        weighing.farm.kill("edge")
        await asyncio.to_thread(weighing.engines.kill, "mqtt-edge")
        for number in range(1, 7):
            station.move_clock((-75 + 12.5 * number) * HOUR_S)
            await station.run(visits=1, began=number)
            if number == 3:
                station.kill()
                station.start()
                await until(lambda: station.hears, within_s=40)
        station.move_clock(0)
        waiting = kept(station.buffer).counts["waiting"]
        await asyncio.to_thread(weighing.engines.restart, "mqtt-edge")
        await weighing.start("edge")
        await station.run(visits=1, began=7)
        await weighing.account.check(
            (each for visit in station.visits for each in visit.sha256s), within_s=120
        )
    for sessions in weighing.account.pictured():
        found = weighings.compare(station.visits, sessions)
        assert found.clean, found
        assert found.sent == 8
    (span,) = weighing.farm.cloud("select max(start_at) - min(start_at) from weight_sessions")[0]
    assert span.total_seconds() > 72 * HOUR_S
    tell(
        capsys,
        f"outage of {span}: {waiting} events waited, {len(weighing.account.minted())} and "
        f"{len(weighing.account.announced())} images arrived once",
    )


@pytest.mark.req("BK-09", "MD-15")
async def test_the_cloud_is_away_for_three_days(
    weighing: Weighing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The edge's clock is moved on by 75 hours in which animals are weighed; it is killed once."""
    await weighing.start("cloud", "edge")
    station = a_station(weighing, tmp_path, 1)
    uploaded = "select count(*)::int from media_objects where upload_status = 'stored'"
    async with stations.running(station):
        await until(lambda: station.hears, within_s=40)
        await station.run(visits=1)
        weighing.farm.kill("cloud")
        for number in range(1, 4):
            ahead(weighing, hours=25 * number)
            await station.run(visits=2, began=2 * number)
            if number == 2:
                weighing.farm.kill("edge")
                weighing.farm.start("edge")
        await until(lambda: kept(station.buffer).is_settled, within_s=90)
        await until(
            lambda: weighing.farm.edge(uploaded)[0][0] == len(weighing.account.announced()),
            within_s=60,
        )
        owed = weighing.farm.edge("select count(*)::int from sync_outbox where status <> 'acked'")
        await weighing.start("cloud")
        await weighing.account.check(
            (each for visit in station.visits for each in visit.sha256s), within_s=240
        )
    for sessions in weighing.account.pictured():
        found = weighings.compare(station.visits, sessions)
        assert found.clean, found
        assert found.sent >= 5
    tell(
        capsys,
        f"cloud away for 75 h: {owed[0][0]} events owed, {len(weighing.account.minted())} and "
        f"{len(weighing.account.announced())} images arrived once",
    )


def ahead(weighing: Weighing, *, hours: float) -> None:
    """The edge's database is so far ahead of the others' clocks."""
    with psycopg.connect(weighing.farm.edge_db.admin_url) as connection:
        connection.execute(
            "insert into test_clock (ahead) values (make_interval(hours => %s)) "
            "on conflict on constraint test_clock_pkey do update set ahead = excluded.ahead",
            (int(hours),),
        )


@pytest.mark.req("WV-20")
async def test_what_an_overfilled_buffer_lost_is_what_the_ledger_in_the_cloud_says(
    weighing: Weighing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The agent is killed in the middle of telling it."""
    await weighing.start("cloud", "edge")
    station = a_station(weighing, tmp_path, 1, AGENT_BUFFER_EVENTS="300")
    await fill(station, sessions=40, weights=20, most_events=300)
    told = "select count(*)::int from weighvision_events"
    async with stations.running(station):
        await until(lambda: weighing.farm.cloud(told)[0][0] > 50, within_s=60)
        station.kill()
        station.start()

        def agrees() -> bool:
            found = kept(station.buffer)
            (lost, lines), (events,) = weighing.farm.cloud(DROPPED)[0], weighing.farm.cloud(told)[0]
            return bool(
                found.is_settled and lines and lost == found.last_seq - events - lines and lost > 0
            )

        await until(agrees, within_s=120)
        last_seq = kept(station.buffer).last_seq
    ((lost, lines),), ((events,),) = weighing.farm.cloud(DROPPED), weighing.farm.cloud(told)
    made = 40 * (20 + 3)
    assert made - events == lost
    assert last_seq == made + lines
    kinds = dict(
        weighing.farm.cloud(
            "select event_type, count(*)::int from weighvision_events group by event_type"
        )
    )
    for kind in ("session.created", "session.finalized", "image.captured"):
        assert kinds[f"weighvision.{kind}"] == 40
    tell(capsys, f"{made} made, {events} arrived, {lost} lost and told in {lines} ledger lines")


@pytest.mark.req("MD-12", "WV-35")
async def test_the_object_store_is_killed_in_mid_upload(
    weighing: Weighing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once while the agent uploads, once while the edge brings the images to the cloud."""
    await weighing.start("cloud", "edge")
    herds = [a_station(weighing, tmp_path, n) for n in range(2)]
    given = {sha for e in herds for sha in await fill(e, sessions=60, weights=1, size=(640, 480))}
    at_edge = "select count(*)::int from media_objects where upload_status = 'stored'"
    in_cloud = "select count(*)::int from media_objects where stored_at is not null"
    async with all_standing(herds):
        counts = []
        for edge, cloud in ((10, 0), (40, 5)):
            await until(
                lambda e=edge, c=cloud: (  # type: ignore[misc]
                    weighing.farm.edge(at_edge)[0][0] >= e
                    and weighing.farm.cloud(in_cloud)[0][0] >= c
                ),
                within_s=90,
            )
            await asyncio.to_thread(weighing.engines.kill, "s3")
            counts.append((weighing.farm.edge(at_edge)[0][0], weighing.farm.cloud(in_cloud)[0][0]))
            assert counts[-1][1] < 120
            await asyncio.to_thread(weighing.engines.restart, "s3")
        await weighing.account.check(given, within_s=240)
    assert counts[0][0] < 120
    tell(
        capsys,
        f"object store killed with {counts} of {len(given)} images at edge and cloud; all whole",
    )


@pytest.mark.req("WV-18", "SC-04", "SC-05")
async def test_media_store_and_session_service_are_killed_while_animals_are_weighed(
    weighing: Weighing, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await weighing.start("cloud", *EDGE)
    herds = [a_station(weighing, tmp_path, n, edge=MEDIA) for n in range(2)]
    async with all_standing(herds):
        await until(lambda: all(each.hears for each in herds), within_s=40)
        weighed = asyncio.gather(*(each.run(visits=5) for each in herds))
        for victim in (MEDIA, SESSIONS, MEDIA, GATEWAY):
            seen = len(herds[0].visits)
            await until(lambda: stands_there(herds[0]), within_s=60)
            weighing.farm.kill(victim)
            weighing.farm.start(victim)
            await until(lambda n=seen: len(herds[0].visits) > n, within_s=60)  # type: ignore[misc]
        await weighed
        visits = [visit for each in herds for visit in each.visits]
        await weighing.account.check(each for visit in visits for each in visit.sha256s)
    for sessions in weighing.account.pictured():
        found = weighings.compare(visits, sessions)
        assert found.clean, found
        assert found.sent >= 8
    tell(capsys, f"{len(visits)} visits, {found.stored} weighed at both sites, each once")
