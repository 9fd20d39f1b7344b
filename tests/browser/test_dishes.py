"""The page of a site's dishes: curves, forecasts, the map, time-lapses, and a new dish."""

from io import BytesIO
from pathlib import Path

import cv2
import imageio_ffmpeg
import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from farmiq.cloud.camera.observations import time_lapse
from tests.browser import barns, dishes, person, scales
from tests.browser.cameras import DAY, TECHNICIAN, Shots, on
from tests.browser.dishes import COUNT, DISH
from tests.browser.look import Keep
from tests.browser.served import Served

BO = "bo@example.com"


def test_dishes_of_a_site_grow_on_its_page_and_each_figure_is_recounted(
    console: Served, page: Page, shots: Shots, keep: Keep, complaints: list[str]
) -> None:
    site, camera = dishes.grown(shots)
    person.sign_in(page, console, email=TECHNICIAN)
    person.visit(page, console, f"/sites/{site}")
    card = page.locator("#dishes")
    expect(card.locator(".dish-map circle")).to_have_count(1)
    expect(card.locator(f"img.time-lapse[src*='{camera}']")).to_have_count(1)
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
    assert (
        shots.farm.value("select email from dish_series join users on user_id = ended_by")
        == TECHNICIAN
    )
    dishes.send(shots, camera, on(DAY, 16), DISH.render(0.0, number=40))
    scales.run(dishes.assess(shots))
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


def test_time_lapse_is_an_mp4_too_where_the_server_has_ffmpeg(
    console: Served, page: Page, shots: Shots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, camera = dishes.grown(shots)
    person.sign_in(page, console, email=TECHNICIAN)
    address = f"/sites/{site}/dishes/{camera}/time-lapse.mp4"
    link = page.get_by_role("link", name="Download it as MP4")

    monkeypatch.setenv("PATH", str(tmp_path))
    page.goto(f"{console.url}/sites/{site}/dishes")
    expect(page.get_by_role("link", name="Download the time-lapse")).to_have_count(1)
    expect(link).to_have_count(0)
    missing = page.request.get(f"{console.url}{address}")
    assert (missing.status, "no ffmpeg" in missing.text()) == (404, True)

    ffmpeg = tmp_path / "ffmpeg"
    ffmpeg.symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    page.reload()
    assert (link.get_attribute("href") or "").startswith(address)
    film = page.request.get(f"{console.url}{address}")
    assert (film.status, film.headers["content-type"]) == (200, "video/mp4"), film.text()
    saved = tmp_path / "film.mp4"
    saved.write_bytes(film.body())
    opened = cv2.VideoCapture(str(saved))
    frames = []
    while (frame := opened.read())[0]:
        frames.append(frame[1])
    # The last image stays for a while.
    held = time_lapse.LAST_MS // time_lapse.FRAME_MS - 1
    assert (len(frames), opened.get(cv2.CAP_PROP_FPS)) == (COUNT + held, 5)
    with Image.open(BytesIO(DISH.render(0.0))) as first:
        side = time_lapse.MAX_SIDE_PX / max(first.size)
        assert frames[0].shape[1::-1] == tuple(int(length * side) // 2 * 2 for length in first.size)
    assert abs(frames[0].mean() - frames[-1].mean()) > 1, "it grows"
    again = page.request.get(film.url, headers={"If-None-Match": film.headers["etag"]})
    assert again.status == 304

    barns.add_company(shots.farm.database.admin_url, "tenant-b", name="Hill Farm", email=BO)
    page.context.clear_cookies()
    assert page.request.get(film.url).status == 401
    person.sign_in(page, console, email=BO)
    assert page.request.get(film.url).status == 404, "of another company"
    page.context.clear_cookies()
    person.sign_in(page, console, email=TECHNICIAN)

    ffmpeg.unlink()
    ffmpeg.write_text("#!/bin/sh\necho \"Unknown encoder 'libx264'\" >&2\nexit 1\n")
    ffmpeg.chmod(0o700)
    broken = page.request.get(f"{console.url}{address}")
    assert (broken.status, "Unknown encoder" in broken.text()) == (404, True)
