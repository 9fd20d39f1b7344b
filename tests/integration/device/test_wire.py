"""What a station puts on the wire: QoS, retained status, jitter and pace, seen from outside."""

import asyncio
import threading
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from farmiq.device.uplink import drain
from farmiq.device.uplink.drain import SendGate
from farmiq.device.uplink.rules import JITTER_S, RateLimiter
from farmiq.plumbing.messaging import mqtt
from tests.integration.device.conftest import Edge
from tests.integration.device.processes import Station
from tests.integration.device.running import Running
from tests.integration.device.tap import Published, tapped
from tests.support import station
from tests.support.until import until

BACKLOG = 80
PER_SECOND = 20


async def a_backlog(folder: Path) -> None:
    book = await station.recorder(folder)
    for _ in range(BACKLOG // 8):
        await station.weighing(book, weights=6, pictures=0)
    await book.buffer.close()


def retained(url: str, topic: str) -> tuple[bytes, bool, int] | None:
    """What a newcomer is told of a topic at once: payload, retain flag, QoS.

    What is said in the moment in which it comes is not meant: that has no flag.
    """
    parts = urlsplit(url)
    told: list[tuple[bytes, bool, int]] = []
    heard = threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.username_pw_set(parts.username, parts.password)

    def on_message(_: object, __: object, message: paho.MQTTMessage) -> None:
        if message.retain:
            told.append((bytes(message.payload), message.retain, message.qos))
            heard.set()

    client.on_message = on_message
    client.connect(*mqtt.address(url))
    client.subscribe(topic, qos=1)
    client.loop_start()
    heard.wait(60)
    client.disconnect()
    client.loop_stop()
    return told[0] if told else None


@pytest.mark.req("WV-16", "WV-24", "WV-23")
async def test_all_is_qos_1_the_status_is_retained_and_no_second_brings_more_than_twenty(
    edge: Edge, tmp_path: Path
) -> None:
    """A real agent process, tapped between it and the broker.

    The tap's clock is that of arrival: a packet may be seen late, and then it is nearer to the one
    behind it. So the second that is judged is shorter by twice what this process was late at its
    worst (the tap, and the agent beside it on the same machine), and never shorter than a half.
    """
    host, port = mqtt.address(edge.mqtt_url)
    async with tapped(host, port) as tap:
        parts = urlsplit(edge.mqtt_url)
        login = parts.netloc.rpartition("@")[0]
        url = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{tap.port_here}"))
        await a_backlog(tmp_path / "buffer")
        weigher = Station(tmp_path, edge)
        weigher.start_command(AGENT_MQTT_URL=url)
        try:
            await until(lambda: len(edge.gateway.distinct()) >= BACKLOG, within_s=90)
            told = await asyncio.to_thread(retained, edge.gateway_url, _status())
        finally:
            weigher.stop()
        await until(lambda: _offline(edge))
    assert {each.qos for each in tap.published} == {1}
    events = [each for each in tap.published if "/status/" not in each.topic]
    statuses = [each for each in tap.published if "/status/" in each.topic]
    assert len(events) >= BACKLOG
    assert not any(each.retain for each in events)
    assert statuses
    assert all(each.retain for each in statuses)
    assert told is not None
    assert told[1:] == (True, 1)
    assert most_within(tap.published, max(0.5, 1 - 2 * tap.late_s)) <= PER_SECOND


def most_within(packets: list[Published], seconds: float) -> int:
    times = [each.at for each in packets]
    return max(sum(at <= each < at + seconds for each in times) for at in times)


def _status() -> str:
    place = station.WHO.place
    return f"iot/status/{place.tenant_id}/{place.farm_id}/{place.barn_id}/{place.device_id}"


def _offline(edge: Edge) -> bool:
    return bool(edge.gateway.statuses[-1].body["payload"]["state"] == "offline")


@pytest.mark.req("WV-22")
async def test_replay_leaves_with_a_jitter_and_what_is_live_without(
    edge: Edge, tasks: asyncio.TaskGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the drain asks the gate; and the gate moves what it lets out by that much."""
    asked: list[float | None] = []
    moved: list[float] = []
    wait, next_at = SendGate.wait, RateLimiter.next_at

    async def noted(own: SendGate, *, chance: float | None = None) -> None:
        asked.append(chance)
        await wait(own, chance=chance)

    def shown(own: RateLimiter, now: float, *, chance: float | None = None) -> float:
        at = next_at(own, now, chance=chance)
        if chance is not None:
            moved.append(at - own._slot)
        return at

    monkeypatch.setattr(SendGate, "wait", noted)
    monkeypatch.setattr(RateLimiter, "next_at", shown)
    # What is older than this when it leaves is a replay: all of the backlog.
    monkeypatch.setattr(drain, "LIVE_S", -1.0)
    await a_backlog(tmp_path)
    agent = Running()
    await agent.begin(tasks, tmp_path, edge)
    await agent.until_stored(BACKLOG)
    replays = [each for each in asked if each is not None]
    assert len(replays) >= BACKLOG
    assert all(0 <= each <= 1 for each in replays)
    assert len(set(replays)) > BACKLOG / 2
    assert max(moved) > JITTER_S / 2
    monkeypatch.setattr(drain, "LIVE_S", 3600.0)
    asked.clear()
    await station.weighing(agent.book, pictures=0, weights=2)
    await agent.until_stored(BACKLOG + 4)
    assert asked
    assert set(asked) == {None}
