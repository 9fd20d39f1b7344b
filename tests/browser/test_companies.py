"""Two people of two companies, and a super admin who looks at either."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Page, expect

from farmiq.cloud.identity import accounts
from tests.browser import barns, person
from tests.browser.look import SCREENSHOTS, Keep
from tests.browser.served import Served
from tests.support import databases

BO, SUE = "bo@example.com", "sue@example.com"
OURS = barns.TEMPERATURE
THEIRS = replace(barns.TEMPERATURE, tenant_id="tenant-b", device_id="hill-01")
PATHS = ("/telemetry", "/readings", "/api/v1/telemetry/latest")


@pytest.fixture
def farms(console: Served, cloud_db: Any) -> dict[str, str]:
    """Green Valley with anna, Hill Farm with bo, one sensor each; sue is a super admin."""
    del console
    barns.add_company(cloud_db.admin_url, "tenant-b", name="Hill Farm", email=BO)
    with databases.connected(cloud_db.admin_url) as connection:
        rows = connection.execute("select tenant_id, company_id::text from companies").fetchall()
        ids: dict[str, str] = dict(rows)
        accounts.add_user(
            connection,
            SUE,
            company_id=UUID(ids["tenant-a"]),
            password=barns.PASSWORD,
            role="admin",
            super_admin=True,
        )
    barns.report(cloud_db.url, OURS)
    barns.report(cloud_db.url, THEIRS)
    return ids


@pytest.fixture
def other_page(browser: Browser) -> Iterator[Page]:
    """A browser of another person."""
    context = browser.new_context(viewport={"width": 1180, "height": 900})
    yield context.new_page()
    context.close()


def expect_company(page: Page, console: Served, *, shown: str, hidden: str) -> None:
    page.goto(f"{console.url}/telemetry")
    expect(page.get_by_text(shown, exact=True)).to_be_visible()
    for path in PATHS:
        answer = page.request.get(f"{console.url}{path}").text()
        assert shown in answer
        assert hidden not in answer


def switch(page: Page, name: str) -> None:
    # The choice is sent by itself; without a script there is a button.
    with page.expect_navigation():
        page.get_by_label("Company").select_option(label=name)
    expect(page.locator("#company option:checked")).to_have_text(name)


def csrf(page: Page) -> str:
    return str(page.locator("input[name=csrf]").first.get_attribute("value"))


@pytest.mark.req("DB2-09")
def test_two_people_of_two_companies_see_only_their_own(
    console: Served, page: Page, other_page: Page, farms: dict[str, str]
) -> None:
    del farms
    person.sign_in(page, console)
    person.sign_in(other_page, console, email=BO)
    expect(page.locator(".company")).to_have_text("Green Valley Poultry")
    expect(other_page.locator(".company")).to_have_text("Hill Farm")
    expect_company(page, console, shown="climate-01", hidden="hill-01")
    expect_company(other_page, console, shown="hill-01", hidden="climate-01")
    expect(page.get_by_label("Company")).to_have_count(0)


@pytest.mark.req("DB2-09")
def test_a_super_admin_sees_the_chosen_company(
    console: Served, page: Page, cloud_db: Any, farms: dict[str, str], complaints: list[str]
) -> None:
    del farms
    person.sign_in(page, console, email=SUE)
    expect_company(page, console, shown="climate-01", hidden="hill-01")
    switch(page, "Hill Farm")
    expect_company(page, console, shown="hill-01", hidden="climate-01")
    person.expect_pill(page, "Live")
    barns.report_now(cloud_db.url, THEIRS, 33.5)
    expect(person.row(page, THEIRS).locator(".value")).to_have_text("33.5 °C")
    person.expect_accessible(page)
    # Hill Farm can see in its audit log who looked.
    page.goto(f"{console.url}/settings/audit")
    expect(page.locator(".audit > li").first).to_contain_text(f"{SUE} looked at this company")
    switch(page, "Green Valley Poultry")
    expect_company(page, console, shown="climate-01", hidden="hill-01")
    assert not complaints


def test_a_choice_disturbs_no_other_tab_and_no_other_browser(
    console: Served, page: Page, other_page: Page, cloud_db: Any, farms: dict[str, str]
) -> None:
    del farms
    person.sign_in(page, console, email=SUE, path="/telemetry")
    person.expect_pill(page, "Live")
    person.sign_in(other_page, console, email=SUE, path="/telemetry")
    tab = page.context.new_page()
    tab.goto(console.url)
    switch(tab, "Hill Farm")
    # The first tab goes on live with what its header says, and so does the other browser.
    for value, looking in ((30.5, page), (31.5, other_page)):
        barns.report_now(cloud_db.url, OURS, value)
        expect(person.row(looking, OURS).locator(".value")).to_have_text(f"{value} °C")
        expect(looking.locator("#company option:checked")).to_have_text("Green Valley Poultry")
        assert looking.get_by_text("hill-01").count() == 0
    other_page.reload()
    expect_company(other_page, console, shown="climate-01", hidden="hill-01")


def test_a_form_acts_in_the_company_that_its_page_shows(
    console: Served, page: Page, cloud_db: Any, farms: dict[str, str]
) -> None:
    person.sign_in(page, console, email=SUE, path="/settings/people")
    expect(page.get_by_role("heading", name="Add somebody")).to_be_visible()
    tab = page.context.new_page()
    tab.goto(console.url)
    switch(tab, "Hill Farm")
    page.get_by_label("E-mail").fill("new@example.com")
    page.get_by_role("button", name="Add and show a one-time password").click()
    expect(page.get_by_role("heading", name="One-time password")).to_be_visible()
    expect(page.locator("#company option:checked")).to_have_text("Green Valley Poultry")
    with databases.connected(cloud_db.admin_url) as connection:
        found = connection.execute(
            "select company_id::text from users where email = 'new@example.com'"
        ).fetchall()
    assert found == [(farms["tenant-a"],)]


@pytest.mark.usefixtures("farms")
def test_a_super_admin_adds_a_company_whose_first_admin_adds_a_farm(
    console: Served, page: Page, other_page: Page, keep: Keep, complaints: list[str]
) -> None:
    person.sign_in(page, console, email=SUE, path="/settings")
    page.get_by_role("link", name="Companies").click()
    keep("companies")
    page.get_by_label("Name", exact=True).fill("River Farm")
    page.get_by_label("Time zone").fill("Nowhere/City")
    page.get_by_label("Name in topics").fill("river")
    page.get_by_label("E-mail of its first admin").fill("ria@example.com")
    page.get_by_role("button", name="Add and show").click()
    expect(page.locator("#timezone-error")).to_be_visible()
    page.get_by_label("Time zone").fill("Asia/Bangkok")
    page.get_by_role("button", name="Add and show").click()
    password = page.locator(".secret").inner_text()
    switch(page, "River Farm")
    # The first admin chooses a password of their own, and is led to the first reading.
    person.sign_in(other_page, console, email="ria@example.com", password=password)
    other_page.get_by_label("Current password").fill(password)
    other_page.get_by_label("New password", exact=True).fill("a good long password of ria")
    other_page.get_by_label("New password again").fill("a good long password of ria")
    with other_page.expect_response(lambda found: found.request.method == "POST"):
        other_page.get_by_role("button", name="Change the password").click()
    other_page.goto(console.url)
    other_page.get_by_role("link", name="Add a barn").click()
    other_page.get_by_label("Farm, as devices name it").fill("river-farm")
    other_page.get_by_label("Barn, as devices name it").fill("barn-1")
    other_page.get_by_label("Name of the barn").fill("Barn 1")
    other_page.get_by_role("button", name="Add").click()
    other_page.wait_for_url("**/batches/new?**")
    other_page.goto(f"{console.url}/settings/farms")
    other_page.get_by_role("link", name="Change Farm").click()
    other_page.get_by_label("Name", exact=True).fill("River Farm East")
    other_page.get_by_role("button", name="Save").click()
    expect(other_page.get_by_role("heading", name="River Farm East")).to_be_visible()
    # The answer to the wrong zone is one that the browser notes.
    assert [text for text in complaints if "422" not in text] == []


@pytest.mark.req("DB2-09")
def test_regular_user_cannot_switch_company(
    console: Served, page: Page, farms: dict[str, str]
) -> None:
    person.sign_in(page, console)
    expect(page.locator(".company")).to_be_visible()
    token = csrf(page)
    for company, status in ((farms["tenant-b"], 403), (farms["tenant-a"], 200)):
        answer = page.request.post(
            f"{console.url}/company", form={"csrf": token, "company_id": company}
        )
        assert answer.status == status
    for path in (*PATHS, "/live"):
        answer = page.request.get(f"{console.url}{path}?company={farms['tenant-b']}")
        assert answer.status == 404
        assert "hill-01" not in answer.text()
        assert page.request.get(f"{console.url}{path}?company=%00nonsense").status == 404
    expect_company(page, console, shown="climate-01", hidden="hill-01")


def test_forms_that_are_not_ours_switch_nothing(
    console: Served, page: Page, farms: dict[str, str]
) -> None:
    address = f"{console.url}/company"
    form: dict[str, str | float | bool] = {"csrf": "guessed", "company_id": farms["tenant-b"]}
    assert page.request.post(address, form=form).status == 401
    person.sign_in(page, console, email=SUE)
    expect(page.get_by_label("Company")).to_be_visible()
    assert page.request.post(address, form=form).status == 403
    own: dict[str, str | float | bool] = {"csrf": csrf(page)}
    assert page.request.post(address, form=own).status == 404
    assert page.request.post(address, form={**own, "company_id": "'; --"}).status == 404
    unknown = "01a1deda-1664-765e-86d6-5315118fdacd"
    assert page.request.post(address, form={**own, "company_id": unknown}).status == 404
    expect_company(page, console, shown="climate-01", hidden="hill-01")


def test_the_switch_fits_the_header(
    console: Served, page: Page, farms: dict[str, str], *, pictures: bool
) -> None:
    del farms
    person.sign_in(page, console, email=SUE)
    for width in (360, 1180):
        page.set_viewport_size({"width": width, "height": 800})
        expect(page.get_by_label("Company")).to_be_visible()
        person.expect_accessible(page)
        person.expect_no_sideways_scrolling(page)
        expect(page).to_have_title(re.compile("Today"))
        if pictures:
            page.screenshot(path=SCREENSHOTS / f"super-admin-{width}.png")
