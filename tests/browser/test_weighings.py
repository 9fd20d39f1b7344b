"""The pages about weighings, as people see them."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, expect

from farmiq.messages import weighvision as words
from tests.browser import barns, person, scales
from tests.browser.scales import Weighing
from tests.browser.served import Served
from tests.support import databases

BO = "bo@example.com"


def line(page: Page, weighing: Weighing) -> Any:
    return page.locator(f"#w-{weighing.session_id}")


def test_states_have_a_word_and_the_missing_part_is_named(
    console: Served, page: Page, cloud_db: Any, cloud_s3: str
) -> None:
    *_, no_image, no_end, given_up, after_outage = scales.a_day(
        cloud_db.url, cloud_db.admin_url, cloud_s3
    )
    person.sign_in(page, console)
    person.visit(page, console, f"/weighings?day={scales.day_of(no_image)}")
    expect(page).to_have_title("(2) Weighings")
    expect(line(page, no_image).locator(".state")).to_have_text("Incomplete no image")
    expect(line(page, no_end).locator(".state")).to_have_text("Incomplete no end")
    expect(line(page, given_up).locator(".state")).to_have_text("Cancelled no stable weight")
    expect(line(page, no_image).locator(".thumb")).to_have_text("no image")
    # Captured first, arrived second, in the company's own time.
    expect(line(page, after_outage).locator(".captured")).to_contain_text("06:45:00")
    expect(line(page, after_outage).locator(".arrived")).to_have_text("arrived 14:57:00")
    expect(line(page, after_outage).locator(".thumb")).to_have_text("image not here yet")
    expect(page.locator(".note").first).to_contain_text("Times in Asia/Bangkok (UTC+7).")
    page.get_by_role("link", name=re.compile("Incomplete 2")).click()
    expect(page.locator(".weighings > li")).to_have_count(2)


def test_a_weighing_appears_by_itself_and_its_image_follows(
    console: Served, page: Page, cloud_db: Any, cloud_s3: str
) -> None:
    person.sign_in(page, console)
    person.visit(page, console, "/weighings")
    one = Weighing(datetime.now(UTC) - timedelta(seconds=3), 2.5)
    scales.land(cloud_db.url, one)
    expect(line(page, one).locator("b")).to_have_text("2.50 kg")
    expect(line(page, one).locator(".thumb")).to_have_text("image not here yet")
    scales.photograph(cloud_db.url, cloud_s3, one)
    expect(line(page, one).locator("img.thumb")).to_be_visible()


def test_an_open_weighing_says_what_is_not_there_yet(
    console: Served, page: Page, cloud_db: Any
) -> None:
    one = Weighing(datetime.now(UTC) - timedelta(seconds=9), 2.5).without(words.SESSION_FINALIZED)
    scales.land(cloud_db.url, one)
    person.sign_in(page, console)
    person.visit(page, console, f"/weighings/{one.session_id}")
    expect(page.locator(".sentence")).to_contain_text("Open")
    expect(page.locator(".missing")).to_contain_text("Not there yet")
    expect(page.locator(".lacking")).to_have_text("no end")


def test_arrow_keys_step_through_images_and_weighings(
    console: Served, page: Page, cloud_db: Any, cloud_s3: str
) -> None:
    first, second = Weighing(scales.today(6, 1), 2.2, images=2), Weighing(scales.today(6, 2), 2.4)
    scales.land(cloud_db.url, first, second)
    scales.photograph(cloud_db.url, cloud_s3, first, second)
    person.sign_in(page, console)
    person.visit(page, console, f"/weighings/{first.session_id}")
    caption, which = page.locator("figcaption"), page.locator(".which")
    expect(caption).to_have_text("2.20 kg")
    for key, place, weight in (
        ("ArrowRight", "Weighing 1 of 2 Image 2 of 2", "2.20 kg"),
        ("ArrowRight", "Weighing 2 of 2", "2.40 kg"),
        ("ArrowLeft", "Weighing 1 of 2 Image 1 of 2", "2.20 kg"),
    ):
        # The text of a new page stands before its scripts listen to keys.
        page.wait_for_load_state()
        page.keyboard.press(key)
        expect(which).to_have_text(place)
        expect(caption).to_have_text(weight)


def test_finger_that_moves_the_picture_aside_steps_to_the_next_weighing(
    browser: Browser, console: Served, cloud_db: Any, cloud_s3: str
) -> None:
    """On a phone the picture comes before all else of the weighing."""
    first, second = Weighing(scales.today(6, 1), 2.2), Weighing(scales.today(6, 2), 2.4)
    scales.land(cloud_db.url, first, second)
    scales.photograph(cloud_db.url, cloud_s3, first, second)
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True)
    page = context.new_page()
    person.sign_in(page, console)
    person.visit(page, console, f"/weighings/{first.session_id}")
    tops = page.evaluate(
        """() => [".stage img", ".facts", ".events"].map(
          what => document.querySelector(what).getBoundingClientRect().top)"""
    )
    assert tops == sorted(tops)
    for far, weight in ((-160, "2.40 kg"), (160, "2.20 kg")):
        page.locator(".stage").evaluate(
            """(stage, far) => {
              const at = (x) => ({ pointerType: "touch", isPrimary: true, bubbles: true,
                clientX: x, clientY: 200 });
              stage.dispatchEvent(new PointerEvent("pointerdown", at(180)));
              stage.dispatchEvent(new PointerEvent("pointerup", at(180 + far)));
            }""",
            far,
        )
        expect(page.locator("figcaption")).to_have_text(weight)
    context.close()


def test_it_works_without_a_script(browser: Browser, console: Served, cloud_db: Any) -> None:
    early = [Weighing(scales.today(5, minute), 2.0) for minute in range(60)]
    scales.land(cloud_db.url, *early)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    person.sign_in(page, console)
    page.get_by_role("link", name="Weighings").click()
    page.get_by_label("Day", exact=True).fill(scales.day_of(early[0]))
    page.get_by_role("button", name="Show").click()
    expect(page.locator(".weighings > li")).to_have_count(50)
    page.get_by_role("link", name="Older").click()
    expect(page.locator(".weighings > li")).to_have_count(10)
    page.locator(".weighings a").last.click()
    expect(page.get_by_role("heading", name="4 events")).to_be_visible()
    context.close()


def test_csv_is_of_the_day_that_is_shown(console: Served, page: Page, cloud_db: Any) -> None:
    scales.land(cloud_db.url, *(Weighing(scales.today(5, n), 2.0 + n / 10) for n in range(3)))
    person.sign_in(page, console)
    person.visit(page, console, f"/weighings?day={scales.day_of(Weighing(scales.today(5, 0), 1))}")
    with page.expect_download() as got:
        page.get_by_role("link", name="CSV").click()
    head, *lines = got.value.path().read_text().splitlines()
    assert head.startswith("session_id,farm_id,barn_id,device_id")
    assert len(lines) == 3


def test_a_weighing_is_of_the_day_of_its_own_farm(
    console: Served, page: Page, cloud_db: Any
) -> None:
    in_the_west = Weighing(scales.today(5), 2.0)
    scales.land(cloud_db.url, in_the_west)
    zone = ZoneInfo("America/New_York")
    with databases.connected(cloud_db.admin_url) as owner:
        for farm_id, name in (("farm-1", "West"), ("farm-2", "East")):
            owner.execute(
                "insert into farms (tenant_id, farm_id, name, timezone) values (%s, %s, %s, %s)",
                ("tenant-a", farm_id, name, zone.key if name == "West" else "Asia/Bangkok"),
            )
    here = in_the_west.at.astimezone(zone)
    elsewhere = scales.day_of(in_the_west)
    assert f"{here:%Y-%m-%d}" != elsewhere
    person.sign_in(page, console)
    for day, count in ((f"{here:%Y-%m-%d}", 1), (elsewhere, 0)):
        person.visit(page, console, f"/weighings?day={day}")
        expect(page.locator(".weighings > li")).to_have_count(count)
        rows = page.request.get(f"{console.url}/api/v1/weighvision/sessions?day={day}").json()
        assert len(rows["sessions"]) == count
    page.goto(f"{console.url}/weighings/{in_the_west.session_id}")
    expect(page.locator("#weighing")).to_contain_text(f"{here:%H:%M:%S}")
    expect(page.locator("#weighing")).to_contain_text("Times in America/New York")


@pytest.fixture
def other_page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.mark.req("DB2-09")
def test_another_company_sees_nothing(
    console: Served, page: Page, other_page: Page, cloud_db: Any, cloud_s3: str
) -> None:
    barns.add_company(cloud_db.admin_url, "tenant-b", name="Hill Farm", email=BO)
    ours = Weighing(scales.today(6, 1), 2.2)
    scales.land(cloud_db.url, ours)
    scales.photograph(cloud_db.url, cloud_s3, ours)
    person.sign_in(page, console)
    person.sign_in(other_page, console, email=BO)
    expect(other_page.locator(".company")).to_have_text("Hill Farm")
    with databases.connected(cloud_db.admin_url) as owner:
        ((company,),) = owner.execute(
            "select company_id::text from companies where tenant_id = 'tenant-a'"
        ).fetchall()
    own = f"/weighings/{ours.session_id}"
    image = f"/api/v1/media/images/{ours.media_ids[0]}"
    api = "/api/v1/weighvision/sessions"
    for path in (own, f"{own}/parts", f"{api}/{ours.session_id}", f"{image}/thumbnail", image):
        assert page.request.get(f"{console.url}{path}").status == 200, path
        assert other_page.request.get(f"{console.url}{path}").status == 404, path
    for path in ("/weighings", "/weighings/rows", api):
        asked = f"{console.url}{path}?day={scales.day_of(ours)}"
        assert str(ours.session_id) in page.request.get(asked).text()
        assert str(ours.session_id) not in other_page.request.get(asked).text()
        assert other_page.request.get(f"{asked}&company={company}").status == 404


def test_addresses_that_are_wrong_are_told_so(console: Served, page: Page) -> None:
    person.sign_in(page, console)
    for path, status in (
        ("/weighings?day=yesterday", 400),
        ("/weighings?page=0", 400),
        ("/weighings/7", 404),
        ("/weighings/01a1e0b0-b0de-7525-8566-ed9106a84e3c", 404),
        ("/api/v1/weighvision/sessions?state=lost", 400),
        ("/live?about=gossip", 400),
    ):
        assert page.request.get(f"{console.url}{path}").status == status, path
