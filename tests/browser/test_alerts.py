"""Alerts as people meet them: found, acknowledged, ended; rules written; who may do what."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import person, troubles
from tests.browser.served import Served
from tests.browser.test_look import Keep, context, keep  # noqa: F401 - the same pictures

Figures = Callable[[Page], dict[tuple[str, str], str]]


def figures(page: Page) -> dict[tuple[str, str], str]:
    """(name, key) and exact value of everything on the page that comes from data."""
    rows = page.locator("[data-value]").evaluate_all(
        "all => all.map(e => [e.dataset.name, e.dataset.key ?? '', e.dataset.value])"
    )
    return {(name, key): value for name, key, value in rows}


@pytest.mark.usefixtures("context")
def test_operator_finds_and_acknowledges_a_problem(
    console: Served, page: Page, browser: Browser, cloud_db: Any, keep: Keep, complaints: list[str]
) -> None:
    troubles.add_people(cloud_db.admin_url)
    names = troubles.a_bad_day(cloud_db.url, cloud_db.admin_url)
    person.sign_in(page, console, email=troubles.OPERATOR)
    person.visit(page, console, "/alerts")
    expect(page.locator(".sentence")).to_have_text("4 problems wait for somebody")
    # The worst first, the held ones under what holds them.
    first = page.locator("#alerts > section > .alerts > li")
    assert first.evaluate_all("all => all.map(e => e.dataset.severity)") == ["critical"] * 2
    held = page.locator(f"#held-{names['silent']}")
    expect(held.locator("summary")).to_have_text("2 problems are held back by this one")
    keep("alerts")
    _expect_recounted(page, cloud_db.admin_url)
    # Somebody else looks at the same page.
    other = browser.new_context(viewport={"width": 360, "height": 800})
    try:
        second = other.new_page()
        person.sign_in(second, console)
        person.visit(second, console, "/alerts")
        expect(second.locator(f"#a-{names['hot']}")).to_be_visible()
        expect(second.get_by_role("button", name="I look after it")).to_have_count(0)
        row = page.locator(f"#a-{names['hot']}")
        row.get_by_label("Note").fill("fan 2 is being changed")
        row.get_by_role("button", name="I look after it").click()
        expect(page.locator(".sentence")).to_have_text("3 problems wait for somebody")
        expect(second.locator(f"#a-{names['hot']}")).to_have_count(0)
        expect(second).to_have_title("(3) Alerts")
    finally:
        other.close()
    actions = troubles.execute(
        cloud_db.admin_url, "select actor, action, key, detail ->> 'note' from alert_actions"
    )
    assert actions == [
        (troubles.OPERATOR, "acknowledge", str(names["hot"]), "fan 2 is being changed")
    ]
    page.goto(f"{console.url}/alerts/{names['hot']}")
    expect(page.locator("#timeline")).to_contain_text("fan 2 is being changed")
    expect(page.get_by_text("Go to the barn at once")).to_be_visible()
    expect(page.get_by_role("link", name="The sensor's chart")).to_have_attribute(
        "href", "/telemetry/air-01/temperature"
    )
    keep("alert")
    page.get_by_text("End it by hand").click()
    page.locator("#end-form").get_by_label("Note").fill("the sensor is broken")
    page.get_by_role("button", name="It is over").click()
    expect(page.locator("#alert")).to_have_attribute("data-state", "resolved")
    expect(page.locator("#timeline")).to_contain_text("Ended by hand")
    page.goto(f"{console.url}/alerts?state=resolved")
    expect(page.locator(f"#a-{names['moved']}")).to_contain_text("the device was moved")
    _expect_recounted(page, cloud_db.admin_url)
    keep("alerts-resolved")
    assert not complaints


def _expect_recounted(page: Page, admin_url: str) -> None:
    """Every figure of the page is what the tables say."""
    shown = figures(page)
    counts = dict(
        troubles.execute(
            admin_url,
            "select state, count(*) from alert_episodes where state <> 'withdrawn' group by state",
        )
    )
    for state in ("active", "acknowledged", "resolved"):
        assert shown.pop(("alert.count", state)) == str(counts.get(state, 0))
    open_count = counts.get("active") or counts.get("acknowledged", 0)
    assert shown.pop(("alert.open", "")) == str(open_count)
    rows = troubles.execute(
        admin_url,
        """
        select episode_id::text, case when state in ('active', 'acknowledged') or is_absence
          then last_value else worst_value end from alert_episodes
        """,
    )
    values = {("alert.value", row[0]): str(row[1]) for row in rows}
    assert shown.items() <= values.items()
