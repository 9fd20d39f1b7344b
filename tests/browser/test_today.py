"""Today: what needs attention, and from there to the readings of a sensor."""

import csv
import io
import re
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import barns, person, running_farm
from tests.browser.look import Keep
from tests.browser.served import Served

HOT = barns.TEMPERATURE
LATE = replace(barns.TEMPERATURE, device_id="air-02", metric_type="co2", barn_id="barn-2")
# Of each row of the table: whether it has a mean, and whether it lies within its band.
ROWS = """() => [...document.querySelectorAll(".twin tbody tr")].map((row) => {
  const [mean, low, high] = [...row.querySelectorAll("td")].map(
    (cell) => cell.querySelector("[data-value]")?.dataset.value).map(Number);
  return { at: Date.parse(row.querySelector("time").dateTime), gap: Number.isNaN(mean),
    inside: low <= mean && mean <= high, wide: low < high };
})"""


def expect_gap_and_band(page: Page, console: Served) -> None:
    """In the table of the chart, and in the file: nothing was made up for the gap."""
    rows = page.evaluate(ROWS)
    gaps = [number for number, row in enumerate(rows) if row["gap"]]
    inner = [number for number in gaps if 0 < number < len(rows) - 1]
    assert len(inner) == 1, gaps
    assert rows[inner[0] + 1]["at"] - rows[inner[0]]["at"] > 50 * 60_000
    assert all(row["inside"] for row in rows if not row["gap"])
    assert any(row["wide"] for row in rows)

    href = page.get_by_role("link", name="Download as CSV").get_attribute("href")
    file = list(csv.DictReader(io.StringIO(page.request.get(f"{console.url}{href}").text())))
    assert len(file) == len(rows) - len(gaps)
    assert all(float(row["min_value"]) <= float(row["max_value"]) for row in file)


def drag_over_chart(page: Page) -> None:
    """What is dragged over is an address of its own."""
    box = page.locator(".chart .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.95 * box["width"], box["y"] + 30, steps=5)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"from=.*&to="))
    expect(page.locator(".chart canvas")).to_be_visible()


def test_operator_follows_the_worst_reason_to_the_gap_and_the_band_of_a_sensor(
    console: Served, page: Page, cloud_db: Any, keep: Keep, complaints: list[str]
) -> None:
    running_farm.register(cloud_db.url)
    running_farm.edge(cloud_db.url)
    running_farm.hours(cloud_db.url, HOT, count=8, gap=(180, 120))
    barns.report(cloud_db.url, LATE, ended_ago_s=900)
    alert = running_farm.alert(cloud_db.url, HOT, "temperature above 38 °C")
    person.open_live(page, console, "/")

    # The count of the title, the sentence and the list.
    expect(page).to_have_title("(2) Today")
    expect(page.locator(".sentence")).to_have_text("2 of 2 barns need attention")
    reasons = page.locator(".reason")
    expect(reasons).to_have_count(2)
    expect(reasons.first).to_contain_text("Critical")
    expect(reasons.first).to_contain_text("North barn · climate-01")
    expect(reasons.nth(1)).to_contain_text("No new reading of CO₂")
    card = page.locator(".fare").filter(has_text="North barn")
    expect(card).to_contain_text("4,863 animals")
    expect(card.locator(".weight")).to_contain_text("0.90")
    expect(card.locator(".weight")).to_contain_text("+450 g in 7 days")
    expect(page.locator(".pipeline")).to_contain_text("1 of 1 report")
    expect(page.locator(".pipeline")).to_contain_text("3 events wait")

    reasons.first.get_by_role("link", name="See its readings").click()
    expect(page).to_have_url(f"{console.url}/telemetry/climate-01/temperature")
    expect(page.get_by_role("heading", level=1)).to_have_text("Temperature · climate-01")
    page.get_by_role("link", name="6 hours").click()
    expect(page).to_have_url(re.compile(r"range=6h$"))
    expect(page.locator(".chart canvas")).to_be_visible()
    expect(page.locator(".chart figcaption")).to_contain_text("a point is 1 minute")
    expect(page.get_by_role("link", name="temperature above 38 °C")).to_have_attribute(
        "href", f"/alerts/{alert}"
    )
    expect_gap_and_band(page, console)
    drag_over_chart(page)
    page.get_by_role("link", name="Compare with other sensors").click()
    page.get_by_label("Add a sensor").select_option("air-02/co2")
    page.get_by_role("button", name="Add").click()
    expect(page.locator("figure.chart")).to_have_count(2)
    expect(page.get_by_text("Nothing was measured in this time.")).to_be_visible()

    # What is resolved leaves the list by itself, also on a screen on the wall, without menus.
    expect(page.locator(".pages")).to_be_visible()
    usual = page.locator(".brand").bounding_box()
    person.visit(page, console, "/?kiosk=1")
    expect(page.locator(".pages")).to_be_hidden()
    large = page.locator(".brand").bounding_box()
    assert usual is not None
    assert large is not None
    assert large["height"] == pytest.approx(1.25 * usual["height"], rel=0.02)
    expect(page.get_by_role("button", name="Sign out")).to_be_hidden()
    running_farm.resolve(cloud_db.url, alert)
    expect(reasons).to_have_count(1)
    expect(page).to_have_title("(1) Today")
    keep("today-kiosk")
    assert not complaints


def test_bad_addresses_of_sensors_are_answered_clearly(
    console: Served, page: Page, cloud_db: Any
) -> None:
    barns.add_company(cloud_db.admin_url, "tenant-b", name="Hill Farm", email="bo@example.com")
    theirs = replace(HOT, tenant_id="tenant-b", device_id="not-yours")
    barns.report(cloud_db.url, theirs)
    barns.report(cloud_db.url, HOT)
    person.open_live(page, console, "/telemetry/climate-01/temperature")
    own = "/telemetry/climate-01/temperature"
    for path, status in (
        ("/telemetry/not-yours/temperature", 404),
        ("/telemetry/not-yours/temperature.csv", 404),
        ("/telemetry/not-yours/temperature.parquet", 404),
        (f"{own}.parquet", 200),
        ("/telemetry/compare?s=not-yours/temperature", 404),
        ("/telemetry/%00/%00", 404),
        (f"{own}?range=2h", 400),
        (f"{own}?from=2026-01-01T00:00:00Z", 400),
        (f"{own}?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", 400),
        (f"{own}.csv?from=yesterday&to=today", 400),
        ("/telemetry/compare?s=climate-01", 400),
        ("/telemetry/compare?" + "&".join(["s=climate-01/temperature"] * 5), 400),
        (f"{own}?range=90d", 200),
        ("/telemetry/compare", 200),
    ):
        answer = page.request.get(f"{console.url}{path}", headers={"Accept": "text/html"})
        assert answer.status == status, path
        assert "not-yours" not in answer.text()
