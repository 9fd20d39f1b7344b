"""A fleet over a real broker, with an other side that speaks the protocol and keeps nothing."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from farmiq.cloud.camera.protocol import dialects, wire
from farmiq.cloud.camera.protocol.wire import Announcement, Chunk, Hello
from farmiq.lab import stack
from farmiq.lab.simulate import camera, camera_account, camera_faults, fleet
from farmiq.lab.simulate.camera import Camera, Firmware
from farmiq.lab.simulate.fleet import SimulatedCamera, Timing
from farmiq.lab.simulate.journal import Journal
from farmiq.plumbing.messaging import mqtt

FAULTS = replace(camera_faults.ALL, looping=0.0, deaths=0.2)
QUIET_S = 0.3


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[stack.Stack]:
    root = tmp_path_factory.mktemp("broker")
    with stack.start(root, engines=("mqtt-cloud",), say=lambda _: None) as started:
        yield started


@dataclass
class Counterpart:
    """Asks for what is missing a moment after the last chunk, acknowledges what is whole."""

    link: mqtt.Client
    announced: dict[str, Announcement] = field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    hellos: list[int] = field(default_factory=list)
    stored: list[str] = field(default_factory=list)
    quiet: dict[str, asyncio.TimerHandle] = field(default_factory=dict)

    async def listen(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                messages = await self.link.batch(max_messages=100, linger_s=0.0)
                self.link.ack(messages)
                for message in messages:
                    place = wire.parse_topic(message.topic)
                    self.hear(place, message.payload)
                    self._answer_when_quiet(place, group)

    def _answer_when_quiet(self, place: wire.CameraTopic, group: asyncio.TaskGroup) -> None:
        if (waits := self.quiet.pop(place.spelling, None)) is not None:
            waits.cancel()
        self.quiet[place.spelling] = asyncio.get_running_loop().call_later(
            QUIET_S, lambda: group.create_task(self.answer(place))
        )

    def hear(self, place: wire.CameraTopic, raw: bytes) -> None:
        mac = place.spelling
        match dialects.parse(dialects.dialect_of(place), place, raw):
            case Hello() as hello:
                self.hellos.append(hello.pending_count)
            case Announcement() as said:
                if self.announced.get(mac) != said:
                    self.parts[mac] = {}
                self.announced[mac] = said
            case Chunk() as chunk if mac in self.announced:
                self.parts[mac][chunk.number - self.announced[mac].first_chunk_id] = chunk.data

    async def answer(self, place: wire.CameraTopic) -> None:
        mac = place.spelling
        said = self.announced.get(mac)
        if said is None:
            return
        first = said.first_chunk_id
        lacking = [each for each in range(said.total_chunks) if each not in self.parts[mac]]
        told: wire.Answer = wire.Missing(said.image_name, tuple(each + first for each in lacking))
        if not lacking:
            data = b"".join(self.parts[mac][each] for each in range(said.total_chunks))
            self.stored.append(hashlib.sha256(data).hexdigest())
            told = wire.Stored(said.image_name, datetime.now(UTC), "Asia/Bangkok")
            del self.announced[mac]
        spoken = dialects.encode(dialects.dialect_of(place), mac, told)
        assert spoken is not None
        await self.link.publish(*spoken)


@contextlib.asynccontextmanager
async def counterpart(broker: stack.Stack) -> AsyncIterator[Counterpart]:
    url = broker.environment["FARMIQ_CLOUD_MQTT_URL"]
    async with mqtt.connected(
        url, client_id="other-side", topics=dialects.UP, persistent_session=False
    ) as link:
        await link.until_up()
        other = Counterpart(link)
        listening = asyncio.create_task(other.listen())
        try:
            yield other
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listening


def made(broker: stack.Stack, folder: Path, journal: Journal) -> list[SimulatedCamera]:
    return fleet.cameras(
        camera_faults.fleet(12, faults=FAULTS),
        broker.environment["FARMIQ_CAMERAS_MQTT_URL"],
        folder / "cards",
        journal,
        faults=FAULTS,
        timing=Timing(every_s=0.1),
        firmware=Firmware(answer_s=5),
    )


@pytest.mark.req("DB2-10", "DB2-13", "DS-02")
async def test_every_picture_arrives_byte_for_byte_whatever_goes_wrong(
    broker: stack.Stack, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "captures.jsonl")
    with contextlib.closing(journal):
        async with counterpart(broker) as other:
            cameras = made(broker, tmp_path, journal)
            await fleet.simulate(cameras, wakes=2)
    account = camera_account.read(tmp_path / "captures.jsonl")
    taken = {each.sha256 for each in account.captures.values()}
    assert len(taken) == 24
    assert account.waiting == set()
    # One that died in the moment of its acknowledgement sends again.
    assert taken == set(other.stored)
    assert account.acts["died"] > 0
    assert sum(other.hellos) > 0, "nobody had an image left over from an earlier wake"
    assert list((tmp_path / "cards").rglob("*.jpg")) == []


async def test_stranded_image_does_not_keep_a_run_from_ending(
    broker: stack.Stack, tmp_path: Path
) -> None:
    """A strict camera is asked by name; images whose announcement never left have none."""
    with contextlib.closing(Journal(tmp_path / "captures.jsonl")) as journal:
        strict = next(
            each
            for each in made(broker, tmp_path, journal)
            if each.kit.speech.dialect == "esp32cam"
        )
        firmware = Firmware(volunteers=False, answer_s=0.1, listens_s=0.1)
        strict.camera = camera.with_image(Camera(firmware), await strict.take_image())
        await strict.deliver()
        assert (strict.waiting, strict.stranded) == (1, 1)
        await strict.live(wakes=1)
        assert (strict.waiting, strict.stranded) == (2, 1), "the second was announced"


async def test_unacknowledged_image_stays_on_the_card(broker: stack.Stack, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "captures.jsonl")
    with contextlib.closing(journal):
        one = made(broker, tmp_path, journal)[0]
        one.camera = replace(one.camera, firmware=Firmware(answer_s=0.1, listens_s=0.1))
        await one.live(wakes=2)
        assert one.waiting == 2
        async with counterpart(broker) as other:
            one.camera = replace(one.camera, firmware=Firmware(answer_s=5))
            await one.deliver()
    account = camera_account.read(tmp_path / "captures.jsonl")
    assert {each.sha256 for each in account.captures.values()} == set(other.stored)
    assert 2 in other.hellos
