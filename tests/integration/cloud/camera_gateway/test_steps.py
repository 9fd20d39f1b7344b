"""What is due, step by step: a gateway's workers on a broker that only writes down."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest

from farmiq.cloud.camera.gateway import intake, wire
from farmiq.cloud.camera.gateway.chunks import Pace
from farmiq.cloud.camera.gateway.steps import Steps
from farmiq.plumbing import db, mqtt
from tests.integration.cloud.camera_gateway.conftest import Site, now
from tests.integration.cloud.camera_gateway.firmware import picture

NAME, PACE = "IMG_001.jpg", Pace(round_s=0.2)
STATES = "select state from camera_transfers order by transfer_id"


@dataclass
class Told:
    """A broker: each message with what `look` saw when it was sent."""

    look: Callable[[], Any]
    sent: list[tuple[dict[str, Any], Any]] = field(default_factory=list)

    def problem(self) -> str | None:
        return None

    async def publish(self, _topic: str, payload: bytes) -> None:
        self.sent.append((json.loads(payload), self.look()))


@dataclass
class Bench:
    site: Site
    pool: db.Pool
    behind: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.told = Told(lambda: self.site.rows(STATES))
        self.steps = Steps(
            self.pool, cast("mqtt.Client", self.told), self.site.bucket, PACE,
            in_hand=list, is_behind=lambda: self.behind.pop(0) if self.behind else False,
        )  # fmt: skip

    async def take(self, *sent: wire.Sent) -> None:
        assert (await intake.keep(self.pool, sent, PACE)).refused == ()

    async def until_nothing_is_due(self) -> None:
        while await self.steps._one():
            pass


@pytest.fixture
async def bench(site: Site) -> AsyncIterator[Bench]:
    async with db.pool(site.environment["FARMIQ_CLOUD_DB_URL"], name="test") as pool:
        yield Bench(site, pool)


def messages(mac: str, seed: int, size: int = 1500) -> list[wire.Sent]:
    """An image as its camera sends it."""
    image, at = picture(size, seed), (now() - timedelta(seconds=60 - seed)).isoformat()
    parts = [image[start : start + 1000] for start in range(0, size, 1000)]
    said = [{"image_name": NAME, "captured_at": at, "total_chunks": len(parts)}] + [
        {"image_name": NAME, "chunk_id": number, "payload": list(part)}
        for number, part in enumerate(parts)
    ]
    return [wire.Sent(f"device/{mac}/data", json.dumps(each).encode()) for each in said]


@pytest.mark.req("DB2-14")
async def test_of_two_images_taken_together_none_is_acknowledged_before_both_are_stored(
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
async def test_a_gateway_frozen_after_it_decided_does_not_answer_before_it_looked_again(
    bench: Bench,
) -> None:
    mac = (await bench.site.camera()).mac
    await bench.take(*messages(mac, 1))
    # It looks for what is due, decides, and is frozen while it commits.
    bench.behind = [False, False, True]
    assert await bench.steps._one()
    assert (bench.site.rows(STATES), bench.told.sent) == ([("complete",)], [])
    await asyncio.sleep(2 * PACE.round_s)
    await bench.until_nothing_is_due()
    assert len(bench.told.sent) == 1


@pytest.mark.req("DB2-14")
async def test_while_it_is_behind_only_answers_wait(bench: Bench) -> None:
    mac = (await bench.site.camera()).mac
    await bench.take(*messages(mac, 1))
    bench.behind = [True] * 9
    assert await bench.steps._one()
    bench.site.farm.owner.execute("update camera_transfers set due_at = fn_now()")
    bench.behind = [True]
    assert not await bench.steps._one()
    await bench.take(*messages((await bench.site.camera()).mac, 1))
    bench.behind = [True] * 9
    assert await bench.steps._one()
    assert (bench.site.rows(STATES), bench.told.sent) == ([("complete",)] * 2, [])
    bench.behind = []
    await bench.until_nothing_is_due()
    assert len(bench.told.sent) == 1


@pytest.mark.req("DB2-14")
@pytest.mark.parametrize(("here", "state"), [(3, "complete"), (2, "receiving")])
async def test_a_camera_hears_nothing_of_images_of_whoever_had_its_address(
    bench: Bench, here: int, state: str
) -> None:
    """It was given away in mid-image: by name it would take them for its own."""
    camera, farm = await bench.site.camera(), bench.site.farm
    await bench.take(*messages(camera.mac, 1)[:here])
    farm.owner.execute("update devices set is_active = false")
    farm.device(bench.site.site_id, mac=camera.mac)
    await asyncio.sleep(2 * PACE.round_s)
    await bench.until_nothing_is_due()
    assert bench.site.rows(STATES) == [(state,)]
    assert bench.told.sent == []
