"""Weighings over MQTT to the cloud's sessions, while services die in the middle of them."""

import asyncio
import signal
from collections.abc import Callable
from random import Random
from uuid import UUID

import pytest

from farmiq.messages.topics import Place
from farmiq.plumbing import ids
from farmiq.plumbing.messaging import mqtt
from tests.integration.edge.weighvision.conftest import Message, Weighing, station
from tests.support import devices
from tests.support.farm import TENANT, Farm
from tests.support.until import until

GATEWAY, SESSIONS = "edge-ingress-gateway", "cloud-weighvision-service"
ON_THE_WAY = (GATEWAY, "edge-sync-forwarder", "cloud-ingestion", SESSIONS)
SCALE = Place(TENANT, "hill-farm", "barn-1", "scale-1")
COUNT = 40


def a_weighing(number: int) -> tuple[Weighing, list[Message]]:
    one = Weighing(place=SCALE)
    return one, [
        one.created(),
        one.captured(UUID(int=number)),
        one.weight(80 + number / 10),
        one.weight(81 + number / 10),
        one.finalized(),
    ]


async def publish(farm: Farm, messages: list[Message]) -> None:
    url = farm.environment["FARMIQ_DEVICES_MQTT_URL"]
    async with mqtt.connected(
        url, client_id=f"s-{ids.new().hex}", persistent_session=False
    ) as link:
        await link.until_up()
        await asyncio.gather(*(link.publish(topic, raw) for topic, raw in messages))


@pytest.mark.timeout(300)
@pytest.mark.req("SC-04", "SC-05", "RB-28")
@pytest.mark.parametrize(
    ("victim", "point"),
    [
        # tests/chaos takes these points with readings; here they come once more, with weighings.
        pytest.param(GATEWAY, "ingress.before_commit", marks=pytest.mark.long),
        pytest.param(GATEWAY, "ingress.after_commit", marks=pytest.mark.long),
        (SESSIONS, "sink.before_commit"),
        (SESSIONS, "sink.after_commit"),
    ],
)
async def test_every_event_three_times_in_any_order_past_a_death(
    idle_farm: Farm, free_port: Callable[[], int], victim: str, point: str
) -> None:
    farm = idle_farm
    farm.ports[SESSIONS] = free_port()
    devices.register(
        farm.edge_db.admin_url, [devices.at(SCALE, kind="station", station_id=station(SCALE))]
    )
    for name in ON_THE_WAY:
        farm.start(name, crash_at=point if name == victim else "")
    await farm.until_ready(*(name for name in ON_THE_WAY if name != victim))
    weighed = [a_weighing(number) for number in range(COUNT)]
    messages = [message for _, told in weighed for message in told] * 3
    Random(point).shuffle(messages)
    if victim == GATEWAY:
        await until(lambda: "ingress.up" in farm.log(GATEWAY) or farm.ready(GATEWAY), within_s=40)
    await publish(farm, messages)
    await until(lambda: farm.running[victim].poll() is not None, within_s=60)
    assert farm.running[victim].returncode == -signal.SIGKILL, farm.log(victim)
    farm.start(victim)
    in_cloud = "select count(*)::int from weight_sessions where status = 'finalized' "
    in_cloud += "and missing = '{}'"
    await until(lambda: farm.cloud(in_cloud) == [(COUNT,)], within_s=90)
    told = "select count(*)::int from weighvision_events"
    await until(lambda: farm.cloud(told) == [(5 * COUNT,)])
    expected = {
        one.session_id: (80 + number / 10, 81 + number / 10, UUID(int=number))
        for number, (one, _) in enumerate(weighed)
    }
    found = farm.cloud(
        "select session_id, initial_weight_kg, final_weight_kg, media_ids[1] from weight_sessions"
    )
    assert {row[0]: row[1:] for row in found} == expected
    edge = farm.edge("select id, initial_weight_kg, final_weight_kg from weight_sessions")
    assert {row[0]: row[1:] for row in edge} == {key: row[:2] for key, row in expected.items()}
    assert farm.cloud(told) == [(5 * COUNT,)]
    assert farm.edge("select count(*)::int from weight_session_events") == [(5 * COUNT,)]
    assert farm.edge("select count(*)::int from quarantine") == [(0,)]
