"""Each page on a phone and on a wide screen, light and dark: accessible, and kept as a picture."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import barns, cameras, person, recount_sites, running_farm, scales
from tests.browser.cameras import Shots
from tests.browser.look import Keep
from tests.browser.served import Served
from tests.support import databases


@pytest.fixture(autouse=True)
def _own_requests_only(console: Served, requested: list[str]) -> Iterator[None]:
    yield
    person.expect_own_requests_only(requested, console)


def test_first_run(console: Served, page: Page, keep: Keep) -> None:
    person.open_live(page, console)
    expect(page.get_by_text("This page waits for the first reading")).to_be_visible()
    keep("telemetry-empty")
    person.visit(page, console, "/")
    expect(page.locator(".steps [data-done=no]")).to_have_count(5)
    keep("today-first-run")


def test_today(
    console: Served, page: Page, cloud_db: Any, keep: Keep, complaints: list[str]
) -> None:
    running_farm.register(cloud_db.url)
    running_farm.edge(cloud_db.url)
    barns.a_whole_farm(cloud_db.url)
    running_farm.alert(cloud_db.url, barns.TEMPERATURE, "temperature above 38 °C for 5 minutes")
    running_farm.hours(
        cloud_db.url, replace(barns.TEMPERATURE, device_id="hot-01"), count=30, gap=(600, 420)
    )
    person.open_live(page, console, "/")
    expect(page.locator(".reason").first).to_contain_text("Temperature above 38 °C")
    keep("today")
    person.visit(page, console, "/telemetry/hot-01/temperature")
    expect(page.locator(".chart canvas")).to_be_visible()
    keep("sensor")
    assert not complaints


def test_telemetry(
    console: Served, page: Page, cloud_db: Any, keep: Keep, complaints: list[str]
) -> None:
    barns.a_whole_farm(cloud_db.url)
    barns.revoke(cloud_db.url, barns.Sensor("silo-04", "silo_level", "kg", 0, 0, barn_id="barn-4"))
    barns.aggregate(cloud_db.url, barns.Sensor("air-01", "dust", "µg/m³", 240, 30))
    person.open_live(page, console)
    expect(page.locator(".sentence")).to_have_text("1 of 20 sensors is late")
    keep("telemetry")
    # The strangers of the first version scrolled 3,130 px for 20 sensors.
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollHeight") < 2400
    assert not complaints
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


def test_sites(
    console: Served, page: Page, shots: Shots, keep: Keep, complaints: list[str]
) -> None:
    person.sign_in(page, console, email=cameras.TECHNICIAN)
    person.visit(page, console, "/sites")
    expect(page.get_by_text("This page waits for the first site")).to_be_visible()
    keep("sites-empty")
    barn = cameras.a_fortnight(shots)
    person.visit(page, console, "/sites")
    expect(page.locator(".sentence")).to_have_text("1 of 3 sites needs attention")
    keep("sites")
    owner = shots.farm.owner
    assert recount_sites.expect_recounted(page, owner) > 20
    person.visit(page, console, "/")
    expect(page.locator(".sentence")).to_have_text("1 of 3 sites needs attention")
    expect(page.locator(".reason")).to_have_count(1)
    expect(page.locator(".reason a")).to_have_attribute("href", f"/sites/{barn.site}")
    person.visit(page, console, f"/sites/{barn.site}?camera={barn.busy}")
    keep("site")
    assert recount_sites.expect_recounted(page, owner) > 30
    page.locator("details[open] .wakes a").first.click()
    expect(page.locator(".facts")).to_be_visible()
    keep("image")
    address = f"/sites/{barn.site}/cameras/{barn.busy}/schedule"
    page.goto(f"{console.url}{address}?cron=0 */2 * * *")
    expect(page.locator(".effect")).to_be_visible()
    keep("schedule-preview")
    page.get_by_role("button", name="Confirm the change").click()
    person.expect_pill(page, "Live")
    page.goto(f"{console.url}{address}?cron=0 8 * *")
    expect(page.get_by_role("alert")).to_be_visible()
    keep("schedule-refused")
    # A page that says what is wrong with a schedule is told to the console as a failure: 422.
    assert all("422" in said for said in complaints), complaints


def test_devices_and_programs(
    console: Served, page: Page, shots: Shots, keep: Keep, complaints: list[str]
) -> None:
    camera = cameras.two_days(shots)
    owner = shots.farm.owner
    person.sign_in(page, console, email=cameras.TECHNICIAN)
    person.visit(page, console, "/devices")
    expect(page.locator(".sentence")).to_have_text("2 of 3 devices need attention")
    expect(page.locator(".device-row").first.locator(".chip")).to_have_text("Silent")
    keep("devices")
    recount_sites.expect_recounted(page, owner)
    person.visit(page, console, f"/devices/camera/{camera}")
    expect(page.locator(".week li")).to_have_count(7)
    keep("device")
    recount_sites.expect_recounted(page, owner)
    page.goto(f"{console.url}/programs")
    keep("programs")
    recount_sites.expect_recounted(page, owner)
    page.get_by_role("link", name="Winter trial").first.click()
    page.get_by_role("link", name="River House").click()
    expect(page.locator(".trail")).to_contain_text("River House")
    recount_sites.expect_recounted(page, owner)
    assert not complaints


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


def test_weighings(  # noqa: PLR0917 - a farm, a person and what both leave
    console: Served, page: Page, cloud_db: Any, cloud_s3: str, keep: Keep, complaints: list[str]
) -> None:
    person.sign_in(page, console)
    person.visit(page, console, "/weighings")
    expect(page.get_by_text("This page waits for the first weighing")).to_be_visible()
    keep("weighings-empty")
    told = scales.a_day(cloud_db.url, cloud_db.admin_url, cloud_s3)
    person.visit(page, console, f"/weighings?day={scales.day_of(told[0])}")
    expect(page.locator(".sentence")).to_contain_text("34 weighings")
    expect(page.locator(".sentence")).to_contain_text("2 incomplete")
    keep("weighings")
    with databases.connected(cloud_db.admin_url) as owner:
        owner.execute("set row_security = off")
        assert recount_sites.expect_recounted(page, owner) > 40
        person.visit(page, console, f"/weighings/{told[31].session_id}")  # without its end
        keep("weighing")
        recount_sites.expect_recounted(page, owner)
    assert not complaints
