"""The edge's own console in the barn: an operator without internet."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import edges, patience, person
from tests.browser.served_edge import ServedEdge
from tests.support import databases, edge_day
from tests.support.edge_day import TENANT, WAITING, Day

GREY = "rgb(93, 103, 98)"


@pytest.fixture
def day(edge_db: Any) -> Day:
    edge_day.add_key(edge_db.admin_url, tenant=TENANT)
    return edge_day.fill(edge_db.admin_url)


def test_operator_without_internet_enters_deaths_and_redrives_a_message(
    edge: ServedEdge, edge_db: Any, page: Page, day: Day, complaints: list[str]
) -> None:
    # What waits, and since when.
    edges.sign_in(page, edge)
    person.expect_pill(page, "Live")
    expect(page.locator(".link-line")).to_contain_text("No internet since")
    expect(page.locator(".link-line")).to_contain_text(f"{WAITING} events wait here")
    expect(page.get_by_text("temperature has been above 30 °C")).to_be_visible()
    # Two deaths, first while the wifi is broken: the browser keeps them.
    page.get_by_role("link", name="Write down a record").click()
    page.get_by_label("Barn").select_option(label="barn-1 (flock-7)")
    page.get_by_label("How many animals are dead?").fill("2")
    page.context.set_offline(True)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#waiting-forms")).to_contain_text("1 entry waits")
    page.context.set_offline(False)
    page.goto(f"{edge.url}/records")
    patience.until(
        lambda: count(edge_db, "select count(*) from barn_records") == 1, "the record is stored"
    )
    page.reload()
    expect(page.get_by_role("listitem").filter(has_text="Dead")).to_contain_text("2")
    expect(page.get_by_text("Waits for the cloud")).to_be_visible()
    # A message in quarantine: every reason, and redriven it is a reading.
    page.get_by_role("link", name="Delivery").first.click()
    page.get_by_role("link", name="Quarantine").click()
    page.locator(f"#q-{day.broken_id} a").click()
    expect(page.get_by_text("payload.unit: is missing")).to_be_visible()
    page.go_back()
    page.locator(f"#q-{day.readable_id}").get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("1 accepted, 0 rejected again")).to_be_visible()
    page.get_by_role("link", name="Today").first.click()
    # The page hears of what comes next, and of a server that is gone.
    person.expect_pill(page, "Live")
    expect(page.locator('[data-name="edge.dead"]')).to_have_text("2")
    with databases.connected(edge_db.admin_url) as owner:
        owner.execute("update barn_records set value_number = 3")
    expect(page.locator('[data-name="edge.dead"]')).to_have_text("3")
    # Somebody is about to write down another one when the machine goes off.
    form = page.context.new_page()
    form.goto(f"{edge.url}/records/new?place=valley-farm/barn-1/")
    form.get_by_label("How many animals are dead?").fill("1")
    edge.stop()
    person.expect_pill(page, "Reconnecting (data may be old)")
    expect(page).to_have_title("(?) Today")
    expect(page.locator('[data-name="edge.dead"]')).to_have_css("color", GREY)
    form.get_by_role("button", name="Save").click()
    expect(form.locator("#waiting-forms")).to_contain_text("1 entry waits")
    edge.start()
    person.expect_pill(page, "Live")
    expect(page.locator('[data-name="edge.dead"]')).not_to_have_css("color", GREY)
    form.goto(f"{edge.url}/records")
    patience.until(
        lambda: count(edge_db, "select count(*) from barn_records") == 2, "the other one is stored"
    )
    assert count(edge_db, "select count(*) from telemetry_raw") == 1
    # The link was cut, and a server that starts answers 503 until it is ready.
    assert not [text for text in complaints if "ERR_" not in text and "503" not in text]


def count(database: Any, query: str) -> int:
    with databases.connected(database.admin_url) as owner:
        row = owner.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0
