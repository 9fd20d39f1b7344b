"""How pages look that are no page of their own: refused, not found, cut off, fresh."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import barns, cameras, look, person
from tests.browser.cameras import Shots
from tests.browser.look import Keep
from tests.browser.served import Served

# On a wide screen and on a phone a word each that only one of them shows, and one that
# stands below others of other colours: pale in one theme or the other.
PALE = """<!doctype html><html lang="en"><head><title>Pale</title>
<meta name="viewport" content="width=device-width">
<style>
  body { background: #fff; color: #000; }
  .light { color: #ddd; }
  .phone.light { color: #eee; }
  @media (prefers-color-scheme: dark) {
    body { background: #000; color: #fff; }
    .light, .phone.light { color: #fff; }
    .dark { color: #333; }
  }
  @media (max-width: 600px) { .wide { display: none; } }
  @media (min-width: 600px) { .phone { display: none; } }
</style></head><body><main>
<h1>Words</h1><p class="wide light">Wide</p><p class="phone light">Phone</p>
<p class="phone dark">Phone</p><p>Both</p><p>Both</p><p>Both</p><p>Both</p>
<p class="light">Both</p></main></body></html>"""


@pytest.fixture(autouse=True)
def _own_requests_only(console: Served, requested: list[str]) -> Iterator[None]:
    yield
    person.expect_own_requests_only(requested, console)


def test_colours_are_looked_at_in_both_themes_wherever_they_are_shown(page: Page) -> None:
    page.set_content(PALE)
    known: list[int] = []
    assert _pale(page, known) == {"at 1180 light": 1, "at 360 dark": 1, "at 360 light": 1}
    # The next page of the same look is not looked at again, but what is new on it is.
    page.set_content(PALE.replace('<p class="light">Both', '<p class="light"><b>Both</b>'))
    assert _pale(page, known) == {"at 1180 light": 1}


def _pale(page: Page, known: list[int]) -> dict[str, int]:
    wrong = look.problems(page, "pale", known=known)
    return {each.partition(": ")[0]: each.count("Target: ") for each in wrong}


def test_telemetry_that_is_cut_off(console: Served, page: Page, cloud_db: Any, keep: Keep) -> None:
    barns.a_whole_farm(cloud_db.url)
    barns.revoke(cloud_db.url, barns.Sensor("silo-04", "silo_level", "kg", 0, 0, barn_id="barn-4"))
    barns.aggregate(cloud_db.url, barns.Sensor("air-01", "dust", "µg/m³", 240, 30))
    person.open_live(page, console)
    expect(page.locator(".sentence")).to_have_text("1 of 20 sensors is late")
    # The strangers of the first version scrolled 3,130 px for 20 sensors.
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollHeight") < 2400
    console.stop()
    person.expect_pill(page, "Reconnecting (data may be old)")
    keep("telemetry-reconnecting")


def test_sign_in(console: Served, page: Page, keep: Keep) -> None:
    page.goto(f"{console.url}/sign-in")
    keep("sign-in")
    person.sign_in(page, console, password="wrong password")
    expect(page.get_by_role("alert")).to_be_visible()
    keep("sign-in-refused")


def test_not_found(console: Served, page: Page, keep: Keep) -> None:
    answer = page.goto(f"{console.url}/nowhere")
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
    keep("not-found")


def test_schedule_that_is_wrong(
    console: Served, page: Page, shots: Shots, keep: Keep, complaints: list[str]
) -> None:
    site = shots.farm.site(site_name="River House")
    camera = shots.farm.device(site, "0 * * * *", device_name="Device-001")
    person.sign_in(page, console, email=cameras.TECHNICIAN)
    page.goto(f"{console.url}/sites/{site}/cameras/{camera}/schedule?cron=0 8 * *")
    expect(page.get_by_role("alert")).to_be_visible()
    keep("schedule-refused")
    # A page that says what is wrong with a schedule is told to the console as a failure: 422.
    assert all("422" in said for said in complaints), complaints


def test_fresh_site(console: Served, page: Page, shots: Shots, keep: Keep) -> None:
    """C-120: it has no red days that it never had, whatever its camera has on its card."""
    site = cameras.a_fresh_site(shots)
    person.sign_in(page, console, email=cameras.TECHNICIAN)
    person.visit(page, console, "/sites")
    days = page.locator(".weeks g")
    expect(days).to_have_count(14)
    bands = {days.nth(n).get_attribute("data-band") for n in range(14)}
    assert bands == {"none", "n/a"}
    expect(page.locator(".fortnight .small")).to_have_text("no day with expected wakes is over yet")
    expect(page.locator(".counts")).to_contain_text("Expected: 0 | Completed: 1 | Failed: 0")
    expect(page.get_by_text("no camera had a schedule for it when the day opened")).to_be_visible()
    expect(page.locator(".sentence")).to_have_text("The only site is on track")
    keep("sites-fresh")
    yesterday = cameras.DAY - timedelta(days=1)
    person.visit(page, console, f"/sites/{site}?date={yesterday}")
    expect(page.locator("#session .counts")).to_have_text(
        "Expected: 0 | Completed: 2 | Failed: 0 | Extra: 2"
    )
    keep("site-fresh")
