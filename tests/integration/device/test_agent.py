"""The agent against a real broker: sessions out in order, stored only on the edge's receipt."""

import asyncio
import json
from pathlib import Path

import pytest

from farmiq.messages import mqtt as messages
from tests.integration.device.conftest import Edge
from tests.integration.device.running import Running
from tests.support import station

ORDER = [
    "weighvision.session.created",
    "weighvision.image.captured",
    "weighvision.weight.recorded",
    "weighvision.weight.recorded",
    "weighvision.session.finalized",
]


@pytest.mark.req("WV-01", "WV-03", "WV-04", "WV-07", "WV-08", "WV-10", "WV-13", "WV-14", "WV-17")
@pytest.mark.req("WV-28", "WV-32", "WV-35")
async def test_weighing_arrives_in_the_documented_order(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    agent = Running()
    await agent.begin(tasks, tmp_path, edge, AGENT_PICTURE_PATIENCE_SECONDS=120)
    session_id = await station.weighing(agent.book)
    await agent.until_stored(5)
    arrived = edge.gateway.arrived
    assert [each.body["event_type"] for each in arrived] == ORDER
    assert {each.session_id for each in arrived} == {str(session_id)}
    for each in arrived:
        read = messages.read(each.topic, each.raw)
        assert each.body["ts"].endswith("Z")
        assert read.envelope.trace_id == arrived[0].body["trace_id"]
    assert arrived[-1].body["payload"] == {"image_count": 1, "final_weight_kg": 98.5}
    media_id = arrived[1].body["payload"]["media_id"]
    assert set(edge.media.objects) == {media_id}
    presign, put = edge.media.requests
    assert (presign.method, presign.path) == ("POST", "/api/v1/media/images/presign")
    assert put.path == f"/bucket/{media_id}?signed=yes"
    asked = json.loads(presign.body)
    assert (asked["sessionId"], asked["traceId"]) == (str(session_id), arrived[0].body["trace_id"])
    for request in (presign, put):
        assert request.headers["x-request-id"]
        assert request.headers["x-trace-id"] == arrived[0].body["trace_id"]
    assert not (await agent.counts())["picture_bytes"]
    assert [*agent.book.buffer.pictures.ids()] == []


@pytest.mark.req("WV-15")
async def test_picture_of_no_session_goes_to_the_events_topic(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path
) -> None:
    agent = Running()
    await agent.begin(tasks, tmp_path, edge)
    await agent.book.photograph(station.picture(None))
    await agent.until_stored(1)
    (only,) = edge.gateway.arrived
    assert only.topic == "iot/event/t-1/f-1/b-1/d-1/weighvision.image.captured"
    assert "sessionId" not in json.loads(edge.media.requests[0].body)
