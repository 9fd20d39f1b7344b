"""Which images a camera is asked for when it wakes, and in which order."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from farmiq.cloud.camera import command_queue
from farmiq.cloud.camera.gateway import batches, commands
from farmiq.cloud.camera.gateway.chunks import Timing
from farmiq.cloud.camera.protocol import wire
from farmiq.cloud.camera.protocol.wire import SendImage
from farmiq.plumbing import db
from tests.integration.cloud.camera_gateway.conftest import Site, now
from tests.integration.cloud.camera_gateway.firmware import Camera, picture

pytestmark = pytest.mark.req("DB2-11", "DB2-15")


@dataclass
class Asked:
    """A camera that answers nothing unless told to, and what the gateway asks it for."""

    site: Site
    pool: db.Pool
    camera: Camera
    began_at: datetime = field(default_factory=now)

    async def say(self, channel: str, **body: Any) -> None:
        sent = wire.RawMessage(f"device/{self.camera.mac}/{channel}", json.dumps(body).encode())
        assert (await batches.commit(self.pool, [sent], Timing())).rejected == ()

    async def failed(self, *names: str) -> None:
        """Images that did not come whole, each a minute younger than the one before."""
        for place, name in enumerate(names):
            at = (self.began_at - timedelta(minutes=60 - place)).isoformat()
            await self.say("data", image_name=name, captured_at=at, total_chunks=2)
        self.site.rows(
            "select fn_image_failure_handler(image_id, 'TIMEOUT', 'late') from device_images "
            "where status = 'receiving'"
        )
        self.site.farm.owner.execute("update camera_transfers set state = 'failed'")

    async def wake(self, pending: int) -> str | None:
        """The name it is asked for after a HELLO; `nothing` if it is not."""
        await self.say("status", alive=1, pending_count=pending)
        return await self.next()

    async def next(self) -> str | None:
        async with db.transaction(self.pool) as tx:
            found = await commands.next_to_send(tx, awake_s=60)
            if found is None:
                return "nothing"
            await commands.mark_sent(tx, found.command_id, unanswerable=False)
        assert isinstance(found.answer, SendImage)
        return found.answer.image_name


@pytest.fixture
async def asked(site: Site) -> AsyncIterator[Asked]:
    async with db.pool(site.environment["FARMIQ_CLOUD_DB_URL"], name="test") as pool:
        yield Asked(site, pool, await site.camera())


async def test_request_of_a_person_stays_when_the_camera_holds_nothing(
    asked: Asked,
) -> None:
    async with db.transaction(asked.pool) as tx:
        await command_queue.queue(
            tx, asked.camera.device_id, name="send_image", created_by="t", image_name="a.jpg"
        )
    assert await asked.wake(0) == "a.jpg"


async def test_request_for_a_deleted_image_does_not_delay_others(asked: Asked) -> None:
    await asked.failed("a.jpg", "b.jpg", "c.jpg")
    assert [await asked.wake(3) for _ in range(4)] == ["a.jpg", "b.jpg", "c.jpg", None]
    # What was asked for again is asked for in turn, whatever the camera says that it holds.
    asked.site.farm.owner.execute("update device_images set resend_requested_at = fn_now()")
    assert [await asked.wake(0) for _ in range(4)] == ["a.jpg", "b.jpg", "c.jpg", "a.jpg"]


async def test_unknown_images_are_requested_beside_images_requested_in_vain(
    asked: Asked,
) -> None:
    await asked.failed("a.jpg")
    assert [await asked.wake(1) for _ in range(3)] == ["a.jpg", None, "a.jpg"]


async def test_camera_that_ignores_requests_without_a_name_gets_requests_by_name(
    asked: Asked,
) -> None:
    """Also if it wakes once a day: what was not asked for in a wake is not meant the next day."""
    await asked.failed("a.jpg", "b.jpg")
    heard = []
    for _ in range(6):
        heard.append(await asked.wake(2))
        asked.site.farm.owner.execute(
            "update camera_commands set created_at = created_at - interval '25 hours'"
        )
        async with db.transaction(asked.pool) as tx:
            await commands.expire(tx)
    assert heard == ["a.jpg", "b.jpg", None, "a.jpg", "b.jpg", None]


async def test_request_for_an_unknown_name_is_not_answered_by_another_image(asked: Asked) -> None:
    async with db.transaction(asked.pool) as tx:
        await command_queue.queue(
            tx, asked.camera.device_id, name="send_image", created_by="t", image_name="a.jpg"
        )
    assert await asked.wake(0) == "a.jpg"
    await asked.failed("b.jpg")
    sent = "select image_id is not null from camera_commands where state = 'sent'"
    assert asked.site.rows(sent) == [(False,)]
    await asked.failed("a.jpg")
    assert asked.site.rows(sent) == [(True,)]


async def test_open_image_of_an_earlier_wake_does_not_delay_requests(
    asked: Asked,
) -> None:
    await asked.say("status", alive=1, pending_count=0)
    await asked.say("data", image_name="a.jpg", captured_at=now().isoformat(), total_chunks=2)
    assert await asked.wake(2) is None
    await asked.say("data", image_name="a.jpg", chunk_id=0, payload=[1])
    asked.site.farm.owner.execute("delete from camera_commands where state = 'sent'")
    assert await asked.next() == "nothing"


async def test_request_that_was_announced_is_not_in_vain(asked: Asked) -> None:
    await asked.failed("a.jpg")
    assert await asked.wake(1) == "a.jpg"
    await asked.failed("a.jpg")
    assert [await asked.wake(1) for _ in range(2)] == ["a.jpg", None]


async def test_image_sent_after_a_request_without_a_name_is_not_requested_by_name(
    asked: Asked,
) -> None:
    await asked.failed("a.jpg")
    assert [await asked.wake(1) for _ in range(2)] == ["a.jpg", None]
    await asked.failed("a.jpg")
    open_ones = "select state, image_name from camera_commands where state in ('queued', 'sent')"
    assert asked.site.rows(f"{open_ones} and image_id is not null") == [("sent", None)]


async def test_pending_count_that_changes_leaves_no_commands(asked: Asked) -> None:
    for _ in range(3):
        await asked.say("status", alive=1, pending_count=50)
        await asked.say("status", alive=1, pending_count=0)
    assert asked.site.rows("select count(*) from camera_commands") == [(0,)]


@pytest.mark.parametrize(
    ("clockless", "acknowledged"), [(False, True), (True, True), (False, False)]
)
async def test_camera_that_repeats_a_stored_image_gets_the_next_request_in_the_same_wake(
    site: Site, *, clockless: bool, acknowledged: bool
) -> None:
    """It did not hear that the first was stored; and sends it in other chunks."""
    await site.gateway()
    camera = await site.camera()
    taken = {name: picture(1500, seed) for seed, name in enumerate(("a.jpg", "b.jpg"))}
    at = dict.fromkeys(taken, None if clockless else now() - timedelta(minutes=9))
    await camera.wake(taken["a.jpg"], "a.jpg", at["a.jpg"])
    camera.chunk_size = 500
    if not acknowledged:
        # As after a HELLO that came before the answer.
        site.farm.owner.execute("update camera_transfers set acknowledged_count = 0")
    await camera.hello(pending=2)
    for name, image in taken.items():
        await camera.until_told("send_image")
        await camera.announce(image, name, at[name])
        if acknowledged or name == "b.jpg":
            await camera.send(image, None)
        await camera.until_safe(image, name)
    assert await site.stored(camera, "b.jpg") == taken["b.jpg"]


async def test_image_stored_before_its_command_is_marked_sent_ends_that_command(
    site: Site,
) -> None:
    site.farm.owner.execute(
        """
        create function note_late() returns trigger language plpgsql as $$
        begin perform pg_sleep(0.7); return new; end $$;
        create trigger note_late before update on camera_commands
          for each row when (new.state = 'sent') execute function note_late();
        """
    )
    await site.gateway()
    camera = await site.camera()
    await camera.hello(pending=2)
    for seed, name in enumerate(("a.jpg", "b.jpg")):
        await camera.until_told("send_image")
        image = picture(1500, seed)
        await camera.announce(image, name, now() - timedelta(minutes=9 - seed))
        await camera.send(image, name)
        await camera.until_safe(image, name)
    assert site.rows("select state, count(*) from camera_commands group by state") == [("done", 2)]
