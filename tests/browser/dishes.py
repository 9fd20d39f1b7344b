"""Cameras above dishes: what they saw in nine days, measured as the service measures it."""

from datetime import datetime, timedelta
from functools import partial
from io import BytesIO
from uuid import UUID

from PIL import Image

from farmiq.cloud.camera.observations import service
from farmiq.lab.simulate.dishes import Dish
from farmiq.plumbing import db
from tests.browser import scales
from tests.browser.cameras import DAY, Shots, on

DISH = Dish("3")
COUNT = 9


def grown(shots: Shots) -> tuple[UUID, UUID]:
    """A site with a camera whose dish was seen once a day, that one, and one that sees none."""
    farm = shots.farm
    farm.at(on(DAY, 0) - timedelta(days=COUNT + 1))
    site = farm.site(site_name="Dish House")
    camera = farm.device(site, "0 8 * * *", device_name="Device-001")
    other = farm.device(site, "0 8 * * *", device_name="Device-002")
    farm.owner.execute(
        "update devices set x_position = 2, y_position = 3 where device_id = %s", (camera,)
    )
    plain = BytesIO()
    Image.effect_noise((320, 240), 60).convert("RGB").save(plain, "JPEG")
    for number in range(COUNT):
        at = on(DAY, 8) - timedelta(days=COUNT - number)
        send(shots, camera, at, DISH.render(number * 2.0, number=number))
    send(shots, other, on(DAY, 8), plain.getvalue())
    farm.at(on(DAY, 12))
    scales.run(assess(shots))
    return site, camera


def send(shots: Shots, camera: UUID, at: datetime, data: bytes) -> None:
    shots.farm.at(at)
    image_id = shots.announce(camera, at)
    key = f"camera/{shots.farm.company}/{camera}/{image_id}.jpg"
    bucket = scales.bucket(shots.s3_url)
    scales.run(partial(bucket.put, key, data, content_type="image/jpeg")())
    shots.farm.call("fn_image_completion_handler", image_id=image_id, image_url=key)


async def assess(shots: Shots) -> None:
    async with db.pool(shots.farm.database.url, name="test") as pool:
        await service.assess_images(pool, scales.bucket(shots.s3_url))
