"""Two stations weigh while agent, broker and edge are killed; the cloud has each weighing once."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from farmiq.lab import stack
from farmiq.lab.simulate import stations, weighings
from farmiq.lab.simulate.stations import Habits, SimulatedStation
from farmiq.messages import topics
from farmiq.plumbing import ids
from tests.flow.test_weighings import publish
from tests.support import devices, routed
from tests.support.farm import Farm, log_lines
from tests.support.until import until
from tests.support.weighing_farm import IMPATIENT, WeighingFarm, kept, stands_there

# Of readings, weighings, images, estimates and batches, each by its real producer.
ROUTED = {
    "telemetry.ingested",
    "telemetry.aggregated",
    "weighvision.session.created",
    "weighvision.session.finalized",
    "media.stored",
    "inference.completed",
    "sync.batch.sent",
    "sync.batch.acked",
}


def _reading_of_an_hour_that_is_over() -> tuple[str, bytes]:
    """The cloud publishes what its hour comes to."""
    place = devices.HILLSIDE[0]
    message: dict[str, Any] = {
        "schema_version": "1.0",
        "event_id": str(ids.new()),
        "trace_id": "trace-1",
        "tenant_id": place.tenant_id,
        "device_id": place.device_id,
        "event_type": "telemetry.reading",
        "ts": (datetime.now(UTC) - timedelta(hours=3)).isoformat(),
        "payload": {"metric_type": "temperature", "metric_value": 21.5, "unit": "C"},
    }
    return topics.telemetry(place, "temperature"), json.dumps(message).encode()


async def _has_put(weighing: WeighingFarm, before: int) -> bool:
    return await weighing.uploaded() > before


async def _killed_at_its_first(one: SimulatedStation) -> None:
    """The next animal comes when the agent is there again."""
    await one.run(visits=1)
    await until(lambda: one.hears)
    await one.run(visits=2, began=1)


@pytest.fixture
async def weighing(two_sites: Farm) -> WeighingFarm:
    # What a killed edge held is free again within the test.
    leases = {"MEDIA_LEASE_SECONDS": "3", "SYNC_POLL_MS": "500", "SYNC_BREAKER_MAX_SECONDS": "1"}
    two_sites.environment |= leases
    for site in ("cloud", "edge"):
        two_sites.start(site)
    await two_sites.until_ready()
    return WeighingFarm(two_sites)


@pytest.mark.timeout(180)
@pytest.mark.xdist_group("chaos")
@pytest.mark.req("WV-01", "WV-05", "WV-18", "WV-26", "WV-35", "SC-01", "SC-04", "MD-05")
@pytest.mark.req("MD-07", "RB-02", "RB-08", "RB-13", "RB-19")
async def test_agent_broker_and_edge_are_killed_and_the_cloud_has_each_weighing_once(
    weighing: WeighingFarm, broker: stack.Stack, tmp_path: Path
) -> None:
    farm = weighing.farm
    one, other = (
        SimulatedStation(
            weighing.post(number),
            tmp_path / f"station-{number}",
            Habits(seed=number, gap_s=1.0, stands_s=4.0, calm=True),
            settings=IMPATIENT,
        )
        for number in (1, 2)
    )
    weighing.buffers += [one.buffer, other.buffer]
    async with (
        routed.routes(farm.environment["FARMIQ_AMQP_URL"]) as routes,
        stations.running(one),
        stations.running(other),
    ):
        await publish(farm, [_reading_of_an_hour_that_is_over()])
        await until(lambda: one.hears and other.hears, within_s=60)
        weighed = asyncio.gather(_killed_at_its_first(one), other.run(visits=3))
        await until(lambda: stands_there(one), within_s=60)
        one.kill()
        one.start()
        await until(lambda: stands_there(other) and other.visits, within_s=60)
        await asyncio.to_thread(broker.kill, "mqtt-edge")
        before = await weighing.uploaded()
        await until(lambda: len(other.visits) >= 2, within_s=60)
        # Pictures need no broker, and what announces them waits.
        await until(lambda: _has_put(weighing, before), within_s=60)
        assert kept(other.buffer).counts["waiting"] > 0
        await asyncio.to_thread(broker.restart, "mqtt-edge")
        await until(lambda: stands_there(other) or weighed.done(), within_s=60)
        farm.kill("edge")
        farm.start("edge")
        await weighed
        visits = [*one.visits, *other.visits]
        await weighing.check(each for visit in visits for each in visit.sha256s)
        await until(lambda: routed.types(routes) >= ROUTED, within_s=90)
    _follow(weighing)
    _follow_in_the_logs(weighing, [tmp_path / f"station-{number}" for number in (1, 2)])
    for sessions in weighing.pictured():
        found = weighings.compare(visits, sessions)
        assert found.clean, found
        assert found.sent >= 4
    await _check_inferred(farm)


LOOKED_AT = """
select w.id, r.id, j.done_at is null and j.attempt_count > 0 from weight_sessions w
  left join inference_jobs j on j.tenant_id = w.tenant_id and j.session_id = w.id
  left join inference_results r on r.tenant_id = w.tenant_id and r.session_id = w.id
where w.status = 'finalized'
"""
SEEN = "select session_id, inference_result_id from inference_events where session_id is not null"


async def _check_inferred(farm: Farm) -> None:
    """The pictures of each weighing were looked at, and the cloud has each result once.

    The edge that was killed may have held one job; it is free again after its lease.
    """

    def has_arrived() -> bool:
        due, seen = farm.edge(LOOKED_AT), set(farm.cloud(SEEN))
        held = [is_held for *result, is_held in due if tuple(result) not in seen]
        return held in ([], [True]) and len(due) > len(held)

    await until(has_arrived, within_s=90)
    seen = farm.cloud(SEEN)
    assert len({session_id for session_id, _ in seen}) == len(seen)


def _follow_in_the_logs(weighing: WeighingFarm, stations_: list[Path]) -> None:
    """A weighing's trace_id is in the log of every hop, from the station's agent on."""
    agents = "".join((folder / "agent.log").read_text() for folder in stations_)
    hops = {
        "drain.stored": agents,
        "ingress.stored": weighing.farm.log("edge"),
        "sync.delivered": weighing.farm.log("edge"),
        "ingestion.events": weighing.farm.log("cloud"),
        "amqp.consumed": weighing.farm.log("cloud"),
    }
    told = {
        said: {
            event_id: trace_id
            for line in log_lines(text)
            if line["event"] == said
            for event_id, trace_id in zip(line["event_id"], line["trace_id"], strict=True)
        }
        for said, text in hops.items()
    }
    sent = {key: body["trace_id"] for key, body in weighing.minted().items()}
    everywhere = set(sent).intersection(*told.values())
    assert everywhere
    for traces in told.values():
        assert {key: traces[key] for key in everywhere} == {key: sent[key] for key in everywhere}


def _follow(weighing: WeighingFarm) -> None:
    """`farmiq trace` goes on to the session and the picture, at both sites."""
    before = [("edge", "ingress_dedupe"), ("edge", "weight_session_events")]
    image = ("media_objects",)
    for kind, also in (("weight.recorded", ()), ("image.captured", image)):
        event_id, body = next(
            (key, body)
            for key, body in weighing.minted().items()
            if body["event_type"] == f"weighvision.{kind}"
        )
        answer = weighing.farm.cli("trace", event_id, "--json")
        assert answer.returncode == 0, answer.stderr
        hops = json.loads(answer.stdout)
        assert [(hop["site"], hop["place"]) for hop in hops] == [
            ("device", body["device_id"]),
            *before,
            ("edge", "weight_sessions"),
            *(("edge", table) for table in also),
            ("edge", "sync_outbox"),
            ("edge", "edge-sync-forwarder"),
            ("cloud", "ingestion_dedupe"),
            ("cloud", "farmiq.cloud-weighvision-service.ingest.queue"),
            ("cloud", "weighvision_events"),
            ("cloud", "weight_sessions"),
            *(("cloud", table) for table in also),
        ]
        assert all(hop["at"] for hop in hops)
        if also:
            assert body["payload"]["media_id"] in hops[-1]["note"]
