"""The pages about sites and their cameras, as people see them."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from farmiq.cloud.identity import accounts
from farmiq.lab import stack
from tests.browser import barns, cameras, patience, person
from tests.browser.battery_camera import NAME, Camera
from tests.browser.cameras import DAY, TECHNICIAN, Shots, on
from tests.browser.served import Served
from tests.sql.camera.farm import Farm

Form = dict[str, str | float | bool]
BO = "bo@example.com"


@pytest.fixture
def six(shots: Shots) -> tuple[UUID, UUID, UUID]:
    """A site whose camera wakes six times a day: five came, one failed; it is 22:00."""
    site = shots.farm.site(site_name="River House")
    camera = shots.farm.device(site, "0 */4 * * *", device_name="Device-001")
    shots.open_day(site, on(DAY, 0, 1))
    for hour in (0, 4, 8, 16, 20):
        shots.send(camera, on(DAY, hour), picture=False)
    shots.farm.at(on(DAY, 12, 1))
    failed = shots.announce(camera, on(DAY, 12))
    shots.fail(failed)
    shots.farm.at(on(DAY, 22))
    return site, camera, failed


def sign_in(page: Page, console: Served, email: str = TECHNICIAN) -> None:
    person.sign_in(page, console, email=email)
    expect(page.locator(".company")).to_be_visible()


@pytest.mark.req("DB2-05")
def test_a_session_in_the_words_of_the_document(
    console: Served, page: Page, six: tuple[UUID, UUID, UUID]
) -> None:
    site, _, _ = six
    sign_in(page, console)
    person.visit(page, console, f"/sites/{site}")
    session = page.locator("#session")
    expect(session.get_by_role("heading")).to_have_text("Device Session: Jan 15, 2025")
    expect(session.locator(".counts")).to_have_text(
        "Expected: 6 | Completed: 5 | Failed: 1 | Extra: 0"
    )
    expect(session.locator(".complete b")).to_have_text("83% Complete")
    # 0.833 of 23 pieces.
    expect(session.locator(".bar .full")).to_have_count(19)
    expect(session.locator(".strip")).to_have_attribute("aria-label", "5 received, 1 failed")
    expect(page).to_have_title("(1) River House")
    expect(page.locator(".note").first).to_contain_text("Times in Asia/Bangkok (UTC+7).")
    expect(session.locator(".progress")).to_have_text("5 of 6 received")


@pytest.mark.req("DB2-07")
def test_a_camera_that_woke_too_often_says_so(console: Served, page: Page, shots: Shots) -> None:
    site = shots.farm.site(site_name="River House")
    camera = shots.farm.device(site, "0 0-9 * * *", device_name="Device-002")
    other = shots.farm.device(site, "0 9 * * *", device_name="Device-003")
    shots.open_day(site, on(DAY, 0, 1))
    for hour in range(10):
        shots.send(camera, on(DAY, hour), picture=False)
    shots.send(other, on(DAY, 9), picture=False)
    for minute in (20, 40):
        shots.send(camera, on(DAY, 9, minute), picture=False)
    shots.farm.at(on(DAY, 14))
    sign_in(page, console)
    person.visit(page, console, f"/sites/{site}")
    summary = page.locator(f"#c-{camera} summary")
    expect(summary.locator(".says")).to_have_text("Device-002 (12 received / 10 expected) ⚠️")
    expect(summary.locator(".chip")).to_have_count(0)
    expect(page.locator(f"#c-{other} .says")).to_have_text("Device-003 (1 received / 1 expected)")
    expect(page.locator(f"#c-{camera} .wakes")).to_be_hidden()
    summary.focus()
    page.keyboard.press("Enter")
    expect(page.locator(f"#c-{camera} .wakes > li")).to_have_count(12)
    # Something arrives: the page shows it, and what somebody opened stays open.
    shots.send(camera, on(DAY, 13, 59), picture=False)
    expect(summary.locator(".says")).to_have_text("Device-002 (13 received / 10 expected) ⚠️")
    expect(page.locator(f"#c-{camera} .wakes > li")).to_have_count(13)


@pytest.fixture
def taking(
    cloud_db: Any, engines: dict[str, str], tmp_path: Path
) -> Iterator[tuple[Served, Camera, Farm]]:
    """A console beside a gateway that has little patience, and a camera on its broker."""
    barns.add_company(cloud_db.admin_url)
    impatient = {"CAMERA_MISSING_SECONDS": "0.2", "CAMERA_TIMEOUT_SECONDS": "2"}
    with (
        stack.start(tmp_path / "b", engines=("mqtt-cloud",), say=lambda _: None) as broker,
        cameras.farm(cloud_db) as farm,
    ):
        served = Served(
            cloud_db.url,
            FARMIQ_CLOUD_S3_URL=engines["FARMIQ_CLOUD_S3_URL"],
            **broker.environment,
            **impatient,
        )
        served.start()
        camera = Camera(farm, farm.site(site_name="River House"), broker.environment)
        yield served, camera, farm
        served.stop()


@pytest.mark.req("DB2-11", "DB2-20")
def test_a_failed_image_is_resent_and_turns_complete_without_a_reload(
    taking: tuple[Served, Camera, Farm], page: Page, complaints: list[str]
) -> None:
    """All of it for real: the camera breaks off, the gateway gives up, and asks it again."""
    console, camera, farm = taking
    camera.breaks_off()
    status = "select status from device_images"
    patience.until(lambda: farm.rows(status) == [("failed",)], "the gateway has given it up")
    ((failed, day),) = farm.rows("select image_id, original_capture_date from device_images")
    sign_in(page, console)
    person.visit(page, console, f"/sites/{camera.site}?date={day}")
    loads: list[str] = []
    page.on("load", lambda _: loads.append(page.url))
    row = page.locator(f"#i-{failed}")
    counts = page.locator("#session .counts")
    expect(row.locator(".state")).to_contain_text("failed 2 of ")
    expect(counts).to_have_text("Expected: 24 | Completed: 0 | Failed: 1 | Extra: 0")
    row.get_by_role("button", name="Resend").click()
    expect(row.locator(".asked")).to_contain_text("it comes when the camera wakes")
    asked = camera.wakes_and_obeys()
    assert asked == {"send_image": NAME}
    expect(row.locator(".state")).to_have_text("received")
    expect(row.locator("img")).to_be_visible()
    expect(row.get_by_role("button")).to_have_count(0)
    expect(counts).to_have_text("Expected: 24 | Completed: 1 | Failed: 0 | Extra: 0")
    assert farm.rows(status) == [("complete",)]
    assert not loads
    assert not complaints


def test_a_viewer_only_looks(
    console: Served, page: Page, shots: Shots, six: tuple[UUID, UUID, UUID]
) -> None:
    site, camera, failed = six
    sign_in(page, console, barns.EMAIL)
    person.visit(page, console, f"/sites/{site}")
    expect(page.locator(f"#i-{failed} .state")).to_contain_text("failed")
    expect(page.get_by_role("button", name="Resend")).to_have_count(0)
    expect(page.get_by_role("link", name="Change schedule")).to_have_count(0)
    csrf = page.locator("form.sign-out input[name=csrf]").get_attribute("value")
    schedule = f"/sites/{site}/cameras/{camera}/schedule"
    for path, token, status in (
        (f"/sites/images/{failed}/resend", csrf, 403),
        (f"/sites/images/{failed}/resend", "made up", 403),
        (schedule, csrf, 403),
    ):
        form: Form = {"csrf": token or "", "cron": "0 8 * * *"}
        assert page.request.post(f"{console.url}{path}", form=form).status == status
    assert shots.farm.value("select count(*) from device_schedule_changes") == 0
    assert shots.farm.value("select max(retry_count) from device_images") == 0


@pytest.mark.req("DB2-02")
@pytest.mark.parametrize(
    ("zone", "hours", "offset"),
    [
        ("Asia/Bangkok", "10 hours", "+7"),
        ("Europe/Berlin", "16 hours", "+1"),
        ("America/Chicago", "23 hours", "-6"),
    ],
)
def test_a_schedule_change_says_the_hours_of_its_site(
    console: Served, page: Page, shots: Shots, *, zone: str, hours: str, offset: str
) -> None:
    there = ZoneInfo(zone)
    site = shots.farm.site(zone, site_name="River House")
    camera = shots.farm.device(site, "0 * * * *", device_name="Device-001")
    # The same moment everywhere; in Chicago it is one in the night.
    shots.open_day(site, on(DAY, 14))
    sign_in(page, console)
    person.visit(page, console, f"/sites/{site}")
    page.get_by_role("link", name="Change schedule").click()
    page.get_by_label("Wake times as cron").fill("*/45 * * * *")
    page.keyboard.press("Enter")
    expect(page.locator(".effect")).to_have_text(
        f"This change will take effect at midnight ({hours} from now)"
    )
    preview = page.locator("#preview")
    expect(preview).to_contain_text(f"Jan 16, 2025, 00:00, {zone} (UTC{offset})")
    expect(preview).to_contain_text("Today keeps 24 expected images; tomorrow 48")
    expect(preview.locator(".dst")).to_have_count(0)
    page.get_by_role("button", name="Confirm the change").click()
    pending = page.locator(f"#sched-{camera} .then")
    expect(pending).to_contain_text(
        f"every hour at minutes 0 and 45 at midnight ({hours} from now)"
    )
    day = shots.farm.value("select effective_date from device_schedule_changes")
    assert day == on(DAY, 14).astimezone(there).date() + timedelta(days=1)
    page.get_by_role("button", name="Cancel change").click()
    expect(pending).to_have_text("no change pending")
    cancelled_by = shots.farm.value(
        "select email from device_schedule_changes join users on user_id = cancelled_by"
    )
    assert cancelled_by == TECHNICIAN
    accounts.add_user(
        shots.farm.owner, BO, company_id=shots.farm.company, password=barns.PASSWORD, role="admin"
    )
    page.context.clear_cookies()
    sign_in(page, console, BO)
    page.goto(f"{console.url}/settings/audit?kind=schedules")
    expect(page.locator(".audit > li")).to_have_count(2)
    expect(page.locator(".audit")).to_contain_text(
        f"{TECHNICIAN} cancelled the new schedule of Device-001"
    )


def test_the_day_the_clocks_change_is_told(console: Served, page: Page, shots: Shots) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    day = DAY.replace(month=3, day=29)
    site = shots.farm.site("Europe/Berlin", site_name="River House")
    camera = shots.farm.device(site, "0 * * * *", device_name="Device-001")
    shots.open_day(site, on(day, 14, zone=berlin))
    sign_in(page, console)
    page.goto(f"{console.url}/sites/{site}/cameras/{camera}/schedule?cron=*/30 * * * *")
    expect(page.locator(".dst")).to_contain_text("23 hours")
    expect(page.locator("#preview")).to_contain_text("Today keeps 24 expected images; tomorrow 46")


def test_wake_that_becomes_overdue_is_shown_without_a_reload(
    console: Served, page: Page, shots: Shots
) -> None:
    site = shots.farm.site(site_name="River House")
    camera = shots.farm.device(site, "0 12,14 * * *", device_name="Device-001")
    shots.open_day(site, on(DAY, 0, 1))
    shots.send(camera, on(DAY, 12))
    shots.farm.at(on(DAY, 14, 9) + timedelta(seconds=57))
    sign_in(page, console)
    shots.farm.at(on(DAY, 14, 9) + timedelta(seconds=57))
    person.visit(page, console, "/sites")
    expect(page.locator(".strip")).to_have_attribute("aria-label", "1 received, 1 overdue")
    expect(page.locator(".sentence")).to_have_text("The only site needs attention")
    # The camera comes back and says that nothing waits on it: then it is lost.
    shots.farm.owner.execute("update devices set pending_count = 0, last_seen_at = fn_now()")
    shots.farm.at(on(DAY, 15, 40))
    shots.farm.owner.execute("update devices set last_seen_at = fn_now()")
    page.reload()
    expect(page.locator(".strip")).to_have_attribute("aria-label", "1 received, 1 lost")


def test_a_moved_camera_and_a_new_zone_change_the_rest_of_the_day(
    console: Served, page: Page, shots: Shots
) -> None:
    """What it owed while it stood there stays; and the day stays that of the old zone."""
    site = shots.farm.site(site_name="River House")
    camera = shots.farm.device(site, "0 9,12,15 * * *", device_name="Device-001")
    other = shots.farm.site(site_name="Hill House")
    for each in (site, other):
        shots.open_day(each, on(DAY, 0, 1))
    shots.send(camera, on(DAY, 9), picture=False)
    shots.farm.at(on(DAY, 10))
    shots.farm.owner.execute("update devices set site_id = %s", (other,))
    shots.farm.owner.execute(
        "update sites set timezone = 'Europe/Berlin' where site_id = %s", (site,)
    )
    shots.farm.at(on(DAY, 13))
    shots.send(camera, on(DAY, 13), picture=False)
    shots.farm.at(on(DAY, 14))
    sign_in(page, console)
    person.visit(page, console, "/sites")
    row = page.locator(f"#s-{site}")
    expect(page.locator(".sentence")).to_have_text("All 2 sites on track")
    expect(row.locator(".strip")).to_have_attribute("aria-label", "1 received, 2 not owed")
    expect(row.locator(".local")).to_have_text("15 Jan 2025, 14:00 Asia/Bangkok (UTC+7)")
    person.visit(page, console, f"/sites/{site}")
    expect(page.locator(".sentence")).to_have_text("Every wake that was due today was received")
    person.visit(page, console, f"/sites/{other}")
    expect(page.locator(f"#c-{camera} .standing")).to_be_empty()
    expect(page.locator(f"#c-{camera} .why")).to_have_text(
        "extra: the camera came after this day had opened; the next one expects it"
    )


def test_it_works_without_a_script(
    browser: Browser, console: Served, six: tuple[UUID, UUID, UUID]
) -> None:
    _, _, failed = six
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    sign_in(page, console)
    page.get_by_role("link", name="Sites", exact=True).click()
    page.get_by_role("link", name="River House").click()
    page.get_by_role("button", name="Resend").click()
    expect(page.locator(f"#i-{failed} .asked")).to_be_visible()
    page.get_by_role("link", name="Day before").click()
    expect(page.get_by_role("heading", name="Device Session: Jan 14, 2025")).to_be_visible()
    page.get_by_label("Day").fill("2025-01-15")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#session .counts")).to_contain_text("Expected: 6")
    page.get_by_role("link", name="Change schedule").click()
    page.get_by_role("link", name="twice a day").click()
    page.get_by_role("button", name="Confirm the change").click()
    expect(page.locator(".schedules .then")).to_contain_text("at 08:00 and 16:00 daily")
    context.close()


@pytest.fixture
def other_page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.mark.req("DB2-09")
def test_another_company_has_no_such_site(
    console: Served, page: Page, other_page: Page, shots: Shots, six: tuple[UUID, UUID, UUID]
) -> None:
    admin_url = shots.farm.database.admin_url
    barns.add_company(admin_url, "tenant-b", name="Hill Farm", email=BO)
    shots.farm.owner.execute("update memberships set role = 'admin'")
    site, camera, failed = six
    shots.complete(camera, failed, picture=True)
    sign_in(page, console)
    sign_in(other_page, console, BO)
    image = f"/sites/images/{failed}"
    schedule = f"/sites/{site}/cameras/{camera}/schedule"
    pictures = (image, f"{image}/file", f"{image}/thumbnail")
    for path in (f"/sites/{site}", f"/sites/{site}/parts", *pictures, schedule):
        assert page.request.get(f"{console.url}{path}").status == 200, path
        assert other_page.request.get(f"{console.url}{path}").status == 404, path
        asked = f"{console.url}{path}?company={shots.farm.company}"
        assert other_page.request.get(asked).status == 404, path
    csrf = other_page.locator("form.sign-out input[name=csrf]").get_attribute("value") or ""
    for path in (f"{image}/resend", schedule, f"{schedule}/{failed}/cancel"):
        form: Form = {"csrf": csrf, "cron": "0 8 * * *"}
        assert other_page.request.post(f"{console.url}{path}", form=form).status == 404, path
    assert str(site) not in other_page.request.get(f"{console.url}/sites").text()


def test_an_image_has_a_page_with_its_facts_its_neighbours_and_its_id(
    console: Served, page: Page, context: BrowserContext, shots: Shots, complaints: list[str]
) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    site = shots.farm.site(site_name="River House")
    camera = shots.farm.device(site, "0 8,9,10 * * *", device_name="Device-001")
    shots.open_day(site, on(DAY, 0, 1))
    first, second, third = (shots.send(camera, on(DAY, hour)) for hour in (8, 9, 10))
    page.goto(f"{console.url}/sites/images/{second}")
    person.fill_sign_in(page)
    expect(page.locator("figcaption")).to_have_text("15 Jan 2025, 09:00:00")
    expect(page.locator("main h1")).to_have_text("Sites / River House / Device-001")
    expect(page.locator(".facts")).to_contain_text("2025-01-15 02:00:00")
    patience.until(
        lambda: bool(page.evaluate("document.querySelector('figure img').naturalWidth")),
        "the image is drawn",
    )
    page.get_by_text("Ids, for programs and support").click()
    button = page.get_by_role("button", name=f"Copy the id {second}")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#copied")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == str(second)
    page.keyboard.press("ArrowRight")
    expect(page).to_have_url(f"{console.url}/sites/images/{third}")
    expect(page.get_by_role("link", name="Next image")).to_have_count(0)
    # Never the bare file: the picture is no link.
    expect(page.locator("figure a")).to_have_count(0)
    for expected in (second, first):
        page.get_by_role("link", name="Image before").click()
        expect(page).to_have_url(f"{console.url}/sites/images/{expected}")
    page.get_by_text("All of the day").click()
    expect(page.locator(f"#i-{first}")).to_be_visible()
    assert not complaints


WRONG = (
    ("/sites/7", 404),
    ("/sites/01a1e0b0-b0de-7525-8566-ed9106a84e3c", 404),
    ("/sites/{site}?date=yesterday", 400),
    ("/sites/{site}?weather=good", 400),
    ("/sites/{site}?date=2024-02-03", 200),
    ("/sites/{site}?date=2031-02-03", 200),
    ("/sites/images/x", 404),
    ("/sites/images/{camera}/thumbnail", 404),
    ("/sites/{site}/cameras/{site}/schedule", 404),
    ("/sites/{site}/cameras/{camera}/schedule?cron=%00", 200),
    ("/sites/{site}/cameras/{camera}/schedule?cron=a%00b", 422),
    ("/sites/{site}/cameras/{camera}/schedule?cron=* * * * * *", 422),
)


def test_addresses_that_are_wrong_are_told_so(
    console: Served, page: Page, six: tuple[UUID, UUID, UUID]
) -> None:
    site, camera, _ = six
    sign_in(page, console)
    for path, status in WRONG:
        asked = path.format(site=site, camera=camera)
        assert page.request.get(f"{console.url}{asked}").status == status, asked


def test_an_image_elsewhere_in_the_bucket_is_not_shown(
    console: Served, page: Page, shots: Shots, six: tuple[UUID, UUID, UUID]
) -> None:
    _, _, failed = six
    shots.farm.call(
        "fn_image_completion_handler", image_id=failed, image_url="camera/of-others/a.jpg"
    )
    sign_in(page, console)
    answer = page.request.get(f"{console.url}/sites/images/{failed}/file")
    assert (answer.status, bool(re.search("not kept", answer.text()))) == (404, True)
