"""Thousands of bad messages over MQTT into a real gateway, beside a healthy stream."""

import asyncio
from random import Random

import pytest

from farmiq.plumbing import ids
from farmiq.plumbing.messaging import mqtt
from tests.support import bad_input
from tests.support.bad_input import Sent
from tests.support.farm import Farm
from tests.support.until import until

GATEWAY = "edge-ingress-gateway"
TREES = ("iot/telemetry/", "iot/event/", "iot/status/", "iot/weighvision/")
# What the broker lets through: MQTT's own syntax, devices' permissions, no blanks in NATS.
FORBIDDEN = set("+#*> \t\n\x00")
BAD = 4_000
IN_FLIGHT = 200


def passes_the_broker(sent: Sent) -> bool:
    topic = sent.topic
    return (
        topic.startswith(TREES)
        and topic.isascii()
        and not FORBIDDEN & set(topic)
        and ".." not in topic  # a dot is NATS' own separator
        and len(topic) <= 512
    )


async def publish(farm: Farm, messages: list[Sent], *, retain: bool = False) -> None:
    """All of them, each acknowledged by the broker."""
    url = farm.environment["FARMIQ_DEVICES_MQTT_URL"]
    async with mqtt.connected(
        url, client_id=f"d-{ids.new().hex}", persistent_session=False
    ) as link:
        await link.until_up()
        for first in range(0, len(messages), IN_FLIGHT):
            part = messages[first : first + IN_FLIGHT]
            await asyncio.gather(*(link.publish(one.topic, one.raw, retain=retain) for one in part))


def quarantined(farm: Farm) -> int:
    ((count,),) = farm.edge("select coalesce(sum(received_count), 0)::int from quarantine")
    return int(count)


@pytest.mark.timeout(240)
@pytest.mark.req("WV-08", "WV-09")
async def test_a_gateway_outlives_four_thousand_bad_messages(idle_farm: Farm) -> None:
    farm, rng = idle_farm, Random("healthy")
    cases = [one for one in bad_input.messages(31, 6_000) if passes_the_broker(one)]
    bad = [one for one in cases if not one.good]
    assert len(bad) >= BAD
    healthy = [one for one in cases if one.good] + [bad_input.healthy(rng) for _ in range(500)]
    mixed = [*bad, *healthy]
    rng.shuffle(mixed)
    farm.start(GATEWAY)
    await farm.until_ready(GATEWAY)
    pid = farm.running[GATEWAY].pid
    await publish(farm, mixed)
    await until(
        lambda: farm.edge("select count(*) from telemetry_raw") == [(len(healthy),)], within_s=100
    )
    keys = {(one.topic, one.raw) for one in bad}
    await until(lambda: farm.edge("select count(*) from quarantine") == [(len(keys),)], within_s=60)
    await until(lambda: quarantined(farm) >= len(bad))
    ((rows, reasoned),) = farm.edge(
        "select count(*), count(*) filter (where reasons[1] <> '') from quarantine"
    )
    assert (rows, reasoned) == (len(keys), len(keys))
    assert (farm.running[GATEWAY].poll(), farm.running[GATEWAY].pid) == (None, pid)
    await farm.until_ready(GATEWAY)
    kinds = dict(farm.edge("select kind, count(*)::int from quarantine group by 1"))
    assert {"security", "format", "size", "not_recorded"} >= kinds.keys() >= {"security", "format"}


async def test_retained_garbage_is_quarantined_once_and_hurts_nobody(idle_farm: Farm) -> None:
    """What is retained is in the log once: a gateway that starts again does not meet it again."""
    farm = idle_farm
    farm.start(GATEWAY)
    await farm.until_ready(GATEWAY)
    garbage = [
        Sent("retained", f"iot/status/t-001/f-001/b-001/d-{n}", b"\xff garbage %d" % n)
        for n in range(20)
    ]
    await publish(farm, garbage, retain=True)
    await until(lambda: quarantined(farm) >= 20, within_s=60)
    farm.stop_one(GATEWAY)
    farm.start(GATEWAY)
    await farm.until_ready(GATEWAY)
    await publish(farm, [bad_input.healthy(Random(1))])
    await until(lambda: farm.edge("select count(*) from telemetry_raw") == [(1,)])
    assert farm.edge("select count(*), max(received_count) from quarantine") == [(20, 1)]
