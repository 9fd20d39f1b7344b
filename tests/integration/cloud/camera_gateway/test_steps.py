"""What is due, step by step: a gateway's workers on a broker that only writes down."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest

from farmiq.cloud.camera.gateway import batches, jobs
from farmiq.cloud.camera.gateway.answers import Answers, LogPosition
from farmiq.cloud.camera.gateway.chunks import Timing
from farmiq.cloud.camera.protocol import wire
from farmiq.plumbing import db
from farmiq.plumbing.messaging import stream
from farmiq.plumbing.storage import objects
from tests.integration.cloud.camera_gateway.conftest import Site, now
from tests.integration.cloud.camera_gateway.firmware import picture

NAME, TIMING = "IMG_001.jpg", Timing(round_s=0.2)
STATES = "select state from camera_transfers order by transfer_id"


@dataclass
class Told:
    """A broker: each message with what `look` saw when it was sent."""

    look: Callable[[], Any]
    sent: list[tuple[dict[str, Any], Any]] = field(default_factory=list)

    def problem(self) -> str | None:
        return None

    def publish(self, _subject: str, payload: bytes) -> None:
        self.sent.append((json.loads(payload), self.look()))


@dataclass
class Position:
    """All of the log is stored; what `holds` is asked for is told by turns."""

    holding: list[bool] = field(default_factory=list)
    caught_up: int = 0

    async def catch_up(self) -> int:
        self.caught_up += 1
        return 0

    def holds(self, _mark: int) -> bool:
        return self.holding.pop(0) if self.holding else True


def answers_of(
    pool: db.Pool,
    told: Told,
    bucket: objects.Bucket,
    timing: Timing,
    *,
    position: Position | None = None,
) -> Answers:
    return Answers(
        pool, cast("stream.Reader", told), bucket, timing,
        position=cast("LogPosition", position or Position()), writing=asyncio.Lock(),
    )  # fmt: skip


@dataclass
class Bench:
    site: Site
    pool: db.Pool
    position: Position = field(default_factory=Position)

    def __post_init__(self) -> None:
        self.told = Told(lambda: self.site.rows(STATES))
        self.answers = answers_of(
            self.pool, self.told, self.site.bucket, TIMING, position=self.position
        )

    async def take(self, *sent: wire.RawMessage) -> None:
        assert (await batches.commit(self.pool, sent, TIMING)).rejected == ()

    async def until_nothing_is_due(self) -> None:
        while await self.answers.assemble_round() or await self.answers.answer_round():
            pass


@pytest.fixture
async def bench(site: Site) -> AsyncIterator[Bench]:
    async with db.pool(site.environment["FARMIQ_CLOUD_DB_URL"], name="test") as pool:
        yield Bench(site, pool)


def messages(mac: str, seed: int, size: int = 1500) -> list[wire.RawMessage]:
    """An image as its camera sends it."""
    image, at = picture(size, seed), (now() - timedelta(seconds=60 - seed)).isoformat()
    parts = [image[start : start + 1000] for start in range(0, size, 1000)]
    said = [{"image_name": NAME, "captured_at": at, "total_chunks": len(parts)}] + [
        {"image_name": NAME, "chunk_id": number, "payload": list(part)}
        for number, part in enumerate(parts)
    ]
    return [wire.RawMessage(f"device/{mac}/data", json.dumps(each).encode()) for each in said]


@pytest.mark.req("DB2-14")
async def test_two_images_of_one_transaction_are_acknowledged_after_both_are_stored(
    bench: Bench,
) -> None:
    """They have one name: the camera takes the answer for the image that it sent last."""
    mac = (await bench.site.camera()).mac
    await bench.take(*messages(mac, 1), *messages(mac, 2))
    assert bench.site.rows(STATES) == [("receiving",)] * 2
    await bench.until_nothing_is_due()
    assert bench.told.sent
    assert [seen for _, seen in bench.told.sent] == [[("complete",)] * 2] * len(bench.told.sent)


@pytest.mark.req("DB2-14")
async def test_gateway_frozen_after_a_decision_decides_again_before_it_answers(
    bench: Bench,
) -> None:
    mac = (await bench.site.camera()).mac
    await bench.take(*messages(mac, 1))
    assert await bench.answers.assemble_round()
    # It looks for what is due, decides, and is frozen while it commits.
    bench.position.holding = [False]
    assert await bench.answers.answer_round()
    assert (bench.site.rows(STATES), bench.told.sent) == ([("complete",)], [])
    await asyncio.sleep(2 * TIMING.round_s)
    await bench.until_nothing_is_due()
    assert len(bench.told.sent) == 1


@pytest.mark.req("DB2-14")
async def test_answers_wait_for_the_end_of_the_log_and_images_do_not(
    bench: Bench,
) -> None:
    mac = (await bench.site.camera()).mac
    await bench.take(*messages(mac, 1))
    stored = asyncio.Event()

    async def catch_up() -> int:
        await stored.wait()
        return 0

    bench.position.catch_up = catch_up  # type: ignore[method-assign]
    answering = asyncio.create_task(_until_answered(bench))
    assert await bench.answers.assemble_round()
    await bench.take(*messages((await bench.site.camera()).mac, 1))
    assert await bench.answers.assemble_round()
    assert (bench.site.rows(STATES), bench.told.sent) == ([("complete",)] * 2, [])
    stored.set()
    await answering
    assert len(bench.told.sent) == 2


async def _until_answered(bench: Bench) -> None:
    while len(bench.told.sent) < 2:
        await bench.answers.answer_round()


@pytest.mark.req("DB2-13")
async def test_chunk_in_the_unread_part_of_the_log_is_not_requested(bench: Bench) -> None:
    mac = (await bench.site.camera()).mac
    first, *rest = messages(mac, 1)
    await bench.take(first)
    bench.site.farm.owner.execute(
        "update camera_transfers set due_at = fn_now(), heard_at = heard_at - interval '9 seconds'"
    )

    async def catch_up() -> int:
        await bench.take(*rest)
        return 0

    bench.position.catch_up = catch_up  # type: ignore[method-assign]
    assert await bench.answers.answer_round()
    assert bench.told.sent == []
    assert bench.site.rows("select rounds from camera_transfers") == [(0,)]


@pytest.mark.req("DB2-14")
@pytest.mark.parametrize(("here", "state"), [(3, "complete"), (2, "receiving")])
async def test_camera_gets_no_answers_for_images_of_the_address_before(
    bench: Bench, here: int, state: str
) -> None:
    """It was given away in mid-image: by name it would take them for its own."""
    camera, farm = await bench.site.camera(), bench.site.farm
    await bench.take(*messages(camera.mac, 1)[:here])
    farm.owner.execute("update devices set is_active = false")
    farm.device(bench.site.site_id, mac=camera.mac)
    await asyncio.sleep(2 * TIMING.round_s)
    await bench.until_nothing_is_due()
    assert bench.site.rows(STATES) == [(state,)]
    assert bench.told.sent == []


@pytest.mark.req("DB2-14")
async def test_image_that_changed_during_its_upload_is_uploaded_again(bench: Bench) -> None:
    """It was announced anew and is whole again: what is in the bucket may be other bytes."""
    image = messages((await bench.site.camera()).mac, 1)
    await bench.take(*image)
    put, count = bench.site.bucket.put_verified, 0

    async def put_slowly(key: str, body: bytes, *, content_type: str) -> bool:
        nonlocal count
        count += 1
        stored = await put(key, body, content_type=content_type)
        if count == 1:
            await bench.take(image[0])
        return stored

    bench.site.bucket.put_verified = put_slowly  # type: ignore[method-assign]
    assert await bench.answers.assemble_round()
    assert bench.site.rows(STATES) == [("receiving",)]
    await bench.until_nothing_is_due()
    assert (bench.site.rows(STATES), count) == ([("complete",)], 2)
    assert len(bench.told.sent) == 1


@pytest.mark.req("DB2-13")
async def test_command_is_sent_after_the_log_is_read_to_its_end(bench: Bench) -> None:
    cameras = [await bench.site.camera() for _ in range(3)]
    hello = json.dumps({"alive": 1, "pending_count": 1}).encode()
    for camera in cameras:
        await bench.take(wire.RawMessage(f"device/{camera.mac}/status", hello))

    async def catch_up() -> int:
        bench.position.caught_up += 1
        if bench.position.caught_up == 2:
            # The second camera has announced its image by itself.
            await bench.take(*[m for c in cameras[1:] for m in messages(c.mac, 1)[:1]])
        return 0

    bench.position.catch_up = catch_up  # type: ignore[method-assign]
    reader, position = cast("stream.Reader", bench.told), cast("LogPosition", bench.position)
    sent = await jobs.send_commands(bench.pool, reader, position, asyncio.Lock(), awake_s=60)
    assert sent == {"sent": 1}
    assert len(bench.told.sent) == 1
