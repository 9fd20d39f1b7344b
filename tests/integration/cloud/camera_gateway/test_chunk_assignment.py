"""Chunks without a name are of the image that the camera is at, or of none that is known."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from farmiq.cloud.camera.gateway import batches, handlers
from farmiq.cloud.camera.gateway.chunks import Timing
from farmiq.cloud.camera.gateway.quarantine import CameraQuarantine, redrive
from farmiq.cloud.camera.protocol import wire
from farmiq.plumbing import db
from tests.integration.cloud.camera_gateway.conftest import Site, now
from tests.integration.cloud.camera_gateway.firmware import picture
from tests.integration.cloud.camera_gateway.test_steps import Told, answers_of

pytestmark = pytest.mark.req("DB2-13", "DB2-14")

CHUNK_BYTES = 1000
CHUNKS = 6


@dataclass
class Nameless:
    """A camera whose chunks have no names; each image has as many chunks of the same sizes."""

    site: Site
    pool: db.Pool
    mac: str
    began_at: datetime = field(default_factory=now)
    refused: list[str] = field(default_factory=list)
    together: list[wire.RawMessage] | None = None

    async def say(self, channel: str, **body: Any) -> None:
        sent = wire.RawMessage(f"device/{self.mac}/{channel}", json.dumps(body).encode())
        if self.together is None:
            await self.taken(sent)
        else:
            self.together.append(sent)

    async def flush(self) -> None:
        """What was said since, in one transaction."""
        assert self.together is not None
        said, self.together = self.together, []
        await self.taken(*said)

    async def taken(self, *sent: wire.RawMessage) -> None:
        outcome = await batches.commit(self.pool, sent, Timing())
        self.refused += [one.kind for one in outcome.rejected]

    async def hello(self) -> None:
        await self.say("status", alive=1, pending_count=1)

    async def announce(self, number: int, **changed: Any) -> None:
        at = (self.began_at - timedelta(minutes=60 - number)).isoformat()
        said = {"image_name": f"{number}.jpg", "captured_at": at, "total_chunks": CHUNKS}
        size = {"image_size": CHUNKS * CHUNK_BYTES}
        await self.say("data", **{**said, **size, **changed})

    async def send(self, number: int, *chunks: int) -> None:
        whole = picture(CHUNKS * CHUNK_BYTES, number)
        for each in chunks or range(CHUNKS):
            part = whole[each * CHUNK_BYTES :][:CHUNK_BYTES]
            await self.say("data", chunk_id=each, payload=list(part))

    async def asked(self) -> list[tuple[int, list[int]]]:
        """(image, chunks) of each that it is asked for when it was quiet for ten seconds."""
        self.site.farm.owner.execute(
            "update camera_transfers set due_at = fn_now(), "
            "heard_at = heard_at - interval '10 seconds', "
            "asked_at = asked_at - interval '10 seconds' where state = 'receiving'"
        )
        told = Told(list)
        answers = answers_of(self.pool, told, self.site.bucket, Timing())
        while await answers.answer_round():
            pass
        missing = [body for body, _ in told.sent if "missing_chunks" in body]
        return [(int(b["image_name"].removesuffix(".jpg")), b["missing_chunks"]) for b in missing]

    @contextmanager
    def unknown(self) -> Iterator[None]:
        """What it says meanwhile is refused, since nobody has registered it."""
        at_home, self.mac = self.mac, "0A0B0C0D0E0F"
        yield
        self.mac = at_home
        self.site.farm.owner.execute(
            "update camera_quarantine set topic = replace(topic, '0A0B0C0D0E0F', %s)", (at_home,)
        )

    async def redriven(self) -> tuple[int, int]:
        """(messages in quarantine, those of them that were taken)."""
        done = await redrive(self.pool, CameraQuarantine(Timing(), "t"), {}, limit=10)
        return done.chosen, done.accepted

    async def begins_two(self) -> None:
        """The second image before the first is whole."""
        await self.announce(1)
        await self.send(1, 0, 1)
        await self.announce(2)
        await self.send(2, 0)

    def here(self) -> dict[str, int]:
        """How many chunks of each announced image are here, all of them its own."""
        rows = self.site.rows(
            "select t.image_name, c.chunk_id, c.data from camera_transfers t "
            "left join camera_chunks c using (transfer_id) where t.image_id is not null"
        )
        found = {name: 0 for name, _, _ in rows}
        for name, chunk_id, data in rows:
            if data is not None:
                whole = picture(CHUNKS * CHUNK_BYTES, int(name.removesuffix(".jpg")))
                assert bytes(data) == whole[chunk_id * CHUNK_BYTES :][:CHUNK_BYTES], name
                found[name] += 1
        return found


@pytest.fixture
async def camera(site: Site) -> AsyncIterator[Nameless]:
    async with db.pool(site.environment["FARMIQ_CLOUD_DB_URL"], name="test") as pool:
        yield Nameless(site, pool, (await site.camera()).mac)


async def test_chunk_of_repeated_stored_image_fills_no_gap_of_another(
    camera: Nameless,
) -> None:
    """Its ACK_OK was lost, then the camera died in the middle of the next image."""
    await camera.announce(1)
    camera.site.farm.owner.execute(
        "update camera_transfers set state = 'complete', ended_at = fn_now()"
    )
    await camera.hello()
    await camera.announce(2)
    await camera.send(2, 0, 1)
    camera.site.farm.owner.execute("update camera_transfers set rounds = 1 where image_id = "
      "(select image_id from device_images where image_name = '2.jpg')")  # fmt: skip
    await camera.hello()
    await camera.announce(1)
    await camera.send(1)
    assert camera.here() == {"1.jpg": 0, "2.jpg": 2}


async def test_chunk_without_its_announcement_is_not_stored_in_an_earlier_image(
    camera: Nameless,
) -> None:
    await camera.hello()
    await camera.announce(1)
    await camera.send(1, 0)
    await camera.hello()
    await camera.send(2)
    assert camera.here() == {"1.jpg": 1}


async def test_chunk_without_its_announcement_is_not_stored_in_a_later_image(
    camera: Nameless,
) -> None:
    await camera.hello()
    await camera.send(1, 2, 3)
    await camera.hello()
    await camera.announce(2)
    await camera.send(2, 0)
    assert camera.here() == {"2.jpg": 1}


async def test_chunk_without_its_announcement_and_a_reused_name_is_not_stored_in_a_later_image(
    camera: Nameless,
) -> None:
    await camera.hello()
    part = picture(CHUNKS * CHUNK_BYTES, 1)[2 * CHUNK_BYTES :][:CHUNK_BYTES]
    await camera.say("data", image_name="2.jpg", chunk_id=2, payload=list(part))
    await camera.hello()
    await camera.announce(2)
    await camera.send(2, 0)
    assert camera.here() == {"2.jpg": 1}


async def test_chunk_before_a_hello_is_not_stored_in_the_image_announced_after_it(
    camera: Nameless,
) -> None:
    """While no gateway ran they waited in the broker, which has a queue for each channel."""
    await camera.announce(1)
    await camera.send(1, 0, 1)
    await camera.hello()
    await camera.send(1, 2, 3)
    await camera.announce(2)
    await camera.send(2, 0, 1)
    assert camera.here() == {"1.jpg": 2, "2.jpg": 2}


async def test_chunk_before_a_hello_and_a_reused_name_is_not_stored_in_the_image_announced_after_it(
    camera: Nameless,
) -> None:
    await camera.announce(1)
    await camera.send(1, 0, 1)
    await camera.hello()
    await camera.send(1, 2, 3)
    await camera.announce(2, image_name="1.jpg")
    assert camera.site.rows(
        "select state, received_count from camera_transfers order by announced_at"
    ) == [("failed", 2), ("receiving", 0)]


async def test_chunk_before_its_announcement_is_stored_in_that_image(camera: Nameless) -> None:
    await camera.hello()
    await camera.send(1, 2, 3)
    await camera.announce(1)
    await camera.send(1, 0)
    assert camera.here() == {"1.jpg": 3}


@pytest.mark.parametrize("in_one_transaction", [True, False])
async def test_chunk_that_does_not_fit_a_later_announcement_is_named_in_quarantine(
    camera: Nameless, *, in_one_transaction: bool
) -> None:
    """By the announcement's entry, which is one however many they are."""
    camera.together = []
    await camera.hello()
    await camera.send(1, 2)
    for number in (9, 11):
        await camera.say("data", chunk_id=number, payload=[1] * CHUNK_BYTES)
    if not in_one_transaction:
        await camera.flush()
    await camera.announce(1)
    await camera.flush()
    assert camera.here() == {"1.jpg": 1}
    before = "received before this announcement: chunk_id is"
    assert camera.site.rows("select kind, reasons from camera_quarantine") == [
        ("limits", [f"{before} 9: this image has 0 to 5", f"{before} 11: this image has 0 to 5"])
    ]


@pytest.mark.parametrize("why", [{"total_chunks": "six"}, {"image_name": "../../etc/passwd"}])
async def test_chunk_after_a_rejected_announcement_is_stored_in_no_image(
    camera: Nameless, why: dict[str, Any]
) -> None:
    await camera.hello()
    await camera.announce(1)
    await camera.send(1, 0)
    await camera.announce(2, **why)
    await camera.send(2)
    await camera.announce(3)
    await camera.send(3, 0, 1)
    assert camera.refused == ["format"]
    assert camera.here() == {"1.jpg": 1, "3.jpg": 2}


@pytest.mark.parametrize("word", [{"temperature": 21.5}, {"error": "sensor"}])
async def test_chunk_after_a_rejected_message_without_image_is_stored_in_the_current_image(
    camera: Nameless, word: dict[str, Any]
) -> None:
    await camera.hello()
    await camera.announce(1)
    await camera.send(1, 0)
    await camera.say("data", **word)
    await camera.send(1, 1, 2)
    assert camera.refused == ["format"]
    assert camera.here() == {"1.jpg": 3}


async def test_chunk_after_a_poison_announcement_is_stored_in_no_image(
    camera: Nameless, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    await camera.announce(1)
    await camera.send(1, 0)
    said = json.dumps({"image_name": "2.jpg", "total_chunks": CHUNKS}).encode()
    with monkeypatch.context() as patched:
        patched.setattr(handlers.CameraHandler, "on_announcement", broken)
        sent = wire.RawMessage(f"device/{camera.mac}/data", said)
        (outcome,) = await batches.commit_bisecting(camera.pool, [sent], Timing())
    assert [one.kind for one in outcome.rejected] == ["database"]
    await camera.send(2)
    assert camera.here() == {"1.jpg": 1}


async def test_chunk_of_a_failed_image_is_not_stored_in_a_later_one(
    camera: Nameless,
) -> None:
    await camera.announce(1)
    camera.site.farm.owner.execute("update camera_transfers set state = 'failed'")
    await camera.send(1, 2, 3)
    await camera.announce(2)
    await camera.send(2, 0)
    assert camera.here() == {"1.jpg": 0, "2.jpg": 1}


async def test_redriven_chunk_is_stored_in_the_redriven_image(camera: Nameless) -> None:
    """Whatever its camera is at now."""
    await camera.hello()
    await camera.announce(2)
    await camera.send(2, 0, 1)
    with camera.unknown():
        await camera.hello()
        await camera.announce(1)
        await camera.send(1, 3, 4)
    assert await camera.redriven() == (4, 4)
    await camera.send(2, 2)
    assert camera.here() == {"1.jpg": 2, "2.jpg": 3}


async def test_redriven_chunk_is_not_stored_in_an_image_redriven_before(
    camera: Nameless,
) -> None:
    """Their announcement was lost."""
    with camera.unknown():
        await camera.announce(1)
    assert await camera.redriven() == (1, 1)
    with camera.unknown():
        await camera.send(2, 3, 4)
    assert await camera.redriven() == (2, 0)
    assert camera.here() == {"1.jpg": 0}


async def test_redriven_chunk_that_did_not_fit_its_image_is_stored_in_no_other(
    camera: Nameless,
) -> None:
    with camera.unknown():
        await camera.announce(1)
    await camera.announce(2, chunk_size=CHUNK_BYTES)
    await camera.say("data", chunk_id=3, payload=[1, 2, 3])
    await camera.send(2, 0)
    await camera.say("data", chunk_id=0, payload=[1, 2, 3])
    assert camera.refused == ["unknown", "limits", "conflict"]
    assert await camera.redriven() == (3, 1)
    assert camera.here() == {"1.jpg": 0, "2.jpg": 0}


async def test_chunk_that_contradicts_the_current_image_is_not_mixed_with_it(
    camera: Nameless,
) -> None:
    """It greeted, was asked for what is missing of an image, and is at another, unannounced."""
    await camera.announce(1)
    await camera.send(1, 0, 1)
    await camera.hello()
    assert await camera.asked() == [(1, [2, 3, 4, 5])]
    await camera.send(2)
    assert camera.here() == {"1.jpg": 0}
    assert camera.site.rows("select error_code from device_images") == [("MIXED",)]
    await camera.announce(1)
    await camera.send(1)
    assert camera.here() == {"1.jpg": 6}


async def test_chunk_of_another_image_before_the_announcement_is_found_by_a_contradiction(
    camera: Nameless,
) -> None:
    """Also in one transaction."""
    camera.together = []
    await camera.hello()
    await camera.send(1, 2, 3)
    await camera.announce(2)
    await camera.send(2)
    await camera.flush()
    assert camera.here() == {"2.jpg": 0}
    await camera.announce(2)
    await camera.send(2)
    await camera.flush()
    assert camera.here() == {"2.jpg": 6}


async def test_chunk_after_an_announcement_is_stored_in_it_despite_an_earlier_contradiction(
    camera: Nameless,
) -> None:
    camera.together = []
    await camera.announce(1)
    await camera.send(1, 0, 1)
    await camera.send(2, 0, 1)
    await camera.announce(3)
    await camera.send(3, 0)
    await camera.flush()
    await camera.send(3, 1)
    await camera.flush()
    assert camera.here() == {"1.jpg": 0, "3.jpg": 2}


async def test_chunk_of_another_image_does_not_fail_one_with_all_chunks(camera: Nameless) -> None:
    await camera.announce(1)
    await camera.send(1)
    await camera.send(2)
    assert camera.refused == ["conflict"]
    assert camera.here() == {"1.jpg": 6}


async def test_chunk_after_a_request_is_stored_in_the_requested_image(
    camera: Nameless,
) -> None:
    """It answers from its card, also for an image that it gave up for the next one."""
    await camera.begins_two()
    for number, chunks in await camera.asked():
        await camera.send(number, *chunks)
    assert camera.here() == {"1.jpg": 2, "2.jpg": 6}


async def test_chunk_after_a_hello_during_an_image_is_not_stored_in_an_older_one(
    camera: Nameless,
) -> None:
    await camera.begins_two()
    await camera.hello()
    assert await camera.asked()
    await camera.send(2, 1, 2, 3)
    assert camera.here() == {"1.jpg": 2, "2.jpg": 4}


async def test_chunk_after_a_hello_during_an_image_is_stored_in_it_after_a_request(
    site: Site,
) -> None:
    """It lost its connection, came back, and announces nothing twice."""
    await site.gateway()
    camera = await site.camera()
    image = picture(CHUNKS * CHUNK_BYTES)
    await camera.hello()
    await camera.announce(image, "1.jpg", now())
    await camera.send(image, None, [0, 1])
    await camera.hello()
    await camera.send(image, None, [2, 3])
    while "missing_chunks" in (told := (await camera.until_told("image_name"))[1]):
        await camera.send(image, None, told["missing_chunks"])
    assert "ACK_OK" in told
    assert await site.stored(camera, "1.jpg") == image
