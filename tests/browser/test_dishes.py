"""The page of a site's dishes: curves, forecasts, the map, time-lapses, and a new dish."""

from datetime import datetime, timedelta
from functools import partial
from io import BytesIO
from uuid import UUID

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from farmiq.cloud.camera.observations import service, time_lapse
from farmiq.lab.simulate.dishes import Dish
from farmiq.plumbing import db
from tests.browser import barns, person, scales
from tests.browser.cameras import DAY, TECHNICIAN, Shots, on
from tests.browser.look import Keep
from tests.browser.served import Served

DISH = Dish("3")
COUNT = 9
BO = "bo@example.com"


def grown(shots: Shots, site: UUID) -> UUID:
    """A camera whose dish was seen once a day, and a camera that sees none."""
    farm = shots.farm
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
    return camera


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


def test_dishes_of_a_site_grow_on_its_page_and_each_figure_is_recounted(
    console: Served, page: Page, shots: Shots, keep: Keep, complaints: list[str]
) -> None:
    shots.farm.at(on(DAY, 0) - timedelta(days=COUNT + 1))
    site = shots.farm.site(site_name="River House")
    camera = grown(shots, site)
    person.sign_in(page, console, email=TECHNICIAN)
    person.visit(page, console, f"/sites/{site}")
    page.get_by_role("link", name="Growth of its dishes").click()
    expect(page.locator(".sentence")).to_have_text("1 dish is measured")
    dish = page.locator(f"#d-{camera}")
    expect(dish.locator(".forecast")).to_contain_text("30 % more")
    expect(dish.locator(".twin tbody tr")).to_have_count(COUNT)
    expect(page.locator(".dish-map circle")).to_have_count(1)
    expect(page.locator("#cameras, .dish").nth(1)).to_contain_text("no dish found")
    keep("dishes")

    shown = page.request.get(f"{console.url}/api/v1/camera/sites/{site}/dishes").json()
    first, second = shown["dishes"]
    changes = [point["change"] for point in first["points"]]
    truth = DISH.covered((COUNT - 1) * 2.0) - DISH.covered(0)
    assert changes[0] == 0
    assert changes[-1] == pytest.approx(truth, abs=0.05)
    assert first["change"] == pytest.approx(changes[-1], abs=0.03)
    assert (second["series_id"], second["points"]) == (None, [])
    assert "no dish found" in second["problem"]

    film = page.request.get(f"{console.url}/sites/{site}/dishes/{camera}/time-lapse.webp")
    with Image.open(BytesIO(film.body())) as opened:
        assert (opened.format, getattr(opened, "n_frames", 0)) == ("WEBP", COUNT)
        assert max(opened.size) <= time_lapse.MAX_SIDE_PX
    again = page.request.get(film.url, headers={"If-None-Match": film.headers["etag"]})
    assert again.status == 304

    dish.get_by_role("button", name="There is a new dish").click()
    expect(dish).to_contain_text("the next image begins a new one")
    send(shots, camera, on(DAY, 16), DISH.render(0.0, number=40))
    scales.run(assess(shots))
    page.reload()
    expect(dish.locator(".twin tbody tr")).to_have_count(1)
    expect(dish.locator(".forecast")).to_contain_text("No forecast")
    assert not complaints

    barns.add_company(shots.farm.database.admin_url, "tenant-b", name="Hill Farm", email=BO)
    page.context.clear_cookies()
    person.sign_in(page, console, email=BO)
    for path in ("dishes", f"dishes/{camera}/time-lapse.webp"):
        assert page.request.get(f"{console.url}/sites/{site}/{path}").status == 404, path
    api = f"{console.url}/api/v1/camera/sites/{site}/dishes"
    assert page.request.get(api).status == 404
