"""The page Telemetry: live, honest about age, and nobody else's business."""

import contextlib
import re
from dataclasses import replace
from typing import Any

from playwright.sync_api import Page, Route, expect

from farmiq.ui import words
from tests.browser import barns, patience, person
from tests.browser.served import Served, streams

GREY = "rgb(93, 103, 98)"


def test_a_new_reading_appears_without_a_reload(
    console: Served, page: Page, cloud_db: Any, complaints: list[str], requested: list[str]
) -> None:
    barns.report(cloud_db.url, barns.TEMPERATURE)
    person.open_live(page, console)
    page.evaluate("window.still = 'the same page'")
    barns.report_now(cloud_db.url, barns.TEMPERATURE, 31.2)
    row = person.row(page, barns.TEMPERATURE)
    expect(row.locator(".value")).to_have_text("31.2 °C")
    barns.report(cloud_db.url, barns.HUMIDITY)
    expect(page.locator(".sentence")).to_have_text("All 2 sensors are current")
    assert page.evaluate("window.still") == "the same page"
    assert not complaints
    person.expect_own_requests_only(requested, console)


def test_a_late_reading_is_grey_and_says_so(console: Served, page: Page, cloud_db: Any) -> None:
    barns.report(cloud_db.url, barns.HUMIDITY)
    barns.report(cloud_db.url, barns.TEMPERATURE, ended_ago_s=185)
    person.open_live(page, console)
    row = person.row(page, barns.TEMPERATURE)
    expect(row.locator(".chip")).to_have_text("Late")
    expect(row.locator(".age")).to_have_text("3 min ago")
    expect(row.locator(".value")).to_have_css("color", GREY)
    expect(person.row(page, barns.HUMIDITY).locator(".chip")).to_have_count(0)
    expect(page.locator(".sensor").first).to_have_attribute("data-metric", "temperature")
    expect(page.locator(".sentence")).to_have_text("1 of 2 sensors is late")
    expect(page).to_have_title("(1) Telemetry")


def test_a_sensor_that_falls_silent_turns_late_before_our_eyes(
    console: Served, page: Page, cloud_db: Any
) -> None:
    person.open_live(page, console)
    barns.report(cloud_db.url, barns.TEMPERATURE, every_s=10, ended_ago_s=14)
    row = person.row(page, barns.TEMPERATURE)
    expect(row).to_have_attribute("data-state", "current")
    expect(page).to_have_title("Telemetry")
    expect(row.locator(".chip")).to_have_text("Late")
    expect(page.locator(".sentence")).to_have_text("The only sensor is late")
    expect(page).to_have_title("(1) Telemetry")
    barns.report_now(cloud_db.url, barns.TEMPERATURE, 20)
    expect(row).to_have_attribute("data-state", "current")


def test_ages_grow_by_themselves(console: Served, page: Page, cloud_db: Any) -> None:
    barns.report(cloud_db.url, barns.TEMPERATURE, ended_ago_s=5)
    person.open_live(page, console)
    age = person.row(page, barns.TEMPERATURE).locator(".age")
    first = int(age.inner_text().split()[0])
    patience.until(lambda: int(age.inner_text().split()[0]) >= first + 2, "the age grew")


def test_page_catches_up_after_the_server_was_gone(
    console: Served, page: Page, cloud_db: Any
) -> None:
    barns.report(cloud_db.url, barns.TEMPERATURE)
    person.open_live(page, console)
    console.stop()
    person.expect_pill(page, "Reconnecting (data may be old)")
    row = person.row(page, barns.TEMPERATURE)
    expect(row.locator(".value")).to_have_css("color", GREY)
    expect(page).to_have_title("(?) Telemetry")
    expect(page.locator(".note")).to_contain_text("Not updated since")
    barns.report_now(cloud_db.url, barns.TEMPERATURE, 19.5)
    console.start()
    person.expect_pill(page, "Live")
    expect(row.locator(".value")).to_have_text("19.5 °C")
    expect(row.locator(".value")).not_to_have_css("color", GREY)


def test_a_console_that_hears_nothing_does_not_claim_to_be_live(
    console: Served, page: Page, cloud_db: Any
) -> None:
    barns.report(cloud_db.url, barns.TEMPERATURE)
    person.open_live(page, console)
    with barns.nobody_can_connect(cloud_db.admin_url, cut_off="cloud-console-live"):
        person.expect_pill(page, "Reconnecting (data may be old)")
    person.expect_pill(page, "Live")
    barns.report_now(cloud_db.url, barns.TEMPERATURE, 18.5)
    expect(person.row(page, barns.TEMPERATURE).locator(".value")).to_have_text("18.5 °C")


def test_pausing_holds_the_page_and_resuming_catches_up(
    console: Served, page: Page, cloud_db: Any
) -> None:
    barns.report(cloud_db.url, barns.TEMPERATURE)
    person.open_live(page, console)
    page.locator("#pill").click()
    person.expect_pill(page, "Paused")
    before = person.row(page, barns.TEMPERATURE).locator(".value").inner_text()
    barns.report_now(cloud_db.url, barns.TEMPERATURE, 17.5)
    age = person.row(page, barns.TEMPERATURE).locator(".age")
    shown = age.inner_text()
    expect(age).not_to_have_text(shown)
    assert person.row(page, barns.TEMPERATURE).locator(".value").inner_text() == before
    page.locator("#pill").click()
    person.expect_pill(page, "Live")
    expect(person.row(page, barns.TEMPERATURE).locator(".value")).to_have_text("17.5 °C")


def test_an_answer_that_comes_after_the_pause_changes_nothing(
    console: Served, page: Page, cloud_db: Any
) -> None:
    barns.report(cloud_db.url, barns.TEMPERATURE)
    person.open_live(page, console)
    row = person.row(page, barns.TEMPERATURE)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/readings?*", hold)
    barns.report_now(cloud_db.url, barns.TEMPERATURE, 17.5)
    while not held:
        page.wait_for_timeout(50)
    page.locator("#pill").click()
    person.expect_pill(page, "Paused")
    before = row.locator(".value").inner_text()
    # What was held has not asked the server yet: its answer has this value.
    barns.report_now(cloud_db.url, barns.TEMPERATURE, 18.5)
    with page.expect_response("**/readings?*"):
        held[0].continue_()
    shown = row.locator(".age").inner_text()
    expect(row.locator(".age")).not_to_have_text(shown)
    assert row.locator(".value").inner_text() == before
    page.unroute("**/readings?*")
    page.locator("#pill").click()
    expect(row.locator(".value")).to_have_text("18.5 °C")


def test_a_refresh_does_not_move_what_is_under_the_pointer(
    console: Served, page: Page, cloud_db: Any
) -> None:
    barns.a_whole_farm(cloud_db.url)
    person.open_live(page, console)
    watched = replace(barns.TEMPERATURE, device_id="climate-04", barn_id="barn-4")
    row = person.row(page, watched)
    row.hover()
    before = row.bounding_box()
    barns.report(cloud_db.url, barns.Sensor("aaa-new", "light", "lx", 20, 2))
    expect(page.get_by_text("aaa-new")).to_be_attached()
    after = row.bounding_box()
    assert before is not None
    assert after is not None
    assert abs(after["y"] - before["y"]) < 1


def test_rows_of_another_company_are_invisible(console: Served, page: Page, cloud_db: Any) -> None:
    barns.add_company(cloud_db.admin_url, "tenant-b", name="Hill Farm", email="bo@example.com")
    theirs = replace(barns.TEMPERATURE, tenant_id="tenant-b", device_id="not-yours")
    barns.report(cloud_db.url, theirs)
    barns.report(cloud_db.url, barns.TEMPERATURE)
    person.open_live(page, console)
    expect(page.locator(".sentence")).to_have_text("The only sensor is current")
    for path in ("/telemetry", "/readings", "/api/v1/telemetry/latest"):
        answer = page.request.get(f"{console.url}{path}").text()
        assert "climate-01" in answer
        assert "not-yours" not in answer


def test_names_from_devices_are_inert(
    console: Served, page: Page, cloud_db: Any, complaints: list[str]
) -> None:
    evil = "<script>window.evil=1</script>"
    odd = barns.Sensor(
        f"{evil}\"'><img src=x onerror=window.evil=2>",
        "{{ 7*7 }}<b>bold</b>",
        "</td><script>window.evil=3</script>",
        5,
        1,
        barn_id=f"barn {evil}",
        farm_id='"><svg onload=window.evil=4>',
    )
    barns.report(cloud_db.url, odd)
    person.open_live(page, console)
    barns.report_now(cloud_db.url, odd, 42)
    row = page.locator(".barn").filter(has_text="window.evil=1")
    expect(row.locator(".value")).to_contain_text("42.0")
    expect(row.locator(".device")).to_have_text(odd.device_id)
    expect(row.locator(".metric")).to_have_text("{{ 7*7 }}<b>bold</b>")
    assert page.evaluate("window.evil") is None
    assert page.locator("#readings script, #readings img, #readings .metric b").count() == 0
    assert not complaints


def test_the_json_twin_has_the_rows_of_the_page(console: Served, page: Page, cloud_db: Any) -> None:
    barns.a_whole_farm(cloud_db.url)
    person.open_live(page, console)
    twin = page.request.get(f"{console.url}/api/v1/telemetry/latest").json()
    assert twin["summary"] == page.locator(".sentence").inner_text()
    on_page = page.locator(".sensor").evaluate_all(
        "rows => rows.map(row => [row.dataset.device, row.dataset.metric, row.dataset.state])"
    )
    in_twin = [
        [found["device_id"], found["metric_type"], found["state"]] for found in twin["readings"]
    ]
    assert on_page == in_twin
    assert twin["problems"] == 2


def test_local_time_with_the_zone_once_and_utc_on_hover(
    console: Served, page: Page, cloud_db: Any
) -> None:
    barns.report(cloud_db.url, barns.TEMPERATURE)
    person.open_live(page, console)
    assert page.inner_text("main").count("Asia/Bangkok (UTC+7)") == 1
    as_of = page.locator(".note time")
    expect(as_of).to_have_attribute("title", re.compile(r"^\d{4}-\d\d-\d\dT.*Z$"))
    utc_hour = int(str(as_of.get_attribute("title"))[11:13])
    assert int(as_of.inner_text()[:2]) == (utc_hour + 7) % 24


def test_unknown_address_is_a_404_page(console: Served, page: Page) -> None:
    answer = page.goto(f"{console.url}/no/such/page")
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_role("heading")).to_have_text("There is no such page")
    for_programs = page.request.get(f"{console.url}/no/such/page", headers={"Accept": "*/*"})
    assert for_programs.status == 404
    assert for_programs.json()["error"]["code"] == "NOT_FOUND"


def test_headers_and_long_caching(console: Served, page: Page) -> None:
    answer = page.goto(f"{console.url}/sign-in")
    assert answer is not None
    assert answer.headers["content-security-policy"].startswith("default-src 'self'")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    style = page.locator("link[rel=stylesheet]").get_attribute("href")
    file = page.request.get(f"{console.url}{style}")
    assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
    stale = re.sub(r"/static/\w+/", "/static/000000000000/", str(style))
    assert page.request.get(f"{console.url}{stale}").status == 404


def test_one_sign_in_holds_ten_streams_at_most(console: Served, page: Page) -> None:
    person.open_live(page, console)
    page.locator("#pill").click()
    person.expect_pill(page, "Paused")
    cookie = "; ".join(f"{found['name']}={found['value']}" for found in page.context.cookies())
    with contextlib.ExitStack() as held:
        # The page's own stream may not have ended yet where the console counts them.
        for _ in range(10):
            patience.until(
                lambda: held.enter_context(streams(console, cookie, 1)) == [200], "a stream more"
            )
        with streams(console, cookie, 1) as refused:
            assert refused == [429]


def test_two_hundred_devices(console: Served, page: Page, cloud_db: Any) -> None:
    barns.many(cloud_db.url, devices=200)
    person.sign_in(page, console, path="/telemetry")
    expect(page.locator(".sentence")).to_have_text("All 400 sensors are current")
    person.expect_pill(page, "Live")
    barns.report_now(cloud_db.url, barns.Sensor("device-7", "humidity", "%", 0, 0), 97)
    expect(page.get_by_text("97", exact=True)).to_be_attached()


def test_ages_are_said_in_the_same_words_here_and_there(console: Served, page: Page) -> None:
    person.open_live(page, console)
    ages = [-5, 0, 0.99, 1, 59.9, 60, 3599, 3600, 172799, 172800, 1e7]
    script = page.locator("script[src$='console.js']").get_attribute("src")
    said = page.evaluate(
        "async ([script, ages]) => { const { ago } = await import(script); return ages.map(ago) }",
        [script, ages],
    )
    assert said == [words.ago(age) for age in ages]
